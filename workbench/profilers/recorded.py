"""Saves and loads profiles, so that they can be read without a GPU; merges several profiles of one version."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import UserError
from workbench.records import Profile, record
from workbench.wire import from_plain, to_plain

FOLDER = Path(__file__).parent / "recordings"
SCHEMA = 1
STALLS_KEPT, LINES_KEPT, SPANS_KEPT, SAMPLES_KEPT = 6, 40, 60, 150
COUNTED_KEPT = 40  # source lines of a launch with their counters


@record
class Recorded:
    """One version's profile with its name, source, machine, and the problem's work."""

    name: str
    source: str
    profile: Profile
    title: str = ""
    machine: tuple[tuple[str, str], ...] = ()
    flops: float | None = None  # of the problem, counted
    least_bytes: float | None = None


def merge_profiles(found: Sequence[Profile]) -> Profile:
    """Merge several profiles of one version.

    Each part comes from the first profile that has it. Notes, protections and versions are joined.
    """
    first = found[0]
    return dataclasses.replace(
        first,
        by="+".join(item.by for item in found),
        summary="; ".join(item.summary for item in found),
        kernels=next((item.kernels for item in found if item.kernels), ()),
        lines=max((item.lines for item in found), key=lambda lines: (any(line.stalls for line in lines), len(lines))),
        timeline=next((item.timeline for item in found if item.timeline), None),
        energy=next((item.energy for item in found if item.energy), None),
        builds=next((item.builds for item in found if item.builds), ()),
        occupancy=next((item.occupancy for item in found if item.occupancy), ()),
        limits=next((item.limits for item in found if item.limits), ()),
        launches=next((item.launches for item in found if item.launches), ()),
        notes=tuple(dict.fromkeys(note for item in found for note in item.notes)),
        protections=tuple(dict.fromkeys(name for item in found for name in item.protections)),
        versions=tuple(dict.fromkeys(pair for item in found for pair in item.versions)),
    )


def compact(profile: Profile) -> Profile:
    """The parts of a profile that views show: busiest lines, first spans, some readings; no PTX, SASS or launches."""
    lines = sorted(
        profile.lines,
        key=lambda line: (-sum(count for _, count in line.stalls), -sum(count for _, count in line.instructions)),
    )[:LINES_KEPT]
    energy = profile.energy
    if energy is not None:
        energy = dataclasses.replace(energy, samples=energy.samples[:: max(1, len(energy.samples) // SAMPLES_KEPT)])
    return dataclasses.replace(
        profile,
        launches=(),
        builds=tuple(dataclasses.replace(build, ptx="", sass="") for build in profile.builds),
        energy=energy,
        lines=tuple(
            sorted(
                (dataclasses.replace(line, stalls=line.stalls[:STALLS_KEPT]) for line in lines),
                key=lambda line: line.line,
            )
        ),
        timeline=dataclasses.replace(profile.timeline, spans=profile.timeline.spans[:SPANS_KEPT])
        if profile.timeline
        else None,
    )


def shorten(profile: Profile) -> Profile:
    """`compact`, and the launches with the source lines that views show: what a session keeps, some 10 KB a kernel.

    Left out are PTX, SASS, printed text, and lines of launches beyond the busiest COUNTED_KEPT.
    """
    launches = tuple(
        dataclasses.replace(
            launch,
            lines=tuple(sorted(launch.lines, key=lambda line: (-line.instructions, line.line))[:COUNTED_KEPT]),
            printed="",
            findings=(),
            paced=dataclasses.replace(launch.paced, stalls=launch.paced.stalls[:COUNTED_KEPT])
            if launch.paced
            else None,
        )
        for launch in profile.launches
    )
    return dataclasses.replace(compact(profile), launches=launches)


def is_worth_keeping(profile: Profile) -> bool:
    """Whether a profile has any numbers: one without is of a run that failed."""
    return bool(profile.kernels or profile.lines or profile.timeline or profile.energy or profile.launches)


def save(path: str | Path, found: Sequence[Recorded]) -> None:
    """Write profiles as one JSON file."""
    Path(path).write_text(
        json.dumps({"schema": SCHEMA, "profiles": [to_plain(item) for item in found]}, separators=(",", ":")) + "\n"
    )


def load(path: str | Path | None = None) -> dict[str, Recorded]:
    """Profiles by name, from one file or, without a path, from all shipped files."""
    files = [Path(path)] if path is not None else sorted(FOLDER.glob("*.json"))
    if path is not None and not files[0].is_file():
        raise UserError(f"no recorded profiles at {path}")
    out: dict[str, Recorded] = {}
    for file in files:
        data = json.loads(file.read_text())
        if data.get("schema", 0) > SCHEMA:
            raise UserError(f"{file} was written by a newer workbench: upgrade it")
        out |= {item.name: item for item in (from_plain(plain, Recorded) for plain in data["profiles"])}
    return out
