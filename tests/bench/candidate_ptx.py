"""What a candidate of the workbench compiles to, without names and numbers that say nothing; for compare_ptx.py.

Forward is called on CPU tensors that nobody touches, through the emulator's hook: `cute.compile` compiles, and what it
gives launches nothing. On a GPU two candidates can be run side by side.
An entry is a line of the list of programs: what ModelNew and forward take in each of its cases, its dtype, mode and
architecture.
"""

from __future__ import annotations

import collections
import importlib.util
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import cutlass.utils
import numpy
import torch

from workbench.emulator.hook import CompiledModule, emulated

ROUNDS, FLUSH_BYTES = 20, 256 << 20
SLEEP_CYCLES = 4_000_000  # about two milliseconds: longer than the host takes for a call
DEBUG = re.compile(r"\s*(\.loc|\.file)\b|\$L__(tmp|func_)\w*:$")
NAMED = re.compile(
    r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)|\.(?:shared|global|const)\b[^;=\[(%]*\.[bsuf]\d+\s+([\w$]+)"
)
TOKEN = re.compile(r"%[a-z]+\d+\b|\$L__BB\d+_\d+|[A-Za-z_$][\w$]*")


def normal(ptx: str) -> str:
    """PTX without debug information, with names, registers and labels called after the order in which they appear."""
    lines = [
        line.split("//")[0].rstrip()
        for line in re.sub(r"\.section\s+\.debug_\w+\s*\{.*?\}", "", ptx, flags=re.DOTALL).splitlines()
    ]
    text = "\n".join(line for line in lines if line and not DEBUG.match(line))
    names = {
        found: f"name{number}"
        for number, found in enumerate(
            dict.fromkeys(filter(None, (name for pair in NAMED.findall(text) for name in pair)))
        )
    }
    seen: dict[str, str] = {}
    counts: collections.Counter[str] = collections.Counter()

    def called(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] not in "%$":
            base, part, number = token.rpartition("_param_")
            return names.get(token) or (f"{names[base]}{part}{number}" if base in names else token)
        kind = token.rstrip("0123456789") if token[0] == "%" else "$L"
        if token not in seen:
            seen[token] = f"{kind}{counts[kind]}"
            counts[kind] += 1
        return seen[token]

    bodies = []
    for body in re.split(r"(?m)^(?=\.visible |\.entry |\.func )", text):  # registers are numbered anew in each function
        seen.clear()
        counts.clear()
        bodies.append(TOKEN.sub(called, body))
    return "".join(bodies)


def host_code(module: Any) -> str:
    """What a compiled function does on the host, without the names of its symbols."""
    functions = (
        operation.operation.get_asm(enable_debug_info=False)
        for operation in module.body.operations
        if operation.operation.name == "llvm.func"
    )
    text = re.sub(r"array<\d+ x i8>", "array<i8>", "\n".join(functions))  # a name with its length
    seen: dict[str, str] = {}
    return re.sub(r'@"?[\w$.]+"?|\w*cutlass_\w+', lambda match: seen.setdefault(match[0], f"@name{len(seen)}"), text)


class Compiler:
    """Stands for cute.compile: keeps what is compiled, in order, and returns functions that only record their calls."""

    def __init__(self, plain: Any) -> None:
        self.plain, self.ptx, self.host, self.calls = plain, list[str](), list[str](), list[int]()
        self.modules = list[CompiledModule]()

    def __call__(self, *arguments: Any, **named: Any) -> Callable[..., None]:
        made = self.plain(*arguments, **named)
        number = len(self.ptx)
        self.modules.append(CompiledModule(made.__ptx__, made.__cubin__))
        self.ptx.append(normal(made.__ptx__))
        self.host.append(host_code(made.ir_module))
        return lambda *_, **__: self.calls.append(number)

    def __getitem__(self, options: Any) -> Compiler:
        other = Compiler(self.plain[options])
        other.ptx, other.host, other.calls, other.modules = self.ptx, self.host, self.calls, self.modules
        return other


def tensor(spec: dict[str, Any], *, device: str, seed: int | None = None) -> Any:
    """An argument of forward: a plain value, a tensor that nobody touches, or with a seed one of random numbers."""
    if "value" in spec:
        return spec["value"]
    dtype, offset = getattr(torch, spec["dtype"]), spec.get("offset", 0)
    size = (
        offset + 1 + sum((extent - 1) * stride for extent, stride in zip(spec["shape"], spec["strides"], strict=True))
    )
    low, high = spec.get("low", 0), spec.get("high", 2)
    if seed is None and ("low" not in spec or low <= 0 < high):
        flat = torch.from_numpy(numpy.zeros(size * dtype.itemsize, numpy.uint8)).view(
            dtype
        )  # torch.zeros would write it
    elif dtype.is_floating_point:
        flat = torch.randn(size, generator=torch.Generator(device).manual_seed(seed or 0), device=device).to(dtype)
    else:
        flat = torch.randint(
            low, high, (size,), generator=torch.Generator(device).manual_seed(seed or 0), device=device
        ).to(dtype)
    made = flat.as_strided(spec["shape"], spec["strides"], offset)
    return made.copy_(torch.tensor(spec["values"])) if "values" in spec else made


def module_of(path: Path) -> Any:
    """A candidate, imported."""
    spec = importlib.util.spec_from_file_location(f"candidate_{path.parent.name}_{path.stem}".replace("-", "_"), path)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_of(path: Path, entry: dict[str, Any], case: str, device: str) -> Any:
    """ModelNew in the problem's precision and mode; its parameters are not touched unless they are on a GPU."""
    module = module_of(path)
    with torch.device("meta" if device == "cpu" else device):
        model = module.ModelNew(*entry["cases"][case]["init"])
    model = model.to_empty(device="cpu") if device == "cpu" else model
    model = model.requires_grad_(False).train(entry["mode"] == "train")
    return model.to(getattr(torch, entry["dtype"])) if entry["dtype"] else model


def compile_candidate(path: Path, entry: dict[str, Any], case: str) -> tuple[Compiler, Any]:
    """What a candidate compiles for its problem, and forward's result, which nothing computed."""
    plain, resident, compiler = cute.compile, cutlass.utils.HardwareInfo.get_max_active_clusters, Compiler(cute.compile)
    try:
        cute.compile, cutlass.utils.HardwareInfo.get_max_active_clusters = (
            compiler,
            lambda self, size, stream=None: 132 // size,
        )  # to ask would compile a kernel
        with torch.no_grad(), emulated(arch=entry["arch"], device="H200", sample=1):
            result = model_of(path, entry, case, "cpu")(
                *(tensor(spec, device="cpu") for spec in entry["cases"][case]["inputs"])
            )
    finally:
        cute.compile, cutlass.utils.HardwareInfo.get_max_active_clusters = plain, resident
    return compiler, result


def built(path: Path, entry: dict[str, Any], case: str) -> dict[str, list[Any]]:
    """What a candidate compiles for its problem, in which order it would launch it, and what its outputs are."""
    compiler, result = compile_candidate(path, entry, case)
    outputs = [
        [list(value.shape), str(value.dtype), list(value.stride())]
        for value in (result if isinstance(result, (tuple, list)) else [result])
    ]
    return {"ptx": compiler.ptx, "host": compiler.host, "calls": compiler.calls, "outputs": outputs}


def on_gpu(entry: dict[str, Any], old: Path, new: Path, lock: Any) -> dict[str, Any]:
    """Whether both candidates' outputs have the same bits on the same inputs, and the new one's time over the old
    one's.

    `lock` is held while times are measured; other processes may compile meanwhile.
    """
    with torch.no_grad():
        torch.manual_seed(1)
        models = [model_of(path, entry, "full", "cuda") for path in (old, new)]
        models[1].load_state_dict(models[0].state_dict())
        inputs = [
            tensor(spec, device="cuda", seed=number) for number, spec in enumerate(entry["cases"]["full"]["inputs"])
        ]
        inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in inputs]
        bits = _same_bits(*(model(*inputs) for model in models))  # compiles
        with lock:
            (before, after), host = _times_ms(models, inputs)
    return {"same_bits": bits, "old_ms": before, "new_ms": after, "ratio": after / before, "host_ms": host}


def _same_bits(one: Any, other: Any) -> bool:
    """Whether two results are equal bit for bit."""
    listed = [
        [
            value.contiguous().reshape(-1).view(torch.uint8)
            for value in (found if isinstance(found, tuple) else (found,))
        ]
        for found in (one, other)
    ]
    return all(torch.equal(*pair) for pair in zip(*listed, strict=True))


def _times_ms(models: list[Any], inputs: list[Any]) -> tuple[list[float], list[float]]:
    """Medians of the two models' times on the GPU and on the host, in milliseconds.

    Each round begins with the other one: what was called before changes a time by up to a microsecond. The L2 is
    flushed, and the GPU waits until the host is ahead.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    gpu, host = [[list[float]() for _ in models] for _ in range(2)]
    for number in range(2 * ROUNDS + 4):
        which = (0, 1, 1, 0)[number % 4]
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        torch.cuda._sleep(SLEEP_CYCLES)
        start.record()
        called = time.perf_counter()
        models[which](*inputs)
        returned = time.perf_counter()
        end.record()
        end.synchronize()
        if number >= 4:
            gpu[which].append(start.elapsed_time(end))
            host[which].append((returned - called) * 1e3)
    return [statistics.median(one) for one in gpu], [statistics.median(one) for one in host]
