"""The candidate's side of a GPU job: answers requests until the last one. Each names one seed (jobs/rpc.py).

The referee (referee.py) draws the same inputs from the same seeds in a process of its own, and checks the outputs.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.cuda import synchronize  # before the candidate, which could replace it

from workbench.emulator.hook import record_modules
from workbench.executors.jobs import shared_tensors
from workbench.executors.jobs.rpc import requests
from workbench.executors.jobs.trials import NUMBERS, input_seed
from workbench.executors.workers import effects
from workbench.executors.workers.inputs.initial_state import draw_caches, draw_constants
from workbench.executors.workers.outputs import OUTPUTS, Rejected, digest, load_case, validate
from workbench.executors.workers.timer import KEPT_BYTES, Stopwatch, give_back_memory
from workbench.problems import loading
from workbench.problems.results import flatten_result
from workbench.records import Failure, Job
from workbench.toolchain import describe_module
from workbench.wire import Json, to_plain


def set_tf32(job: Job) -> None:
    """Allow TF32 if the problem's precision is tf32."""
    allowed = job.problem.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def reference_model(job: Job, module: ModuleType, case: str, seed: int) -> torch.nn.Module:
    """Model with parameters drawn from the seed, which are the same in every process: on the GPU, or on the CPU if its
    `__init__` fails with tensors of a GPU.

    At sizes that are not timed, parameters that the problem makes constant are drawn too.
    """
    changed = effects.list_returned(job.facts) or None
    torch.manual_seed(seed)
    try:
        model = loading.build_model(module, "Model", job.problem, "cuda", changed=changed)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        torch.manual_seed(seed)
        model = loading.build_model(module, "Model", job.problem, changed=changed).cuda()
    if case != job.cases[-1]:
        draw_constants(model, seed)
        draw_caches(model, loading.make_inputs(module, job.problem, seed, "cuda"), seed)
    return model


def mark_tensors(values: list[object]) -> list[str]:
    """A digest of each tensor among the values."""
    return [digest([value]) for value in values if isinstance(value, torch.Tensor)]


def stopwatch(job: Job, module: ModuleType, model: torch.nn.Module) -> Stopwatch:
    """A stopwatch for a model at the case of `module`, the same in every process."""
    held = sum(value.numel() * value.element_size() for value in loading.state_of(model).values())
    return Stopwatch(
        lambda inputs: model(*inputs),
        lambda seed: loading.make_inputs(module, job.problem, seed, "cuda"),
        cold=job.cold_l2,
        parameters=held,
    )


