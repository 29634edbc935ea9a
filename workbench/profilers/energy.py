"""Joules of one call, from NVML's total-energy counter around a steady loop.

Two things are wrong with energy / calls as it stands (KernelPro, section 3.3 in our notes: on A100 and H100 the board's
sensor looks at only about 25 % of the run time, and the uncorrected error averages 35 %, at most 65 %):

    sensor   it looks at 25 ms of every 100 ms or so, and its filter lags. So the loop is steady and long (1 s a
             window), the first 0.3 s of a window are left out, the slope of the counter is taken over the rest, and
             each window begins at another phase of the sensor's clock; the median of the windows is the result
    gaps     while nothing runs, idle power is drawn. The loop's duty is the part of a window in which calls ran on the
             device (by events). The idle power of the other part, measured before with the context alive, is taken off

    power = slope of the counter in a window
    J per call = (power - (1 - duty) * idle) * window / calls

The parent reads NVML, outside the candidate's process. Lengths and phases are ours; the 0.3 s are inferred from the
filter's length that users report.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import threading
import time
from collections.abc import Sequence

from workbench.profilers.profile_client import ProfiledRun, needs_gpu, run_profiled
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Energy, Job, Outcome, Profile
from workbench.wire import Json

WALL_S = 180.0
PERIOD_S = 0.02  # between two readings
KEPT = 300  # readings that the record holds
RISE_S = 0.3
OPTIONS = {
    "idle_s": 1.5,
    "pause_s": 0.2,
    "shift_s": 0.0375,
    "window_s": 1.2,
    "windows": 4,
}  # shifts of 37.5 ms over a sensor's period of 100 ms

Reading = tuple[float, float]  # (seconds by the monotonic clock, joules)


class EnergyProfiler(Profiler):
    """Energy per call and average power."""

    name = "energy"

    def why_not(self) -> str | None:
        """Needs a GPU whose driver counts energy (Volta and newer) and nvidia-ml-py."""
        missing = needs_gpu()
        if missing:
            return missing
        if importlib.util.find_spec("pynvml") is None:
            return "NVML's Python module is missing: pip install nvidia-ml-py"
        try:
            Counter().read()
        except Exception as error:
            return f"NVML counts no energy on this device ({error})"
        return None

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """Four windows of a steady loop at full size, NVML read all the while."""
        counter = Counter()
        sampler = Sampler(counter)
        sampler.start()
        try:
            with run_profiled(job, "energy", context, case="full", wall_s=WALL_S, options=OPTIONS) as seen:
                sampler.finish()
                return profile_of(job, outcome, seen, sampler.readings)
        finally:
            sampler.finish()


class Counter:
    """NVML's energy counter of the device that CUDA calls 0 here."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
        self.handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(first))
            if first.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(first)
        )

    def read(self) -> float:
        """Joules since the driver was loaded."""
        return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) * 1e-3


class Sampler(threading.Thread):
    """Reads the counter every 20 ms until `finish`."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(name="cutegen-energy", daemon=True)
        self.counter, self.ended = counter, threading.Event()
        self.readings: list[Reading] = []

    def run(self) -> None:
        """Read until told to end; a reading that fails ends it."""
        while not self.ended.wait(PERIOD_S):
            self.readings.append((time.monotonic(), self.counter.read()))

    def finish(self) -> None:
        """End the thread; calling it twice does no harm."""
        self.ended.set()
        if self.is_alive():
            self.join()


def profile_of(job: Job, outcome: Outcome, seen: ProfiledRun, readings: Sequence[Reading]) -> Profile:
    """The record of what the loop left and what was read meanwhile."""
    notes = [f"the candidate did not get through: {seen.failure.message}"] if seen.failure else []
    energy = None
    try:
        left = json.loads(seen.text("marks.json") or "{}")
        energy = compute_energy(readings, left["marks"], left["windows"]) if left else None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration, ArithmeticError) as error:
        notes.append(f"the loop's marks cannot be read: {error}")
    if energy is None and not notes:
        notes.append("no energy was measured: the counter did not move during the loop")
    return Profile(
        launches=(),
        builds=seen.builds,
        occupancy=(),
        limits=(),
        findings=(),
        summary=summary(energy) if energy else "no energy",
        provenance="measured",
        by="energy",
        device=outcome.device or job.device,
        case="full",
        energy=energy,
        notes=tuple(notes),
        protections=seen.protections,
        versions=seen.versions,
    )


def slope(readings: Sequence[Reading], start: float, end: float) -> float | None:
    """Watts between two times, by least squares through the counter; None with fewer than three readings."""
    chosen = [(t, joules) for t, joules in readings if start <= t <= end]
    if len(chosen) < 3:
        return None
    middle, height = statistics.fmean(t for t, _ in chosen), statistics.fmean(joules for _, joules in chosen)
    spread = sum((t - middle) ** 2 for t, _ in chosen)
    return sum((t - middle) * (joules - height) for t, joules in chosen) / spread if spread else None


def at(readings: Sequence[Reading], when: float) -> float:
    """The counter at a time, between two readings."""
    before = max((item for item in readings if item[0] <= when), default=readings[0])
    after = min((item for item in readings if item[0] >= when), default=readings[-1])
    part = (when - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
    return before[1] + part * (after[1] - before[1])


def compute_energy(
    readings: Sequence[Reading], marks: Sequence[tuple[str, float]], windows: Sequence[Json]
) -> Energy | None:
    """Energy of one call from the counter's readings and the loop's marks.

    None where the counter was not read during a window, or did not move.
    """
    begun = [(str(name), float(when)) for name, when in marks]
    idle_start = next(when for name, when in begun if name == "idle")
    idle_end = next(when for name, when in begun if name == "pause")
    idle = slope(readings, idle_start + (idle_end - idle_start) / 2, idle_end) or 0.0
    corrected, powers, naive = [], [], []
    for window in windows:
        start, end, calls = float(window["start"]), float(window["end"]), int(window["calls"])
        power = slope(readings, start + RISE_S, end)
        if power is None or power <= 0 or not calls:
            return None
        duty = min(float(window["busy_s"]) / (end - start), 1.0)
        corrected.append((power - (1 - duty) * idle) * (end - start) / calls)
        naive.append((at(readings, end) - at(readings, start)) / calls)
        powers.append(power)
    if not windows:
        return None
    length, calls = (
        sum(float(item["end"]) - float(item["start"]) for item in windows),
        sum(int(item["calls"]) for item in windows),
    )
    zero, base = readings[0]
    step = max(1, len(readings) // KEPT)
    return Energy(
        joules_per_call=statistics.median(corrected),
        low_joules=min(corrected),
        high_joules=max(corrected),
        uncorrected_joules=statistics.fmean(naive),
        average_w=statistics.fmean(powers),
        idle_w=idle,
        duty=min(sum(float(item["busy_s"]) for item in windows) / length, 1.0),
        calls=calls,
        window_s=length,
        seconds_per_call=sum(float(item["busy_s"]) for item in windows) / calls,
        samples=tuple((round(t - zero, 4), round(joules - base, 3)) for t, joules in readings[::step]),
        marks=tuple((name, round(when - zero, 4)) for name, when in begun),
    )


def summary(energy: Energy) -> str:
    """One sentence: energy per call with its spread, power, and what the correction took off."""
    return (
        f"{energy.joules_per_call:.3g} J a call "
        f"({energy.low_joules:.3g} to {energy.high_joules:.3g} over the windows), "
        f"{energy.average_w:.0f} W on average, {energy.idle_w:.0f} W idle; "
        f"uncorrected {energy.uncorrected_joules:.3g} J (measured)"
    )
