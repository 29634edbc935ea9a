"""Tables about probes for the page of measurements: hit rates, planted kernels, agreement of two profilers, arms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RATES_HEAD = (
    "probe",
    "problems",
    "advised",
    "with a measured change",
    "hit",
    "mean gain",
    "rate of a problem held out",
)
PLANTED_HEAD = ("slow by", "probe", "first", "on its line")
ARMS_HEAD = ("directives against", "ratio of gains", "landscapes better", "worse", "p")


def load(name: str) -> Any:
    """The raw numbers of a file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def describe_rates() -> list[list[str]]:
    """A row for each probe, most measured changes first. The last column is how far the hit rate of the other problems
    is from a problem's own, in the mean.
    """
    rows = sorted(load("probes")["probes"].items(), key=lambda item: (-item[1]["fires"], item[0]))
    return [
        [
            f"`{name}`",
            str(row["problems"]),
            str(row["advised"]),
            str(row["fires"]),
            f"{row['hit_rate']:.0%}" if row["hit_rate"] is not None else "-",
            f"{row['mean_gain']:.2f}" if row["mean_gain"] is not None else "-",
            f"off by {row['held_out_error']:.2f}" if row["held_out_error"] is not None else "-",
        ]
        for name, row in rows
    ]


def describe_planted() -> list[list[str]]:
    """A row for each planted kernel."""
    return [
        [
            row["kernel"].replace("_", " "),
            f"`{row['probe']}`",
            *("yes" if row[key] else "no" for key in ("first", "line")),
        ]
        for row in load("planted_kernels")
    ]


def describe_arms() -> list[list[str]]:
    """A row for each other kind of feedback."""
    found = load("feedback_arms")
    names = {"raw": "raw counters", "none": "any change", "subset": "three probes by chance"}
    return [
        [names[arm], f"{row['ratio']:.3f}", str(row["better"]), str(row["worse"]), f"{row['p']:.2g}"]
        for arm, row in found["as made"]["directives against"].items()
    ]


def describe_agreement() -> str:
    """One sentence on both profilers."""
    found = load("h200_probe_agreement")
    kernels = found["kernels"]
    overlap = sum(row["jaccard"] for row in kernels.values()) / len(kernels)
    return (
        f"{len(kernels)} kernels were profiled by Nsight Compute on an H200 and counted by the emulator at full size: "
        f"{found['agreement']:.1%} of all decisions of a probe on a kernel are the same (most are silence), the sets "
        f"of probes that advise overlap by {overlap:.2f} in the mean, the first advice is the same on "
        f"{found['first_equal']:.0%}."
    )
