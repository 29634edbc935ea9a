"""What probes share: one question per kernel, and how an advice is made of its answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from workbench.probes.access_lines import find_access
from workbench.probes.signals import Signals, read_signals
from workbench.protocols import Probe
from workbench.records import Advice, Bound, LineProfile, Measure, Move, Profile, Severity

HIGH, MEDIUM = 1.3, 1.1  # gains from which an advice is of high or medium severity (chosen)
LEAST = 1.02  # a smaller gain is not worth an advice (chosen)
FEW_THREADS, MANY_THREADS = 128, 256  # of a CTA; between them their number mattered little in landscapes (chosen)
MAIN = 0.5  # share of the call from which a kernel is the main one (chosen)
SEVERAL = 4  # CTAs for each SM, beyond which a row needs no more (chosen)
MORE, LESS, OTHER = "more", "less", "other"


def severity_of(gain: float) -> Severity:
    """How much an advice matters, from the gain that is left."""
    return "high" if gain >= HIGH else "medium" if gain >= MEDIUM else "low"


def moves(*named: tuple[str, str]) -> tuple[Move, ...]:
    """Moves from pairs of a setting's name and a direction."""
    return tuple(Move(setting=name, direction=direction) for name, direction in named)  # type: ignore[arg-type]


def spread_rows(kernel: Signals) -> tuple[tuple[str, str], ...]:
    """The moves of what shares a row: more threads in a small CTA, fewer in one so large that its barriers cost time,
    and fewer CTAs where there are enough without.
    """
    if kernel.share < MAIN:
        return ()  # kernels of a call share the settings
    threads, ctas = math.prod(kernel.metrics.block), math.prod(kernel.metrics.grid)
    found = []
    if (kernel.metrics.cluster or 1) > 1 and not kernel.metrics.tensor_flops and ctas > SEVERAL * kernel.device.sms:
        found.append(("cluster", LESS))
    if threads <= FEW_THREADS:
        found.append(("threads_per_row", MORE))
    return (*found, *([("threads_per_row", LESS)] if threads > MANY_THREADS else []))


class KernelProbe(Probe):
    """A probe that looks at each kernel by itself and advises on the one with the largest gain."""

    name = ""
    question = ""
    classes = frozenset({"memory", "compute", "latency"})

    def look(self, profile: Profile, bound: Bound | None, source: str, /) -> Advice | None:
        """The advice for the kernel with the most to gain; None if no kernel triggers."""
        found = [
            advice
            for kernel in read_signals(profile, source)
            if (advice := self.examine(kernel, profile, bound, source))
        ]
        return max(found, key=lambda advice: advice.gain, default=None)

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """The advice for one kernel; None if it does not trigger."""
        raise NotImplementedError

    def advise(
        self,
        kernel: Signals,
        profile: Profile,
        *,
        gain: float,
        cause: str,
        action: str,
        evidence: Sequence[Measure] = (),
        changes: tuple[Move, ...] = (),
        line: int | None = None,
        pattern: str = "",
    ) -> Advice | None:
        """An advice whose severity follows from its gain; None if the gain is too small."""
        if gain < LEAST:
            return None
        return Advice(
            probe=self.name,
            severity=severity_of(gain),
            cause=cause,
            action=action,
            kernel=kernel.metrics.kernel,
            line=line,
            evidence=tuple(evidence),
            moves=changes,
            pattern=pattern,
            gain=gain,
            provenance="measured" if kernel.metrics.provenance == "measured" else "counted",
        )


def worst_line(lines: Sequence[LineProfile], amount: Callable[[LineProfile], float]) -> int | None:
    """The line with the largest amount; None if no line has any."""
    found = max(lines, key=amount, default=None)
    return found.line if found is not None and amount(found) > 0 else None


def worst_access(lines: Sequence[LineProfile], amount: Callable[[LineProfile], float], source: str) -> int | None:
    """The line with the largest amount of accesses to memory; not that of a helper that computes their index."""
    return find_access(source, worst_line(lines, amount))


def most_waited(lines: Sequence[LineProfile], *reasons: str, text: str = "") -> int | None:
    """The line where warps wait longest, for one of these reasons if samples have reasons. Lines whose text matches
    the pattern `text` come before all others: the emulator's waiting has no reasons.
    """
    if text:
        named = [line for line in lines if re.search(text, line.text)]
        # the emulator places no waiting on barriers
        found = most_waited(named, *reasons) or worst_line(named, lambda line: line.executed or 0.0)
        if found is not None:
            return found

    def amount(line: LineProfile) -> float:
        named = sum(count for reason, count in line.stalls if reason in reasons)
        return named or sum(count for reason, count in line.stalls if reason == "waiting")

    return worst_line(lines, amount)


def launch_line(source: str, kernel: str = "") -> int | None:
    """The line that gives a launch its grid; of several launches the one whose function `kernel` is named after."""
    texts = source.splitlines()
    grids = [at for at, text in enumerate(texts) if re.search(r"\bgrid\s*=", text)]
    for at in grids:
        called = re.findall(r"(\w+)\([^()]*\)\s*\.launch\(", " ".join(texts[max(at - 2, 0) : at + 1]))
        if called and re.search(rf"(^|_){called[-1]}(_|$)", kernel):
            return at + 1
    return grids[-1] + 1 if grids else None


def excess_sectors(line: LineProfile) -> float:
    """Sectors beyond the least that the accesses of a line need."""
    return (line.sectors or 0.0) - (line.ideal_sectors or 0.0)


def excess_wavefronts(line: LineProfile) -> float:
    """Wavefronts beyond the least that the accesses of a line need."""
    return (line.wavefronts or 0.0) - (line.ideal_wavefronts or 0.0)
