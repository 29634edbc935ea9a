"""Probes of the launch: its overhead, CTAs that are too few, the tail of the last wave, work that is uneven."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.analysis.time_model import fitted_model
from workbench.probes.base import (
    FEW_THREADS,
    LEAST,
    LESS,
    MAIN,
    MORE,
    OTHER,
    KernelProbe,
    launch_line,
    moves,
    severity_of,
)
from workbench.probes.signals import CTA_LAUNCH, LATENCY, Signals, read_signals
from workbench.protocols import Probe
from workbench.records import Advice, Bound, Measure, Profile

OVERHEAD = 0.2  # share of launches and gaps in the call (KernelPro's trigger)
TAIL = 1.15  # waves rounded up over waves (inferred)
STARTS = 0.5  # share of the start of CTAs in a kernel's time (inferred)
FILLED = 0.9  # CTAs for each SM: persistent kernels leave some out (chosen)
ENOUGH = 32  # CTAs for each SM, beyond which more do not help to share the work evenly (chosen)
BRIEF = 0.1  # share of the call of a kernel that hardly counts (chosen)
MANY_WAVES = 6.0  # a last wave after so many does not matter (inferred)


class LaunchOverhead(Probe):
    """Does the call wait for launches, of kernels or of CTAs?"""

    name = "launch_overhead"
    question = "Does the call wait for launches, of kernels or of CTAs?"
    classes = frozenset({"memory", "compute", "latency"})

    def look(self, profile: Profile, bound: Bound | None, source: str, /) -> Advice | None:
        """Trigger: gaps between kernels, or the model's seconds for a launch, are over OVERHEAD of the call; or the
        CTAs of a kernel take over STARTS of its time to start.
        """
        kernels = read_signals(profile)
        found = [
            self._between(kernels, profile, source),
            *(self._of_ctas(kernel, kernels, source) for kernel in kernels),
        ]
        return max(filter(None, found), key=lambda advice: advice.gain, default=None)

    def _between(self, kernels: Sequence[Signals], profile: Profile, source: str) -> Advice | None:
        """The advice on several kernels of a call."""
        busy = sum(kernel.seconds for kernel in kernels)
        timeline = profile.timeline
        if timeline is not None and timeline.calls and timeline.total_s:
            idle, whole, provenance = sum(timeline.launch_gaps), timeline.total_s, "gaps between kernels"
        else:
            launches = len(kernels) - 1
            idle = launches * fitted_model().constants.launch_s + _small(kernels)
            whole, provenance = busy + launches * fitted_model().constants.launch_s, "launches (modelled)"
        if not whole or len(kernels) < 2 or idle / whole <= OVERHEAD:
            return None
        share = idle / whole
        gain = 1 / (1 - share * (1 - 1 / len(kernels)))
        if gain < LEAST:
            return None
        return Advice(
            probe=self.name,
            severity=severity_of(gain),
            cause=f"{len(kernels)} launches: {share:.0%} of the call are {provenance}",
            action="fuse the kernels, replay the call as a CUDA graph, or let launches overlap (programmatic dependent "
            "launch)",
            evidence=(
                Measure(name=provenance, value=share, limit=OVERHEAD, unit="%"),
                Measure(name="launches", value=float(len(kernels))),
            ),
            line=launch_line(source, max(kernels, key=lambda kernel: kernel.seconds).metrics.kernel),
            moves=moves(*fewer_parts(kernels), ("splitk", LESS)),
            pattern="fused epilogue kernel",
            gain=gain,
            provenance="measured" if timeline is not None else "modelled",
        )

    def _of_ctas(self, kernel: Signals, kernels: Sequence[Signals], source: str) -> Advice | None:
        """The advice on a kernel of many small CTAs."""
        share, ctas = kernel.busy[CTA_LAUNCH], math.prod(kernel.metrics.grid)
        if share <= STARTS:
            return None
        gain = kernel.gain({CTA_LAUNCH: min(ENOUGH * kernel.device.sms / ctas, 1.0)})
        if gain < LEAST:
            return None
        threads = math.prod(kernel.metrics.block)
        return Advice(
            probe=self.name,
            severity=severity_of(gain),
            cause=f"{ctas:,} CTAs of {threads} threads: the device takes {share:.0%} of the time to start them",
            action="give each CTA more work: more threads, several elements or rows for a thread, larger tiles, or a "
            "loop over the work in a grid that fills the device a few times",
            kernel=kernel.metrics.kernel,
            evidence=(
                Measure(name="CTA launch", value=share, limit=STARTS, unit="%"),
                Measure(name="CTAs", value=float(ctas), limit=float(ENOUGH * kernel.device.sms)),
            ),
            line=launch_line(source, kernel.metrics.kernel),
            moves=moves(
                *(("threads", MORE), ("rows", MORE), ("vector", MORE), ("unroll", MORE), ("tile", MORE)),
                *fewer_parts(kernels),
            ),
            pattern="persistent tile scheduler",
            gain=gain,
            provenance="modelled",
        )


def _small(kernels: Sequence[Signals]) -> float:
    """Seconds that kernels too short for the device take beyond their work: the start of a CTA each."""
    constants = fitted_model().constants
    return sum(constants.start_cycles / kernel.device.clock_hz for kernel in kernels)


def _spread(kernel: Signals) -> tuple[tuple[str, str], ...]:
    """The moves that give a kernel more CTAs whose settings its other kernels share."""
    few = math.prod(kernel.metrics.block) <= FEW_THREADS
    return (("threads", LESS), ("rows", LESS), *((("threads_per_row", MORE),) if few else ()))


def fewer_parts(kernels: Sequence[Signals]) -> tuple[tuple[str, str], ...]:
    """The move to fewer parts, each of which is read and written once more, where enough CTAs are left."""
    long = [kernel for kernel in kernels if kernel.share > BRIEF]
    full = all(math.prod(kernel.metrics.grid) > ENOUGH * kernel.device.sms for kernel in long)
    return (("parts", LESS),) if full else ()


def is_underfilled(kernel: Signals) -> bool:
    """Whether a kernel has fewer CTAs than the device has SMs."""
    return 0 < math.prod(kernel.metrics.grid) < FILLED * kernel.device.sms


def fills_device(kernel: Signals) -> bool:
    """Whether a kernel has a CTA for each SM, but for those that its clusters leave out: larger tiles may leave SMs
    idle where it has fewer.
    """
    return math.prod(kernel.metrics.grid) > kernel.device.sms - (kernel.metrics.cluster or 1)


class Underfilled(KernelProbe):
    """Are there CTAs for all SMs?"""

    name = "underfilled"
    question = "Are there CTAs for all SMs?"

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: fewer CTAs than SMs; persistent kernels with a CTA on each SM do not count."""
        if not is_underfilled(kernel):
            return None
        ctas = math.prod(kernel.metrics.grid)
        filled = ctas / kernel.device.sms
        everything = dict.fromkeys(kernel.busy, max(filled, 0.1))
        everything |= {"DRAM": 1.0, "L2": 1.0}
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(everything),
            cause=f"the grid has {ctas} CTA{'s' * (ctas != 1)} for {kernel.device.sms} SMs",
            action="split the work further: smaller tiles, split-K, several CTAs for a row, parts of a reduction",
            evidence=(Measure(name="CTAs", value=float(ctas), limit=float(kernel.device.sms)),),
            changes=moves(
                ("parts", MORE),
                ("splitk", MORE),
                *(() if kernel.metrics.wgmma else (("tile", LESS),)),  # a smaller one waits as long for its operands
                ("split", MORE),
                *(_spread(kernel) if kernel.share > MAIN else ()),
            ),
            line=launch_line(source, kernel.metrics.kernel),
            pattern="split-k stream-k tile scheduler",
        )


