"""Speed of the emulator's engines side by side: numpy, compiled on one thread, compiled on two; and against numba's
CUDA simulator.

    python tests/bench/emulator_speed.py [--repeats 5] [--numba-python PATH] [--out
    tests/bench/results/emulator_speed.json]

Rows are raw seconds of each repeat and thread-instructions per second; "first" is the launch that compiles, with
nothing on disk. numba is
needed for the comparison alone, and pins another llvmlite than ours: give the interpreter of an environment of its own
that has it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import torch

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.compiled import jit
from workbench.emulator.execution.launch import GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.language import Binding
from workbench.records import Launch

ADD, MATMUL = 1 << 16, 64  # elements, and extent of a square matrix, for the comparison with numba's simulator
SIMULATED = f"""
import json, sys, time
import numpy as np
from numba import cuda, float32
T = 16
@cuda.jit
def add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]
@cuda.jit
def matmul(a, b, c):
    sa = cuda.shared.array((T, T), float32)
    sb = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * T + ty, cuda.blockIdx.x * T + tx
    total = float32(0)
    for k in range(a.shape[1] // T):
        sa[ty, tx] = a[row, k * T + tx]
        sb[ty, tx] = b[k * T + ty, column]
        cuda.syncthreads()
        for n in range(T):
            total += sa[ty, n] * sb[n, tx]
        cuda.syncthreads()
    c[row, column] = total
x, y = np.random.rand({ADD}).astype(np.float32), np.random.rand({ADD}).astype(np.float32)
z = np.zeros_like(x)
a, b = np.random.rand({MATMUL}, {MATMUL}).astype(np.float32), np.random.rand({MATMUL}, {MATMUL}).astype(np.float32)
c = np.zeros_like(a)
def seconds(run):
    start = time.perf_counter(); run(); return time.perf_counter() - start
repeats = int(sys.argv[1])
tiles = {MATMUL} // T
rows = {{"vector add": [seconds(lambda: add[{ADD} // 256, 256](x, y, z)) for _ in range(repeats)],
        "tiled matmul": [seconds(lambda: matmul[(tiles, tiles), (T, T)](a, b, c)) for _ in range(repeats)]}}
assert (z == x + y).all() and np.allclose(c, a @ b, rtol=1e-4)
import numba
print(json.dumps({{"numba": numba.__version__, "rows": rows}}))
"""


def module_of(text: str, names: tuple[str, ...], folder: Path) -> ModuleType:
    """A muCUTLASS program as a module with ModelNew."""
    path = folder / f"candidate_{abs(hash(text))}.py"
    path.write_text(
        compile_program(
            text, Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=names)
        )
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def captured(
    text: str, names: tuple[str, ...], arguments: tuple[torch.Tensor, ...], folder: Path
) -> list[tuple[Machine, GridRequest, GlobalMemory]]:
    """The launches of a program, with the tensors that they work on kept alive by the memory's arrays."""
    found: list[tuple[Machine, GridRequest, GlobalMemory]] = []
    plain = Machine.run

    def run(self: Machine, request: GridRequest, memory: GlobalMemory) -> Launch:
        found.append((self, request, memory))
        return plain(self, request, memory)

    module = module_of(text, names, folder)
    Machine.run = run  # type: ignore[method-assign]
    try:
        with emulated():
            KEPT.append((arguments, module.ModelNew()(*arguments)))
    finally:
        Machine.run = plain  # type: ignore[method-assign]
    return found


KEPT: list[object] = []


def timed(
    machine: Machine, request: GridRequest, memory: GlobalMemory, engine: str, threads: int, repeats: int
) -> tuple[list[float], int]:
    """Seconds of each repeat, and thread-instructions of one launch."""
    machine.native.engine, machine.native.threads = engine, threads
    seconds, count = [], 0
    for _ in range(repeats):
        start = time.perf_counter()
        count = machine.run(request, memory).total.instructions
        seconds.append(time.perf_counter() - start)
    return seconds, count


def measure(
    title: str, text: str, names: tuple[str, ...], arguments: tuple[torch.Tensor, ...], folder: Path, repeats: int
) -> list[dict[str, object]]:
    """Rows of one kernel: numpy, compiled on one thread and on two, and the launch that compiles."""
    rows: list[dict[str, object]] = []
    for machine, request, memory in captured(text, names, arguments, folder):
        machine.native._kernels.clear()
        for path in (folder / "cache").rglob("*"):
            path.unlink() if path.is_file() else None
        for engine, threads, times in (
            ("compiled", 1, 1),
            ("compiled", 1, repeats),
            ("compiled", 2, repeats),
            ("numpy", 1, repeats),
        ):
            seconds, count = timed(machine, request, memory, engine, threads, times)
            name = "first" if times == 1 and repeats > 1 else engine
            median = statistics.median(seconds)
            rows.append(
                {
                    "kernel": title,
                    "engine": name,
                    "threads": threads,
                    "seconds": seconds,
                    "median_s": median,
                    "best_s": min(seconds),
                    "load": os.getloadavg()[0],
                    "thread_instructions": count,
                    "per_second": count / median,
                }
            )
            print(
                f"{title:34} {name:9} {threads} thread{'s' * (threads > 1):1}  median {median * 1e3:8.2f} ms, "
                f"best {min(seconds) * 1e3:8.2f} ms  {count / median / 1e6:8.1f} M thread-instructions/s",
                flush=True,
            )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--numba-python", default="")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "emulator_speed.json")
    arguments = parser.parse_args()
    jit.load_library()
    generator = torch.Generator().manual_seed(1)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    square = (tensor(256, 256), tensor(256, 256))
    wide, small = tensor(512, 2048), (tensor(MATMUL, MATMUL), tensor(MATMUL, MATMUL))
    cases = (
        ("vector add, 1M", "elementwise(add(x, y)) .threads(256)", ("x", "y"), (wide, wide + 1)),
        ("gelu, 1M, 4 a thread", "elementwise(gelu_tanh(x)) .threads(128) .vector(4)", ("x",), (wide,)),
        ("softmax 512x2048", "softmax(x) .threads_per_row(256) .vector(4)", ("x",), (wide,)),
        ("fp32 matmul 256, one a thread", "gemm(a, b)", ("a", "b"), square),
        ("fp32 matmul 256, tiled 4x4", "gemm(a, b) .tile(64, 64, 16) .thread_tile(4, 4)", ("a", "b"), square),
        (
            "fp16 matmul 256, tensor cores",
            "gemm(a, b) .tile(64, 64, 32) .mma(f16)",
            ("a", "b"),
            tuple(part.half() for part in square),
        ),
        ("vector add", "elementwise(add(x, y)) .threads(256)", ("x", "y"), (tensor(ADD), tensor(ADD))),
        ("tiled matmul", "gemm(a, b) .tile(16, 16, 16) .thread_tile(1, 1)", ("a", "b"), small),
    )
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")
        for title, text, names, tensors in cases:
            rows += measure(title, text, names, tensors, Path(name), arguments.repeats)
        simulated = (
            against_numba(arguments.numba_python, arguments.repeats, rows, Path(name))
            if arguments.numba_python
            else None
        )
    machine = {
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "cpu": jit.llvm.get_host_cpu_name(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({"machine": machine, "rows": rows, "numba_simulator": simulated}, indent=1) + "\n"
    )


def against_numba(python: str, repeats: int, rows: list[dict[str, object]], folder: Path) -> dict[str, object]:
    """Vector add and tiled matmul on numba's CUDA simulator, and how many times longer it takes."""
    script = folder / "simulated.py"
    script.write_text(SIMULATED)
    done = subprocess.run(
        [python, str(script), str(repeats)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    ratios = {}
    for title, seconds in found["rows"].items():  # type: ignore[attr-defined]
        for row in rows:
            if row["kernel"] == title and row["engine"] != "first":
                ratio = statistics.median(seconds) / float(str(row["median_s"]))
                ratios[f"{title}, {row['engine']} {row['threads']}"] = ratio
                print(
                    f"{title:14} numba's simulator {statistics.median(seconds):8.3f} s: {ratio:8.1f} times "
                    f"{row['engine']} on {row['threads']}"
                )
    return {**found, "ratios": ratios}


if __name__ == "__main__":
    main()
