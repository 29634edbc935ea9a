"""muCUTLASS's Hopper GEMMs against torch.matmul (cuBLAS) on an H200: a sweep of configurations over square, odd, skinny
and batched shapes.

    python tests/bench/hopper_gemm_on_gpu.py --out results.json [--quick] [--limit-s 900] [--only square,skinny]
    [--rounds 7]
    python tests/bench/hopper_gemm_on_gpu.py --dry-run                        (tiny shapes on the emulator; no GPU, no
    times)

Random normal data. Each configuration is first compared with a float32 product. Times are CUDA graphs on both sides,
interleaved A B A B, medians; the
graphs repeat a call on the same operands, so that what fits in L2 is warm on both sides. Written after every case: a
run that is stopped keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import emit
from workbench.language import Binding, Call, Program, Stage, check, format_program

INIT = "def __init__(self):\n    super().__init__()\n"
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn}
ALLOWED = {
    "f16": 1e-3,
    "bf16": 8e-3,
    "tf32": 2e-3,
    "e4m3": 1e-2,
}  # relative error of the whole product, rounding of the result included


@dataclass(frozen=True)
class Case:
    """One product: order says how a (k or m first) and b (k or n first) lie in memory, "kk" being what nn.Linear has,
    "kn" a @ b of row-major tensors."""

    group: str
    m: int
    n: int
    k: int
    kind: str = "bf16"
    order: str = "kk"
    batch: int = 0
    epilogue: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the case is called in the results."""
        return (
            f"{self.group} {self.kind} {f'{self.batch}x' if self.batch else ''}{self.m}x{self.n}x{self.k} {self.order}"
            + "".join(f" {name}" for name in self.epilogue)
        )


def settings(
    tile: tuple[int, int, int], cluster: tuple[int, int] = (1, 1), schedule: str = "cooperative", **more: Any
) -> tuple[Call, ...]:
    """The settings of a program."""
    calls = [
        Call(name="tile", positional=tile),
        Call(name="schedule", positional=(schedule,)),
        Call(name="cluster", positional=cluster),
    ]
    return (
        *calls,
        *(Call(name=name, positional=value if isinstance(value, tuple) else (value,)) for name, value in more.items()),
    )


LARGE = (
    settings((128, 256, 64), (2, 1)),
    settings((128, 256, 64), (1, 1)),
    settings((128, 128, 64), (2, 1), "pingpong"),
    settings((128, 256, 64), (1, 2)),
    settings((256, 128, 64), (2, 1)),
    settings((64, 256, 64), (2, 1), "pingpong"),
    settings((256, 128, 64), (1, 2)),
    settings((128, 128, 64), (2, 1)),
    settings((128, 256, 64), (2, 1), raster=("along_n", 8)),
    settings((128, 256, 64), (2, 1), raster=("along_m", 4)),
    settings((128, 256, 64), (2, 1), raster=("along_m", 16)),
    settings((128, 256, 64), (2, 2)),
    settings((128, 192, 64), (2, 1)),
    settings((128, 256, 64), (2, 1), store="direct"),
    settings((128, 256, 64), (4, 1)),
)
SMALL = (
    settings((64, 64, 64)),
    settings((64, 32, 64)),
    settings((64, 128, 64)),
    settings((64, 64, 128)),
    settings((64, 32, 128)),
    settings((64, 64, 64), (1, 2)),
    settings((64, 16, 128)),
    settings((128, 64, 64), (2, 2)),
    settings((64, 128, 64), splitk=4),
    settings((64, 64, 64), splitk=2),
    settings((128, 128, 64), (2, 1), splitk=8),
    settings((64, 128, 64), (1, 1), "pingpong"),
    settings((128, 128, 64), (2, 1)),
    settings((128, 64, 64), (2, 1)),
    settings((128, 256, 64), (2, 1)),
)
TINY = (
    settings((128, 64, 64), (2, 1)),
    settings((64, 128, 64), (1, 2), "pingpong", stages=3),
    settings((64, 32, 32), store="direct"),
    settings((128, 128, 64), (2, 2), raster=("along_n", 2), splitk=2),
)


