"""Compares trainings on mini-batches with those on uniform ones: time to convergence, accuracy, where the time goes."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import comm_rand_on_gpu
from page_parts import table

from workbench.graphs.sweep import describe
from workbench.graphs.training import Result

PAPER = {"mean": 1.8, "best": 2.76, "points lost": 0.42, "most points lost": 1.79}  # arXiv 2504.18082, abstract
PARTS = ("draw_s", "gather_s", "copy_s", "step_s")


@dataclasses.dataclass(frozen=True)
class Line:
    """A policy on one graph with one model, against uniform batches; means over seeds."""

    graph: str
    model: str
    rate: float
    policy: str
    results: list[Result]
    stock: list[Result]

    @property
    def wanted(self) -> dict[int, float]:
        """The accuracy that counts as convergence, by seed."""
        return {one.policy.seed: max(one.curve) - 0.002 - comm_rand_on_gpu.SLACK for one in self.stock}

    @property
    def speedup(self) -> float:
        """Times faster to convergence, of the means over seeds; 0 if a seed never converged."""
        base = fmean(comm_rand_on_gpu.reach(one, self.wanted)[1] for one in self.stock)
        return base / self.seconds

    @property
    def epochs(self) -> float:
        """Epochs to convergence, the mean over seeds; infinite if one never did."""
        return fmean(comm_rand_on_gpu.reach(one, self.wanted)[0] for one in self.results)

    @property
    def seconds(self) -> float:
        """Seconds to convergence with preprocessing, the mean over seeds; infinite if one never did."""
        return fmean(comm_rand_on_gpu.reach(one, self.wanted)[1] for one in self.results)

    @property
    def epoch_speedup(self) -> float:
        """Times faster an epoch, preprocessing aside."""
        mine, base = (fmean(one.epoch_s or math.nan for one in some) for some in (self.results, self.stock))
        return base / mine

    @property
    def points(self) -> float:
        """Points of test accuracy above uniform batches."""
        mine, base = (fmean(one.test or math.nan for one in some) for some in (self.results, self.stock))
        return 100 * (mine - base)


def compare(results: Sequence[Result]) -> list[Line]:
    """A line for each graph, model and policy; seeds that uniform batches were not trained with are left out."""
    groups: dict[tuple[str, str, float], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        label = describe(dataclasses.replace(one.policy, seed=0)).removesuffix(", seed 0")
        groups[one.graph, one.training.model, one.training.learning_rate][label].append(one)
    lines = []
    for (graph, model, rate), by_policy in groups.items():
        stock = by_policy["uniform"]
        seeds = {one.policy.seed for one in stock}
        for label, found in sorted(by_policy.items(), key=lambda one: (one[0] != "uniform", one[0])):
            kept = [one for one in found if one.policy.seed in seeds]
            if kept:
                some = {one.policy.seed for one in kept}
                lines.append(Line(graph, model, rate, label, kept, [one for one in stock if one.policy.seed in some]))
    return lines


def summarise_policies(lines: Sequence[Line]) -> str:
    """A table with a row for each policy over all graphs and models, and the paper's row.

    Means and extremes of the time to convergence are over the pairs of graph and model in which every seed converged.
    """
    head = ["policy", "converged", "to convergence, mean", "best", "least", "an epoch, mean", "best"]
    head += ["points lost, mean", "worst"]
    rows = []
    for label in dict.fromkeys(line.policy for line in lines):
        mine = [line for line in lines if line.policy == label]
        to = [line.speedup for line in mine if line.speedup] or [math.nan]
        epoch, lost = [line.epoch_speedup for line in mine], [-line.points for line in mine]
        figures = (fmean(to), max(to), min(to), fmean(epoch), max(epoch), fmean(lost), max(lost))
        reached = sum(1 for line in mine if line.speedup)
        rows.append([label, f"{reached} of {len(mine)}", *(_write(one) for one in figures)])
    paper = [
        PAPER["mean"],
        PAPER["best"],
        math.nan,
        math.nan,
        math.nan,
        PAPER["points lost"],
        PAPER["most points lost"],
    ]
    rows.append(["COMM-RAND in its paper", "", *(_write(one) for one in paper)])
    return table(head, rows)


def _write(figure: float) -> str:
    return "-" if math.isnan(figure) else f"{figure + 0.0:.2f}"


def tabulate(lines: Sequence[Line]) -> str:
    """A table with a row for each graph, model and policy, and where its time goes."""
    head = [
        "graph",
        "model",
        "rate",
        "policy",
        "seeds",
        "unique rows",
        "GB an epoch",
        "epochs",
        "test",
        "points",
        "epoch s",
    ]
    head += ["drawing", "gathering", "copying", "steps", "preparing s", "s to accuracy", "speed-up"]
    rows = []
    for line in lines:
        found = line.results
        epochs, seconds = line.epochs, line.seconds
        parts = [one.parts for one in found if one.parts is not None]
        row_bytes = found[0].locality.feature_bytes / found[0].locality.unique_rows
        rows.append(
            [line.graph, line.model, f"{line.rate:g}", line.policy, f"{len(found)}",
             f"{fmean(one.locality.unique_rows for one in found):.0f}",
             f"{fmean(one.rows for one in parts) * row_bytes / 1e9:.1f}",
             f"{epochs:.1f}" if math.isfinite(epochs) else "not reached",
             f"{fmean(one.test or math.nan for one in found):.2%}", f"{line.points:+.2f}",
             f"{fmean(one.epoch_s or math.nan for one in found):.3f}",
             *(f"{fmean(getattr(one, name) for one in parts):.3f}" for name in PARTS),
             f"{fmean(one.prepare_s for one in found):.2f}",
             *((f"{seconds:.2f}", f"{line.speedup:.2f}") if math.isfinite(seconds) else ("-", "-"))]
        )  # fmt: skip
    return table(head, rows)
