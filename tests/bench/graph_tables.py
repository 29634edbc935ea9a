"""Sections of the page of measurements on caches, aggregation and mini-batches of graphs."""

from __future__ import annotations

import json
import math
from statistics import fmean
from typing import Any

import comm_rand_on_gpu
import graph_comparison
from page_parts import RESULTS, geometric_mean, load, section, source, table, time

from workbench.graphs import study, sweep
from workbench.language.parser import format_call
from workbench.proposers.ladders.graphs.aggregate import Size, rungs_of

LAUNCHES = "h200_minibatch_launches"
IN_HOST_MEMORY = "h200_minibatches_in_host_memory"


def caches() -> str:
    """The emulator's L2 against Nsight Compute, and the aggregation against libraries."""
    l2, sums = load("h200_l2"), load("h200_aggregate")
    rows = [
        [name, f"{l2['emulated'][name]['all']:.1%}", f"{real['all']:.1%}", f"{l2['emulated'][name]['loads']:.1%}",
         f"{real['loads']:.1%}", "fitted" if name in l2["fitted_on"] else ""]
        for name, real in l2["settings"].items()
    ]  # fmt: skip
    speedups, before = ([row[which] for row in sums["rows"]] for which in ("speedup", "before"))
    ahead = [gain for row in sums["rows"] if (gain := _gain_of_prefetch(row)) > 1]
    firsts = [_speedup_of_first(sums, row) for row in sums["rows"]]
    return section(
        "## Caches and aggregation",
        "Share of sectors that hit L2 in a gather of rows of a graph (`aggregate`), by the emulator's L2 and by Nsight "
        f"Compute on an {l2['machine']['gpu']}, over the two knobs of mini-batches. One number, how many consecutive "
        "CTAs an SM gets, was fitted to two of the settings; the two partitions and the L1 of an SM were chosen with "
        "all six in view, so that none of them is unseen:",
        table(["setting", "all, emulator", "all, ncu", "loads, emulator", "loads, ncu", ""], rows),
        source("h200_l2", "l2_on_gpu.py"),
        f"`aggregate` of {sums['columns']} float32 columns over up to {sums['nodes']:,} nodes on an {sums['gpu']}, as "
        "called, against the fastest of torch.sparse.mm, segment_reduce, index_add and PyTorch Geometric's scatter. "
        f"Geometric means of {len(sums['rows'])} cases on ten graphs: the fastest rung of the ladder "
        f"{geometric_mean(speedups):.2f}, the planner's first version {geometric_mean(firsts):.2f} (its rule was "
        f"chosen with these rows in view), and {geometric_mean(before):.2f} for the fastest of five programs without "
        "the merge path and columns in parts. Indices loaded a step ahead were measured too, were faster in "
        f"{len(ahead)} cases, by {max(ahead) - 1:.0%} at most, and are not offered. *Copy*: unique bytes per second "
        "over those of a copy of 1 GiB; rows that are read again count once, so it falls with re-use. *Own copy*: the "
        "time of a copy of as many bytes over ours. *TB/s*: all bytes that are read and written, from DRAM or a cache. "
        "Other work ran on cores of the host and slowed the calls of some rows of the last graphs.",
        table(
            [
                "graph",
                "rows of",
                "edges",
                "fastest settings",
                "ours, us",
                "before, us",
                "best other, us",
                "speed-up",
                "first",
                "copy",
                "own copy",
                "TB/s",
            ],
            _aggregations(sums),
        ),
        source("h200_aggregate", "aggregate_on_gpu.py"),
    )


def _gain_of_prefetch(row: Any) -> float:
    """The fastest program without prefetched indices over the fastest with them."""
    ours = {side: us for side, us in row["us"].items() if side.startswith(".")}
    with_it = {side: us for side, us in ours.items() if "prefetch" in side}
    return min(us for side, us in ours.items() if side not in with_it) / min(with_it.values())


