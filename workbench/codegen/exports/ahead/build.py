"""Compiles the kernels that ModelNew launches at the problem's sizes, and links them into kernels.so: python build.py
ARCH, for example sm_90a. It needs nvidia-cutlass-dsl, apache-tvm-ffi, torch and gcc, and no GPU.

It runs the code of kernel.py and problem.py, on tensors without data.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

if len(sys.argv) != 2 or not sys.argv[1].startswith("sm_"):
    sys.exit(__doc__)
os.environ["CUTE_DSL_ARCH"] = sys.argv[1]

import cutlass
import cutlass.utils
import kernel
import problem
import torch
import tvm_ffi
from cutlass import cute
from cutlass.cute.export import aot_config
from cutlass.cute.runtime import make_fake_tensor

HERE = Path(__file__).parent
DTYPES = {
    torch.float64: cutlass.Float64,
    torch.float32: cutlass.Float32,
    torch.float16: cutlass.Float16,
    torch.bfloat16: cutlass.BFloat16,
    torch.int64: cutlass.Int64,
    torch.int32: cutlass.Int32,
    torch.int16: cutlass.Int16,
    torch.int8: cutlass.Int8,
    torch.uint8: cutlass.Uint8,
    torch.bool: cutlass.Boolean,
}


SMS = {"sm_90": 132, "sm_100": 148, "sm_103": 148}  # of H100 SXM, H200 and GH200; B200; B300


class NoStream:
    """The current stream of a machine without a GPU."""

    cuda_stream = 0

    def synchronize(self):
        """There is nothing to wait for."""


class NoDevice:
    """Clusters that are resident at once on a GPU of the architecture, at most; kernels are right with any number."""

    def get_max_active_clusters(self, size, stream=None):
        known = next((count for name, count in SMS.items() if sys.argv[1].rstrip("af") == name), None)
        if known is None:
            sys.exit(f"how many SMs a GPU of {sys.argv[1]} has is not known here: build on a machine that has one")
        return known // size


def ask_device():
    """Make the kernels' questions answerable: by the GPU, or without one from the table."""
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # makes the context that CUDA asks in
    else:
        torch.cuda.current_stream = lambda device=None: NoStream()
        cutlass.utils.HardwareInfo = NoDevice


class Described:
    """A tensor of a GPU by its dtype, extents and alignment, as `from_dlpack` makes it of one that has data."""

    def __init__(self, tensor, assumed_align=None):
        self.tensor, self.align = tensor, assumed_align or tensor.element_size()

    def make(self, shape, stride):
        return make_fake_tensor(DTYPES[self.tensor.dtype], shape, stride, assumed_align=self.align)

    def mark_layout_dynamic(self, leading_dim=None):
        if leading_dim is None:
            leading_dim = list(self.tensor.stride()).index(1)
        stride = tuple(1 if axis == leading_dim else cute.sym_int64() for axis in range(self.tensor.ndim))
        return self.make(tuple(cute.sym_int() for _ in self.tensor.shape), stride)

    def mark_compact_shape_dynamic(self, mode, stride_order):
        if mode != 0 or list(stride_order) != sorted(stride_order):
            sys.exit(f"a tensor with the dynamic axis {mode} and the order {stride_order} cannot be described")
        return self.make((cute.sym_int(), *self.tensor.shape[1:]), self.tensor.stride())


def find_launches():
    """The launches of one call of ModelNew on tensors without data: (function, key) -> the compiled function."""
    found = {}

    def call(function, key, arguments, constants=()):
        if (function, key) not in found:
            found[function, key] = kernel.compile_launch(function, arguments, constants)

    ask_device()
    kernel.call, kernel.from_dlpack = call, Described
    given = problem.get_init_inputs()
    with torch.device("meta"), torch.no_grad():
        model = kernel.ModelNew(**given) if isinstance(given, dict) else kernel.ModelNew(*given)
        model(*problem.get_inputs())
    return found


def write_library(launches):
    """kernels.so, and kernels.json with the name of each launch in it."""
    objects, names = [], {}
    for number, ((function, key), launch) in enumerate(launches.items()):
        name, place = f"{function.__name__}_{number}", f"{function.__name__} {key!r}"
        if " at 0x" in place:
            sys.exit(f"{function.__name__} cannot be found again: its key holds an object without a name")
        objects.append(HERE / f"{name}.o")
        launch.export_to_c(str(objects[-1]), name, export_only_tvm_ffi_symbols=True)
        names[place] = name
    folder, tvm = aot_config.get_libdir(), tvm_ffi.libinfo.find_libtvm_ffi()
    libraries = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcute_dsl_runtime", tvm, f"-Wl,-rpath,{Path(tvm).parent}"]
    output = HERE / "kernels.so"
    subprocess.run(["gcc", "-shared", "-Wl,-z,defs", "-o", output, *objects, *libraries], check=True)
    (HERE / "kernels.json").write_text(json.dumps(names, indent=1) + "\n")
    for path in objects:
        path.unlink()
    return names


if __name__ == "__main__":
    print(*write_library(find_launches()).values(), sep="\n")
