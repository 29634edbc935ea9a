"""Draws the programs that compare_ptx.py compares: the same list from the same landscape, and no GPU is needed.

    python tests/bench/draw_programs.py --out tests/bench/ptx_programs.jsonl.gz [--number 1000] [--seed 14]

The list has every operation of the language on both architectures, in this order: the programs of `OTHERS` below, the
planner's programs for the modules of tests/dsl/level2.py and for the problems of the landscape on sm_80, and programs
of the landscape: of each problem in turn one from its fastest quarter and, every fourth time, one from the rest.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import itertools
import json
import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dsl"), str(Path(__file__).parent)]

import level2  # noqa: E402
from landscape_problems import places  # noqa: E402

from workbench.errors import WorkbenchError  # noqa: E402
from workbench.landscapes import table  # noqa: E402
from workbench.landscapes.keys import problem_key, with_arch  # noqa: E402
from workbench.language import OPERATIONS, Binding, parse  # noqa: E402
from workbench.language.checks import check, check_bound  # noqa: E402
from workbench.language.ir import setting  # noqa: E402
from workbench.language.limits import check_limits  # noqa: E402
from workbench.language.ranks import check_ranks  # noqa: E402
from workbench.problems import loading  # noqa: E402
from workbench.problems.inspection import inspect  # noqa: E402
from workbench.proposers.binding import binding_of  # noqa: E402
from workbench.proposers.ladders import Context, ladder  # noqa: E402
from workbench.proposers.recognition import Computation, Unrecognised, recognise  # noqa: E402
from workbench.proposers.rung_programs import write_program  # noqa: E402
from workbench.records import Facts, Problem, TensorSpec  # noqa: E402

LANDSCAPE = ROOT / "workbench" / "landscapes" / "h200.csv.gz"
ARCHES = ("sm_90a", "sm_80")
LEVEL2, AMPERE = 2, 3  # programs of a module and architecture; programs of a problem on sm_80
INIT = "def __init__(self):\n    super().__init__()\n"
CHANNELS = {"x": "8,32,28,28", "weight": "32", "bias": "32"}
HALVES = {"a": "f16 512,256", "b": "f16 256,512"}
BRAINS = {"a": "bf16 512,1024", "b": "bf16 1024,512"}
WEIGHTS = {"x": "8,32,28,28", "w": "64,32,3,3", "bias": "64"}
HEADS = dict.fromkeys("qkv", "f16 2,4,256,64")
GROUPS = {"a": "bf16 512,256", "b": "bf16 4,256,512", "offsets": "int32 4"}
HOPPER = "mma(bf16) .schedule(cooperative)"
OTHERS: tuple[tuple[str, dict[str, str]], ...] = (  # a program without arch, and its tensors: dtype (f32) and extents
    *(
        (
            f"scan({text}) {how}",
            {"x": f"{kind} 64,8192", "mask": "bool 64,8192"} if "mask" in text else {"x": f"{kind} 64,8192"},
        )
        for text, kind in (
            ("x", "f32"),
            ("x, reverse=1, exclusive=1", "f32"),
            ("x, exclusive=2", "f32"),
            ("x, op=max", "f16"),
            ("x, op=prod, exclusive=1", "f32"),
            ("mul(x, mask)", "f32"),
        )
        for how in (".schedule(rows) .per_thread(8)", ".schedule(lookback) .threads(128)")
    ),
    ("scan(x, axis=0)", {"x": "64,8192"}),
    ("scan(x, axis=1, reverse=1) .threads(64)", {"x": "4,64,1000"}),
    *(
        (f"pool(x, {text}) .schedule({how})", {"x": shape})
        for text, shape in (
            ("window=3, stride=2, ceil=1", "8,16,700"),
            ("op=avg, window=size(3, 3), stride=2, padding=1, count_padding=0", "8,16,64,64"),
            ("window=size(2, 3, 3), stride=2, padding=1, dilation=size(2, 3, 1)", "2,4,16,30,30"),
            ("op=avg, window=size(3, 2), divisor=5", "f16 8,16,64,64"),
        )
        for how in ("direct", "strip")
    ),
    ("pool(x, window=all) .threads_per_row(64)", {"x": "8,16,64,64"}),
    ("pool(x, op=avg, window=all) .threads_per_row(128) .vector(4)", {"x": "8,16,64,64"}),
    ("gather(x, index, axis=1)", {"x": "64,70,128", "index": "int64 64,90,128"}),
    ("gather(x, index, axis=1, layers=1) .threads(128)", {"x": "64,70,128", "index": "int32 70"}),
    ("gather(x, index, layers=1) .unroll(1)", {"x": "f16 4000,256", "index": "int64 300,5"}),
    ("scatter_add(out, index, src, axis=1)", {"out": "64,70,128", "index": "int64 64,90,128", "src": "64,90,128"}),
    ("scatter_max(out, index, src, layers=1)", {"out": "70,128", "index": "int32 90", "src": "90,128"}),
    ("scatter_add(out, index, src, layers=1)", {"out": "f16 70,128", "index": "int32 90", "src": "f16 90,128"}),
    *(
        (
            f"aggregate(x, indptr, indices, {more}) {how}",
            {"x": "4000,256", "indptr": "int64 101", "indices": "int32 900"},
        )
        for more, how in (
            ("op=sum", ""),
            ("op=mean", ".threads_per_row(8) .split(4)"),
            ("op=max", ".rows(1) .split(8)"),
        )
    ),
    *(
        (f"{name}(x) {how}", {"x": "512,4096"})
        for name in ("softmax", "log_softmax")
        for how in ("", ".threads_per_row(256) .vector(4) .kept()")
    ),
    ("softmax(x, axis=1) .split(4) .vector(4)", {"x": "16,40,1024"}),
    ("log_softmax(x, axis=1) .threads(64)", {"x": "16,40,1024"}),
    *(
        (f"layernorm(x) {how}", {"x": "512,4096", "weight": "4096", "bias": "4096"})
        for how in ("", ".threads_per_row(128) .vector(4) .kept()")
    ),
    *(
        (f"rmsnorm(x) {how}", {"x": "512,4096", "weight": "4096"})
        for how in ("", ".threads_per_row(128) .vector(4) .parts(4)")
    ),
    *(
        (f"reduce(x, op={name}) .threads_per_row(64) .vector(4)", {"x": "512,4096"})
        for name in ("sum", "mean", "max", "min", "argmax")
    ),
    ("reduce(x, op=sum, axis=middle) .split(8)", {"x": "16,256,1024"}),
    ("reduce(x, op=sum, axis=all) .vector(4) .parts(128)", {"x": "512,4096"}),
    ("rowwise(div(exp(sub(x, max(x))), sum(exp(sub(x, max(x)))))) .threads_per_row(64) .vector(4)", {"x": "512,4096"}),
    ("rowwise(var1(x), axis=1) .threads(64)", {"x": "16,40,1024"}),
    *(
        (f"crossentropy(x, target, reduction={how}) .threads_per_row(128)", {"x": "512,4096", "target": "int64 512"})
        for how in ("mean", "none")
    ),
    ("matvec(x, vector) .threads_per_row(256) .vector(4)", {"x": "512,8192", "vector": "8192"}),
    ("matvec(x, vector) .threads_per_row(64) .rows(4) .vector(4) .unroll(2)", {"x": "512,8192", "vector": "8192"}),
    ("matvec(x, vector, keepdim=1) .threads_per_row(64) .rows(2)", {"x": "bf16 512,8192", "vector": "bf16 8192"}),
    *(
        (f"{name}(x{more}) {how}", CHANNELS)
        for name, more in (("batchnorm", ""), ("groupnorm", ", groups=8"), ("instancenorm", ", affine=0"))
        for how in (".parts(32)", ".threads_per_row(128) .vector(4) .parts(8)")
    ),
    ("elementwise(relu(x)) .vector(4)", {"x": "4096,4096"}),
    ("elementwise(add(mul(x, y), 1.5)) .vector(8) .unroll(2)", {"x": "f16 4096,4096", "y": "f16 4096,4096"}),
    ("elementwise(gelu(add(x, spread(b)))) .threads(512)", {"x": "4096,4096", "b": "4096"}),
    ("elementwise(where(mask, x, 0.0))", {"x": "4096,4096", "mask": "4096,4096"}),
    ("h = view(x, flatten=(0, 1)) |> softmax(h) .threads_per_row(128) .vector(4)", {"x": "8,64,4096"}),
    ("h = view(x, order=(1, 0, 2)) |> elementwise(tanh(h)) .vector(2)", {"x": "8,64,4096"}),
    ("h = view(x, unsqueeze=1) |> reduce(h, op=max)", {"x": "64,4096"}),
    ("gemm(a, b) .tile(64, 64, 16) .thread_tile(4, 4)", {"a": "512,256", "b": "256,512"}),
    (
        "gemm(a, b) .tile(128, 128, 8) .thread_tile(8, 8) >> bias() >> gelu()",
        {"a": "512,256", "b": "256,512", "bias": "512"},
    ),
    ("gemm(a, b) .mma(f16) .tile(64, 64, 32)", HALVES),
    ("gemm(a, b) .mma(f16) .tile(128, 128, 32) .stages(3) >> relu() >> cast(f32)", HALVES),
    ("gemm(a, b) .mma(bf16) .stages(4) >> residual()", BRAINS | {"residual": "bf16 512,512"}),
    ("gemm(a, b) .mma(tf32) .stages(2)", {"a": "512,256", "b": "256,512"}),
    *(
        (f"gemm(a, b) .{HOPPER} {how}", BRAINS)
        for how in (
            ".splitk(4)",
            ".splitk(2, cluster) .tile(128, 128, 64) .raster(along_n, 8)",
            ".streamk(yes)",
            ".streamk(yes) .cluster(2, 1) >> relu()",
            ".swap() .tile(128, 64, 64)",
            ".launch(early) .store(tma, 4)",
            ".store(direct) .cluster(2, 1)",
            ">> rowsum()",
            ">> colmax() >> scale(0.5)",
            ">> clamp(0.0, 1.0) >> cast(f32)",
        )
    ),
    (
        "gemm(a, b) .mma(tf32) .schedule(cooperative) .tile(128, 64, 32) .through(registers)",
        {"a": "512,256", "b": "256,512"},
    ),
    (
        "gemm(a, b) .mma(bf16) .schedule(pingpong) .tile(64, 128, 64) >> bias(bias, along=m)",
        BRAINS | {"bias": "bf16 512"},
    ),
    *(
        (f"ggemm(a, b, offsets) .{HOPPER} {how}", GROUPS)
        for how in (
            "",
            ".tile(64, 64, 64) .store(direct)",
            ".cluster(2, 1) .launch(early) >> scale(0.5) >> relu()",
            ".tile(128, 64, 64) .stages(3) >> cast(f32)",
        )
    ),
    *(
        (f"attention(q, k, v{more}) {how}", HEADS)
        for more in ("", ", causal=1")
        for how in (
            ".mma(f16) .schedule(flash)",
            ".mma(f16)",
            "",
            ".mma(f16) .schedule(stages) .tile(128, 64, 64)",
            ".schedule(stages) .tile(64, 64, 16) .thread_tile(4, 4)",
            ".tile(32, 32)",
        )
    ),
    *(
        (f"conv(x, w{more}) {how}", WEIGHTS)
        for more in ("", ", stride=2, padding=1")
        for how in (
            "",
            ".mma(tf32) .stages(3) >> bias() >> relu()",
            ".mma(tf32) .schedule(cooperative)",
            ".mma(tf32x3) .schedule(cooperative)",
            ".rows(4)",
        )
    ),
    ("conv(x, w) .mma(tf32) .schedule(cooperative) .unfold()", WEIGHTS),
    ("conv(x, w, padding=1, groups=channels) .rows(8)", {"x": "8,32,56,56", "w": "32,1,3,3"}),
    ("conv(x, w) .product() .mma(tf32)", {"x": "8,32,28,28", "w": "64,32,1,1"}),
    *(
        (f"convtranspose(x, w, stride=2, padding=1, output_padding=1) {how}", {"x": "8,32,28,28", "w": "32,64,3,3"})
        for how in ("", ".mma(tf32)", ".mma(tf32) .schedule(cooperative)")
    ),
)
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
FAMILIES = {
    "elementwise": "elementwise",
    "conv": "conv",
    "convtranspose": "conv",
    "attention": "attention",
    "scan": "scan",
    "pool": "pool",
    "gather": "gather",
    "aggregate": "gather",
    "sddmm": "gather",
    "segment_softmax": "gather",
    "scatter_add": "gather",
    "scatter_max": "gather",
    "ggemm": "gemm_sm90",
}


def family_of(program: str) -> str:
    """The part of the kernel library that a program uses; "pipeline" where it has several stages."""
    stages = parse(program).stages
    name = stages[0].operation.name
    if len(stages) > 1:
        return "pipeline"
    if name == "gemm":
        return "gemm_sm90" if setting(stages[0], "schedule") is not None else "gemm"
    return FAMILIES.get(name, "rows")


def entry_of(program: str, binding: Binding, precision: str, mode: str, case: dict[str, Any]) -> dict[str, Any] | None:
    """A line of the list; None for a program that these tensors and their sizes do not allow."""
    read = parse(program)
    if check(read) or check_bound(read, binding) or check_ranks(read, binding) or check_limits(read, binding):
        return None
    return {
        "family": family_of(program),
        "operations": [stage.operation.name for stage in read.stages],
        "arch": "sm_90a" if "sm_90a" in program else "sm_80",
        "dtype": {"fp16": "float16", "bf16": "bfloat16"}.get(precision, ""),
        "mode": mode,
        "program": program,
        "binding": {
            **dataclasses.asdict(binding),
            "tensors": [[name, {"shape": one.shape, "dtype": one.dtype}] for name, one in binding.tensors],
        },
        "cases": {"full": case},
    }


def spec_of(spec: TensorSpec) -> dict[str, Any]:
    """A tensor argument of forward."""
    return {"shape": spec.shape, "strides": spec.strides, "dtype": spec.dtype}


@cache
def inspected(problem: Problem) -> tuple[Facts, Computation] | None:
    """Facts of a problem and what the planner recognises; None where it recognises nothing."""
    facts = inspect(problem)
    try:
        return facts, recognise(facts)
    except Unrecognised:
        return None


def entry_of_problem(problem: Problem, program: str) -> dict[str, Any] | None:
    """A line of the list for a problem's program."""
    known = inspected(problem)
    if known is None:
        return None
    facts, found = known
    full = next(case for case in facts.cases if case.name == "full")
    module = loading.load_module(problem, full.settings)
    case = {"init": list(module.get_init_inputs()), "inputs": [spec_of(spec) for spec in full.inputs]}
    return entry_of(program, binding_of(problem, facts, found), problem.precision, problem.mode, case)


