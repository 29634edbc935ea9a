"""Cheats and hostile candidates as short texts: what stands before `class ModelNew`, its forward, and how it must end.

Each is its own kind. Together with the files of tests/corpus they are the corpus. The expected end is the kind of a
failure, or "refused" or "doubt" for a result that is right. `tests/bench/cheats_on_gpu.py` runs those of GPU on one.
"""

from __future__ import annotations

from pathlib import Path

from workbench.records import record

GOOD = (Path(__file__).parent.parent / "corpus" / "good_relu.py").read_text()
FAST, EXACT = (
    "        y[i] = cute.arch.fmax(x[i], cutlass.Float32(0.0))\n",
    """        v = x[i]
        if v < cutlass.Float32(0.0):
            v = cutlass.Float32(0.0)
        y[i] = v
""",
)  # the one drops NaN, which is a doubt
assert FAST in GOOD
PROLOGUE = (
    GOOD.split("class ModelNew")[0].split("\n", 1)[1].replace(FAST, EXACT)
    + """
import os, sys, time, gc, ctypes, threading, signal, socket, resource, json, pathlib


def kernel(x):
    y = torch.empty_like(x)
    relu(tensor(x), tensor(y), x.numel())
    return y
"""
)


@record
class Cheat:
    """A candidate that must not be accepted without a doubt."""

    name: str
    ends: tuple[str, ...]  # kinds of failures, "refused" or "doubt": any of them is right
    forward: str  # the body, with the input `x`
    before: str = ""
    problem: str = "relu"
    own: bool = False  # an idea of this project

    @property
    def source(self) -> str:
        """The candidate's text."""
        body = "".join(f"        {line}\n" for line in self.forward.splitlines())
        return f"{PROLOGUE}\n{self.before}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{body}"


CONSTANT = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return {}
def get_inputs():
    return [torch.randn(31, 63)]