def cases(quick: bool, dry: bool) -> list[Case]:
    """What is measured, most important first."""
    if dry:
        return [
            Case("square", 136, 136, 136, "f16"),
            Case("odd", 37, 51, 67, "bf16", "kn"),
            Case("batched", 72, 48, 40, "f16", "mn", batch=2),
            Case("fused", 64, 72, 48, "bf16", epilogue=("bias", "gelu")),
            Case("tf32", 72, 96, 72, "tf32", "kn"),
        ]
    square = [
        Case("square", s, s, s, kind, order)
        for kind in ("bf16", "f16")
        for s in (4096, 8192, 2048)
        for order in ("kk", "kn")
    ]
    if quick:
        return [case for case in square if case.kind == "bf16"] + [Case("skinny", 16, 4096, 4096)]
    skinny = [Case("skinny", m, 4096, 4096, "bf16", order) for m in (16, 64, 256) for order in ("kk", "kn")]
    odd = [
        Case("odd", 4095, 4097, 4096),
        Case("odd", 4097, 4095, 4095, "bf16", "kn"),
        Case("odd", 1000, 3000, 2000, "f16", "kn"),
    ]
    more = [
        Case("square", 4096, 4096, 4096, "bf16", "mn"),
        Case("square", 1024, 1024, 1024),
        Case("batched", 1024, 1024, 1024, "bf16", "kn", batch=16),
        Case("fused", 4096, 4096, 4096, "bf16", "kk", epilogue=("bias", "gelu")),
        Case("tall", 32768, 512, 2048),
        Case("deep", 512, 512, 32768),
    ]
    tf32 = [Case("tf32", s, s, s, "tf32", order) for s in (4096, 8192) for order in ("kk", "kn")]
    fp8 = [Case("fp8", s, s, s, "e4m3") for s in (4096, 8192)]
    return [*square[:6], *skinny, *tf32, *square[6:], *odd, *more, *fp8]


LOADED: dict[str, Any] = {}  # by program: what is compiled for one size serves the others