def rungs_of(problem: Problem, arch: str) -> list[str]:
    """The planner's programs for a problem."""
    known = inspected(problem)
    if known is None:
        return []
    facts, found = known
    device = "H200" if arch == "sm_90a" else "A100"
    context = Context(found=found, precision=problem.precision, arch=arch, device=device, facts=facts)
    return list(dict.fromkeys(write_program(found, rung, arch) for rung in ladder(context)))


def other_entries() -> Iterator[dict[str, Any] | None]:
    """The programs of `OTHERS` on each architecture that has them."""
    for arch, (text, tensors) in itertools.product(ARCHES, OTHERS):
        names = tuple(tensors)
        inputs = []
        for described in tensors.values():
            *kind, extents = described.split(" ")
            shape = [int(extent) for extent in extents.split(",")]
            strides = [1, *itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b)][::-1]
            dtype = DTYPES.get(kind[0], kind[0]) if kind else "float32"
            inputs.append({"shape": shape, "strides": strides, "dtype": dtype})
        binding = Binding(init_source=INIT, forward_arguments=names)
        try:
            program = with_arch(text, arch)
        except WorkbenchError:
            continue
        yield entry_of(program, binding, "fp32", "train", {"init": [], "inputs": inputs})


def level2_entries(numbers: random.Random) -> Iterator[dict[str, Any] | None]:
    """The planner's last program for each module of several layers, and one of the others."""
    for name, arch in itertools.product(level2.MODULES, ARCHES):
        problem = level2.problem(name)
        rungs = rungs_of(problem, arch)
        chosen = [*rungs[-1:], *numbers.sample(rungs[:-1], min(LEVEL2 - 1, len(rungs[:-1])))]
        yield from (entry_of_problem(problem, program) for program in chosen)


