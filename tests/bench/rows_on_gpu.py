"""Element-wise calls, reductions, norms and losses as the planner writes them for Hopper, against torch eager and
torch.compile, on a GPU.

    python tests/bench/rows_on_gpu.py [--out FILE] [--limit-s 220] [--sweep] [--only name,name] [--small] [--no-compile]
    python tests/bench/rows_on_gpu.py --dry-run              (tiny shapes on the emulator; no times)

Each case is a module at KernelBench's size or at about 1 GB; what runs is what the planner proposes first for sm_90a at
that size, with --sweep all that it
would propose and further settings. Results are compared with torch's. Times are CUDA events around one call, the L2
cache overwritten before, the device kept
busy meanwhile so that the host's work does not count; ours, eager and compiled (max-autotune-no-cudagraphs) in turn,
medians of 20. The share is of a
device-to-device copy measured in the same run, for the bytes that must move: every input read once, every output
written once. JSON goes to $OUT or --out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.language import Call, Program, Stage, check, configurations, format_program, parse
from workbench.problems import loading
from workbench.problems.inspection import inspect
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Facts, Problem

HEAD = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


@dataclass(frozen=True)
class Case:
    """A module: what forward returns, its inputs, and its sizes, at full and small."""

    name: str
    forward: str
    inputs: tuple[str, ...] = ("torch.rand(a, b)",)
    sizes: tuple[int, ...] = (8192, 32768)
    small: tuple[int, ...] = (64, 96)
    init: str = "pass"

    def source(self, small: bool) -> str:
        """The problem's file."""
        names = [
            f"{letter} = {value}" for letter, value in zip("abcd", self.small if small else self.sizes, strict=False)
        ]
        letters = ", ".join("abcd"[: len(self.sizes)])
        arguments = ", ".join(("x", "y", "z")[: len(self.inputs)])
        return (
            HEAD
            + "\n".join(names)
            + f"\n\n\nclass Model(nn.Module):\n    def __init__(self, {letters}):\n        super().__init__()\n "
            f"       {self.init}\n\n    def forward(self, {arguments}):\n        return {self.forward}\n\n\n"
            f"def get_inputs():\n    return [{', '.join(self.inputs)}]\n\n\ndef get_init_inputs():\n    "
            f"return [{letters}]\n"
        )