def _measure_balance(kernel: Signals) -> float:
    """The CTAs of a mean SM over those of the SM with most, whose units work longest however many it has at once."""
    per_sm = math.prod(kernel.metrics.grid) / kernel.device.sms
    return per_sm / math.ceil(per_sm) if per_sm else 1.0


class WaveTail(KernelProbe):
    """Does the last wave leave SMs idle?"""

    name = "wave_tail"
    question = "Does the last wave of CTAs leave SMs idle?"
    classes = frozenset({"compute", "latency", "memory"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: a few waves, the last of which is so small that the rounded number is TAIL times the real one."""
        waves = kernel.metrics.waves
        if waves is None or not 1.0 < waves <= MANY_WAVES or math.ceil(waves) / waves <= TAIL:
            return None
        ratio = math.ceil(waves) / waves
        last = waves - math.floor(waves)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                {
                    **dict.fromkeys(("tensor cores", "fp32", "issue", "shared memory"), _measure_balance(kernel)),
                    LATENCY: 1 / ratio,
                }
            ),
            cause=f"{waves:.2f} waves of CTAs: the last one fills {last:.0%} of the SMs' places for CTAs",
            action="choose tiles that fill whole waves, a persistent kernel with a tile scheduler, or stream-K",
            evidence=(Measure(name="waves rounded up over waves", value=ratio, limit=TAIL, unit="x"),),
            changes=moves(("tile", OTHER), ("splitk", OTHER), ("threads", OTHER), ("parts", OTHER)),
            line=launch_line(source, kernel.metrics.kernel),
            pattern="stream-k persistent tile scheduler",
        )
