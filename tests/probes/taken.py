"""Profiles that were really taken: of planted kernels on the emulator, of counted rows of the landscapes, and by Nsight
Compute on an H200.
"""

from __future__ import annotations

import functools
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from calibrate_probes import make_profile

from workbench.analysis import devices, speed_of_light
from workbench.probes import diagnose, load_probes
from workbench.records import Bound, Diagnosis, Profile, Work
from workbench.wire import from_plain

HERE = Path(__file__).parent
RESULTS = HERE.parent / "bench" / "results"


@dataclass(frozen=True)
class Taken:
    """One profile, with the problem's work and the kernel's text ("" for rows of landscapes)."""

    profile: Profile
    work: Work
    source: str = ""

    @property
    def bound(self) -> Bound:
        """The problem's bound on the profile's device."""
        return speed_of_light.bound(self.work, devices.find(self.profile.device))


def diagnose_taken(taken: Taken, **options: Any) -> Diagnosis:
    """The diagnosis of a profile. Options are those of `diagnose`."""
    found = diagnose(taken.profile, taken.bound, taken.source, **options)
    assert found is not None
    return found


def decided(taken: Taken) -> set[str]:
    """The probes that advise with medium or high severity, all of them asked."""
    advice = diagnose_taken(taken, probes=load_probes()).advice
    return {item.probe for item in advice if item.severity != "low"}


def _read(path: Path, which: str) -> dict[str, Taken]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return {
        row["kernel"]: Taken(from_plain(row[which], Profile), from_plain(row["work"], Work), row["source"])
        for row in rows
        if row[which]
    }


@functools.cache
def planted_profiles() -> dict[str, Taken]:
    """Profiles of the planted kernels, by name."""
    return _read(HERE / "profiles.jsonl.gz", "emulated")


@functools.cache
def measured_profiles() -> dict[str, Taken]:
    """Nsight Compute's profiles on an H200, by the kernel's name in probes_on_gpu.py."""
    return _read(RESULTS / "h200_probe_profiles.jsonl.gz", "measured")


@functools.cache
def _lines() -> list[str]:
    return gzip.decompress((RESULTS / "probe_counts.jsonl.gz").read_bytes()).decode().splitlines()


def counted_rows() -> Iterator[dict[str, Any]]:
    """All counted rows of landscapes."""
    for line in _lines():
        row = json.loads(line)
        if "left_out" not in row:
            yield row


def take_row(row: dict[str, Any]) -> Taken | None:
    """The profile of a counted row."""
    profile = make_profile(row, "H200")
    return Taken(profile, from_plain(row["work"], Work)) if profile is not None else None


@functools.cache
def counted_profile(problem: str, program: str) -> Taken:
    """The profile of one counted row of a landscape."""
    wanted = json.dumps(program)
    row = next(row for row in map(json.loads, (x for x in _lines() if wanted in x)) if row["problem"] == problem)
    found = take_row(row)
    assert found is not None
    return found