class Runner:
    """The candidate in this process. Each method carries out the request of its name."""

    def __init__(self, job: Job, folder: Path, module: ModuleType, reply: Json) -> None:
        self.job, self.folder, self.module, self.reply = job, folder, module, reply
        self.model: torch.nn.Module | None = None
        self.problem: ModuleType | None = None
        self.case = ""
        self.watch: Stopwatch | None = None
        self.values: list[torch.Tensor] = []
        self.names: list[str] = []  # of what forward returns, in its order

    def trial(self, case: str, seed: int, calls: int = 1) -> Json:
        """Make calls and keep what the last one gives for `hand`. The first trial of a case builds the model.

        An exception at sizes that are not timed is a refusal of these sizes, unless the device is lost with it.
        """
        try:
            return self._make_calls(case, seed, calls)
        except Rejected:
            raise
        except Exception as error:
            if case in (self.job.cases[-1], *NUMBERS) or isinstance(error, torch.AcceleratorError):
                raise
            synchronize()  # raises if the device is lost
            said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            self.reply["refusals"].append({"case": case, "trial": 0, "message": said})
            return {"refused": True}

    def _make_calls(self, case: str, seed: int, calls: int) -> Json:
        if self.problem is None or self.case != case:
            self.problem = load_case(self.job, case)
            self.case, self.model = case, None
        reference = reference_model(self.job, self.problem, case, seed)
        if self.model is None:
            self.model = loading.build_model(
                self.module,
                "ModelNew",
                self.job.problem,
                init_from=self.problem,
                changed=effects.list_returned(self.job.facts),
            ).cuda()
        self.reply["unmapped"] = list(loading.copy_parameters(reference, self.model))
        watch = effects.Watch(reference, self.model, loading.pair_parameters(reference, self.model))
        for call in range(calls):
            inputs = loading.make_inputs(self.problem, self.job.problem, input_seed(seed, call), "cuda")
            watch.before(inputs)
            torch.manual_seed(effects.generator_seed(inputs))
            start = time.perf_counter()
            output = self.model(*inputs)
            synchronize()
            self.reply["phases"].setdefault("compile and first run", time.perf_counter() - start)
            self.values, self.names = validate(self.job, case, output), list(flatten_result(output))
            if call == calls - 1:
                watch.after(inputs)
        watch.write(self.folder / "scratch" / effects.EFFECTS)
        return {}

    def hand(self, call: int = 0) -> Json:
        """Hand over the outputs of the last trial, or of one call of the last sample."""
        if not self.values:
            self._check_inputs(call)
        values = self.values or validate(
            self.job, self.case, dict(zip(self.names, self._timer.outputs[call], strict=True))
        )
        shared_tensors.write(self.folder / "scratch" / OUTPUTS, values)
        del values
        self.values = []
        if self.watch is None and torch.cuda.memory_reserved() > KEPT_BYTES:
            give_back_memory()
        return {}

    def _check_inputs(self, call: int) -> None:
        """Reject a candidate that changes an input when it is timed; of trials, the referee compares the inputs."""
        if effects.changes_inputs(self.job.facts):
            return
        if self._timer.has_changed_inputs(call, mark_tensors):
            message = "a timed call changed its inputs, which the reference does not change"
            raise Rejected(Failure(stage="check", kind="input_modified", message=message))

    def warm_up(self, seeds: list[int]) -> Json:
        """Make calls that are not counted. Returns the seconds of one on the device and on the host."""
        self.values = []
        assert self.problem is not None and self.model is not None, "trial comes first"
        self.watch = stopwatch(self.job, self.problem, self.model)
        return dict(self.watch.warm_up(seeds))

    def begin(self, **options: Any) -> Json:
        """Begin a round."""
        return self._timer.begin(**options)

    def sample(self, seed: int) -> Json:
        """One sample."""
        return dict(self._timer.time_call(seed))

    def call_times(self, seed: int, count: int) -> Json:
        """Seconds of calls as a model sees them."""
        return {"taken": self._timer.time_as_called(seed, count)}

    def rest(self) -> Json:
        """End of a turn, or of a trial whose outputs nobody asks for."""
        self.values = []
        if self.watch is not None:
            self.watch.rest()
        elif torch.cuda.memory_reserved() > KEPT_BYTES:
            give_back_memory()
        return {}

    def drop(self) -> Json:
        """End of the timing of a case."""
        self._timer.drop()
        self.watch = None
        return {}

    @property
    def _timer(self) -> Stopwatch:
        assert self.watch is not None, "warm_up comes first"
        return self.watch


def run_candidate(job: Job, folder: Path, module: ModuleType, reply: Json, connection: socket.socket) -> None:
    """Answer requests until "end"; outputs go to `scratch/out`, builds into the reply."""
    set_tf32(job)
    runner = Runner(job, folder, module, reply)
    names = ("trial", "hand", "warm_up", "begin", "sample", "call_times", "rest", "drop")
    what = {name: getattr(runner, name) for name in names}
    with record_modules() as modules, torch.no_grad():
        for request, answer in requests(connection):
            name = request.pop("do")
            if name == "end":
                answer({})
                break
            answer(what[name](**request))
    reply["builds"] = [
        to_plain(build)
        for item in modules
        for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=job.want_sass)
    ]