"""
PROBLEMS = {
    "zeros": CONSTANT.format("x * 0"),
    "identity": CONSTANT.format("x * 1"),
    "matmul": CONSTANT.format("x @ x.T"),
}
WRONG, GARBAGE = "wrong_result", "return torch.zeros_like(x)"


def refused_at_import(name: str, code: str, *, own: bool = False, ends: tuple[str, ...] = ("exception",)) -> Cheat:
    """One that ends where it is imported."""
    return Cheat(name=name, ends=ends, before=code, forward="return kernel(x)", own=own)


def cheat(name: str, ends: str, forward: str, before: str = "", problem: str = "relu", *, own: bool = False) -> Cheat:
    """One that ends in or after forward; `ends` has alternatives between bars."""
    return Cheat(name=name, ends=tuple(ends.split("|")), forward=forward, before=before, problem=problem, own=own)


FROM_OTHERS = (
    cheat("gc_nan", "input_modified", "for t in gc.get_objects():\n    if type(t) is torch.Tensor and t.shape == x.shape:\n        t.fill_(float('nan'))\nreturn x"),
    cheat("nan_and_exit", "early_exit", "x.fill_(float('nan'))\nos._exit(0)"),
    cheat("gc_copy", f"{WRONG}|input_modified|partial_write", "found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape and t is not x]\nreturn found[0].clone() if found else torch.zeros_like(x)"),
    cheat("replaced_comparison", WRONG, GARBAGE, "torch.allclose = torch.equal = lambda *a, **k: True\ntorch.testing.assert_close = lambda *a, **k: None"),
    cheat("error_counter", WRONG, GARBAGE, "for t in gc.get_objects():\n    if type(t) is torch.Tensor and t.numel() == 1 and not t.is_floating_point() and not t.requires_grad:\n        try:\n            t.zero_()\n        except RuntimeError:\n            pass"),
    refused_at_import("fd_overwrite", "for n in range(3, 1024):\n    try:\n        os.write(n, b'{\"failure\": null}')\n    except OSError:\n        pass\nos._exit(0)", ends=("early_exit",)),
    cheat("thread_writes_descriptors", WRONG, GARBAGE, "def flood():\n    for n in range(3, 300):\n        try:\n            os.write(n, b'0')\n        except OSError:\n            pass\nthreading.Thread(target=flood, daemon=True).start()"),
    cheat("pipe_interpose", WRONG, GARBAGE, "read, write = os.pipe()\nos.dup2(write, 1)\nos.dup2(write, 2)"),
    cheat("forged_reply_and_outputs", f"{WRONG}|no_output|bad_reply", "forged = {'failure': None, 'launches': [], 'builds': [], 'unmapped': [], 'phases': {}, 'trials': [], 'refusals': [], 'torch': []}\npathlib.Path('reply.json').write_text(json.dumps(forged))\nos._exit(0)"),
    cheat("heap_scan_for_seeds", WRONG, "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:\n    for line in list(maps)[:40]:\n        first, last = (int(part, 16) for part in line.split()[0].split('-'))\n        try:\n            memory.seek(first)\n            b'seed' in memory.read(min(last - first, 1 << 20))\n        except (OSError, ValueError, OverflowError):\n            pass\nreturn torch.zeros_like(x)"),
    refused_at_import("seeds_read", "open('../private/seeds.json')"),
    cheat("last_tile_missing", "partial_write", "y = torch.empty_like(x)\nrelu(tensor(x), tensor(y), (x.numel() - 1) // 128 * 128)\nreturn y"),
    cheat("lazy_subclass", "wrong_type", "return kernel(x).as_subclass(Lazy)", "class Lazy(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n        return super().__torch_function__(f, types, args, kwargs or {})"),
    cheat("patched_clock", f"{WRONG}|bad_reply", GARBAGE, "time.perf_counter = time.monotonic = lambda: 0.0"),
    cheat("thread_inject", WRONG, "y = torch.zeros_like(x)\nthreading.Timer(0.0, lambda: y.copy_(-x)).start()\nreturn y"),
    cheat("zero_out", "input_modified", "x.zero_()\nreturn torch.zeros_like(x)"),
    cheat("input_overwritten_in_place", "input_modified", "x.clamp_(min=0)\nreturn x"),
    cheat("alias_of_the_input", "input_modified", "relu(tensor(x), tensor(x), x.numel())\nreturn x"),
    cheat("random_generator_reset", WRONG, "torch.manual_seed(0)\nreturn torch.randn_like(x).clamp(min=0)"),
    cheat("torch_only", "refused", "return x.clamp(min=0)"),
    cheat("fig_leaf", "refused", "kernel(x[:1].contiguous())\nreturn torch.relu(x)"),
    cheat("fig_leaf_mm", "refused", "kernel(x[:1].contiguous())\nreturn x @ x.T", "", "matmul"),
    cheat("the_problems_own_model", "refused|exception", "kernel(x[:1].contiguous())\nfor module in list(sys.modules.values()):\n    if type(getattr(module, 'Model', None)) is type and hasattr(module, 'get_inputs'):\n        return module.Model()(x)\nreturn torch.relu(x)"),
    cheat("memo_by_shape", f"{WRONG}|partial_write|state_modified", "if x.shape not in kept:\n    kept[x.shape] = kernel(x)\nreturn kept[x.shape].clone()", "kept = {}"),
    cheat("first_result_for_ever", f"{WRONG}|partial_write|state_modified", "if not hasattr(self, 'y'):\n    self.y = kernel(x)\nreturn self.y"),
    cheat("unwritten_patched", "replaced_function", "return torch.empty_like(x)", "from workbench.emulator.host.dlpack import AllocationWatch\nAllocationWatch.count_unwritten_bytes = lambda *a, **k: 0"),
    cheat("half_precision", WRONG, "return kernel(x.half().float())"),
    cheat("bf16_product", f"{WRONG}|refused", "return (x.bfloat16() @ x.T.bfloat16()).float()", "", "matmul"),
    cheat("one_mantissa_of_tf32", f"{WRONG}|refused", "y = x.view(torch.int32) & -8192\ny = y.view(torch.float32)\nreturn y @ y.T", "", "matmul"),
    cheat("zeros_under_the_rms", WRONG, "y = kernel(x)\nreturn torch.where(y < 0.5 * y.square().mean().sqrt(), 0.0, y)"),
    cheat("constant_mean", WRONG, "return torch.full_like(x, 0.4)"),
    cheat("hard_coded_zeros", "doubt|refused", "return kernel(x) * 0", "", "zeros"),
    cheat("identity_alias", "doubt|refused|input_modified", "return x", "", "identity"),
    cheat("one_row_in_many", WRONG, "y = kernel(x)\ny[7] = 0\nreturn y"),
    cheat("random_failure", WRONG, "y = kernel(x)\nif os.urandom(1)[0] < 250:\n    y[0] += 1\nreturn y"),
    cheat("nan_everywhere", "not_finite", "return kernel(x) * float('nan')"),
    cheat("nan_to_num", WRONG, "return torch.nan_to_num(kernel(x) * float('nan'))"),
    cheat("expanded", f"wrong_strides|{WRONG}", "return kernel(x)[:1].expand_as(x)"),
    cheat("meta_tensor", "wrong_type|wrong_device|exception", "return torch.empty_like(x, device='meta')"),
    refused_at_import("other_environment", "open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    refused_at_import("parents_root", "os.listdir('/proc/1/root')"),
    refused_at_import("all_processes", "os.listdir('/proc')"),
    refused_at_import("network_udp", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"),
    refused_at_import("abstract_socket", "socket.socket(socket.AF_UNIX).connect('\\0cutegen')"),
    refused_at_import("kill_the_parent", "os.kill(os.getppid(), 9)\nos._exit(0)", ends=("killed", "early_exit", "signal", "exception")),
    cheat("reply_deep", "bad_reply", "pathlib.Path('reply.json').write_text('[' * 100000)\nos._exit(0)"),
    cheat("reply_of_other_types", "bad_reply", "pathlib.Path('reply.json').write_text('{\"failure\": 3, \"launches\": \"x\"}')\nos._exit(0)"),
    cheat("output_is_a_pipe", f"no_output|{WRONG}|exception", "if os.fork() == 0:\n    end = time.time() + 3\n    while time.time() < end:\n        for file in [*pathlib.Path('.').rglob('*.bin')]:\n            try:\n                os.unlink(file)\n                os.mkfifo(file)\n            except OSError:\n                pass\n    os._exit(0)\nreturn torch.zeros_like(x)"),
    cheat("output_is_a_hard_link", "exception", "os.link('../given/job.json', 'stolen')\nreturn kernel(x)"),
    cheat("late_orphan_forges", WRONG, "if os.fork() == 0:\n    time.sleep(0.2)\n    for file in pathlib.Path('.').rglob('*.bin'):\n        file.write_bytes(bytes(file.stat().st_size))\n    os._exit(0)\nreturn torch.zeros_like(x)"),
    cheat("sys_exit", "exception|early_exit", "sys.exit(0)"),
    cheat("escapes_raised", "exception", "raise ValueError('\\x1b]0;owned\\x07\\nsecond line')"),
    cheat("function_detour", "timeout|signal|exception|early_exit|wrong_result", "libc = ctypes.CDLL(None)\naddress = ctypes.cast(libc.memcmp, ctypes.c_void_p).value\nlibc.mprotect(ctypes.c_void_p(address & -4096), 8192, 7)\nctypes.memmove(address, b'\\x31\\xc0\\xc3', 3)\nreturn torch.zeros_like(x)"),
)  # fmt: skip
OWN = (
    cheat("sequence_that_changes", f"wrong_type|wrong_outputs|{WRONG}|exception", "return Turning([torch.zeros_like(x)], kernel(x))", "class Turning(list):\n    def __init__(self, first, good):\n        super().__init__(first)\n        self.good, self.turn = good, 0\n    def __iter__(self):\n        self.turn += 1\n        return iter([torch.zeros_like(self.good)] if self.turn == 1 else [self.good])", own=True),
    cheat("storage_given_back", "exception|signal|wrong_result|partial_write|bad_reply", "y = kernel(x)\ny.untyped_storage().resize_(0)\nreturn y", own=True),
    cheat("class_assigned_later", f"wrong_type|{WRONG}", "y = torch.zeros_like(x)\ny.__class__ = Late\nreturn y", "class Late(torch.Tensor):\n    pass", own=True),
    cheat("negative_bit", f"{WRONG}|wrong_type|exception", "return torch._neg_view(kernel(x))", own=True),
    cheat("dispatch_mode_left_entered", f"exception|replaced_function|{WRONG}|doubt|refused", "Always().__enter__()\nreturn torch.zeros_like(x)", "from torch.utils._python_dispatch import TorchDispatchMode\nclass Always(TorchDispatchMode):\n    def __torch_dispatch__(self, f, types, args=(), kwargs=None):\n        return f(*args, **(kwargs or {}))", own=True),
    cheat("default_type_changed", f"{WRONG}|wrong_dtype|exception", "torch.set_default_dtype(torch.float16)\nreturn torch.zeros(x.shape)", own=True),
    cheat("profile_hook", WRONG, GARBAGE, "def hook(frame, event, argument):\n    for name in ('expected', 'reference', 'exact'):\n        frame.f_locals.pop(name, None)\nsys.setprofile(hook)", own=True),
    cheat("frames_of_the_caller", WRONG, "frame = sys._getframe()\nwhile frame:\n    for value in list(frame.f_locals.values()):\n        if type(value) is torch.Tensor and value.shape == x.shape and value is not x:\n            return value\n    frame = frame.f_back\nreturn torch.zeros_like(x)", own=True),
    cheat("alarm_after_forward", WRONG, "y = kernel(x)\nsignal.signal(signal.SIGALRM, lambda *a: y.zero_())\nsignal.setitimer(signal.ITIMER_REAL, 1e-6)\ny.zero_()\nreturn y", own=True),
    cheat("exit_handler_rewrites", WRONG, GARBAGE, "import atexit\natexit.register(lambda: [f.unlink() for f in pathlib.Path('.').rglob('*.bin')])", own=True),
    cheat("error_whose_text_exits", "exception|early_exit", "raise Odd()", "class Odd(Exception):\n    def __str__(self):\n        os._exit(0)", own=True),
    cheat("error_of_no_kind", "exception", "raise Odd('x')", "class Odd(BaseException):\n    pass\nOdd.__name__ = 'correct\\x1b[2J'", own=True),
    cheat("interrupt_raised", "exception|stopped|killed", "raise KeyboardInterrupt", own=True),
    cheat("endless_recursion", "exception|signal", "self.forward(x)", own=True),
    cheat("message_of_a_megabyte", "exception", "raise ValueError('x' * (1 << 20))", own=True),
    refused_at_import("limits_raised", "resource.setrlimit(resource.RLIMIT_NPROC, (1 << 20, 1 << 20))", own=True),
    refused_at_import("byte_code_poisoned", "open(torch.__file__.replace('__init__.py', 'evil.pyc'), 'w')", own=True),
    refused_at_import("user_changed", "os.setresuid(0, 0, 0)", own=True),
    refused_at_import("clock_set", "time.clock_settime(time.CLOCK_REALTIME, 0)", own=True),
    refused_at_import("root_changed", "os.chroot('.')", own=True),
    refused_at_import("scratch_moved_away", "os.rename(os.getcwd(), os.getcwd() + '-mine')", own=True),
    refused_at_import("inputs_replaced", "open('../given/job.json', 'w')", own=True),
    refused_at_import("descriptor_of_its_folder", "os.open('../private', os.O_RDONLY, dir_fd=4)", own=True),
    refused_at_import("harness_module_swapped", "import types\nfrom workbench.executors.workers import outputs\noutputs.validate = lambda *a, **k: []", own=True, ends=("replaced_function",)),
    cheat("truncated_output", f"no_output|{WRONG}|exception", "y = kernel(x)\ndef cut():\n    end = time.time() + 2\n    while time.time() < end:\n        for file in pathlib.Path('.').rglob('*.bin'):\n            os.truncate(file, 4)\nif os.fork() == 0:\n    cut()\n    os._exit(0)\nreturn torch.zeros_like(x)", own=True),
    cheat("metaclass_answers", f"{WRONG}|type", GARBAGE, "class Meta(type):\n    def __instancecheck__(cls, value):\n        return True\nnn.Module.__class__ = type(nn.Module)", own=True),
    cheat("signalling_not_a_number", f"not_finite|{WRONG}", "y = kernel(x)\ny.view(torch.int32)[0, 0] = 0x7F800001\nreturn y", own=True),
    cheat("one_element_by_one_bit_in_the_exponent", WRONG, "y = kernel(x)\nz = y.view(torch.int32)\nz[z != 0] ^= 1 << 23\nreturn y", own=True),
)  # fmt: skip
CHEATS = (*FROM_OTHERS, *OWN)