def load(case: Case, chosen: tuple[Call, ...], folder: Path) -> tuple[str, Any]:
    """The program and its compiled text, imported; tiles are given for elements of two bytes."""
    chosen = tuple(
        Call(
            name="tile",
            positional=(*call.positional[:2], int(str(call.positional[2])) * 2 // DTYPES[case.kind].itemsize),
        )
        if call.name == "tile"
        else call
        for call in chosen
    )
    stage = Stage(
        operation=Call(name="gemm", positional=("a", "b")),
        settings=(Call(name="arch", positional=("sm_90a",)), Call(name="mma", positional=(case.kind,)), *chosen),
        epilogues=tuple(Call(name=name) for name in case.epilogue),
    )
    program = Program(stages=(stage,))
    if rejections := check(program):
        raise ValueError(" | ".join(map(str, rejections)))
    text = format_program(program)
    if text in LOADED:
        return text, LOADED[text]
    path = folder / f"candidate_{abs(hash(text))}.py"
    path.write_text(
        emit(
            program,
            Binding(init_source=INIT, forward_arguments=("a", "b", *(("bias",) if "bias" in case.epilogue else ()))),
        )
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    LOADED[text] = module.ModelNew()
    return text, LOADED[text]


def operands(case: Case) -> list[torch.Tensor]:
    """a (m, k), b (k, n), and the bias where there is one; random normal, on the GPU."""
    torch.manual_seed(1)
    lead = (case.batch,) if case.batch else ()
    dtype = DTYPES[case.kind]

    def matrix(rows: int, columns: int, turned: bool) -> torch.Tensor:
        shape = (columns, rows) if turned else (rows, columns)
        made = (
            torch.randn(*lead, *shape).to(dtype)
            if rows * columns < 1 << 20
            else torch.randn(*lead, *shape, device="cuda").to(dtype)
        )
        made = made.to("cuda")
        return made.transpose(-2, -1) if turned else made

    a, b = matrix(case.m, case.k, case.order[0] == "m"), matrix(case.k, case.n, case.order[1] == "k")
    return [a, b, *((torch.randn(case.n).to(dtype).to("cuda"),) if "bias" in case.epilogue else ())]


def by_torch(case: Case, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What torch users write."""
    if tensors[0].dtype == torch.float8_e4m3fn:
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(tensors[0], tensors[1], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    product = (
        torch.addmm(tensors[2], tensors[0], tensors[1])
        if "bias" in case.epilogue
        else torch.matmul(tensors[0], tensors[1])
    )
    return torch.nn.functional.gelu(product) if "gelu" in case.epilogue else product


def error_of(case: Case, tensors: list[torch.Tensor], got: torch.Tensor) -> float:
    """Relative error of the whole result, against float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    wanted = by_torch(case, [tensor.float() for tensor in tensors])
    torch.backends.cuda.matmul.allow_tf32 = case.kind == "tf32"  # what torch is timed with
    return float(((got.float() - wanted).norm() / wanted.norm()).item())


def replayer(call: Callable[[], Any], repeats: int) -> Callable[[], None]:
    """A CUDA graph of `repeats` calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    return graph.replay


def seconds(replay: Callable[[], None], repeats: int) -> float:
    """Of one call, by events around one replay."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / repeats


def compare(
    ours: Callable[[], Any], theirs: Callable[[], Any], flops: float, rounds: int, busy_s: float = 2e-3
) -> dict[str, float]:
    """Interleaved medians of both. A sample is a graph of calls, of about `busy_s` at 500 TFLOP/s: 2 ms end before the
    power limit is felt, 50 ms do not."""
    repeats = max(1, min(100 if busy_s < 0.01 else 2000, int(busy_s / (flops / 500e12))))
    graphs = [replayer(ours, repeats), replayer(theirs, repeats)]
    for graph in graphs:
        seconds(graph, repeats)
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for which in (0, 1):
            times[which].append(seconds(graphs[which], repeats))
    mine, torchs = statistics.median(times[0]), statistics.median(times[1])
    return {
        "us": round(mine * 1e6, 2),
        "torch_us": round(torchs * 1e6, 2),
        "tflops": round(flops / mine / 1e12, 1),
        "torch_tflops": round(flops / torchs / 1e12, 1),
        "ratio": round(torchs / mine, 4),
        "spread": round(max(times[0]) / min(times[0]), 3),
    }


def host_us(call: Callable[[], Any], count: int = 300) -> float:
    """Time that one call takes on the host, the GPU being idle or ahead."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return round(taken / count * 1e6, 2)


def measured(
    case: Case, chosen: tuple[Call, ...], tensors: list[torch.Tensor], folder: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One configuration at one case: error, then times."""
    text, model = load(case, chosen, folder)
    row: dict[str, Any] = {"case": case.name, "program": text}
    start = time.perf_counter()
    got = model(*tensors)
    torch.cuda.synchronize()
    row["first_call_s"] = round(time.perf_counter() - start, 2)
    row["error"] = error_of(case, tensors, got)
    if not row["error"] < ALLOWED[case.kind]:
        return {**row, "failed": "wrong result"}
    if not arguments.dry_run:
        flops = 2.0 * case.m * case.n * case.k * max(case.batch, 1)
        row |= compare(lambda: model(*tensors), lambda: by_torch(case, tensors), flops, arguments.rounds)
        if case.m * case.n * case.k < 1 << 33:
            row["host_us"], row["torch_host_us"] = (
                host_us(lambda: model(*tensors)),
                host_us(lambda: by_torch(case, tensors)),
            )
    return row


def choices(case: Case, arguments: argparse.Namespace) -> tuple[tuple[Call, ...], ...]:
    """The configurations to try, likeliest best first."""
    if arguments.dry_run:
        return TINY
    sweep = SMALL if min(case.m, case.n) <= 1024 and case.batch == 0 else LARGE
    if arguments.quick:
        return sweep[:5]
    return sweep if sweep is SMALL or (case.group, case.kind) == ("square", "bf16") else sweep[:6]


def facts() -> dict[str, Any]:
    """What the numbers were measured on."""
    gpu = ""
    with contextlib.suppress(OSError):
        gpu = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"],
            capture_output=True,
            text=True,
        ).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cutlass_dsl": version("nvidia-cutlass-dsl"),
        "python": sys.version.split()[0],
    }


@contextlib.contextmanager
def device(arguments: argparse.Namespace) -> Iterator[None]:
    """The GPU, or the emulator for a dry run."""
    if not arguments.dry_run:
        yield
        return
    import workbench

    with workbench.emulated(device="H200"):
        yield


def run(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All cases that fit into the time."""
    rows: list[dict[str, Any]] = []
    head, start = facts(), time.monotonic()
    wanted = [
        case
        for case in cases(arguments.quick, arguments.dry_run)
        if not arguments.only or case.group in arguments.only.split(",")
    ]
    for case in wanted:
        if time.monotonic() - start > arguments.limit_s:
            rows.append({"case": case.name, "skipped": "no time left"})
            continue
        tensors = operands(case)
        for chosen in choices(case, arguments):
            if time.monotonic() - start > arguments.limit_s:
                break
            try:
                rows.append(measured(case, chosen, tensors, folder, arguments))
            except Exception as error:
                rows.append(
                    {"case": case.name, "program": str(chosen), "failed": f"{type(error).__name__}: {error}"[:500]}
                )
            print(json.dumps(rows[-1]), flush=True)
        del tensors
        if not arguments.dry_run:
            torch.cuda.empty_cache()
        best = max(
            (row for row in rows if row["case"] == case.name and "ratio" in row),
            key=lambda row: row["ratio"],
            default=None,
        )
        print(
            f"# {case.name}: best {best['ratio']}x torch, {best['tflops']} TFLOP/s, {best['program']}"
            if best
            else f"# {case.name}: nothing timed",
            flush=True,
        )
        if arguments.out:
            arguments.out.write_text(
                json.dumps(
                    {**head, "seconds": round(time.monotonic() - start), "rounds": arguments.rounds, "rows": rows},
                    indent=1,
                )
                + "\n"
            )
    return rows


def main() -> int:
    """Measure, print, write; 1 when any configuration fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="squares in bf16 and one skinny shape, five configurations each, under three minutes",
    )
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the emulator")
    parser.add_argument(
        "--limit-s", type=float, default=0.0, help="no new configuration after this (default: 540, with --quick 150)"
    )
    parser.add_argument("--only", default="", help="groups: square, skinny, tf32, odd, batched, fused, tall, deep, fp8")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    arguments.limit_s = arguments.limit_s or (150.0 if arguments.quick else 540.0)
    with tempfile.TemporaryDirectory() as folder, device(arguments):
        rows = run(arguments, Path(folder))
    failed = [row for row in rows if "failed" in row]
    print(f"# {len(rows)} rows, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
