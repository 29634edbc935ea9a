"""Joules of one call, from NVML's total-energy counter around a steady loop.

Plain energy / calls has two errors (KernelPro, section 3.3: on A100 and H100 the board's sensor looks at only about
25 % of the run time, and the uncorrected error averages 35 %, at most 65 %):

    sensor   It looks at about 25 ms of every 100 ms, and its filter lags. So the loop is steady and long (1 s a
             window), and the first 0.3 s of a window are left out. The slope of the counter is taken over the rest.
             Each window begins at another phase of the sensor's clock, and the median of the windows is the result.
    gaps     The device draws idle power while nothing runs. The loop's duty is the part of a window in which calls ran
             on the device (by events). The idle power of the rest, measured before with a live context, is subtracted.

    power = slope of the counter in a window
    J per call = (power - (1 - duty) * idle) * window / calls

The parent reads NVML, outside the candidate's process. Lengths and phases are our choice. The 0.3 s are inferred from
reports of users on the filter's length.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import threading
import time
from collections.abc import Sequence

from workbench.executors.gpu.presence import gpu_at_hand
from workbench.executors.gpu.telemetry import device_handle
from workbench.profilers.profile_client import ProfiledRun, needs_gpu, run_profiled
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Energy, Job, Outcome, Profile
from workbench.wire import Json

WALL_S = 180.0
PERIOD_S = 0.02  # between two readings
KEPT = 300  # readings that the record holds
RISE_S = 0.3
# seconds; a shift of 37.5 ms for each window, over a sensor's period of 100 ms
OPTIONS = {"idle_s": 1.5, "pause_s": 0.2, "shift_s": 0.0375, "window_s": 1.2, "windows": 4}

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
        """Run four windows of a steady loop at full size, and read NVML during the run."""
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
    """NVML's energy counter of the GPU at hand."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        self.handle = device_handle(pynvml, gpu_at_hand())

    def read(self) -> float:
        """Joules since the driver was loaded (NVML counts millijoules)."""
        return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) * 1e-3


class Sampler(threading.Thread):
    """Reads the counter every 20 ms until `finish`."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(name="cutegen-energy", daemon=True)
        self.counter, self.ended = counter, threading.Event()
        self.readings: list[Reading] = []

    def run(self) -> None:
        """Read until `finish`. A reading that fails ends the thread."""
        while not self.ended.wait(PERIOD_S):
            self.readings.append((time.monotonic(), self.counter.read()))

    def finish(self) -> None:
        """End the thread. A second call does nothing."""
        self.ended.set()
        if self.is_alive():
            self.join()


def profile_of(job: Job, outcome: Outcome, seen: ProfiledRun, readings: Sequence[Reading]) -> Profile:
    """The profile from the loop's marks and the readings of the counter."""
    notes = [f"the candidate did not get through: {seen.failure.message}"] if seen.failure else []
    energy, device = None, outcome.device or job.device
    try:
        left = json.loads(seen.text("marks.json") or "{}")
        energy = compute_energy(readings, left["marks"], left["windows"], device) if left else None
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
        device=device,
        case="full",
        energy=energy,
        notes=tuple(notes),
        protections=seen.protections,
        versions=seen.versions,
    )


def slope(readings: Sequence[Reading], start: float, end: float) -> float | None:
    """Watts between two times, by least squares through the readings; None with fewer than three of them."""
    chosen = [(t, joules) for t, joules in readings if start <= t <= end]
    if len(chosen) < 3:
        return None
    middle, height = statistics.fmean(t for t, _ in chosen), statistics.fmean(joules for _, joules in chosen)
    spread = sum((t - middle) ** 2 for t, _ in chosen)
    return sum((t - middle) * (joules - height) for t, joules in chosen) / spread if spread else None


def interpolate(readings: Sequence[Reading], when: float) -> float:
    """Joules at a time, by linear interpolation between two readings."""
    before = max((item for item in readings if item[0] <= when), default=readings[0])
    after = min((item for item in readings if item[0] >= when), default=readings[-1])
    part = (when - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
    return before[1] + part * (after[1] - before[1])


def compute_energy(
    readings: Sequence[Reading], marks: Sequence[tuple[str, float]], windows: Sequence[Json], device: str = ""
) -> Energy | None:
    """Energy of one call from the counter's readings and the loop's marks.

    None if the counter was not read during a window, or did not move.
    """
    begun = [(str(name), float(when)) for name, when in marks]
    idle_start = next(when for name, when in begun if name == "idle")
    idle_end = next(when for name, when in begun if name == "pause")
    idle = slope(readings, idle_start + (idle_end - idle_start) / 2, idle_end) or 0.0
    measured = [_window_energy(readings, window, idle) for window in windows]
    found = [item for item in measured if item is not None]
    if not windows or len(found) < len(windows):
        return None
    corrected, powers, naive = zip(*found, strict=True)
    length = sum(float(item["end"]) - float(item["start"]) for item in windows)
    calls, busy_s = sum(int(item["calls"]) for item in windows), sum(float(item["busy_s"]) for item in windows)
    zero, base = readings[0]
    step = max(1, len(readings) // KEPT)
    return Energy(
        joules_per_call=statistics.median(corrected),
        low_joules=min(corrected),
        high_joules=max(corrected),
        uncorrected_joules=statistics.fmean(naive),
        average_w=statistics.fmean(powers),
        idle_w=idle,
        duty=min(busy_s / length, 1.0),
        calls=calls,
        window_s=length,
        seconds_per_call=busy_s / calls,
        samples=tuple((round(t - zero, 4), round(joules - base, 3)) for t, joules in readings[::step]),
        marks=tuple((name, round(when - zero, 4)) for name, when in begun),
        device=device,
    )


def _window_energy(readings: Sequence[Reading], window: Json, idle: float) -> tuple[float, float, float] | None:
    """(joules per call, watts, uncorrected joules per call) of one window; `idle` is the idle power in watts."""
    start, end, calls = float(window["start"]), float(window["end"]), int(window["calls"])
    power = slope(readings, start + RISE_S, end)
    if power is None or power <= 0 or not calls:
        return None
    duty = min(float(window["busy_s"]) / (end - start), 1.0)
    uncorrected = (interpolate(readings, end) - interpolate(readings, start)) / calls
    return (power - (1 - duty) * idle) * (end - start) / calls, power, uncorrected


def summary(energy: Energy) -> str:
    """One sentence: energy per call with its spread, power, and the uncorrected energy."""
    return (
        f"{energy.joules_per_call:.3g} J a call "
        f"({energy.low_joules:.3g} to {energy.high_joules:.3g} over the windows), "
        f"{energy.active_joules:.3g} J above idle, "
        f"{energy.average_w:.0f} W on average, {energy.idle_w:.0f} W idle; "
        f"uncorrected {energy.uncorrected_joules:.3g} J (measured)"
    )
