"""Many configurations of muCUTLASS's Hopper GEMMs at chosen sizes against cuBLAS: compiled side by side in processes,
measured one after the other.

    python tests/bench/hopper_sweep_on_gpu.py --out $OUT/sweep.json [--only skinny,square] [--processes 16] [--limit-s
    280] [--rounds 7]
    python tests/bench/hopper_sweep_on_gpu.py --fused --out $OUT/fused.json       (epilogues, against
    torch.compile(mode="max-autotune"); one process)
    python tests/bench/hopper_sweep_on_gpu.py --dry-run [--fused]                 (tiny shapes on the emulator; no GPU,
    no times)

Random normal data. Compiling needs no turn; whatever touches the GPU waits for its turn, so that nothing else runs
while a time is taken. Each
configuration is first compared with a float32 product. Times are CUDA graphs on both sides, interleaved A B A B,
medians, operands warm in L2 where they fit.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from hopper_gemm_on_gpu import ALLOWED, DTYPES, INIT, compare, facts

from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import Binding, check, parse

EARLY = ".launch(early)"
LARGE = [
    ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1)",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
    f".tile(256, 128, 64) .schedule(cooperative) .cluster(1, 2) {EARLY}",
    f".tile(128, 128, 64) .schedule(pingpong) .cluster(2, 1) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .raster(along_n, 8) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .raster(along_m, 12) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .raster(along_n, 16) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .stages(3) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .raster(along_m, 32) {EARLY}",
]
MIDDLE = [
    *LARGE[:5],
    f".tile(128, 128, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
    f".tile(128, 192, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
    f".tile(128, 256, 64) .schedule(cooperative) {EARLY}",
]
SMALL = [
    ".tile(64, 128, 64) .schedule(cooperative)",
    f".tile(64, 128, 64) .schedule(cooperative) {EARLY}",
    f".tile(128, 64, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
    f".tile(64, 64, 128) .schedule(cooperative) {EARLY}",
    f".tile(128, 128, 64) .schedule(cooperative) .splitk(2, cluster) {EARLY}",
    f".tile(128, 128, 128) .schedule(cooperative) .splitk(2, cluster) {EARLY}",
    f".tile(64, 128, 128) .schedule(cooperative) {EARLY}",
    f".tile(128, 64, 128) .schedule(cooperative) {EARLY}",
    f".tile(64, 256, 64) .schedule(cooperative) .splitk(2, cluster) {EARLY}",
    f".tile(128, 128, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
]
ODD = [
    *(
        f".tile({tile}, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}"
        for tile in ("128, 256", "128, 192", "128, 128", "256, 128")
    ),
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(1, 2) {EARLY}",
    f".tile(256, 96, 64) .schedule(cooperative) {EARLY}",
    f".tile(128, 192, 64) .schedule(cooperative) {EARLY}",
    f".tile(128, 128, 64) .schedule(pingpong) .cluster(2, 1) {EARLY}",
    f".tile(128, 128, 64) .schedule(pingpong) {EARLY}",
]


TURNED = [  # TF32 with b along n: copied first, or through registers
    f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
    *(
        f".tile({tile}, 64) .schedule(cooperative){cluster} .swap() .through(registers){early}"
        for tile, cluster in (
            ("128, 256", " .cluster(2, 1)"),
            ("128, 256", " .cluster(1, 2)"),
            ("256, 128", " .cluster(1, 2)"),
            ("256, 128", " .cluster(2, 1)"),
            ("128, 256", ""),
            ("128, 128", " .cluster(2, 1)"),
        )
        for early in (f" {EARLY}",)
    ),
]


def skinny(m: int) -> list[str]:
    """Configurations for few rows: the transposed product with k shared by a cluster, and what was best without."""
    n = min(max(m, 16), 256)
    swapped = [
        f".tile({high}, {n}, {k}) .schedule(cooperative) .swap(){f' .splitk({s}, cluster)' if s > 1 else ''} {EARLY}"
        for high in (64, 128)
        for k in (64, 128)
        for s in (1, 2, 4, 8)
    ]
    # two CTAs on an SM: clusters of four and of eight then find room on all of them
    swapped += (
        [
            f".tile({high}, {n}, 128) .schedule(cooperative) .swap() .splitk({s}, cluster) .stages({stages}) {EARLY}"
            for high, stages in ((128, 3), (64, 5), (64, 4))
            for s in (2, 4, 8)
        ]
        if n <= 64
        else []
    )
    half = (
        [f".tile({high}, {n // 2}, 64) .schedule(cooperative) .swap() {EARLY}" for high in (64, 128)] if n > 64 else []
    )
    usual = [
        f".tile(64, 32, 128) .schedule(cooperative) {EARLY}",
        *(f".tile(64, 32, {k}) .schedule(cooperative) .cluster(1, 2) {EARLY}" for k in (64, 128)),
        ".tile(64, 32, 128) .schedule(cooperative)",
        f".tile(128, 64, 64) .schedule(cooperative) .cluster(2, 1) {EARLY}",
        f".tile(64, 64, 128) .schedule(cooperative) .splitk(2, cluster) {EARLY}",
    ]
    return [*usual, *swapped, *half]


@dataclass(frozen=True)
class Case:
    """One product; order says how a (k or m first) and b (k or n first) lie in memory.

    `epilogue` as the language writes it.
    """

    group: str
    m: int
    n: int
    k: int
    kind: str = "bf16"
    order: str = "kk"
    batch: int = 0
    epilogue: str = ""

    @property
    def name(self) -> str:
        """What the case is called in the results."""
        return (
            f"{self.group} {self.kind} {f'{self.batch}x' if self.batch else ''}{self.m}x{self.n}x{self.k} "
            f"{self.order} {self.epilogue}".strip()
        )


def tasks(only: str, most: int = 0) -> list[tuple[Case, str]]:
    """What is measured: each case with its configurations (of more than `most` the first ones).

    Tiles for elements of two bytes are turned into as many bytes along k.
    """
    found: list[tuple[Case, list[str]]] = []
    for m in (16, 64, 256):
        found.append((Case("skinny", m, 4096, 4096), skinny(m)))
    found.append((Case("skinny", 16, 8192, 8192), [text for text in skinny(16) if "swap" in text]))
    for order in ("kk", "kn", "mn"):
        found += [
            (Case("square", s, s, s, order=order), MIDDLE if s == 2048 else LARGE if order == "kk" else LARGE[:6])
            for s in (2048, 4096, 8192)
        ]
        found += [
            (Case("square", s, s, s, "f16", order=order), MIDDLE[:4] if s == 2048 else LARGE[:4])
            for s in (2048, 4096, 8192)
        ]
    found.append((Case("square", 1024, 1024, 1024), SMALL))
    found.append((Case("odd", 1000, 3000, 2000, "f16", "kn"), ODD))
    found.append((Case("odd", 4095, 4097, 4096), LARGE[1:4]))
    found += [(Case("odd", 4095, 4097, 4099, kind), LARGE[1:4]) for kind in ("bf16", "f16")]
    found.append(
        (
            Case("deep", 512, 512, 32768),
            [
                f".tile(128, 128, 64) .schedule(cooperative) .splitk(8, cluster) {EARLY}",
                f".tile(128, 128, 128) .schedule(cooperative) .splitk(8, cluster) {EARLY}",
                f".tile(128, 128, 64) .schedule(cooperative) .cluster(2, 1) .splitk(8) {EARLY}",
                f".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .splitk(16) {EARLY}",
                f".tile(64, 128, 128) .schedule(cooperative) .splitk(4, cluster) {EARLY}",
            ],
        )
    )
    found += [
        (Case("tf32", 4096, 4096, 4096, "tf32", "kk"), LARGE[:3]),
        *((Case("tf32", s, s, s, "tf32", "kn"), TURNED) for s in (2048, 4096, 8192)),
    ]
    found.append((Case("batched", 1024, 1024, 1024, "bf16", "kn", 16), MIDDLE[1:5]))
    found.append((Case("batched", 1024, 1024, 1024, "tf32", "kn", 16), TURNED))
    found += [(Case("fp8", s, s, s, "e4m3"), LARGE[1:4]) for s in (2048, 4096)]
    wanted = only.split(",") if only else []
    return [
        (case, text)
        for case, texts in found
        if not wanted or case.group in wanted
        for text in list(dict.fromkeys(texts))[: most or None]
        if not check(parse(program(case, text)))
    ]


def fused_tasks() -> list[tuple[Case, str]]:
    """Epilogues, with the configurations that are best without."""
    best = [LARGE[1], LARGE[3], LARGE[2]]
    chains = [
        "bias() >> gelu()",
        "residual() >> rowsum()",
        "bias() >> gelu() >> residual()",
        "bias() >> relu() >> rowmax()",
    ]
    cases = [
        Case("fused", s, s, s, kind, epilogue=chain)
        for s in (4096, 8192)
        for kind in ("bf16", "f16")
        for chain in chains[: 2 if kind == "f16" else 4]
    ]
    return [
        (case, text)
        for case in [*cases, *(Case("fused", 4096, 4096, 4096, "tf32", epilogue=chain) for chain in chains[:2])]
        for text in best
    ]


def dry(pairs: list[tuple[Case, str]]) -> list[tuple[Case, str]]:
    """One configuration of each kind, at a tiny size."""
    seen: dict[str, tuple[Case, str]] = {}
    for case, text in pairs:
        seen.setdefault(
            f"{case.group}{case.kind}{case.epilogue}{'swap' in text}{'splitk' in text}",
            (
                replace(
                    case, m=min(case.m, 72), n=136, k=200 if case.kind != "e4m3" else 208, batch=min(case.batch, 2)
                ),
                text,
            ),
        )
    return list(seen.values())


def program(case: Case, text: str) -> str:
    """The whole program; k of the tile in elements of the case's type."""
    head, _, rest = text.partition(")")
    start, k = head.rsplit(", ", 1)
    k = str(int(k) * 2 // DTYPES[case.kind].itemsize)
    return f"gemm(a, b) .arch(sm_90a) .mma({case.kind}) {start}, {k}){rest}" + (
        f" >> {case.epilogue}" if case.epilogue else ""
    )


class Loaded:
    """A candidate that can be compiled without a launch."""

    def __init__(self, case: Case, text: str, folder: Path) -> None:
        names = ("a", "b", *(name for name in ("bias", "residual") if name in case.epilogue))
        path = folder / f"candidate_{abs(hash((text, case.epilogue, case.kind)))}.py"
        path.write_text(compile_program(text, Binding(init_source=INIT, forward_arguments=names)))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.model = self.module.ModelNew()
        self.really = self.module.call

    def compile(self, tensors: list[torch.Tensor]) -> None:
        """Compile everything that a call needs, launch nothing."""
        import cutlass.cute as cute

        def only_compile(function: Any, key: Any, arguments: Any, constants: Any = ()) -> None:
            if (function, key) not in self.module.compiled:
                stream = self.module.cuda.CUstream(torch.cuda.current_stream().cuda_stream)
                self.module.compiled[function, key] = cute.compile(function, *arguments, stream, *constants)

        self.module.call = only_compile
        self.model(*tensors)
        self.module.call = self.really
        if hasattr(self.module, "known"):
            self.module.known.clear()


def operands(case: Case, device: str) -> list[torch.Tensor]:
    """a (m, k), b (k, n), then what the epilogue reads; random normal."""
    torch.manual_seed(1)
    lead, dtype = ((case.batch,) if case.batch else ()), DTYPES[case.kind]

    def matrix(rows: int, columns: int, turned: bool) -> torch.Tensor:
        shape = (columns, rows) if turned else (rows, columns)
        made = torch.randn(*lead, *shape, device=device).to(dtype)
        return made.transpose(-2, -1) if turned else made

    tensors = [matrix(case.m, case.k, case.order[0] == "m"), matrix(case.k, case.n, case.order[1] == "k")]
    tensors += [torch.randn(case.n, device=device).to(dtype)] if "bias" in case.epilogue else []
    return tensors + ([matrix(case.m, case.n, False)] if "residual" in case.epilogue else [])


def by_torch(case: Case) -> Callable[..., torch.Tensor]:
    """What torch users write, in the tensors' own types."""

    def product(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=a.device)
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        rest = list(more)
        x = torch.addmm(rest.pop(0), a, b) if "bias" in case.epilogue else torch.matmul(a, b)
        for name in ("gelu", "relu"):
            x = getattr(torch.nn.functional, name)(x) if name in case.epilogue else x
        x = x + rest.pop(0) if "residual" in case.epilogue else x
        return x.sum(-1) if "rowsum" in case.epilogue else x.amax(-1) if "rowmax" in case.epilogue else x

    return product


def error_of(case: Case, tensors: list[torch.Tensor], got: torch.Tensor) -> float:
    """Relative error of the whole result, against float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    wanted = by_torch(case)(*(tensor.float() for tensor in tensors))
    torch.backends.cuda.matmul.allow_tf32 = case.kind == "tf32"
    return float(((got.float() - wanted).norm() / wanted.norm()).item())


def measure(
    case: Case,
    text: str,
    loaded: Loaded,
    tensors: list[torch.Tensor],
    theirs: Callable[..., Any],
    rounds: int,
    busy_s: float = 2e-3,
) -> dict[str, Any]:
    """Error and times of one configuration; the GPU is ours alone."""
    row: dict[str, Any] = {"case": case.name, "program": text, "error": error_of(case, tensors, loaded.model(*tensors))}
    if not row["error"] < 2 * ALLOWED[case.kind]:
        return {**row, "failed": "wrong result"}
    if rounds:
        flops = 2.0 * case.m * case.n * case.k * max(case.batch, 1)
        row |= compare(lambda: loaded.model(*tensors), lambda: theirs(*tensors), flops, rounds, busy_s)
    return row


def worker(mine: list[tuple[Case, str]], turn: Any, rounds: int, busy_s: float, deadline: float, rows: Any) -> None:
    """One process: compile, then wait for the turn."""
    kept: dict[Case, list[torch.Tensor]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, settings in mine:
            if time.time() > deadline:
                rows.put({"case": case.name, "program": settings, "skipped": "no time left"})
                continue
            try:
                text = program(case, settings)
                if case not in kept:
                    with turn:
                        kept.clear()
                        torch.cuda.empty_cache()
                        kept[case] = operands(case, "cuda")
                        torch.cuda.synchronize()
                loaded = Loaded(case, text, Path(folder))
                loaded.compile(kept[case])
                with turn:
                    torch.cuda.synchronize()
                    rows.put(measure(case, text, loaded, kept[case], by_torch(case), rounds, busy_s))
                    torch.cuda.synchronize()
            except ProgramError as error:
                rows.put({"case": case.name, "program": settings, "rejected": str(error)[:300]})
            except Exception as error:
                rows.put({"case": case.name, "program": settings, "failed": f"{type(error).__name__}: {error}"[:500]})


def side_by_side(pairs: list[tuple[Case, str]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of the workers."""
    context = multiprocessing.get_context("spawn")
    turn, queue = context.Lock(), context.Queue()
    chunks: list[list[tuple[Case, str]]] = [[] for _ in range(arguments.processes)]
    for number, pair in enumerate(pairs):
        chunks[number % arguments.processes].append(pair)
    deadline = time.time() + arguments.limit_s
    processes = [
        context.Process(target=worker, args=(chunk, turn, arguments.rounds, arguments.busy_ms / 1e3, deadline, queue))
        for chunk in chunks
        if chunk
    ]
    for process in processes:
        process.start()
    rows: list[dict[str, Any]] = []
    while len(rows) < len(pairs) and (any(process.is_alive() for process in processes) or not queue.empty()):
        with contextlib.suppress(Exception):
            rows.append(queue.get(timeout=2))
            print(json.dumps(rows[-1]), flush=True)
            write(arguments, rows)
    for process in processes:
        process.join(timeout=10)
    return rows


def one_by_one(pairs: list[tuple[Case, str]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """In this process: against torch.compile(mode="max-autotune") on a GPU, or on the emulator without times."""
    rows: list[dict[str, Any]] = []
    rivals: dict[Case, Callable[..., Any]] = {}
    kept: dict[Case, list[torch.Tensor]] = {}
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        for case, settings in pairs:
            if not arguments.dry_run and time.time() - started > arguments.limit_s:
                rows.append({"case": case.name, "program": settings, "skipped": "no time left"})
                continue
            try:
                text = program(case, settings)
                if case not in kept:
                    kept.clear()
                    kept[case] = operands(case, "cuda")
                    rivals[case] = by_torch(case) if arguments.dry_run else rival(case, kept[case])
                rows.append(
                    measure(
                        case,
                        text,
                        Loaded(case, text, Path(folder)),
                        kept[case],
                        rivals[case],
                        0 if arguments.dry_run else arguments.rounds,
                    )
                )
            except Exception as error:
                rows.append(
                    {"case": case.name, "program": settings, "failed": f"{type(error).__name__}: {error}"[:500]}
                )
            print(json.dumps(rows[-1]), flush=True)
            write(arguments, rows)
    return rows


def rival(case: Case, tensors: list[torch.Tensor]) -> Callable[..., Any]:
    """torch.compile's best, in the mode without CUDA graphs of its own.

    Where it cannot compile, eager, said on the way.
    """
    torch.backends.cuda.matmul.allow_tf32 = case.kind == "tf32"
    try:
        made = torch.compile(by_torch(case), mode="max-autotune-no-cudagraphs", dynamic=False)
        made(*tensors)
        torch.cuda.synchronize()
        return made
    except Exception as error:
        print(
            f"# {case.name}: torch.compile failed, eager it is: {type(error).__name__}: {str(error)[:200]}", flush=True
        )
        return by_torch(case)


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """What there is so far."""
    if arguments.out:
        arguments.out.write_text(json.dumps({**arguments.head, "rows": rows}, indent=1) + "\n")


def main() -> int:
    """Measure, print the best of each case, write; 1 when any configuration fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="groups: skinny, square, odd, deep, tf32, batched, fp8")
    parser.add_argument("--fused", action="store_true", help="epilogues against torch.compile, in one process")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the emulator")
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--limit-s", type=float, default=270.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--busy-ms", type=float, default=2.0, help="work in a sample: 2 is a burst, 50 is felt by the power limit"
    )
    parser.add_argument("--most", type=int, default=0, help="configurations of a case, those first in the list")
    arguments = parser.parse_args()
    arguments.head = facts()
    pairs = fused_tasks() if arguments.fused else tasks(arguments.only, arguments.most)
    if arguments.dry_run:
        import workbench

        with workbench.emulated(device="H200"):
            rows = one_by_one(dry(pairs), arguments)
    else:
        rows = one_by_one(pairs, arguments) if arguments.fused else side_by_side(pairs, arguments)
    for name in dict.fromkeys(row["case"] for row in rows):
        timed = sorted((row for row in rows if row["case"] == name and "ratio" in row), key=lambda row: -row["ratio"])
        for row in timed[:3]:
            print(
                f"# {name}: {row['ratio']}x torch, {row['us']} us against {row['torch_us']}, {row['tflops']} "
                f"TFLOP/s, {row['program'].split('mma')[1]}"
            )
    failed = [row for row in rows if "failed" in row]
    print(f"# {len(rows)} rows of {len(pairs)}, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
