"""Trains a model on the mini-batches of a policy and measures accuracy, time and locality. Imports torch."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from workbench.errors import UserError
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.device.pipeline import Feed, Stopwatch
from workbench.graphs.graph import Graph
from workbench.graphs.loaders import Tensors
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.graphs.models import MODELS, GraphModel, ModelName
from workbench.records import record
from workbench.records.base import LATER

Sampler = Literal["auto", "device", "host"]
Place = Literal["device", "host"]
Report = Callable[[str], None]


@record
class Training:
    """How a model is trained: with Adam, for `epochs`, or fewer if validation accuracy has not risen for `patience`
    epochs (0: never stop early). 0 epochs measure the locality only. Batches are drawn by torch on `device`
    (sampler="device") or by numpy on the host; "auto" is the device where that is a CUDA GPU.
    Features lie on the device, or in the host's memory, as those of a graph that is larger than the device's: then the
    rows of each batch are gathered there and copied. `prefetch` batches are drawn ahead, and the rows of as many are
    fetched ahead, in threads of their own; 0: one thing after the other.
    """

    model: ModelName = "sage"
    hidden: int = 64
    heads: int = 4
    dropout: float = 0.3
    learning_rate: float = 0.003
    epochs: int = 10
    patience: int = 0
    device: str = "cpu"
    sampler: Sampler = dataclasses.field(default="auto", metadata=LATER)
    features: Place = dataclasses.field(default="device", metadata=LATER)
    prefetch: int = dataclasses.field(default=0, metadata=LATER)

    def check(self) -> None:
        """Raise `UserError` for a value that cannot be used."""
        if self.model not in MODELS:
            raise UserError(f"no model {self.model!r}; there are: {', '.join(MODELS)}")
        if self.sampler not in get_args(Sampler):
            raise UserError(f"no sampler {self.sampler!r}; there are: {', '.join(get_args(Sampler))}")
        if self.features not in get_args(Place):
            raise UserError(f"features lie on the {' or the '.join(get_args(Place))}, not {self.features!r}")
        leasts = {"hidden": 1, "heads": 1, "epochs": 0, "patience": 0, "prefetch": 0, "learning_rate": 0}
        for name, least in leasts.items():
            if getattr(self, name) < least:
                raise UserError(f"{name}={getattr(self, name)}: it must be at least {least}")
        find_device(self.device)


@record
class Parts:
    """Seconds of an epoch by part, each measured by itself; those of batches that are made ahead run side by side.

    Drawing batches; the host that gathers rows in its memory, if features lie there; the device that copies or gathers
    them; the steps of the optimizer, on the device. `rows` of features were fetched.
    """

    draw_s: float
    gather_s: float
    copy_s: float
    step_s: float
    rows: float


@record
class Result:
    """One run. Times are measured on `device`: means or medians over epochs, without evaluation, in seconds.

    `sample_s` is the time until batches were drawn: of numpy on the host, or, where `sampler` is the device, that which
    passed on it while it drew them.

    `curve` has validation accuracy (0 to 1) after each epoch, over all neighbours; `elapsed_s` the seconds of training
    until then. `val` and `test` are those of the epoch with the best validation accuracy. None without training.
    """

    graph: str
    method: str  # that found the communities
    modularity: float
    prepare_s: float
    policy: Policy
    training: Training
    device: str
    locality: EpochLocality
    epoch_s: float | None = None  # median
    sample_s: float | None = None  # of it, drawing batches: median
    val: float | None = None
    test: float | None = None
    best_epoch: int | None = None  # from 1
    curve: tuple[float, ...] = ()
    elapsed_s: tuple[float, ...] = ()
    sampler: Literal["device", "host"] = "host"
    parts: Parts | None = None  # medians over epochs

    def reached(self, accuracy: float) -> tuple[int, float] | None:
        """(epoch, seconds with preprocessing) at which validation first had this accuracy, or None."""
        for number, (value, seconds) in enumerate(zip(self.curve, self.elapsed_s, strict=True), 1):
            if value >= accuracy:
                return number, self.prepare_s + seconds
        return None

    @property
    def converged(self) -> tuple[int, float] | None:
        """(epoch, seconds with preprocessing) at which validation came within 0.2 points of the run's best."""
        return self.reached(max(self.curve) - 0.002) if self.curve else None


