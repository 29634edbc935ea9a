"""muCUTLASS's attention, scans, pooling, gather and scatter-add against torch, eager and compiled, on an H200.

    python tests/bench/scans_on_gpu.py --out results.json [--only attention,scan] [--no-compile] [--limit-s 170]
    python tests/bench/scans_on_gpu.py --dry-run                 (tiny sizes on the emulator: no GPU, no times)

Sizes are KernelBench's (level 1, 41 to 46, 89 to 93, 97) and about 1 GB. Each program is first compared with torch.
Times are CUDA events around one call,
L2 flushed before it, interleaved A B C A B C, medians of 20; bytes are each input read once and each output written
once, and their share is that of a copy
measured in the same run. Written after every case: a run that is stopped keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.language import Binding

INIT = "def __init__(self):\n    super().__init__()\n"
HOPPER = " .arch(sm_90a)"
STAGES = " .tile({}) .cluster(2, 1)"
ROUNDS, TIMES_S = 20, 2.5  # calls that are timed; about how long one side of a case may take


@dataclass(frozen=True)
class Case:
    """One computation: its programs, best guess first, the torch side, the inputs, what counts."""

    group: str
    name: str
    programs: tuple[str, ...]
    make: Callable[[], tuple[torch.Tensor, ...]]
    torch_side: Callable[..., torch.Tensor]
    exact: Callable[..., torch.Tensor] | None = None  # in float64 on a part; default: the torch side itself
    part: Callable[..., tuple[torch.Tensor, ...]] | None = None  # of the inputs, small enough for float64
    allowed: float = 1e-4
    flops: int = 0
    operands: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ("x",)
    extra: dict[str, Any] = field(default_factory=dict)


def attention_cases(tiny: bool) -> Iterator[Case]:
    """(batch 4, heads 16, 4096 queries and keys) with dimensions 64 and 128, then KernelBench's 97 in both versions."""
    b, h, s = (1, 2, 130) if tiny else (4, 16, 4096)
    for d, dtype, causal in [
        (64, torch.float16, 0),
        (128, torch.bfloat16, 0),
        (128, torch.float16, 0),
        (64, torch.bfloat16, 0),
        (64, torch.float16, 1),
        (128, torch.bfloat16, 1),
        (128, torch.float16, 1),
        (64, torch.bfloat16, 1),
    ]:
        kind = "f16" if dtype == torch.float16 else "bf16"
        base = f"attention(q, k, v, causal={causal}){HOPPER} .mma({kind})"
        programs = (
            (f"{base} .schedule(flash)", f"{base} .schedule(flash) .tile(128, 64)")
            if not tiny
            else (f"{base} .schedule(flash)",)
        )
        yield attention(
            f"{b}x{h}x{s}x{d} {kind}{' causal' if causal else ''}",
            (b, h, s, d),
            dtype,
            programs,
            bool(causal),
            2e-3 if kind == "f16" else 1.6e-2,
        )
    b, h, s, d = (1, 2, 40, 320) if tiny else (32, 32, 512, 1024)
    for dtype, kind, depth, error in ((torch.float16, "f16", 64, 4e-3), (torch.float32, "tf32", 32, 4e-3)):
        base = f"attention(q, k, v){HOPPER} .mma({kind}) .schedule(stages)"
        yield attention(
            f"97: {b}x{h}x{s}x{d} {kind}",
            (b, h, s, d),
            dtype,
            (
                base + STAGES.format(f"128, 256, {depth}"),
                f"{base} .tile(128, 256, {depth})",
                f"{base} .tile(128, 256, {depth}) .cluster(1, 2)",
            )[: 1 if tiny else 3],
            False,
            error,
            uniform=True,
        )
    if not tiny:
        base = f"attention(q, k, v){HOPPER} .mma(f16)"
        yield attention(
            "97 before: 32x32x512x128 f16",
            (32, 32, 512, 128),
            torch.float16,
            (f"{base} .schedule(flash)", f"{base} .schedule(flash) .tile(128, 64)", base),
            False,
            2e-3,
            uniform=True,
        )
        base = f"attention(q, k, v){HOPPER} .mma(tf32)"
        for d in (64, 128):
            yield attention(
                f"4x16x2048x{d} tf32",
                (4, 16, 2048, d),
                torch.float32,
                (base, f"{base} .tile(64, 32)", f"{base} .schedule(stages){STAGES.format('128, 256, 32')}"),
                False,
                4e-3,
            )
        yield attention(
            "1x16x2048x64 fp32",
            (1, 16, 2048, 64),
            torch.float32,
            (f"attention(q, k, v){HOPPER}", f"attention(q, k, v){HOPPER} .schedule(stages)"),
            False,
            1e-4,
        )


