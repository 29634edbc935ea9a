"""Advice in words: for a person, and as directives for a language model (KernelPro's semantic feedback)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.probes.calibration import Calibrated, calibrated
from workbench.protocols import Probe
from workbench.records import Advice, Bound, Candidate, Diagnosis, Measure, Profile

MOST_DIRECTIVES = 5
UNITS = {"": "", "x": "x", "bytes": " bytes", "s": " s", "cycles": " cycles"}


def format_measure(value: float, unit: str) -> str:
    """A value of a measure with its unit: 81 %, 4.0x, 227 KB, 132."""
    if unit == "%":
        return f"{value:.0%}"
    if unit == "x":
        return f"{value:.1f}x"
    if unit == "bytes" and value >= 10_240:
        return f"{value / 1024:.0f} KB"
    return f"{value:.4g}{UNITS[unit]}"


def describe_measure(measure: Measure) -> str:
    """A measure in words: "sectors over the least 8.0x, limit 1.2x"."""
    limit = "" if measure.limit is None else f", limit {format_measure(measure.limit, measure.unit)}"
    return f"{measure.name} {format_measure(measure.value, measure.unit)}{limit}"


def describe_evidence(advice: Advice) -> str:
    """All measures of an advice in words."""
    return "; ".join(map(describe_measure, advice.evidence))


def describe_gain(advice: Advice, room: float | None) -> str:
    """What the call would gain without this cost alone, and what the bound leaves: a change may take away more."""
    if room is None:
        return f"about {advice.gain:.2f}x here without this cost"
    if advice.gain >= room:
        return f"about {advice.gain:.2f}x here, all that the bound leaves"
    most = f"{room:.2f}" if room < 100 else f"{room:,.0f}"
    return f"about {advice.gain:.2f}x here without this cost, at most {most}x by the bound"


def describe_gains(advice: Advice) -> str:
    """What such advice gained elsewhere: on how many rows of landscapes, with the mean gain of all of them."""
    known = calibrated().get(advice.probe, Calibrated())
    own = f"; of your own {advice.tried} such changes {advice.helped} helped" if advice.tried else ""
    if advice.hit_rate is None or advice.mean_gain is None:
        return "not calibrated: no row of a landscape had this advice and a measured row for its change" + own
    rows = f"{known.fires} row{'s' if known.fires != 1 else ''} of {known.problems} problem"
    return (
        f"such a change helped in {known.hits} of {rows}{'s' if known.problems != 1 else ''} ({advice.hit_rate:.0%}); "
        f"{advice.mean_gain:.2f}x in the mean{own}"
    )


def expected_gain(advice: Advice) -> float | None:
    """The speed-up to expect: the mean elsewhere, and no more than this cost takes; None if not calibrated."""
    return None if advice.mean_gain is None else min(advice.gain, advice.mean_gain)


def locate(advice: Advice, source: str) -> tuple[int, str] | None:
    """(number, text) of the advice's line in a version's file; None without a line."""
    lines = source.splitlines()
    return (advice.line, lines[advice.line - 1].strip()) if advice.line and advice.line <= len(lines) else None


def write_directive(advice: Advice, source: str, *, settings: bool = False) -> str:
    """One directive for a model: severity, cause, line, evidence and action; with `settings` also those to change."""
    place = locate(advice, source)
    where = f" at line {place[0]} (`{place[1]}`)" if place is not None else ""
    evidence = f" ({describe_evidence(advice)})" if advice.evidence else ""
    named = ", ".join(f"{move.setting} ({move.direction})" for move in advice.moves) if settings else ""
    return f"[{advice.severity}] {advice.cause}{where}{evidence}. Do: {advice.action}" + (
        f"; settings: {named}" if named else ""
    )


def write_directives(
    found: Diagnosis | None,
    candidate: Candidate,
    example: Callable[[str], str | None] = lambda pattern: None,
) -> tuple[str, ...]:
    """At most MOST_DIRECTIVES directives, most worth first. `example` gives that of the first one for its pattern.

    For a program in muCUTLASS they name the settings to change.
    """
    if found is None:
        return ()
    if found.exhausted:
        return ("nothing is left to gain: the time is at the attainable bound; keep this kernel as it is",)
    settings = candidate.program is not None
    made = [write_directive(advice, candidate.source, settings=settings) for advice in found.advice[:MOST_DIRECTIVES]]
    if made and (shown := example(found.advice[0].pattern)):
        made[0] += f"\n  For example, {shown}"
    return tuple(made)


def list_questions(probes: Iterable[Probe]) -> tuple[str, ...]:
    """The probes with their questions, for a model that chooses among them: "coalescing: Do ...?"."""
    return tuple(f"{probe.name}: {probe.question}" for probe in probes)


def answer_question(probes: Iterable[Probe], name: str, profile: Profile, bound: Bound | None, source: str) -> str:
    """What one probe says about a version, in words. An unknown name is answered with the names."""
    known = {probe.name: probe for probe in probes}
    if name not in known:
        return f"there is no probe {name!r}; there are: {', '.join(sorted(known))}"
    advice = known[name].look(profile, bound, source)
    return f"{name}: nothing to advise" if advice is None else write_directive(advice, source)
