"""Trains a model on the mini-batches of a policy and measures accuracy, time and locality. Imports torch."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from workbench.errors import UserError
from workbench.graphs.batches import Batch, MiniBatches, Policy
from workbench.graphs.communities import Relabelled
from workbench.graphs.device.batches import DeviceBatch, DeviceMiniBatches
from workbench.graphs.graph import Graph
from workbench.graphs.loaders import Tensors, to_tensors
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
    rows of each batch are gathered there and copied.
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

    def check(self) -> None:
        """Raise `UserError` for a value that cannot be used."""
        if self.model not in MODELS:
            raise UserError(f"no model {self.model!r}; there are: {', '.join(MODELS)}")
        if self.sampler not in get_args(Sampler):
            raise UserError(f"no sampler {self.sampler!r}; there are: {', '.join(get_args(Sampler))}")
        if self.features not in get_args(Place):
            raise UserError(f"features lie on the {' or the '.join(get_args(Place))}, not {self.features!r}")
        for name, least in (("hidden", 1), ("heads", 1), ("epochs", 0), ("patience", 0), ("learning_rate", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}={getattr(self, name)}: it must be at least {least}")


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
    device = _find_device(training.device)
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
    return _Run(on_device or batches, training, device).measure(found, report) if training.epochs else found


def _find_device(name: str) -> torch.device:
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


class _Run:
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
        epochs: list[tuple[float, float]] = []
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
            sample_s=statistics.median(drawing for _, drawing in epochs),
            val=scores[best][0],
            test=scores[best][1],
            best_epoch=best + 1,
            curve=tuple(val for val, _ in scores),
            elapsed_s=tuple(float(one) for one in np.cumsum([total for total, _ in epochs])),
        )

    def run_epoch(self, number: int) -> tuple[float, float]:
        """(seconds of the epoch, of them drawing batches); on a GPU until its work is done."""
        self.model.train()
        watch = _Stopwatch(self.device if isinstance(self.batches, DeviceMiniBatches) else torch.device("cpu"))
        start = self._now()
        batches: Iterator[Batch | DeviceBatch] = iter(self.batches.epoch(number))
        while True:
            with watch:
                batch = next(batches, None)
            if batch is None:
                break
            self.step(to_tensors(batch, self.features, self.labels))
        return self._now() - start, watch.seconds()

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
        """(validation accuracy, test accuracy) over all neighbours, 0 to 1."""
        chosen = self.model.predict_all(self.features.to(self.device), self.indptr, self.indices).argmax(dim=1)
        right = (chosen == self.labels).cpu().numpy()
        return _accuracy(right, self.graph, "val"), _accuracy(right, self.graph, "test")


class _Stopwatch:
    """Adds up the time of blocks. On a GPU by events, so that the host need not wait for work that came before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def __enter__(self) -> None:
        self._mark()

    def __exit__(self, *_: object) -> None:
        self._mark()

    def _mark(self) -> None:
        if self.device.type == "cuda":
            self._events.append(torch.cuda.Event(enable_timing=True))
            self._events[-1].record(torch.cuda.current_stream(self.device))
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> float:
        """The time of all blocks; on a GPU after its work is done."""
        spans = zip(self._events[::2], self._events[1::2], strict=True)
        passed: float = sum(begin.elapsed_time(end) for begin, end in spans) / 1e3
        return passed + sum(self._marks[1::2]) - sum(self._marks[::2])


def _accuracy(right: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], graph: Graph, mask: str) -> float:
    chosen = right[getattr(graph, mask)]
    return float(chosen.mean()) if len(chosen) else 0.0
