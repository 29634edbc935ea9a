"""The points of a roofline plot, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.records import Provenance, Version, record


@record
class RooflinePoint:
    """One version: FLOPs per byte of least traffic, achieved FLOP/s, seconds, whether the time is measured or
    modelled, and what was decided.
    """

    version: int
    title: str
    intensity: float
    rate: float
    time_s: float
    provenance: Provenance
    standing: str  # as `Version.standing`


def roofline_points(versions: Sequence[Version]) -> tuple[RooflinePoint, ...]:
    """One point for each version that has a correct, timed trial."""
    points = []
    for version in versions:
        verdict = version.trials[-1].verdict if version.trials else None
        if verdict is None or not verdict.correct or not verdict.time_s or verdict.bound is None:
            continue
        points.append(
            RooflinePoint(
                version=version.number,
                title=version.proposal.title,
                intensity=verdict.bound.intensity,
                rate=verdict.bound.flops / verdict.time_s,
                time_s=verdict.time_s,
                provenance=verdict.time_provenance or "modelled",
                standing=version.standing,
            )
        )
    return tuple(points)