def _speedup_of_first(sums: Any, row: Any) -> float:
    """The speed-up of the ladder's first rung; no case has so long rows in the mean that their number matters."""
    rung = rungs_of(Size(columns=sums["columns"], edges=row["edges"], rows=row["edges"]), 4)[0]
    settings = " ".join(f".{format_call(call)}" for call in rung.settings)
    return float(row["us"][row["best"]] * row["speedup"] / row["us"][settings])


def _aggregations(sums: Any) -> list[list[str]]:
    found = []
    for row in sums["rows"]:
        graph, _, case = row["case"].partition(" ")
        ours = row["us"][row["best"]]
        other = ours * row["speedup"]
        found.append(
            [graph, case, f"{row['edges']}", f"`{row['best']}`", f"{ours:.1f}", f"{other / row['before']:.1f}",
             f"{other:.1f}", f"{row['speedup']:.2f}", f"{_speedup_of_first(sums, row):.2f}",
             f"{row['share_of_copy']:.2f}", f"{row['share_of_own_copy']:.2f}", f"{row['read_rate'] / 1e12:.1f}"]
        )  # fmt: skip
    return found


def mini_batches_on_gpu() -> str:
    """Training by policy of mini-batches on a GPU."""
    results = [row.result for row in sweep.read_rows(RESULTS / "h200_minibatches.jsonl")]
    drawing = sum(one.sample_s or 0 for one in results) / sum(one.epoch_s or 1 for one in results)
    block = [one for one in results if one.graph == results[0].graph]
    rows = {(one.policy.name, one.policy.mix, one.policy.p): one.locality.unique_rows for one in block}
    return section(
        "### On a GPU",
        f"Graphs of eight to nine million edges, 512 features, batches of 4,096 roots, on an {results[0].device}; "
        "batches drawn by torch on the GPU, seconds to find communities there counted. Means over the seeds that were "
        "run; rows, hits and label bits are those of the first batches of seed 0. Four trainings ran side by side, "
        "each on a GPU of its own, beside other work on other cores of the host. "
        "**COMM-RAND is not faster here.** An epoch "
        f"takes about the same time whatever the policy ({drawing:.0%} of it is drawing), though unique rows fall "
        f"{rows['uniform', 1.0, 0.5] / rows['comm-rand', 0.125, 1.0]:.1f} times on {results[0].graph}: probably the "
        "launches of many small kernels bound a batch (not profiled). And where labels follow communities, uniform "
        "batches converge before communities are found. Accuracy is kept at (0.125, 0.9) and lost at the structural "
        "end where communities are weak.",
        comm_rand_on_gpu.tabulate(results),
        "Source: `results/h200_minibatches.jsonl`, `tests/bench/comm_rand_on_gpu.py --epochs 40 --patience 5`, "
        f"{dict(_versions('h200_minibatches'))['date'][:10]}.",
        *_launches(),
        *_features_on_host(),
    )


def _launches() -> list[str]:
    """Where an epoch's time goes with features on the device, if it was measured."""
    if not (RESULTS / f"{LAUNCHES}.json").exists():
        return []
    found = load(LAUNCHES)
    rows = [
        [row["model"], row["policy"], "two batches ahead" if row["ahead"] else "one by one", f"{row['epoch_s']:.3f}",
         f"{row['parts']['draw_s']:.3f}", f"{row['parts']['step_s']:.3f}", f"{row['busy_s']:.3f}",
         f"{row['kernels'] / row['batches']:.0f}"]
        for row in found["rows"]
    ]  # fmt: skip
    return [
        "Where the time goes: an epoch with batches drawn one by one, and drawn ahead by a thread with a stream of its "
        "own; *kernels*: the durations of all kernels and copies of an epoch under torch's profiler, added, and how "
        "many a batch has. What an epoch takes beyond them, the host takes to launch them and to wait for sizes:",
        table(["model", "policy", "batches", "epoch s", "drawing s", "steps s", "kernels s", "a batch"], rows),
        source(LAUNCHES, "launches_on_gpu.py"),
    ]