FOUR, PAIR = ("torch.rand(a, b, c, d)",), ("torch.rand(a, b)",) * 2
IMAGE = {"inputs": FOUR, "small": (3, 8, 12, 20)}
CASES = (
    Case(
        "new_gelu",
        "0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))",
        sizes=(8192, 8192),
    ),
    Case("layer_norm_long", "self.m(x)", **IMAGE, sizes=(16, 64, 256, 256), init="self.m = nn.LayerNorm((b, c, d))"),
    Case(
        "triplet",
        "self.m(x, y, z)",
        ("torch.rand(a, b)",) * 3,
        (32768, 8192),
        init="self.m = nn.TripletMarginLoss(margin=1.0)",
    ),
    Case("batch_norm", "self.m(x)", **IMAGE, sizes=(64, 64, 512, 512), init="self.m = nn.BatchNorm2d(b)"),
    Case("min_middle", "torch.min(x, dim=1)[0]", ("torch.rand(a, b, c)",), (128, 4096, 4095), (4, 40, 33)),
    Case("max_middle", "torch.max(x, dim=1)[0]", ("torch.rand(a, b, c)",), (128, 4096, 4095), (4, 40, 33)),
    Case("tanh", "torch.tanh(x)", sizes=(4096, 393216)),
    Case("sigmoid", "torch.sigmoid(x)", sizes=(4096, 393216)),
    Case("mat_vec", "torch.matmul(x, y)", ("torch.rand(a, b)", "torch.rand(b, 1)"), (2048, 1048576)),
    Case("softmax", "torch.softmax(x, dim=1)", sizes=(4096, 393216)),
    Case("softmax_8k", "torch.softmax(x, dim=1)", sizes=(32768, 8192)),
    Case(
        "rms_norm_channels",
        "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",
        **IMAGE,
        sizes=(112, 64, 512, 512),
    ),
    Case("sum_middle", "torch.sum(x, dim=1, keepdim=True)", ("torch.rand(a, b, c)",), (128, 4096, 4096), (4, 40, 32)),
    Case("argmax_middle", "torch.argmax(x, dim=1)", ("torch.randn(a, b, c)",), (128, 4096, 4095), (4, 40, 33)),
    Case("mse", "torch.mean((x - y) ** 2)", PAIR, (32768, 32768)),
    Case(
        "hinge",
        "torch.mean(torch.clamp(1 - x * y, min=0))",
        ("torch.rand(a, a)", "torch.randint(0, 2, (a,)).float() * 2 - 1"),
        (32768, 1),
        (64, 1),
    ),
    Case("l1_norm", "x / torch.mean(torch.abs(x), dim=1, keepdim=True)", sizes=(32768, 65535), small=(32, 131)),
    Case("l2_norm", "x / torch.norm(x, p=2, dim=1, keepdim=True)", sizes=(32768, 65535), small=(32, 131)),
    Case("frobenius", "x / torch.norm(x, p='fro')", **IMAGE, sizes=(112, 64, 512, 512)),
    Case("group_norm", "self.m(x)", **IMAGE, sizes=(112, 64, 512, 512), init="self.m = nn.GroupNorm(8, b)"),
    Case("instance_norm", "self.m(x)", **IMAGE, sizes=(112, 64, 512, 512), init="self.m = nn.InstanceNorm2d(b)"),
    Case(
        "kl_div",
        "F.kl_div(torch.log(x), y, reduction='batchmean')",
        ("torch.rand(a, b).softmax(-1)",) * 2,
        (16384, 16384),
    ),
    Case("huber", "F.smooth_l1_loss(x, y)", PAIR, (32768, 32768)),
    Case("cosine", "torch.mean(1 - F.cosine_similarity(x, y, dim=1))", ("torch.randn(a, b)",) * 2, (32768, 8192)),
    Case("log_softmax", "torch.log_softmax(x, dim=1)", sizes=(4096, 393216)),
    Case("cross_entropy", "F.cross_entropy(x, y)", ("torch.rand(a, b)", "torch.randint(0, b, (a,))"), (32768, 4096)),
    Case("layer_norm_8k", "self.m(x)", sizes=(32768, 8192), init="self.m = nn.LayerNorm((b,))"),
    Case("sum_last", "x.sum(-1)", sizes=(32768, 8192)),
    Case("sum_first", "x.sum(0)", sizes=(262144, 1024)),
    Case("gelu", "F.gelu(x)"),
    Case("mish", "F.mish(x)"),
    Case("softplus", "F.softplus(x)"),
    Case("elu", "F.elu(x)"),
    Case("leaky_relu", "F.leaky_relu(x)"),
    Case("row_vector", "x * y", ("torch.rand(a, b)", "torch.rand(b)")),
    Case("channel", "x * self.m", **IMAGE, sizes=(64, 64, 256, 256), init="self.m = nn.Parameter(torch.rand(b, 1, 1))"),
)


def tried(case: Case, facts: Facts, sweep: bool) -> list[str]:
    """Programs to run: the planner's first, or all for Hopper, and further settings of the first."""
    found = recognise(facts)
    rungs = ladder(Context(found=found, precision="tf32", arch="sm_90a", device="H200", facts=facts))
    texts = [write_program(found, rung, "sm_90a") for rung in rungs]
    if not sweep:
        return texts[:2]
    hopper = len(texts) - len(ladder(Context(found=found, precision="tf32", arch="sm_80", device="H200", facts=facts)))
    kept = texts[: max(hopper, 2)]
    first = parse(kept[0])
    place = len(found.before)
    main = first.stages[place]
    names = tuple(
        call.name for call in main.settings if call.name in ("threads_per_row", "threads", "unroll", "split", "cluster")
    )
    free = Stage(
        operation=main.operation,
        settings=tuple(call for call in main.settings if call.name not in names),
        epilogues=main.epilogues,
        result=main.result,
    )
    for stage in configurations(free, only=names):
        if {call.name for call in stage.settings} == {call.name for call in main.settings} and all(
            _near(call, main) for call in stage.settings
        ):
            kept.append(format_program(Program(stages=(*first.stages[:place], stage, *first.stages[place + 1 :]))))
    return [text for text in dict.fromkeys(kept) if not check(parse(text))]


