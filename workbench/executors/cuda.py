"""The candidate's side of a GPU job: carry out orders, which hand over one seed at a time (handing.py), until the last.

The referee (referee.py) draws the same inputs from the same seeds in a process of its own, and judges what is handed over here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.cuda import synchronize  # before the candidate, which could replace it

from workbench.emulator.hook import recording
from workbench.executors import carrying
from workbench.executors.clock import Stopwatch
from workbench.executors.handing import orders
from workbench.problems import loading
from workbench.records import Job
from workbench.toolchain import describe_module
from workbench.wire import to_plain

OUTPUTS = "out"  # below scratch


def policy(job: Job) -> None:
    """TF32 only where the problem's precision says so."""
    allowed = job.problem.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def settings_of(job: Job, name: str) -> Any:
    """The settings of a case."""
    return next(case.settings for case in job.facts.cases if case.name == name)


def reference_model(job: Job, module: Any, seed: int) -> torch.nn.Module:
    """Model with parameters drawn on the CPU from the seed, so that every process gets the same."""
    torch.manual_seed(seed)
    return loading.build_model(module, "Model", job.problem).cuda()


def stopwatch(job: Job, module: Any, model: torch.nn.Module) -> Stopwatch:
    """What times a model at the case of `module`, the same way in every process."""
    held = sum(value.numel() * value.element_size() for value in loading._state(model).values())
    return Stopwatch(lambda inputs: model(*inputs), lambda seed: loading.make_inputs(module, job.problem, seed, "cuda"), cold=job.cold_l2, parameters=held)


class Runner:
    """A candidate in this process: what each order does, by its name. `validate`, `digest` and `reject` are the worker's."""

    def __init__(self, job: Job, folder: Path, module: Any, reply: dict[str, Any], validate: Callable[..., Any], digest: Callable[..., str], reject: Callable[[], Exception]) -> None:
        self.job, self.folder, self.module, self.reply = job, folder, module, reply
        self.validate, self.digest, self.reject = validate, digest, reject
        self.model: Any = None
        self.problem: Any = None
        self.case = ""
        self.watch: Stopwatch | None = None
        self.values: list[torch.Tensor] = []

    def trial(self, case: str, seed: int) -> dict[str, Any]:
        """One call whose outputs are kept for `hand`; the first of a case builds the model."""
        if self.case != case:
            self.case, self.problem, self.model = case, loading.load_module(self.job.problem, settings_of(self.job, case)), None
        reference = reference_model(self.job, self.problem, seed)
        if self.model is None:
            self.model = loading.build_model(self.module, "ModelNew", self.job.problem, init_from=self.problem).cuda()
        self.reply["unmapped"] = list(loading.copy_parameters(reference, self.model))
        inputs = loading.make_inputs(self.problem, self.job.problem, seed ^ 1, "cuda")
        before = self.digest(inputs)
        start = time.perf_counter()
        output = self.model(*inputs)
        synchronize()
        self.reply["phases"].setdefault("compile and first run", time.perf_counter() - start)
        self.values = self.validate(self.job, case, output, [])
        if self.digest(inputs) != before:
            raise self.reject()
        return {}

    def hand(self, call: int = 0) -> dict[str, Any]:
        """Hand over the outputs of the last trial, or of one call of the last sample."""
        values = self.values or self.validate(self.job, self.case, self._timer.outputs[call], [])
        carrying.write(self.folder / "scratch" / OUTPUTS, values)
        self.values = []
        return {}

    def warm_up(self, seeds: list[int]) -> dict[str, Any]:
        """Calls that are not counted; what one takes on the device and on the host."""
        self.values = []
        self.watch = stopwatch(self.job, self.problem, self.model)
        return dict(self.watch.warm_up(seeds))

    def begin(self, **round_: Any) -> dict[str, Any]:
        """Begin a round."""
        return self._timer.begin(**round_)

    def sample(self, seed: int) -> dict[str, Any]:
        """One sample."""
        return dict(self._timer.timed(seed))

    def drop(self) -> dict[str, Any]:
        """End of the timing of a case."""
        self._timer.drop()
        self.watch = None
        return {}

    @property
    def _timer(self) -> Stopwatch:
        assert self.watch is not None, "warm_up comes first"
        return self.watch


def run_candidate(job: Job, folder: Path, module: Any, reply: dict[str, Any], validate: Callable[..., Any], digest: Callable[..., str], reject: Callable[[], Exception]) -> None:
    """Carry out orders until "end"; outputs go to `scratch/out`, builds into the reply."""
    policy(job)
    runner = Runner(job, folder, module, reply, validate, digest, reject)
    what = {name: getattr(runner, name) for name in ("trial", "hand", "warm_up", "begin", "sample", "drop")}
    with recording() as modules, torch.no_grad():
        for order, answer in orders(folder):
            name = order.pop("do")
            if name == "end":
                answer({})
                break
            answer(what[name](**order))
    reply["builds"] = [to_plain(build) for item in modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=job.want_sass)]