def attention(
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    programs: tuple[str, ...],
    causal: bool,
    allowed: float,
    uniform: bool = False,
) -> Case:
    """One attention; half of the FLOPs count where a mask hides half of the keys."""
    b, h, s, d = shape

    def make() -> tuple[torch.Tensor, ...]:
        return tuple(
            (torch.rand if uniform else torch.randn)(shape, device="cuda", dtype=torch.float32).to(dtype)
            for _ in range(3)
        )

    def side(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)

    flops = 4 * b * h * s * s * d // (2 if causal else 1)
    extra = {"tf32": "tf32" in name, "compiled": name.startswith("97:")}  # compiled, it is the same library call
    return Case(
        "attention",
        name,
        programs,
        make,
        side,
        exact,
        lambda *t: tuple(x[:1, :2] for x in t),
        allowed,
        flops,
        names=("q", "k", "v"),
        extra=extra,
    )


def scan_cases(tiny: bool) -> Iterator[Case]:
    """KernelBench's 89 to 93 at (32768, 32768), and few long rows."""
    rows, columns = (4, 1300) if tiny else (32768, 32768)

    def make() -> tuple[torch.Tensor, ...]:
        return (torch.rand(rows, columns, device="cuda"),)

    def head(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t[:33] for t in tensors)

    def wide(side: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *tensors: side(*(t.double() if t.is_floating_point() else t for t in tensors))

    settings = (
        " .threads(256) .per_thread(16) .schedule(rows)",
        " .threads(512) .per_thread(16) .schedule(rows)",
        " .threads(256) .per_thread(8) .schedule(rows)",
        " .threads(256) .per_thread(16) .schedule(lookback)",
    )
    sides: list[tuple[str, str, Callable[..., torch.Tensor]]] = [
        ("89 cumsum", "scan(x)", lambda x: x.cumsum(1)),
        ("90 cumprod", "scan(x, op=prod)", lambda x: x.cumprod(1)),
        ("91 reverse", "scan(x, reverse=1)", lambda x: x.flip(1).cumsum(1).flip(1)),
    ]
    for number, (name, call, side) in enumerate(sides):
        yield Case(
            "scan",
            name,
            tuple(call + HOPPER + one for one in (settings if number == 0 else settings[:1])),
            make,
            side,
            wide(side),
            head,
        )

    def exclusive(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:-1].cumsum(1)

    yield Case(
        "scan",
        "92 exclusive",
        tuple("scan(x, exclusive=2)" + HOPPER + one for one in settings[:2]),
        make,
        exclusive,
        wide(exclusive),
        head,
        operands=(("x", "x[:-1]"),),
    )

    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask).cumsum(1)

    yield Case(
        "scan",
        "93 masked",
        ("scan(mul(x, mask))" + HOPPER + settings[0],),
        lambda: (*make(), torch.rand(rows, columns, device="cuda") > 0.5),
        masked,
        wide(masked),
        head,
        names=("x", "mask"),
    )
    few = (2, 9000) if tiny else (8, 1 << 25)
    yield Case(
        "scan",
        f"few rows {few[0]}x{few[1]}",
        ("scan(x)" + HOPPER + settings[3], "scan(x)" + HOPPER + settings[1]),
        lambda: (torch.randn(few, device="cuda"),),
        lambda x: x.cumsum(1),
        lambda x: x.double().cumsum(1),
        head,
        allowed=2e-3,
    )


def pool_cases(tiny: bool) -> Iterator[Case]:
    """KernelBench's 41 to 46 at their sizes."""
    sides: list[tuple[str, str, tuple[int, ...], tuple[int, ...], Callable[..., torch.Tensor]]] = [
        (
            "41 max 1-D",
            "window=8, stride=1, padding=4, dilation=3",
            (64, 192, 65536),
            (2, 2, 90),
            lambda x: F.max_pool1d(x, 8, 1, 4, 3),
        ),
        (
            "42 max 2-D",
            "window=size(4, 4), stride=1, padding=1",
            (32, 64, 512, 512),
            (1, 2, 20, 24),
            lambda x: F.max_pool2d(x, 4, 1, 1),
        ),
        (
            "43 max 3-D",
            "window=size(3, 3, 3), stride=2, padding=1, dilation=3",
            (16, 32, 128, 128, 128),
            (1, 1, 9, 10, 12),
            lambda x: F.max_pool3d(x, 3, 2, 1, 3),
        ),
        (
            "44 avg 1-D",
            "op=avg, window=8, stride=1, padding=4",
            (64, 128, 65536),
            (2, 2, 90),
            lambda x: F.avg_pool1d(x, 8, 1, 4),
        ),
        (
            "45 avg 2-D",
            "op=avg, window=size(11, 11)",
            (16, 64, 2048, 2048),
            (1, 1, 23, 36),
            lambda x: F.avg_pool2d(x, 11),
        ),
        (
            "46 avg 3-D",
            "op=avg, window=size(3, 3, 3), stride=2, padding=1",
            (16, 32, 128, 128, 256),
            (1, 1, 7, 8, 12),
            lambda x: F.avg_pool3d(x, 3, 2, 1),
        ),
    ]
    for name, arguments, shape, small, side in sides:
        base = f"pool(x, {arguments}){HOPPER}"
        programs = (
            f"{base} .threads(256) .schedule(strip) .rows(8)",
            f"{base} .threads(128) .schedule(strip) .rows(8)",
            f"{base} .threads(256) .schedule(strip) .rows(16)",
            f"{base} .threads(256)",
        )
        yield Case(
            "pool",
            name,
            programs[:1] if tiny else programs,
            lambda shape=small if tiny else shape: (torch.rand(shape, device="cuda"),),
            side,
            lambda x, side=side: side(x.double()),
            lambda x: (x[:1, :1],),
        )


