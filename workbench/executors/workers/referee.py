"""The trusted process beside a candidate on a GPU: checks outputs, times torch eager and a fixed kernel.

The fixed kernel shows how steady the device is.

It never imports a candidate. It stays for the jobs of one problem, so that its CUDA context, its library handles and
its memory are made once.
"""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.analysis import correctness
from workbench.executors.jobs import shared_tensors
from workbench.executors.jobs.rpc import requests
from workbench.executors.workers.gpu_candidate import reference_model, set_tf32, stopwatch
from workbench.executors.workers.outputs import find_case
from workbench.executors.workers.timer import Stopwatch
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
        self, case: str, trial: int, model_seed: int, input_seed: int, timed: bool, root: str, relative: str
    ) -> Json:
        """Compare the candidate's outputs of one call with the reference in float64."""
        found = find_case(self.job, case)
        got = shared_tensors.read(Path(root), relative, found.outputs, "cuda")
        module = loading.load_module(self.job.problem, find_case(self.job, case).settings)
        inputs = loading.make_inputs(module, self.job.problem, input_seed, "cuda")
        model = self._model(case, module, model_seed).double()
        result = model(*to_float64(inputs))
        del inputs
        expected = list(result) if isinstance(result, (tuple, list)) else [result]
        length = correctness.summed_terms(found, self.job.facts)
        checks = []
        for n, (value, wanted, spec) in enumerate(zip(got, expected, found.outputs, strict=True)):
            fields = compare_on_device(
                value,
                wanted,
                spec.dtype,
                self.job.problem.precision,
                length,
                correctness.longest_product_chain(self.job.facts.graph),
            )
            checks.append(to_plain(Check(case=case, trial=trial, timed=timed, output=n, **fields)))
        return {"checks": checks}

    def _model(self, case: str, module: ModuleType, seed: int) -> torch.nn.Module:
        """A copy of the reference; its parameters are drawn on the CPU once for a seed, not again for each check."""
        if self.model is None or self.model[0] != (case, seed):
            self.model = ((case, seed), reference_model(self.job, module, seed))
        made: torch.nn.Module = copy.deepcopy(self.model[1])
        return made

    def warm_up(self, case: str, model_seed: int, seeds: list[int]) -> Json:
        """Torch eager with the parameters of the last trial, warmed up."""
        module = loading.load_module(self.job.problem, find_case(self.job, case).settings)
        self.watch = stopwatch(self.job, module, self._model(case, module, model_seed))
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


def to_float64(values: Iterable[object]) -> list[object]:
    """The values, floating-point tensors among them in float64."""
    return [
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in values
    ]


def compare_on_device(
    got: torch.Tensor, expected: torch.Tensor, dtype: str, precision: str, length: int, products: int = 1
) -> Json:
    """`analysis.correctness.compare` for tensors that are too large for the CPU.

    Percentiles are of a sample of a million elements.
    """
    relative = correctness.tolerance(dtype, precision, length, products)
    flat, wanted = got.reshape(-1), expected.reshape(-1)
    scale = float(torch.sqrt(torch.mean(wanted.double() ** 2)).item()) if wanted.is_floating_point() else 0.0
    worst, worst_at, bad, largest = -1.0, 0, 0, 0.0
    step = 1 << 27
    for at in range(0, flat.numel(), step):
        value, want = flat[at : at + step].double(), wanted[at : at + step].double()
        allowed = relative * (want.abs() + scale) + 1e-300
        gap = (value - want).abs()
        same = (value == want) | (value.isnan() & want.isnan())
        error = torch.where(same, torch.zeros_like(gap), gap / allowed)
        error = torch.nan_to_num(error, nan=float("inf"), posinf=float("inf"))
        bad += int((error > 1).sum().item())
        largest = max(largest, float(torch.nan_to_num(gap).max().item()))
        top = float(error.max().item())
        if top > worst:
            worst, worst_at = top, at + int(error.argmax().item())
    pick = torch.randint(0, max(flat.numel(), 1), (min(flat.numel(), 1 << 20),), device=flat.device)
    some = (flat[pick].double() - wanted[pick].double()).abs() / (
        relative * (wanted[pick].double().abs() + scale) + 1e-300
    )
    ranked = some.sort().values
    middle, high = (float(ranked[int(part * (len(ranked) - 1))].item()) if len(ranked) else 0.0 for part in (0.5, 0.99))
    index = (
        tuple(int(i) for i in torch.unravel_index(torch.tensor(worst_at), tuple(expected.shape)))
        if expected.dim()
        else ()
    )
    here, there = float(flat[worst_at].item()), float(wanted[worst_at].item())
    constant = flat.numel() > 1 and bool((flat == flat[0]).all()) and not bool((wanted == wanted[0]).all())
    trivial = ("zero" if float(flat[0]) == 0 else "constant") if constant else ""
    message = (
        f"{bad} of {flat.numel()} elements are wrong; the worst is {list(index)}: got {here:.6g}, expected {there:.6g}"
        if bad
        else ""
    )
    return {
        "passed": not bad,
        "elements": flat.numel(),
        "bad_elements": bad,
        "max_error": worst,
        "p50_error": middle,
        "p99_error": high,
        "max_absolute": largest,
        "max_relative": abs(here - there) / abs(there) if there else 0.0,
        "worst_index": index,
        "worst_got": here,
        "worst_expected": there,
        "message": message,
        "trivial": trivial,
    }
