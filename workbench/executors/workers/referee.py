"""The trusted process beside a candidate on a GPU: checks outputs, times torch eager and a fixed kernel.

The fixed kernel shows how steady the device is.

It never imports a candidate. It stays for the jobs of one problem, so that its CUDA context, its library handles and
its memory are made once.
"""

from __future__ import annotations

import copy
import json
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.executors.jobs import shared_tensors
from workbench.executors.jobs.rpc import requests
from workbench.executors.workers import effects
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.gpu_candidate import reference_model, set_tf32, stopwatch
from workbench.executors.workers.outputs import find_case
from workbench.executors.workers.timer import Stopwatch
from workbench.executors.workers.tolerance import measure_tolerances
from workbench.problems import loading
from workbench.records import Check, Job
from workbench.wire import Json, from_plain, to_plain

IDLE_LIMIT_S = 900.0  # then it ends and gives the device's memory back; the next job starts another
PROBE_SIDE = 2048  # of a bf16 matmul, which feels the SM clock
PROBE_BYTES = 64 << 20  # of a copy, which feels the memory
PROBES = 3


class Referee:
    """Each method carries out the request of its name."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self.watch: Stopwatch | None = None
        self.probe_with: tuple[torch.Tensor, ...] = ()
        self.quiet_s = float("inf")  # the fastest probe so far
        self.model: tuple[tuple[str, int], torch.nn.Module] | None = None  # the last, by case and seed

    @property
    def job(self) -> Job:
        """The job that was opened last."""
        assert self._job is not None, "open comes first"
        return self._job

    def open(self, job: str) -> Json:
        """Open a job, given by its file. Makes the CUDA context and the tensors of the probe."""
        self.close()
        self._job = from_plain(json.loads(Path(job).read_text()), Job)
        set_tf32(self.job)
        if not self.probe_with:
            torch.manual_seed(0)
            # random numbers, because the values of operands decide how much power a matmul draws
            a = torch.randn(PROBE_SIDE, PROBE_SIDE, device="cuda").bfloat16()
            source = torch.randn(PROBE_BYTES // 4, device="cuda")
            self.probe_with = (a, torch.empty_like(a), source, torch.empty_like(source))
        self.probe()
        return {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda}

    def check(
        self, case: str, trial: int, model_seed: int, input_seeds: list[int], timed: bool, root: str, relative: str
    ) -> Json:
        """Compare what the candidate's last call gave with the reference in float64, beside torch eager's.

        Of a trial, the state and the inputs are compared too.
        """
        outputs = find_case(self.job, case).outputs
        got = shared_tensors.read(Path(root), relative, outputs, "cuda")
        module = loading.load_module(self.job.problem, find_case(self.job, case).settings)
        calls = [loading.make_inputs(module, self.job.problem, seed, "cuda") for seed in input_seeds]
        model, last = self._model(case, module, model_seed), len(calls) - 1
        followed = effects.list_followed(model, calls[last:], self.job.facts.forward_arguments, last)
        expected = effects.run_calls(model, calls, self.job, outputs, seed=model_seed, first=last)
        after, changed = {}, () if timed else expected.changed
        if not timed:
            after = effects.read_changed(Path(root), f"scratch/{effects.EFFECTS}", followed)
            initial = effects.followed_values(loading.state_of(model).values(), calls[last:])
            got += [after.get(n, initial[n].detach()).cuda() for n in changed]
        carried = last > 0 and self._depends_on_calls_before(model, calls, expected)
        del calls
        checks = []
        titles = [*("" for _ in outputs), *(followed[n].title for n in changed)]
        tolerances = measure_tolerances(expected.found, expected.specs)
        for n, (value, title) in enumerate(zip(got, titles, strict=True)):
            fields = compare(value, expected.found.exact[n], tolerances[n])
            number = 0 if title else n
            checks.append(Check(case=case, trial=trial, timed=timed, output=number, of=title, **fields))
        checks += effects.unasked_checks(case, trial, followed, after, changed)
        return {"checks": [to_plain(check) for check in checks], "carried": carried}

    def _depends_on_calls_before(
        self, model: torch.nn.Module, calls: list[list[object]], expected: effects.Expectation
    ) -> bool:
        """Whether the outputs of the last call would be others if it were the first, or its inputs change."""
        if not expected.changed:
            return False
        if effects.changes_inputs(self.job.facts):
            return True
        outputs = expected.specs[: expected.outputs]
        alone = effects.run_calls(model, calls[-1:], self.job, outputs, seed=0).found.exact
        return not all(map(torch.equal, alone[: len(outputs)], expected.found.exact[: len(outputs)]))

    def _model(self, case: str, module: ModuleType, seed: int) -> torch.nn.Module:
        """The reference; its parameters are drawn on the CPU once for a seed, not again for each check."""
        if self.model is None or self.model[0] != (case, seed):
            self.model = ((case, seed), reference_model(self.job, module, case, seed))
        return self.model[1]

    def warm_up(self, case: str, model_seed: int, seeds: list[int]) -> Json:
        """Torch eager with the parameters of the last trial, warmed up."""
        module = loading.load_module(self.job.problem, find_case(self.job, case).settings)
        self.watch = stopwatch(self.job, module, copy.deepcopy(self._model(case, module, model_seed)))
        return dict(self.watch.warm_up(seeds))

    def begin(self, **options: Any) -> Json:
        """Begin a round."""
        assert self.watch is not None
        return self.watch.begin(**options)

    def samples(self, seeds: list[int]) -> Json:
        """The samples of a round."""
        assert self.watch is not None
        return {"taken": [self.watch.time_call(seed) for seed in seeds]}

    def drop(self) -> Json:
        """End of the timing of a case."""
        if self.watch is not None:
            self.watch.drop()
        self.watch = None
        return {}

    def probe(self) -> Json:
        """Median seconds of the fixed kernels: a matmul and a copy on resident data."""
        a, product, source, target = self.probe_with
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        found = []
        for _ in range(PROBES + 1):
            torch.cuda._sleep(200_000)
            start.record()
            torch.mm(a, a, out=product)
            target.copy_(source)
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e-3)
        self.quiet_s = min([self.quiet_s, *found[1:]])
        return {"s": sorted(found[1:])[PROBES // 2], "quiet_s": self.quiet_s}

    def close(self) -> Json:
        """Close the job and free its memory."""
        self.drop()
        self.model = None
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return {}


def serve(connection: socket.socket) -> Json:
    """Answer requests until "end", or until none comes for IDLE_LIMIT_S. A reply may be an error."""
    referee = Referee()
    what = {
        name: getattr(referee, name)
        for name in ("open", "check", "warm_up", "begin", "samples", "drop", "probe", "close")
    }
    with torch.no_grad():
        for request, answer in requests(connection, IDLE_LIMIT_S):
            name = request.pop("do")
            if name == "end":
                answer({})
                break
            try:
                answer(what[name](**request))
            except Exception as error:
                answer({"error": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"})
    return {"done": True}