def gather_cases(tiny: bool) -> Iterator[Case]:
    """Rows of 32 KB, and layers of 4 KB, about 1 GB of results."""
    rows, columns, table, tokens, dim = (3, 40, 50, 9, 24) if tiny else (32768, 8192, 50257, 262144, 1024)
    unrolls = (" .threads(256) .unroll(4)", " .threads(256) .unroll(8)", " .threads(256) .unroll(1)")

    def index(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, device="cuda")

    pairs = lambda: (torch.randn(rows, columns, device="cuda"), index(columns, rows, columns))  # noqa: E731
    yield Case(
        "gather",
        "gather along rows",
        tuple("gather(x, index, axis=1)" + HOPPER + one for one in unrolls),
        pairs,
        lambda x, i: x.gather(1, i),
        names=("x", "index"),
        allowed=0,
    )
    yield Case(
        "gather",
        "embedding",
        tuple("gather(x, index, layers=1)" + HOPPER + one for one in unrolls),
        lambda: (torch.randn(table, dim, device="cuda"), index(table, tokens)),
        lambda x, i: F.embedding(i, x),
        names=("x", "index"),
        allowed=0,
    )
    yield Case(
        "gather",
        "scatter_add along rows",
        tuple("scatter_add(out, index, src, axis=1)" + HOPPER + one for one in unrolls),
        lambda: (*pairs(), torch.randn(rows, columns, device="cuda")),
        lambda x, i, s: x.scatter_add(1, i, s),
        names=("out", "index", "src"),
        allowed=1e-3,
    )
    yield Case(
        "gather",
        "index_add",
        tuple("scatter_add(out, index, src, layers=1)" + HOPPER + one for one in unrolls),
        lambda: (torch.randn(table, dim, device="cuda"), index(table, tokens), torch.randn(tokens, dim, device="cuda")),
        lambda x, i, s: x.index_add(0, i, s),
        names=("out", "index", "src"),
        allowed=1e-3,
    )


