"""The diagnosis of a version: both stages of the analysis, the probes' advice, what the bound leaves, the order."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workbench import plugins
from workbench.probes import two_stage
from workbench.probes.base import LEAST, severity_of
from workbench.probes.calibration import Calibrated, calibrated, pooled_rate
from workbench.probes.signals import Signals, read_signals
from workbench.protocols import Probe
from workbench.records import Advice, Bound, Diagnosis, Experience, Profile

WEIGHT = 10  # a landscapes' hit rate counts as so many changes of the user's own (chosen)


@functools.cache
def load_probes() -> tuple[Probe, ...]:
    """All installed probes that can be loaded, by name. They are looked up once in a process: that takes 0.2 s."""
    return tuple(probe for probe in plugins.load_usable("probe") if isinstance(probe, Probe))


def diagnose(
    profile: Profile,
    bound: Bound | None,
    source: str,
    *,
    seconds: float | None = None,
    probes: Iterable[Probe] | None = None,
    experience: Mapping[str, Experience] | None = None,
    rates: Mapping[str, Calibrated] | None = None,
) -> Diagnosis | None:
    """The diagnosis of a profile; None if no kernel of it has a time.

    `seconds` is the call's time that the verdict states (default: the sum of the kernels'). `probes` are asked instead
    of the installed ones that suit the class. `experience` is what earlier changes on a probe's advice brought this
    user; it counts beside the landscapes' rates, which are the shipped ones unless `rates` are given.
    """
    kernels = read_signals(profile)
    if not kernels:
        return None
    measured = two_stage.classify_profile(kernels)
    analytic = two_stage.classify_bound(bound) if bound is not None else measured
    chosen, note = two_stage.choose_class(analytic, measured)
    room = _room(kernels, bound, seconds)
    known = calibrated() if rates is None else rates
    asked, skipped = _filter(load_probes() if probes is None else probes, chosen, measured, all_of=probes is not None)
    found, failed = _look(asked, profile, bound, source)
    return Diagnosis(
        device=profile.device,
        case=profile.case,
        provenance=profile.provenance,
        bottleneck=chosen,
        analytic=analytic,
        measured=measured,
        note=note,
        seconds=seconds or sum(kernel.seconds for kernel in kernels),
        room=room,
        advice=_rank((_limit(advice, room, experience or {}, known) for advice in found), known),
        skipped=(*skipped, *failed),
    )


def _look(
    asked: Sequence[Probe], profile: Profile, bound: Bound | None, source: str
) -> tuple[list[Advice], list[tuple[str, str]]]:
    """(the advice of the probes, those that raised with the reason). A probe of another package may raise anything."""
    found: list[Advice] = []
    failed: list[tuple[str, str]] = []
    for probe in asked:
        try:
            advice = probe.look(profile, bound, source)
        except Exception as error:
            failed.append((probe.name, f"it failed: {type(error).__name__}: {' '.join(str(error).split())[:100]}"))
            continue
        if advice is not None:
            found.append(advice)
    return found, failed


def _room(kernels: Sequence[Signals], bound: Bound | None, seconds: float | None) -> float | None:
    """The call's time over the attainable bound, else over the data sheet's."""
    if bound is None:
        return None
    least = bound.attainable_s or bound.bound_s
    return (seconds or sum(kernel.seconds for kernel in kernels)) / least if least else None


def _filter(
    probes: Iterable[Probe], chosen: str, measured: str, *, all_of: bool
) -> tuple[tuple[Probe, ...], tuple[tuple[str, str], ...]]:
    """(the probes that are asked, the others with the reason)."""
    classes = two_stage.select_classes(chosen, measured)  # type: ignore[arg-type]
    asked: list[Probe] = []
    skipped: list[tuple[str, str]] = []
    for probe in sorted(probes, key=lambda probe: probe.name):
        if all_of or classes & probe.classes:
            asked.append(probe)
        else:
            skipped.append((probe.name, f"not for {' and '.join(sorted(classes))} problems"))
    return tuple(asked), tuple(skipped)


def _limit(
    advice: Advice, room: float | None, experience: Mapping[str, Experience], rates: Mapping[str, Calibrated]
) -> Advice:
    """The advice with the hit rates of its probe, and no more gain than the bound leaves."""
    own = experience.get(advice.probe, Experience())
    known = rates.get(advice.probe, Calibrated())
    gain = advice.gain if room is None else max(min(advice.gain, room), 1.0)
    return replace(
        advice,
        gain=gain,
        severity=severity_of(gain),
        moves=known.order_moves(advice.moves),
        hit_rate=known.hit_rate,
        mean_gain=known.mean_gain,
        tried=own.tried,
        helped=own.helped,
    )


def _rank(found: Iterable[Advice], rates: Mapping[str, Calibrated]) -> tuple[Advice, ...]:
    """Advice in the order of its worth: the gain that is left times how often such advice helps, then by name."""
    pooled = pooled_rate(rates)

    def worth(advice: Advice) -> float:
        expected = rates.get(advice.probe, Calibrated()).expect(pooled if advice.moves else pooled / 2)
        rate = (WEIGHT * expected + advice.helped) / (WEIGHT + advice.tried)
        return (advice.gain - 1) * rate

    kept = [advice for advice in found if advice.gain >= LEAST]
    return tuple(sorted(kept, key=lambda advice: (-worth(advice), advice.probe)))
