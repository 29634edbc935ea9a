"""The time of a call without a GPU, with an interval, and the comparison of two.

The estimate is the sum of the terms (terms.py) of the call's launches, times what the regression (regression.py) learnt
from measured kernels that resemble it. Everything fitted is in `fitted.json` and `fitted.npz` beside this module, which
tests/bench/fit_time_model.py writes. All measured kernels ran on one H200. For another device the terms have its
rates, the regression is the same, and the intervals are wider by a factor that is inferred, until kernels were measured
there: those shift its times and say how wide its intervals are (refinement.py).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Literal

import numpy as np

from workbench.analysis.devices import Device
from workbench.analysis.time_model.features import average, describe_launch
from workbench.analysis.time_model.measured import MeasuredProgram, find_programs, stamp_files
from workbench.analysis.time_model.refinement import PLAIN, DeviceRow, Refinement, refine
from workbench.analysis.time_model.regression import GaussianProcess, Hyperparameters
from workbench.analysis.time_model.terms import (
    Constants,
    add_resource_seconds,
    bound_below,
    combine,
    resource_seconds,
    traffic_shares,
)
from workbench.records import KernelBuild, Launch, Work, record

FITTED_ON = "H200"
ELSEWHERE = 2.0  # factor on the width of intervals for other devices, where none were measured (inferred)

Order = Literal["faster", "slower", "cannot be told"]


@record
class TimeEstimate:
    """A modelled time in seconds with its interval of 90 %, and the resource that is busy longest in the call."""

    seconds: float
    low_s: float
    high_s: float
    limit: str
    features: tuple[float, ...]  # in the order of the fit
    terms_s: float  # the terms alone
    device: str


@record
class TimeComparison:
    """How much faster a call is than another: a ratio of times, above 1 is faster. The order cannot be told exactly if
    the range from `low` to `high` includes 1; it is narrower than an interval of 90 %.
    """

    speedup: float
    low: float
    high: float
    order: Order


@record
class FittedModel:
    """What was fitted, and how wide its intervals are."""

    constants: Constants
    process: GaussianProcess
    names: tuple[str, ...]  # of the features
    interval: float  # half the width of an interval of 90 %, in standard deviations (from held-out problems)
    decision: float  # a difference of fewer standard deviations cannot be told (likewise)

    def describe(
        self, launches: Sequence[Launch], builds: Sequence[KernelBuild], device: Device, work: Work
    ) -> tuple[float, dict[str, float], str]:
        """(seconds by the terms, features, the resource that is busy longest) of a call."""
        by_name = {build.kernel: build for build in builds}
        described = [
            describe_launch(launch, by_name.get(launch.kernel), device, work, self.constants, share)
            for launch, share in zip(launches, traffic_shares(launches), strict=True)
        ]
        seconds = sum(each[0] for each in described) + len(described) * self.constants.launch_s + self.constants.call_s
        parts = add_resource_seconds(launches, by_name, device, work, self.constants)
        return seconds, average(described), max(parts, key=lambda name: parts[name])

    def predict(self, features: Sequence[tuple[float, ...]], device: str) -> tuple[np.ndarray, np.ndarray]:
        """(log of measured over terms, its covariance) of calls on a device."""
        mean, covariance = self.process.predict(np.asarray(features, dtype=np.float64))
        return mean, covariance * (1.0 if device == FITTED_ON else ELSEWHERE) ** 2


def describe_fit(device: Device) -> str:
    """Where the constants for a device come from: measured, fitted, or inferred from those of another."""
    if device.name == FITTED_ON:
        return f"constants fitted to kernels measured on one {FITTED_ON}"
    copies = "its measured copy rate" if device.copy_bandwidth else "a copy rate inferred from its data sheet"
    return (
        f"for {device.name} with its data sheet's rates, {copies}, and constants inferred from the {FITTED_ON}'s; "
        + describe_refinement(find_refinement(device))
    )


def describe_refinement(found: Refinement) -> str:
    """How wide the intervals of a device are that is not the fitted one, and on how many problems that rests."""
    wide = f"times as wide as on the {FITTED_ON}, on a logarithmic scale"
    if not found.problems:
        return f"intervals are {ELSEWHERE:g} {wide}; they rest on no problem that was measured there"
    moved = f"times are {math.exp(found.shift):.2f} times the model's, and " if found.shift else ""
    measured = f"{found.problems} problem{'s' * (found.problems > 1)} measured there ({found.rows} programs)"
    return f"{moved}intervals are {ELSEWHERE * found.factor:.1f} {wide}; this rests on {measured}"


@functools.cache
def fitted_model() -> FittedModel:
    """The shipped fit."""
    folder = files(__package__)
    facts = json.loads((folder / "fitted.json").read_text())
    with (folder / "fitted.npz").open("rb") as file, np.load(file) as data:
        process = GaussianProcess.fit(
            Hyperparameters(**{**facts["hyperparameters"], "scales": tuple(facts["hyperparameters"]["scales"])}),
            data["features"].astype(np.float64),
            data["values"].astype(np.float64),
            data["problems"],
        )
    return FittedModel(
        constants=Constants(**facts["constants"]),
        process=process,
        names=tuple(facts["features"]),
        interval=facts["interval"],
        decision=facts["decision"],
    )


def estimate_time(
    launches: Sequence[Launch],
    builds: Sequence[KernelBuild],
    device: Device,
    work: Work,
    model: FittedModel | None = None,
    refinement: Refinement | None = None,
) -> TimeEstimate:
    """The time of a call of one or more launches that were followed at full size; `work` is the problem's.

    Without a `refinement` it is that of what was measured on the device.
    """
    model = model or fitted_model()
    if refinement is None:
        refinement = find_refinement(device)
    seconds, found, limit = model.describe(launches, builds, device, work)
    features = tuple(found[name] for name in model.names)
    mean, covariance = model.predict([features], device.name)
    middle = float(mean[0]) + refinement.shift
    width = model.interval * math.sqrt(float(covariance[0, 0])) * refinement.factor
    least = bound_below(launches, {build.kernel: build for build in builds}, device, work, model.constants)
    return TimeEstimate(
        seconds=max(seconds * math.exp(middle), least),
        low_s=max(seconds * math.exp(middle - width), least),
        high_s=max(seconds * math.exp(middle + width), least),
        limit=limit,
        features=features,
        terms_s=seconds,
        device=device.name,
    )


def find_refinement(device: Device) -> Refinement:
    """What the programs that were measured on a device say of its times; nothing for the device of the fit."""
    if device.name == FITTED_ON:
        return PLAIN
    return _refine(device, stamp_files(device.name))


@functools.lru_cache(maxsize=32)
def _refine(device: Device, stamps: tuple[tuple[str, int, int], ...]) -> Refinement:
    return refine([compare_measured(one, device) for one in find_programs(device.name)])


def compare_measured(program: MeasuredProgram, device: Device) -> DeviceRow:
    """The row of a program that was measured on the device."""
    model = fitted_model()
    found = estimate_time(program.launches, program.builds, device, program.work, model, PLAIN)
    _, covariance = model.predict([found.features], device.name)
    width = math.exp(model.interval * math.sqrt(float(covariance[0, 0])))
    return DeviceRow(
        key=program.key,
        problem=program.problem,
        program=program.program,
        measured_s=program.seconds,
        modelled_s=found.seconds,
        low_s=found.seconds / width,
        high_s=found.seconds * width,
    )


def predict_gain(
    launches: Sequence[Launch],
    builds: Sequence[KernelBuild],
    device: Device,
    work: Work,
    factors: Mapping[str, float],
) -> float:
    """How many times faster a call would be by the terms alone, if its resources (keys of `terms.resource_seconds`)
    were busy `factors` times as long.
    """
    constants, by_name = fitted_model().constants, {build.kernel: build for build in builds}
    before = after = constants.call_s + len(launches) * constants.launch_s
    for launch, share in zip(launches, traffic_shares(launches), strict=True):
        parts = resource_seconds(launch, by_name.get(launch.kernel), device, work, constants, share)
        before += combine(parts, constants)
        after += combine({name: seconds * factors.get(name, 1.0) for name, seconds in parts.items()}, constants)
    return before / after


def compare_times(new: TimeEstimate, old: TimeEstimate, model: FittedModel | None = None) -> TimeComparison:
    """The speed-up of `new` over `old`, two calls that do the same work on one device."""
    model = model or fitted_model()
    gain = math.log(old.seconds / new.seconds)
    if new.features == old.features:
        return TimeComparison(speedup=old.seconds / new.seconds, low=1.0, high=1.0, order="cannot be told")
    _, covariance = model.predict([new.features, old.features], new.device)
    deviation = math.sqrt(max(float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]), 0.0))
    told = abs(gain) > model.decision * deviation
    return TimeComparison(
        speedup=math.exp(gain),
        low=math.exp(gain - model.decision * deviation),
        high=math.exp(gain + model.decision * deviation),
        order=("faster" if gain > 0 else "slower") if told else "cannot be told",
    )
