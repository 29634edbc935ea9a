"""Joules of a call without a GPU: a sum of what each event costs, and static power for the modelled time.

    E = sum over events of coefficient x count + static power x time, at most limit x time

The coefficients are not negative. tests/bench/fit_energy.py fits them to kernels that tests/bench/energy_on_gpu.py
measured, and writes `fitted.json` beside this module; without that file there is no estimate, and a sentence says so.
Intervals come from problems that were left out of the fit. `limit` is the power of kernels whose clocks the power limit
lowers; it holds for the GPU of the fit only. What the data are (zeros cost less than random numbers) is not modelled.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.analysis import devices
from workbench.analysis.devices import Device
from workbench.analysis.energy_model.counts import STATIC, count_events
from workbench.analysis.time_model import TimeEstimate
from workbench.records import EnergyEstimate, Launch, Work, record

FITTED = Path(__file__).with_name("fitted.json")
UNFITTED = "no energy model is fitted yet"
ELSEWHERE = 2.0  # factor on the width of intervals for other devices than the measured one (inferred, as for times)


@record
class Coefficient:
    """What one event costs, in its unit (`counts.UNITS`); `low` to `high` is the range when one problem is left out."""

    value: float
    low: float
    high: float
    unit: str


@record
class EnergyModel:
    """A fit. Errors are halves of intervals of 90 %, of natural logarithms, on problems that were left out."""

    fitted_on: str  # the GPU, as its driver names it
    date: str
    rows: int  # measured kernels
    problems: int
    coefficients: Mapping[str, Coefficient]
    error: float  # of the joules of a call whose time is known
    ratio_error: float  # of the ratio of two kernels of one problem
    limit_w: float  # the mean power of kernels at the power limit

    def predict(self, events: Mapping[str, float], *, limited: bool = True) -> dict[str, float]:
        """Event -> joules, `limited` by the power limit: at it clocks and voltage fall, and every event costs less.

        Raises `KeyError` for an event that has no coefficient.
        """
        found = {name: self.coefficients[name].value * count for name, count in events.items() if count}
        most, total = self.limit_w * events.get(STATIC, 0.0), sum(found.values())
        scale = most / total if limited and total > most > 0 else 1.0
        return {name: joules * scale for name, joules in found.items()}


@functools.cache
def load_model(path: Path = FITTED) -> EnergyModel | None:
    """The fit in a file, by default the shipped one; None if there is no such file."""
    if not path.is_file():
        return None
    plain = json.loads(path.read_text())
    made = {name: Coefficient(**value) for name, value in plain["coefficients"].items()}
    return EnergyModel(
        **{name: plain[name] for name in ("fitted_on", "date", "rows", "problems", "error", "ratio_error", "limit_w")},
        coefficients=made,
    )


def estimate_energy(
    launches: Sequence[Launch], device: Device, work: Work, time: TimeEstimate, model: EnergyModel | None = None
) -> EnergyEstimate | str:
    """The joules of a call whose launches were followed at full size, or why they cannot be modelled."""
    model = model or load_model()
    if model is None:
        return UNFITTED
    try:
        events = count_events(launches, device, work, time.seconds)
        parts = model.predict(events, limited=devices.is_same(model.fitted_on, device.name))
    except KeyError as unknown:
        return f"the energy model has no coefficient for {unknown.args[0]} on tensor cores"
    total, static = sum(parts.values()), parts.pop(STATIC, 0.0)
    if total <= 0:
        return "the energy model finds no joule in this call"
    # the time's error moves the static part only; both errors are of logarithms, and independent
    slow = math.log(time.high_s / time.low_s) / 2 * static / total
    width = math.hypot(model.error * _factor(model, device.name), slow)
    return EnergyEstimate(
        joules=total,
        low_joules=total * math.exp(-width),
        high_joules=total * math.exp(width),
        static_joules=static,
        parts=tuple(sorted(parts.items(), key=lambda item: -item[1])),
        device=device.name,
        fitted_on=model.fitted_on,
        ratio_error=model.ratio_error * _factor(model, device.name),
    )


def describe_fit(device: Device) -> str:
    """Where the coefficients for a device come from, in a phrase."""
    model = load_model()
    if model is None:
        return UNFITTED
    fit = f"coefficients fitted to {model.rows} kernels of {model.problems} problems, measured on {model.fitted_on}"
    if _factor(model, device.name) == 1.0:
        return fit
    return f"{fit}; for {device.name} intervals are {ELSEWHERE:g} times as wide (inferred), on a logarithmic scale"


def _factor(model: EnergyModel, device: str) -> float:
    return 1.0 if devices.is_same(model.fitted_on, device) else ELSEWHERE