def _features_on_host() -> list[str]:
    results = [row.result for row in sweep.read_rows(RESULTS / f"{IN_HOST_MEMORY}.jsonl")]
    lines = graph_comparison.compare(results)
    pilots = [row.result for row in sweep.read_rows(RESULTS / f"{IN_HOST_MEMORY}_pilot.jsonl")]
    rates = {one.training.model: one.training.learning_rate for one in results}
    first, seeds = results[0].training, max(len(line.results) for line in lines)
    return [
        "### Features in the host's memory",
        "As where a graph is larger than a GPU's memory: what counts is the rows of a batch that threads gather in "
        "pinned memory and that are copied. Block models of different size, density and strength, 1,024 features, "
        f"batches of 8,192 roots, two models, {seeds} seed{'s' * (seeds > 1)}, on {results[0].device}s, one for each "
        "training; drawing, gathering and copying run ahead of the step, for all policies alike. *To convergence*: how "
        "many times sooner than uniform batches a policy reaches their accuracy at convergence less 0.5 points, "
        "preprocessing counted, where every seed did; *an epoch*: how many times shorter it is. At most "
        f"{first.epochs} epochs, or {first.patience} without a gain: where accuracy still rose, convergence is to the "
        "best so far. Over all graphs and models, beside the figures of COMM-RAND's abstract (real graphs, an A100, "
        "DGL):",
        graph_comparison.summarise_policies(lines),
        *_say_where_time_goes(lines),
        graph_comparison.tabulate(lines),
        "Noise and centres of the features were chosen by small pilots on a CPU with the curves of uniform and of "
        "biased batches in view: settings at which biased batches lost more were dropped. The learning rate "
        f"({', '.join(f'{model} {rate:g}' for model, rate in rates.items())}) is the one at which uniform batches "
        "reached the highest validation accuracy on a graph of its own, of those at which they need eight epochs or "
        "more: with fewer they would be done before communities are found. What they need at each rate that was tried, "
        f"from the lowest, in at most {pilots[0].training.epochs} epochs (other policies ran at the chosen rate only):",
        graph_comparison.tabulate(graph_comparison.compare(pilots)),
        f"Source: `results/{IN_HOST_MEMORY}.jsonl` and `_pilot.jsonl`, `tests/bench/comm_rand_in_host_memory.py`, "
        f"{dict(_versions(IN_HOST_MEMORY))['date'][:10]}.",
        *_noisier_features(),
    ]


def _say_where_time_goes(lines: list[graph_comparison.Line]) -> list[str]:
    stock = [one for line in lines if line.policy == "uniform" for one in line.results]
    share = fmean(one.parts.gather_s / (one.epoch_s or math.nan) for one in stock if one.parts)
    bytes_of_row = [one.locality.feature_bytes / one.locality.unique_rows for one in stock]
    rate = fmean(
        one.parts.rows * size / one.parts.gather_s for one, size in zip(stock, bytes_of_row, strict=True) if one.parts
    )
    near = [line for line in lines if line.policy.startswith("comm-rand mix=0.125")]
    prepared = [fmean(one.prepare_s for one in line.results) / line.seconds for line in near if line.speedup]
    missed = [
        f"{line.policy} with {line.model} on {line.graph} ({line.points:+.2f} points)"
        for line in near if not line.speedup
    ]  # fmt: skip
    worst = min(lines, key=lambda line: line.points)
    ends = fmean(one.test or math.nan for one in worst.results)
    return [
        f"Where the time goes: the threads that gather rows take {share:.0%} of an epoch of uniform batches (at "
        f"{rate / 1e9:.0f} GB/s), so that rows saved are time saved, until drawing and steps, which hardly depend on "
        f"the policy, bound an epoch. Then preprocessing weighs: {min(prepared):.0%} to {max(prepared):.0%} of the "
        "time to convergence at mix 0.125. "
        + (f"Not reached within the epochs: {'; '.join(missed)}. " if missed else "")
        + f"The structural end is worse, and can fail: {worst.policy} with {worst.model} on {worst.graph} ends at "
        f"{ends:.0%}, {-worst.points:.0f} points below uniform batches.",
        "Parts are seconds of an epoch, each measured by itself; they run side by side. Rows are those of the first "
        "batches of seed 0:",
    ]