def load(case: Case, program: str, folder: Path) -> Any:
    """The program's module."""
    path = folder / f"candidate_{hashlib.sha256((program + str(case.operands)).encode()).hexdigest()[:16]}.py"
    path.write_text(
        compile_program(program, Binding(init_source=INIT, forward_arguments=case.names, operands=case.operands))
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def error_of(case: Case, inputs: tuple[torch.Tensor, ...], result: torch.Tensor, whole: torch.Tensor) -> float:
    """The largest difference, over the largest value: from float64 on a part where the case says how, and from torch on
    the whole."""
    if case.part is None or case.exact is None:
        return relative(result, whole)
    expected = case.exact(*case.part(*inputs))
    mine = result
    for axis, extent in enumerate(expected.shape):
        mine = mine.narrow(axis, 0, min(extent, mine.shape[axis]))
    part = tuple(min(a, b) for a, b in zip(expected.shape, mine.shape, strict=True))
    expected = expected[tuple(slice(0, extent) for extent in part)]
    return max(relative(mine, expected), relative(result[-1:], whole[-1:]))


def relative(mine: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference over the largest value; not a number counts as infinite."""
    difference = (
        (mine.double() - other.double()).abs().max() / other.double().abs().max().clamp_min(1e-30)
        if other.numel()
        else torch.zeros(())
    )
    return float("inf") if difference.isnan() else float(difference)


def timed(sides: dict[str, Callable[[], Any]], flush: torch.Tensor) -> dict[str, float]:
    """Median seconds of each side, L2 flushed before every call, all in turn."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for name, side in sides.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            side()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3)
        if time.perf_counter() - began > TIMES_S * len(sides):
            break
    return {name: statistics.median(values) for name, values in times.items()}


def measured(case: Case, folder: Path, flush: torch.Tensor | None, copy_rate: float, compiled: bool) -> dict[str, Any]:
    """One case: correct or not, and its times."""
    torch.manual_seed(1)
    inputs = case.make()
    torch.backends.cuda.matmul.allow_tf32 = bool(case.extra.get("tf32"))
    whole = case.torch_side(*inputs)
    row: dict[str, Any] = {"group": case.group, "case": case.name, "programs": {}}
    sides: dict[str, Callable[[], Any]] = {"torch": lambda: case.torch_side(*inputs)}
    for program in case.programs:
        entry: dict[str, Any] = {}
        row["programs"][program] = entry
        try:
            model = load(case, program, folder)
            result = model(*inputs)
            entry["error"] = error_of(case, inputs, result, whole)
            entry["correct"] = (
                result.shape == whole.shape and result.dtype == whole.dtype and entry["error"] <= case.allowed
            )
            del result
            if entry["correct"]:
                sides[program] = lambda model=model: model(*inputs)
        except Exception as error:  # the other programs are still worth measuring
            entry["failed"] = f"{type(error).__name__}: {error}"[:500]
    if flush is None:
        return row
    if compiled:
        try:
            fast = torch.compile(case.torch_side)
            fast(*inputs)
            sides["torch.compile"] = lambda: fast(*inputs)
        except Exception as error:
            row["compile_failed"] = str(error)[:300]
    moved = sum(t.numel() * t.element_size() for t in (*inputs, whole))
    row["bytes"] = moved
    del whole
    for name, seconds in timed(sides, flush).items():
        entry = row["programs"].setdefault(name, {})
        entry |= {"us": seconds * 1e6, "share_of_copy": moved / seconds / copy_rate} | (
            {"tflops": case.flops / seconds / 1e12} if case.flops else {}
        )
    return row


def said(row: dict[str, Any]) -> str:
    """A row in a few lines."""
    lines = [f"{row['group']}: {row['case']}"]
    base = row["programs"].get("torch", {}).get("us")
    for name, entry in row["programs"].items():
        if "us" in entry:
            rate = (
                f"{entry['tflops']:7.1f} TFLOP/s" if "tflops" in entry else f"{entry['share_of_copy']:6.1%} of a copy"
            )
            against = f"  {base / entry['us']:5.2f}x torch" if base and name != "torch" else ""
            lines.append(
                f"  {entry['us']:10.1f} us  {rate}{against}  {name}"
                + (f"  error {entry['error']:.1e}" if "error" in entry else "")
            )
        else:
            lines.append(
                f"  {'correct' if entry.get('correct') else 'WRONG' if 'error' in entry else 'FAILED'}  "
                f"{name}  {entry.get('error', entry.get('failed', ''))}"
            )
    return "\n".join(lines)


def main() -> int:
    """All cases, most important first."""
    parser = argparse.ArgumentParser(description="attention, scans, pooling, gather and scatter-add against torch")
    parser.add_argument(
        "--out", type=Path, help="default: scans_on_gpu.json in $OUT or here; a dry run writes nothing without it"
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--limit-s", type=float, default=170)
    options = parser.parse_args()
    out = options.out or (None if options.dry_run else Path(os.environ.get("OUT", ".")) / "scans_on_gpu.json")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        flush, copy_rate = None, 1.0
        if options.dry_run:
            from workbench.emulator import emulated

            stack.enter_context(emulated(arch="sm_90a", device="H200", cuda=True))
        else:
            flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
            source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
            copy_rate = 2 * source.numel() / timed({"copy": lambda: target.copy_(source)}, flush)["copy"]
            print(
                f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a copy moves {copy_rate / 1e12:.2f} TB/s"
            )
            del source, target
        groups = {"attention": attention_cases, "scan": scan_cases, "pool": pool_cases, "gather": gather_cases}
        rows: list[dict[str, Any]] = []
        for group, cases in groups.items():
            for case in cases(options.dry_run) if not options.only or group in options.only.split(",") else ():
                if time.monotonic() - began > options.limit_s:
                    print(f"stopped at {case.group}: {case.name}: over {options.limit_s:.0f} s")
                    break
                late = time.monotonic() - began > 0.6 * options.limit_s
                rows.append(
                    measured(
                        case,
                        Path(name),
                        flush,
                        copy_rate,
                        case.extra.get("compiled", True) and not (options.no_compile or options.dry_run or late),
                    )
                )
                print(said(rows[-1]), flush=True)
                if flush is not None:
                    torch.cuda.empty_cache()
                if out is not None:
                    out.write_text(json.dumps({"copy_bytes_per_s": copy_rate, "rows": rows}, indent=1))
        wrong = [
            program
            for row in rows
            for program, entry in row["programs"].items()
            if "us" not in entry and not entry.get("correct")
        ]
        print(f"{len(rows)} cases, {len(wrong)} programs wrong or failed, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
