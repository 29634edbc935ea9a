"""The GPU side of a worker: run and time a candidate, check its outputs, time torch eager by the same protocol.

Protocol of one timed call: fresh inputs from a seed that is handed over only now (see handing.py), L2 flushed by writing twice its size, a device-side sleep so that the host is ahead
and its overhead is hidden, start event, the call, end event, then a device-wide synchronisation. What is still running after the end event
(another stream) shows up in `wall_ratio`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.cuda import Event, synchronize

from workbench.analysis import correctness
from workbench.analysis.statistics import median_interval
from workbench.emulator.hook import recording
from workbench.executors.exchange import read_outputs, write_values
from workbench.executors.handing import WARM_UP, ask, done, timed_places
from workbench.problems import loading
from workbench.records import Check, Job, Timing
from workbench.toolchain import describe_module
from workbench.wire import to_plain

SLEEP_CYCLES = 1_000_000  # about half a millisecond: longer than a call takes to enqueue
CLOCK = time.perf_counter


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


def time_calls(call: Callable[[list[Any]], Any], inputs_of: Callable[[int], list[Any]], count: int, after_call: Callable[[int, Any], None]) -> tuple[list[float], float]:
    """Seconds of each of `count` calls after the warm-up, and the median ratio of time to the device-wide end over time to the end event."""
    size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
    flush = torch.empty(size, dtype=torch.uint8, device="cuda")
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    samples, ratios = [], []
    for number in range(WARM_UP + count):
        inputs = inputs_of(number)
        synchronize()
        flush.fill_(number & 127)
        torch.cuda._sleep(SLEEP_CYCLES)
        start.record()
        output = call(inputs)
        end.record()
        end.synchronize()
        after = CLOCK()
        synchronize()
        late = CLOCK() - after
        seconds = start.elapsed_time(end) * 1e-3
        if number >= WARM_UP:
            samples.append(seconds)
            ratios.append((seconds + max(late - 20e-6, 0.0)) / seconds)
        after_call(number, output)
        del inputs, output
    return samples, sorted(ratios)[len(ratios) // 2]


def timing_of(samples: list[float], ratio: float, case: str) -> Timing:
    """The record of timed samples."""
    median, low, high = median_interval(samples)
    return Timing(case=case, device=torch.cuda.get_device_name(0), samples_s=tuple(samples), median_s=median, low_s=low, high_s=high, wall_ratio=ratio)


def run_candidate(job: Job, folder: Path, module: Any, source_file: str, reply: dict[str, Any], validate: Callable[..., Any], digest: Callable[..., str], reject: Callable[..., Exception]) -> None:
    """All trials, then the timed calls; outputs go to `scratch/out`, timing to `scratch/timing.json`."""
    policy(job)
    with recording() as modules, torch.no_grad():
        for name in job.cases:
            problem_module = loading.load_module(job.problem, settings_of(job, name))
            model = None
            for trial in range(job.trials):
                seed = ask(folder, f"{name}-{trial}")
                reference = reference_model(job, problem_module, seed)
                if model is None:
                    model = loading.build_model(module, "ModelNew", job.problem, init_from=problem_module).cuda()
                reply["unmapped"] = list(loading.copy_parameters(reference, model))
                inputs = loading.make_inputs(problem_module, job.problem, seed ^ 1, "cuda")
                before = digest(inputs)
                start = time.perf_counter()
                output = model(*inputs)
                torch.cuda.synchronize()
                reply["phases"].setdefault("compile and first run", time.perf_counter() - start)
                values = validate(job, name, output, [])
                if digest(inputs) != before:
                    raise reject()
                done(folder, f"{name}-{trial}")
                write_values(folder / "scratch" / "out" / f"{name}-{trial}", values)
                del inputs, output, values
            if job.timed_calls and model is not None:
                _time_candidate(job, folder, problem_module, model, name)
    builds = [build for item in modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=job.want_sass)]
    reply["builds"] = [to_plain(build) for build in builds]


def _time_candidate(job: Job, folder: Path, problem_module: Any, model: Any, name: str) -> None:
    places = timed_places(job, name)

    def inputs_of(number: int) -> list[Any]:
        return loading.make_inputs(problem_module, job.problem, ask(folder, places[number]), "cuda")

    def hand_over(number: int, output: Any) -> None:
        if done(folder, places[number]):
            write_values(folder / "scratch" / "out" / places[number], list(output) if isinstance(output, (tuple, list)) else [output])

    samples, ratio = time_calls(lambda inputs: model(*inputs), inputs_of, job.timed_calls, hand_over)
    (folder / "scratch" / "timing.json").write_text(json.dumps(to_plain(timing_of(samples, ratio, name))))


def check(job: Job, folder: Path) -> dict[str, Any]:
    """Recompute the reference in float64 for every output that was asked for, compare, and time torch eager."""
    policy(job)
    private = json.loads((folder / "private" / "calls.json").read_text())
    seeds, kept = private["seeds"], private["kept"]
    checks, reference = [], None
    with torch.no_grad():
        for name in job.cases:
            module = loading.load_module(job.problem, settings_of(job, name))
            last = seeds[f"{name}-{job.trials - 1}"]
            for trial in range(job.trials):
                seed = seeds[f"{name}-{trial}"]
                checks += _compare(job, folder, module, name, f"{name}-{trial}", trial, seed, seed ^ 1, False)
            places = timed_places(job, name)
            for number, place in enumerate(places):
                if place in kept:
                    checks += _compare(job, folder, module, name, place, number - WARM_UP, last, seeds[place], True)
            if places:
                model = reference_model(job, module, last)
                samples, ratio = time_calls(lambda inputs, m=model: m(*inputs), lambda n, p=module, s=places: loading.make_inputs(p, job.problem, seeds[s[n]], "cuda"), job.timed_calls, lambda n, o: None)  # type: ignore[misc]
                reference = timing_of(samples, ratio, name)
    return {"checks": checks, "reference": to_plain(reference) if reference else None, "versions": {"cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name(0)}}


def _compare(job: Job, folder: Path, module: Any, name: str, place: str, trial: int, model_seed: int, input_seed: int, timed: bool) -> list[Any]:
    case = next(case for case in job.facts.cases if case.name == name)
    inputs = loading.make_inputs(module, job.problem, input_seed, "cuda")
    model = reference_model(job, module, model_seed).double()
    result = model(*[value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs])
    del inputs
    expected = list(result) if isinstance(result, (tuple, list)) else [result]
    got = read_outputs(folder, f"scratch/out/{place}", case.outputs)
    length = max([max(spec.shape, default=1) for spec in case.inputs], default=1)
    out = []
    for n, (value, wanted, spec) in enumerate(zip(got, expected, case.outputs, strict=True)):
        fields = compare_on_device(value.cuda(), wanted, spec.dtype, job.problem.precision, length)
        out.append(to_plain(Check(case=name, trial=trial, timed=timed, output=n, **fields)))
    del got, expected, result
    torch.cuda.empty_cache()
    return out


def compare_on_device(got: torch.Tensor, expected: torch.Tensor, dtype: str, precision: str, length: int) -> dict[str, Any]:
    """`analysis.correctness.compare` for tensors that are too large for the CPU; percentiles from a sample of a million elements."""
    relative = correctness.tolerance(dtype, precision, length)
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
    some = (flat[pick].double() - wanted[pick].double()).abs() / (relative * (wanted[pick].double().abs() + scale) + 1e-300)
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst_at), tuple(expected.shape))) if expected.dim() else ()
    here, there = float(flat[worst_at].item()), float(wanted[worst_at].item())
    message = f"{bad} of {flat.numel()} elements are wrong; the worst is {list(index)}: got {here:.6g}, expected {there:.6g}" if bad else ""
    return {"passed": not bad, "elements": flat.numel(), "bad_elements": bad, "max_error": worst, "p50_error": float(some.quantile(0.5).item()), "p99_error": float(some.quantile(0.99).item()),
            "max_absolute": largest, "max_relative": abs(here - there) / abs(there) if there else 0.0, "worst_index": index, "worst_got": here, "worst_expected": there, "message": message}  # fmt: skip