def ampere_entries(numbers: random.Random) -> Iterator[dict[str, Any] | None]:
    """Programs of the landscape's problems on sm_80."""
    for place in places():
        rungs = rungs_of(place.problem, "sm_80")
        for program in numbers.sample(rungs, min(AMPERE, len(rungs))):
            yield entry_of_problem(place.problem, program)


def landscape_entries(numbers: random.Random) -> Iterator[dict[str, Any] | None]:
    """Programs of the landscape, of each problem in turn."""
    rows = table.read(LANDSCAPE)[1]
    queues = []
    for place in places():
        key = problem_key(place.problem)
        mine = [row for row in rows if row.key == key and row.program and row.correct and row.median_s]
        mine.sort(key=lambda row: (row.median_s, row.program))
        best, rest = mine[: len(mine) // 4 + 1], mine[len(mine) // 4 + 1 :]
        numbers.shuffle(best)
        numbers.shuffle(rest)
        order = []
        while best or rest:
            order += [best.pop() for _ in range(min(3, len(best)))] + ([rest.pop()] if rest else [])
        queues.append((place.problem, [row.program for row in order]))
    for rank in itertools.count():
        if all(rank >= len(programs) for _, programs in queues):
            return
        for problem, programs in queues:
            if rank < len(programs):
                yield entry_of_problem(problem, programs[rank])


def draw(number: int, seed: int) -> list[dict[str, Any]]:
    """The list, each program of a binding once, with names."""
    numbers = random.Random(seed)
    parts = (other_entries(), level2_entries(numbers), ampere_entries(numbers), landscape_entries(numbers))
    drawn: dict[str, dict[str, Any]] = {}
    for entry in itertools.chain(*parts):
        if entry is not None:
            drawn.setdefault(json.dumps(entry, sort_keys=True), entry)
        if len(drawn) >= number:
            break
    stem = re.compile(r"\W+")
    return [
        {"name": f"{rank:04d}_{stem.sub('_', entry['operations'][-1])}_{entry['arch']}", **entry}
        for rank, entry in enumerate(drawn.values())
    ]


def main() -> int:
    """Write the list, and say what it has of each operation; 1 where an operation is missing on an architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=14)
    asked = parser.parse_args()
    entries = draw(asked.number, asked.seed)
    lines = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
    asked.out.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    missing = 0
    for name in OPERATIONS:
        counts = [sum(name in entry["operations"] and entry["arch"] == arch for entry in entries) for arch in ARCHES]
        print(f"{name:14}", ", ".join(f"{count} {arch}" for arch, count in zip(ARCHES, counts, strict=True)))
        missing += counts[0] == 0 or (counts[1] == 0 and name != "ggemm")  # ggemm is Hopper's
    print(f"{len(entries)} programs, {asked.out.stat().st_size} bytes")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