def _near(call: Call, main: Stage) -> bool:
    """Within a factor of two of what the planner has."""
    own = next(item for item in main.settings if item.name == call.name).positional
    return own == call.positional or (
        isinstance(own[0], int) and isinstance(call.positional[0], int) and 0.5 <= call.positional[0] / own[0] <= 2
    )


def load(text: str, problem: Problem, facts: Facts, folder: Path) -> Any:
    """The program's file, imported."""
    path = folder / f"candidate_{abs(hash((text, problem.name)))}.py"
    path.write_text(compile_program(text, binding_of(problem, facts, recognise(facts))))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(case: Case, problem: Problem, device: str) -> tuple[Any, Any, list[torch.Tensor]]:
    """(the problem's module, the reference, inputs), on the device; inputs are drawn there."""
    torch.manual_seed(1)
    with torch.device(device):
        module = loading.load_module(problem, ())
        return module, module.Model(*module.get_init_inputs()), module.get_inputs()


def once(call: Callable[[], Any], flush: torch.Tensor) -> float:
    """Microseconds of one call on the device: L2 overwritten, then the device kept busy while the host enqueues the
    call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    torch.cuda._sleep(1_000_000)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def interleaved(calls: dict[str, Callable[[], Any]], flush: torch.Tensor, rounds: int) -> dict[str, float]:
    """Medians, all in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(once(call, flush))
    return {name: round(statistics.median(taken), 1) for name, taken in times.items()}


