"""The aggregation over compressed rows against torch and PyTorch Geometric, as called, on an H100 or H200.

    python tests/bench/aggregate_on_gpu.py --out results.json [--graphs 10] [--columns 128] [--limit-s 500]
    python tests/bench/aggregate_on_gpu.py --dry-run             (small graphs on the emulator: no GPU, no times)

Each graph is generated (stochastic block, RMAT, Barabasi-Albert; seeds 0 to 3; communities of the last two by Louvain's
method, without igraph by that in torch on the GPU), and its rows are those of a mini-batch, or of the whole graph.
Programs are the rungs of the planner's ladder; they are first compared with float64. Times are CUDA events around one
call, L2 flushed before it, all sides in turn, medians. `share_of_copy` is the rate on unique bytes (each row of x that
is named, indices, offsets and the result once) over that of a copy in the same run,
`share_of_own_copy` over that of a copy of as many bytes, `read_rate` that of all bytes. `speedup` is that of the
fastest rung, as `tune` finds it, against the fastest of torch.sparse.mm, segment_reduce, index_add and
torch_geometric's own, if it is installed; `first` that of the planner's first version, `before` that of the fastest
program of BEFORE. The geometric means come last.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import functools
import importlib.util
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.executors.gpu.telemetry import driver_version
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.generators import Nodes, barabasi_albert, rmat, stochastic_block_model
from workbench.language import Binding
from workbench.language.parser import format_call
from workbench.proposers.ladders.graphs.aggregate import Size, rungs_of

INIT = "def __init__(self):\n    super().__init__()\n"
NAMES = ("x", "indptr", "indices")
BEFORE = (  # what was measured before there was a merge path
    ".rows(8) .threads_per_row(32) .split(1) .vector(4) .unroll(4)",
    ".rows(8) .threads_per_row(32) .split(1) .vector(4) .unroll(8)",
    ".rows(2) .threads_per_row(32) .split(4) .vector(4) .unroll(4)",
    ".rows(2) .threads_per_row(32) .split(1) .vector(4) .unroll(4)",
    ".rows(2) .threads_per_row(32) .split(8) .vector(4) .unroll(2)",
)
ROUNDS, KNOBS = 20, ((1.0, 0.5), (0.125, 1.0))  # (mix, p): random, and the paper's recommended point
Call = Callable[[], torch.Tensor]
Rows = tuple[str, int, np.ndarray, np.ndarray]  # name, nodes, offsets, indices
Case = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]


class Clock:
    """Says what is done, with the seconds since the start; ends the process if it goes far over the limit."""

    def __init__(self, limit_s: float) -> None:
        self.began, self.limit_s = time.monotonic(), limit_s
        faulthandler.dump_traceback_later(limit_s + 15, exit=True)

    def say(self, text: str) -> None:
        """Print it at once."""
        print(f"[{time.monotonic() - self.began:.1f} s] {text}", flush=True)

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() - self.began > self.limit_s


def make_cases(number: int, nodes: int, roots: int, clock: Clock) -> list[Rows]:
    """The rows of a graph of one of three kinds, in turn: all of them, and those of a mini-batch at each of KNOBS."""
    given, seed = Nodes(features=1), number // 3
    if number % 3 == 0:
        graph = stochastic_block_model(nodes, max(nodes // 200, 4), seed=seed, given=given)
    elif number % 3 == 1:
        graph = rmat(int(math.log2(nodes)), seed=seed, given=given)
    else:
        graph = barabasi_albert(nodes, seed=seed, given=given)
    clock.say(f"{graph.name} is made")
    found = [(f"{graph.name} whole", graph.nodes, graph.indptr, graph.indices)]
    for mix, p in KNOBS:
        batches = MiniBatches(graph, Policy(mix=mix, p=p, batch=roots, fanouts=(10, 10)))
        batch = next(iter(batches.epoch(0)))
        found.append((f"{graph.name} batch, mix {mix:g}, p {p:g}", graph.nodes, batch.indptr, batch.reads()))
    return found


def to_device(indptr: np.ndarray, indices: np.ndarray, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and indices as int64 on the device, as torch's own functions want them."""
    return torch.from_numpy(indptr).to(device), torch.from_numpy(indices.astype(np.int64)).to(device)