def recorded_maps() -> str:
    """The maps over both knobs that come with the package."""
    studied = study.read_recorded()
    first = studied.results[0]
    rows = [
        [f"{one.policy.mix:g}", f"{one.policy.p:g}", f"{one.locality.unique_rows:.0f}",
         f"{one.locality.feature_bytes / 1e6:.1f}", f"{one.locality.hit_rate:.1%}", time(one.epoch_s), f"{one.val:.2%}"]
        for one in studied.results if one.policy.name == "comm-rand"
    ]  # fmt: skip
    place = ", features in the host's memory" * (first.training.features == "host")
    return section(
        "### Maps over both knobs",
        f"What `cutegen minibatch --recorded` draws: {first.graph}, {first.training.model}, a fixed number of "
        f"{first.training.epochs} epochs on {first.device}{place}; {studied.recorded}. Hits are those of a model of a "
        f"cache of {studied.study.cache_kib >> 10 or studied.study.cache_kib} "
        f"{'MiB' if studied.study.cache_kib >> 10 else 'KiB'}.",
        table(["mix", "p", "unique rows", "MB a batch", "hit rate", "epoch", "validation"], rows),
        "Source: `workbench/graphs/recorded.jsonl`, `cutegen minibatch`.",
    )


def _noisier_features() -> list[str]:
    results = [row.result for row in sweep.read_rows(RESULTS / "h200_minibatches_host.jsonl")]
    epoch = {(one.policy.name, one.policy.mix, one.policy.p): one.epoch_s or math.nan for one in results}
    gain = epoch["uniform", 1.0, 0.5] / epoch["comm-rand", 0.125, 1.0]
    return [
        "Noisier features are another matter. In an earlier run (512 features, gathered and copied one batch after the "
        f"other) an epoch at (0.125, 1) is {gain:.1f} times shorter too, but a model that sees few communities in a "
        "batch does not reach uniform batches' accuracy before it stops (one seed, stopped after three epochs without "
        "a gain):",
        comm_rand_on_gpu.tabulate(results),
        "Source: `results/h200_minibatches_host.jsonl`, `tests/bench/comm_rand_on_gpu.py --graphs sbm --models sage "
        "--place host --spread 80 --seeds 1 --epochs 12 --patience 3`, "
        f"{dict(_versions('h200_minibatches_host'))['date'][:10]}.",
    ]


def _versions(name: str) -> list[list[str]]:
    first: list[list[str]] = json.loads((RESULTS / f"{name}.jsonl").read_text().split("\n", 1)[0])["record"]["versions"]
    return first


def mini_batches() -> str:
    """Rows, hits, epochs and accuracy by policy of mini-batches, from the CPU."""
    results = [row.result for row in sweep.read_rows(RESULTS / "cpu_minibatches.jsonl")]
    first = results[0].training
    return section(
        "## Mini-batches of graphs",
        f"Policies of mini-batches on three generated graphs of about 12,000 nodes and 100,000 to 170,000 edges, with "
        f"{first.model}, on a CPU. Counted: unique rows of a batch, label entropy; by a model of a cache of 256 "
        "KiB: hits. Trained until validation had not risen for "
        f"{first.patience} epochs; *epochs*: until validation over all neighbours was within 0.7 points of the best "
        "of uniform batches with the same seed, where every seed was; *points*: test accuracy less that of uniform "
        "batches. Only the first graph has strong communities (modularity "
        f"{results[0].modularity:.2f}; the others {', '.join(_modularities(results)[1:])}): without them, following "
        "them saves few rows and costs accuracy.",
        comm_rand_on_gpu.tabulate(results),
        "Source: `results/cpu_minibatches.jsonl`, `tests/bench/comm_rand_on_gpu.py --small --device cpu --epochs 40 "
        "--patience 4 --communities louvain`.",
    )


def _modularities(results: list[Any]) -> list[str]:
    return [f"{value:.2f}" for value in dict.fromkeys(result.modularity for result in results)]
