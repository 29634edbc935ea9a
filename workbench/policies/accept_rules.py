"""The rules by which a correct version is accepted over the baseline.

    time                    it is faster, by more than the noise
    energy-at-equal-time    it is faster; or the two times cannot be told apart, and it takes fewer joules
                            (lexicographic, as KernelPro, section 3.3)
    energy-delay            joules times seconds is less, by more than the noise

Energies are compared only if both are measured on one GPU, or both are modelled. Two measured energies differ if the
ranges over their windows do not overlap. Two modelled ones of the same problem differ by more than the model's error of
such a ratio, and that of the ratio of their times as far as they are static power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from workbench.analysis import devices
from workbench.errors import UserError
from workbench.records import EnergyEstimate, Verdict, Version, record

DEFAULT = "time"
RULES = (DEFAULT, "energy-at-equal-time", "energy-delay")
Choice = Literal["accept", "reject", "open"]


@record
class EnergyRatio:
    """Joules of the older version over those of the newer one, above 1 is fewer joules; with its interval."""

    ratio: float
    low: float
    high: float
    provenance: str  # measured or modelled

    @property
    def saving(self) -> str:
        """The difference in words."""
        more = "fewer" if self.ratio >= 1 else "more"
        return f"{abs(1 - 1 / self.ratio):.1%} {more} joules ({self.provenance})"


@record
class Ruling:
    """What a rule says of a version, and why. "open": it cannot be told, and both versions are kept."""

    choice: Choice
    reason: str


def check_rule(name: str) -> str:
    """The name of a rule. Raises `UserError` if there is no such rule."""
    if name not in RULES:
        raise UserError(f"no accept rule is called {name!r}; there are: {', '.join(RULES)}")
    return name


def needs_energy(rule: str, verdict: Verdict) -> bool:
    """Whether the rule needs the energies of a correct version and its baseline.

    Times of a disturbed run are not the same because they cannot be told apart: then the time decides.
    """
    return rule == "energy-delay" or (rule == "energy-at-equal-time" and _is_equal_time(verdict))


def _is_equal_time(verdict: Verdict) -> bool:
    """Whether a version's time is its parent's within the noise of an undisturbed run."""
    return verdict.speedup is not None and not verdict.distinguishable and not verdict.disturbed


def compare_energy(new: Version, old: Version) -> EnergyRatio | str:
    """The ratio of the energies of two versions, measured if both are, else modelled; or why there is none."""
    now, before = new.energy, old.energy
    if now is not None and before is not None and devices.is_same(now.device, before.device):
        return EnergyRatio(
            ratio=before.joules_per_call / now.joules_per_call,
            low=before.low_joules / now.high_joules,
            high=before.high_joules / now.low_joules,
            provenance="measured",
        )
    found, known = (version.trials[-1].verdict.energy if version.trials else None for version in (new, old))
    if found is None or known is None:
        notes = [version.trials[-1].verdict.energy_note for version in (new, old) if version.trials]
        why = next(filter(None, notes), "no GPU has measured it, and it is not modelled")
        return f"the energy of v{new.number if found is None else old.number} is unknown: {why}"
    ratio, error = known.joules / found.joules, _ratio_error(found, known, new.trials[-1].verdict)
    return EnergyRatio(ratio=ratio, low=ratio * math.exp(-error), high=ratio * math.exp(error), provenance="modelled")


def _ratio_error(new: EnergyEstimate, old: EnergyEstimate, verdict: Verdict) -> float:
    """The error of the logarithm of the ratio of two modelled energies: the model's, and that of the ratio of the times
    as far as the energies are static power.
    """
    low, high = verdict.speedup_interval or (1.0, 1.0)
    share = max(one.static_joules / one.joules for one in (new, old))
    return math.hypot(max(new.ratio_error, old.ratio_error), share * math.log(high / low) / 2)


def judge_energy(rule: str, verdict: Verdict, ratio: EnergyRatio, base: int) -> Ruling | None:
    """What `rule` says where energies decide; None where the rule `time` decides.

    `base` is the number of the version that the verdict compares with.
    """
    if rule == "energy-delay" and verdict.speedup is not None:
        low, high = verdict.speedup_interval or (verdict.speedup, verdict.speedup)
        product, least, most = verdict.speedup * ratio.ratio, low * ratio.low, high * ratio.high
        said = f"{product:.3f}x less energy times time than v{base}: {verdict.speedup:.2f}x its time, {ratio.saving}"
    elif rule == "energy-at-equal-time" and _is_equal_time(verdict):
        least, most = ratio.low, ratio.high
        said = f"the time of v{base} within the noise, {ratio.saving}"
    else:
        return None
    if least > 1:
        return Ruling(choice="accept", reason=said)
    unclear = most > 1 and (verdict.time_provenance != "measured" or ratio.provenance != "measured")
    if unclear:
        return Ruling(choice="open", reason=f"{said}, which cannot be told without a GPU")
    return Ruling(choice="reject", reason=f"{said}, no gain")


def find_best(rule: str, fastest: Version, accepted: Sequence[Version]) -> Version:
    """The best of the accepted versions: the fastest one, or what the rule prefers to it.

    From the fastest one on, a version made of it replaces it if its time was not told apart and it takes fewer joules
    outside the interval. By `energy-delay` the least product of joules and seconds wins, if all versions have both of
    one provenance.
    """
    if rule == "energy-delay":
        return _least_product(fastest, accepted)
    best = fastest
    while rule == "energy-at-equal-time":
        children = [version for version in accepted if version.parent == best.number and version is not best]
        better = next((version for version in children if _saves_at_equal_time(version, best)), None)
        if better is None:
            break
        best = better
    return best


def _saves_at_equal_time(version: Version, base: Version) -> bool:
    ratio = compare_energy(version, base)
    return _is_equal_time(version.trials[-1].verdict) and not isinstance(ratio, str) and ratio.low > 1


def _least_product(fastest: Version, accepted: Sequence[Version]) -> Version:
    """The version with the least energy times time; the fastest one where an energy is unknown or not comparable."""
    products: list[tuple[float, Version]] = []
    for version in accepted:
        ratio = compare_energy(version, fastest)
        seconds, least = (one.trials[-1].verdict.time_s for one in (version, fastest))
        if isinstance(ratio, str) or seconds is None or least is None:
            return fastest
        products.append((seconds / least / ratio.ratio, version))
    return min(products, key=lambda item: item[0])[1]