def train(
    prepared: Relabelled,
    policy: Policy,
    training: Training,
    cache: CacheModel | None = None,
    report: Report | None = None,
    measured: dict[Policy, EpochLocality] | None = None,
) -> Result:
    """Train one model and measure it. The seed is the policy's. Raises `UserError` for settings that do not fit.

    `measured` keeps the locality of policies on this graph, for the next model that trains with the same cache.
    """
    training.check()
    graph = prepared.graph
    device = find_device(training.device)
    batches = MiniBatches(graph, policy)
    on_device = DeviceMiniBatches(batches, device) if _draws_on_device(training, device) else None
    measured = {} if measured is None else measured
    if policy not in measured:
        first = [one.to_host() for one in on_device.epoch(0)] if on_device else list(batches.epoch(0))
        measured[policy] = summarise(measure_batches(graph, first, cache))
    found = Result(
        graph=graph.name,
        method=prepared.method,
        modularity=prepared.modularity,
        # the stock shuffle and LABOR need no communities
        prepare_s=0.0 if policy.name in ("uniform", "labor") else prepared.prepare_s,
        policy=policy,
        training=training,
        device=_describe(device),
        locality=measured[policy],
        sampler="device" if on_device else "host",
    )
    return Run(on_device or batches, training, device).measure(found, report) if training.epochs else found


def find_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def _draws_on_device(training: Training, device: torch.device) -> bool:
    return device.type == "cuda" if training.sampler == "auto" else training.sampler == "device"


def _describe(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type.upper()}"


class Run:
    """A model in training, with the graph's arrays on its device."""

    def __init__(self, batches: MiniBatches | DeviceMiniBatches, training: Training, device: torch.device) -> None:
        torch.manual_seed(batches.policy.seed)
        self.batches, self.training, self.device = batches, training, device
        graph = self.graph = batches.graph
        self.features = torch.from_numpy(np.ascontiguousarray(graph.features))
        self.features = self.features.to(device if training.features == "device" else "cpu")
        self.labels, self.indptr, self.indices = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (graph.labels, graph.indptr, graph.indices.astype(np.int64))
        )
        self.feed = Feed(batches, self.features, self.labels, training.prefetch)
        self.model = GraphModel(
            training.model,
            graph.features.shape[1],
            training.hidden,
            graph.classes,
            len(batches.policy.fanouts),
            training.heads,
            training.dropout,
        ).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), training.learning_rate)

    def measure(self, found: Result, report: Report | None) -> Result:
        """Train to the end and return the result with times and accuracies."""
        epochs: list[tuple[float, Parts]] = []
        scores: list[tuple[float, float]] = []
        best = 0
        for number in range(self.training.epochs):
            epochs.append(self.run_epoch(number))
            scores.append(self.evaluate())
            best = max(range(number + 1), key=lambda at: scores[at][0])
            if report is not None:
                report(f"epoch {number + 1}: {epochs[-1][0]:.2f} s, validation {scores[-1][0]:.4f}")
            if self.training.patience and number - best >= self.training.patience:
                break
        return dataclasses.replace(
            found,
            epoch_s=statistics.median(total for total, _ in epochs),
            sample_s=statistics.median(parts.draw_s for _, parts in epochs),
            parts=_take_medians([parts for _, parts in epochs]),
            val=scores[best][0],
            test=scores[best][1],
            best_epoch=best + 1,
            curve=tuple(val for val, _ in scores),
            elapsed_s=tuple(float(one) for one in np.cumsum([total for total, _ in epochs])),
        )

    def run_epoch(self, number: int) -> tuple[float, Parts]:
        """(seconds of the epoch, those of its parts); on a GPU until its work is done."""
        self.model.train()
        stepping, rows = Stopwatch(self.device), 0
        start = self._now()
        batches, watches = self.feed.epoch(number)
        for batch in batches:
            with stepping:
                self.step(batch)
            rows += len(batch.features)
        total = self._now() - start
        return total, Parts(
            draw_s=watches.drawing.seconds(),
            gather_s=watches.gathering.seconds(),
            copy_s=watches.copying.seconds(),
            step_s=stepping.seconds(),
            rows=rows,
        )

    @functools.cached_property
    def _everything(self) -> torch.Tensor:
        return self.features.to(self.device)

    def step(self, batch: Tensors) -> None:
        """One step of the optimizer."""
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(batch.features, batch.indptr, batch.indices, batch.ends, batch.edges)
        nn.functional.cross_entropy(logits, batch.labels).backward()
        self.optimizer.step()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def evaluate(self) -> tuple[float, float]:
        """(validation accuracy, test accuracy) over all neighbours, 0 to 1, of features on the device: not timed."""
        chosen = self.model.predict_all(self._everything, self.indptr, self.indices).argmax(dim=1)
        right = (chosen == self.labels).cpu().numpy()
        return _accuracy(right, self.graph, "val"), _accuracy(right, self.graph, "test")


def _take_medians(parts: Sequence[Parts]) -> Parts:
    names = [one.name for one in dataclasses.fields(Parts)]
    return Parts(**{name: statistics.median(getattr(one, name) for one in parts) for name in names})


def _accuracy(right: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], graph: Graph, mask: str) -> float:
    chosen = right[getattr(graph, mask)]
    return float(chosen.mean()) if len(chosen) else 0.0