@functools.cache
def load(settings: str, folder: Path) -> Any:
    """The module of a program; it compiles at its first call."""
    program = f"aggregate(x, indptr, indices) .arch(sm_90a) {settings}"
    path = folder / f"candidate_{abs(hash(program))}.py"
    path.write_text(compile_program(program, Binding(init_source=INIT, forward_arguments=NAMES)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def list_settings(x: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor) -> list[str]:
    """The settings of the planner's rungs in order, without the last, which is the simplest."""
    size = Size(columns=x.shape[1], edges=len(indices), rows=len(indptr) - 1)
    return [
        " ".join(f".{format_call(call)}" for call in rung.settings)
        for rung in rungs_of(size, 16 // x.element_size())[:-1]
    ]


def make_others(x: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor) -> dict[str, Call]:
    """What people call for the same sum; what is made once for a graph is made here."""
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=x.device), indptr.diff())
    ones = torch.ones(len(indices), dtype=x.dtype, device=x.device)
    matrix = torch.sparse_csr_tensor(indptr, indices, ones, (len(indptr) - 1, len(x)))
    found: dict[str, Call] = {
        "torch.sparse.mm": lambda: torch.sparse.mm(matrix, x),
        "segment_reduce": lambda: torch.segment_reduce(x[indices], "sum", offsets=indptr),
        "index_add": lambda: x.new_zeros(len(indptr) - 1, x.shape[1]).index_add_(0, rows, x[indices]),
    }
    if importlib.util.find_spec("torch_geometric"):
        from torch_geometric.utils import scatter

        found["torch_geometric scatter"] = lambda: scatter(x[indices], rows, 0, len(indptr) - 1, "sum")
    return found


def timed(sides: dict[str, Call], flush: torch.Tensor) -> dict[str, float]:
    """Median seconds of each side, L2 flushed before every call, all in turn."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(ROUNDS):
        for name, side in sides.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            side()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def count_unique_bytes(x: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor) -> int:
    """Bytes of each row of x that is named, of offsets, indices and the result, each once."""
    row = x.shape[1] * x.element_size()
    return (indices.unique().numel() + len(indptr) - 1) * row + 8 * (len(indptr) + len(indices))


def measure(
    case: Case, folder: Path, flush: torch.Tensor | None, copy_rate: float, more: list[str], clock: Clock
) -> dict[str, Any]:
    """One case: programs that are wrong, and the times of all others."""
    name, *tensors = case
    x, indptr, indices = tensors
    unique = count_unique_bytes(*tensors)
    row: dict[str, Any] = {"case": name, "edges": len(indices), "unique_bytes": unique, "us": {}}
    if flush is not None:
        wanted = torch.segment_reduce(x.double()[indices], "sum", offsets=indptr)
    else:
        wanted = torch.segment_reduce(x.cpu().double()[indices.cpu()], "sum", offsets=indptr.cpu())
    rungs, sides = list_settings(*tensors), dict[str, Call]()
    for settings in dict.fromkeys((*rungs, *BEFORE, *more)):
        loaded = load.cache_info().misses
        model = load(settings, folder)
        error = float((model(x, indptr, indices).to(wanted.device).double() - wanted).abs().max())
        if load.cache_info().misses > loaded:
            clock.say(f"compiled {settings}")
        row.setdefault("errors", {})[settings] = error
        if error <= 1e-4 * float(wanted.abs().max()):
            sides[settings] = lambda model=model: model(x, indptr, indices)  # type: ignore[misc]
    row["wrong"] = [settings for settings in row["errors"] if settings not in sides]
    if flush is None:
        return row
    others = make_others(x, indptr, indices)
    source, target = (torch.empty(unique // 2, dtype=torch.uint8, device=x.device) for _ in range(2))
    seconds = timed({**sides, **others, "copy": lambda: target.copy_(source)}, flush)
    row["us"] = {side: value * 1e6 for side, value in seconds.items()}
    best, theirs = min(rungs, key=lambda side: seconds.get(side, math.inf)), min(seconds[side] for side in others)
    ours, all_bytes = seconds[best], 8 * (len(indptr) + len(indices)) + 4 * x.shape[1] * (len(indices) + len(indptr))
    return row | {
        "best": best,
        "share_of_copy": unique / ours / copy_rate,
        "share_of_own_copy": seconds["copy"] / ours,
        "read_rate": all_bytes / ours,
        "speedup": theirs / ours,
        "first": theirs / seconds[rungs[0]],
        "before": theirs / min(seconds[side] for side in BEFORE),
    }


def describe_run(options: argparse.Namespace, copy_rate: float) -> dict[str, Any]:
    """What the results' file says of the run."""
    return {
        "date": f"{datetime.date.today()}",
        "gpu": torch.cuda.get_device_name(),
        "driver": driver_version(),
        "torch": torch.__version__,
        "nodes": options.nodes,
        "columns": options.columns,
        "copy_bytes_per_s": copy_rate,
    }


def measure_all(options: argparse.Namespace, folder: Path, clock: Clock) -> list[dict[str, Any]]:
    """The rows of all cases; the results' file is written after each."""
    device = "cpu" if options.dry_run else "cuda"
    flush, copy_rate, rows = None, 1.0, list[dict[str, Any]]()
    if not options.dry_run:
        flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
        copy_rate = 2 * source.numel() / timed({"copy": lambda: target.copy_(source)}, flush)["copy"]
        clock.say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a copy: {copy_rate / 1e12:.2f} TB/s")
        del source, target
    out = options.out or Path(os.environ.get("OUT", ".")) / "aggregate_on_gpu.json"
    numbers = (number for number in range(options.graphs) if not clock.is_over())
    given = (make_cases(number, options.nodes, options.roots, clock) for number in numbers)
    for name, nodes, indptr, indices in itertools.chain.from_iterable(given):
        x = torch.randn(nodes, options.columns, generator=torch.Generator(device).manual_seed(0), device=device)
        case = (name, x, *to_device(indptr, indices, device))
        if options.dry_run:
            from workbench.emulator import emulated  # not needed on a GPU

            with emulated(arch="sm_90a", device="H200"):
                rows.append(measure(case, folder, None, 1.0, options.more, clock))
        else:
            rows.append(measure(case, folder, flush, copy_rate, options.more, clock))
            out.write_text(json.dumps({**describe_run(options, copy_rate), "rows": rows}, indent=1))
        clock.say(json.dumps({key: value for key, value in rows[-1].items() if key != "errors"}))
    return rows


def main() -> int:
    """All graphs, or the file of their cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--graphs", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=1 << 17)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--roots", type=int, default=4096)
    parser.add_argument("--limit-s", type=float, default=500)
    parser.add_argument("--more", nargs="*", default=[], help="further settings, timed beside the rungs")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    clock = Clock(options.limit_s)
    clock.say(f"torch {torch.__version__}, {os.cpu_count()} cores")
    if options.dry_run:
        options.graphs, options.nodes, options.columns, options.roots = 3, 512, 12, 64
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_all(options, Path(folder), clock)
    for which in ("speedup", "first", "before"):
        if found := [row[which] for row in rows if which in row]:
            clock.say(f"geometric mean of {len(found)}, {which}: {math.prod(found) ** (1 / len(found)):.2f}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