def difference(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference over the largest magnitude; for places (argmax) the share that differs."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype == torch.int64:
        return float((got != wanted).float().mean())
    return float((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))


def compiled(reference: Any, inputs: list[torch.Tensor], wanted: bool) -> Callable[[], Any] | None:
    """torch.compile's version, called once; None where it fails or is not wanted."""
    if not wanted:
        return None
    try:
        fast = torch.compile(reference, mode="max-autotune-no-cudagraphs")
        fast(*inputs)
        return lambda: fast(*inputs)
    except Exception as error:
        print(f"# torch.compile: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return None


def measured(
    case: Case, arguments: argparse.Namespace, folder: Path, copy_tbs: float, flush: torch.Tensor | None
) -> list[dict[str, Any]]:
    """All programs of one case."""
    problem = Problem(name=case.name, source=case.source(arguments.small or arguments.dry_run), precision="tf32")
    facts = inspect(problem)
    module, reference, inputs = made(case, problem, "cpu" if arguments.dry_run else "cuda")
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        before = {name: value.clone() for name, value in reference.state_dict().items()}
        wanted = reference(*inputs)
        least = sum(item.numel() * item.element_size() for item in (*inputs, wanted, *reference.parameters()))
        fast = compiled(reference, inputs, not (arguments.dry_run or arguments.no_compile))
        for text in tried(case, facts, arguments.sweep):
            row: dict[str, Any] = {"case": case.name, "program": text, "bytes": least}
            try:
                start = time.perf_counter()
                model = load(text, problem, facts, folder).ModelNew(*module.get_init_inputs()).to(inputs[0].device)
                model.load_state_dict(before)
                got = model(*inputs)
                if flush is not None:
                    torch.cuda.synchronize()
                row |= {"first_call_s": round(time.perf_counter() - start, 2), "error": difference(got, wanted)}
                del got
                row |= _timed(model, reference, fast, inputs, least, copy_tbs, flush, arguments.rounds)
                if not row["error"] < (1e-6 if wanted.dtype == torch.int64 else 2e-4):
                    row["failed"] = "wrong result"
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:600]
                if arguments.dry_run:
                    traceback.print_exc(limit=-2)
            rows.append(row)
            print(json.dumps({key: value for key, value in row.items() if key != "bytes"}), flush=True)
    return rows


def _timed(
    model: Any,
    reference: Any,
    fast: Callable[[], Any] | None,
    inputs: list[torch.Tensor],
    least: int,
    copy_tbs: float,
    flush: torch.Tensor | None,
    rounds: int,
) -> dict[str, Any]:
    if flush is None:
        return {}
    calls: dict[str, Callable[[], Any]] = {
        "us": lambda: model(*inputs),
        "eager_us": lambda: reference(*inputs),
        **({"compiled_us": fast} if fast else {}),
    }
    times: dict[str, Any] = dict(interleaved(calls, flush, rounds))
    rate = least / times["us"] / 1e6
    times |= {
        "tbs": round(rate, 3),
        "share_of_copy": round(rate / copy_tbs, 3),
        "to_eager": round(times["eager_us"] / times["us"], 3),
    }
    if fast:
        times["to_compiled"] = round(times["compiled_us"] / times["us"], 3)
    torch.cuda.synchronize()
    start = time.perf_counter()
    model(*inputs)
    times["host_us"] = round((time.perf_counter() - start) * 1e6, 1)
    return times


def copy_rate(flush: torch.Tensor) -> float:
    """TB/s of a device-to-device copy of 1 GB, read plus written."""
    a = torch.empty(1 << 28, device="cuda").normal_()
    b = torch.empty_like(a)
    taken = interleaved({"copy": lambda: b.copy_(a)}, flush, 20)["copy"]
    return 2 * a.numel() * 4 / taken / 1e6


def main() -> int:
    """Measure, print, write; 1 when anything fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, help="default: rows.json in $OUT or here; a dry run writes nothing without it"
    )
    parser.add_argument("--limit-s", type=float, default=220.0, help="no new case after this")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--small", action="store_true", help="small shapes on the GPU: only to see that all works")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    out = arguments.out or (None if arguments.dry_run else Path(os.environ.get("OUT", ".")) / "rows.json")
    flush = None if arguments.dry_run else torch.empty(1 << 27, device="cuda")
    copy_tbs = copy_rate(flush) if flush is not None else 1.0
    print(f"# copy: {copy_tbs:.3f} TB/s", flush=True)
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    wanted = [case for case in CASES if not arguments.only or case.name in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as folder, device(arguments.dry_run):
        for case in wanted:
            if time.monotonic() - start > arguments.limit_s:
                print(f"# no time left for {case.name}", flush=True)
                continue
            try:
                rows += measured(case, arguments, Path(folder), copy_tbs, flush)
            except Exception as error:
                rows.append({"case": case.name, "failed": f"{type(error).__name__}: {error}"[:600]})
                print(json.dumps(rows[-1]), flush=True)
            if flush is not None:
                torch.cuda.empty_cache()
                torch._dynamo.reset()
            if out is not None:
                out.write_text(
                    json.dumps(
                        {
                            "copy_tbs": copy_tbs,
                            "torch": torch.__version__,
                            "seconds": round(time.monotonic() - start),
                            "rows": rows,
                        },
                        indent=1,
                    )
                    + "\n"
                )
    failed = [row for row in rows if "failed" in row]
    print(f"# {len(rows)} rows, {len(failed)} failed, {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


@contextlib.contextmanager
def device(dry: bool) -> Any:
    """The GPU, or the emulator for a dry run."""
    if not dry:
        yield
        return
    from workbench.emulator import emulated

    with emulated(device="H200", arch="sm_90a"):
        yield


if __name__ == "__main__":
    sys.exit(main())
