"""Candidates at their problem's full size, a few CTAs of each launch: what the time model is compared with measured
times on. Used by landscape_counts.py and foreign_kernels.py."""

from __future__ import annotations

import functools
import importlib.util
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import workbench.problems as problems
from workbench.codegen import compile_program
from workbench.emulator.emulation import CompiledModule
from workbench.emulator.hook import emulated
from workbench.problems import cases, inspection, loading
from workbench.problems.work import count_work
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Facts, Launch, Problem, Work
from workbench.session import recording as recordings
from workbench.toolchain import describe_module
from workbench.wire import to_plain

RESULTS = Path(__file__).parent / "results"
SAMPLE = 4  # CTAs of each launch


@dataclass(frozen=True)
class Measured:
    """One kernel that was timed on the GPU: its source, its problem, seconds."""

    label: str
    problem: Problem
    source: str
    seconds: float
    arch: str = "sm_90a"


@functools.cache
def facts_of(problem: Problem) -> Facts:
    """The problem's facts, found once."""
    return inspection.inspect(problem)


def planned(name: str) -> Iterator[Measured]:
    """Rows of a result file of gpu_loop.py, their sources emitted again from the programs."""
    data = json.loads((RESULTS / name).read_text())
    for row in data["rows"]:
        if not row["correct"] or (
            row["problem"] == "matvec" and row["program"].startswith("gemm")
        ):  # the planner writes matvec as a row operation now
            continue
        problem = problems.load(row["problem"], precision=data["precision"])
        facts = facts_of(problem)
        binding = binding_of(problem, facts, recognise(facts))
        yield Measured(
            f"{row['problem']} {data['precision']} v{row['version']} {row['title']}",
            problem,
            compile_program(row["program"], binding),
            row["median_s"],
        )


def full_work(problem: Problem) -> Work:
    """Least bytes and FLOPs of the problem at its own sizes."""
    return count_work(problem, cases.measure(problem, "full"))[0]


def sampled(one: Measured, *, sample: int, limit_s: float) -> tuple[list[Launch], list[Any]]:
    """The launches of one call at full size, and the modules that were loaded."""
    full = cases.measure(one.problem, "full").case
    reference = loading.load_module(one.problem, full.settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        path.write_text(one.source)
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        arguments = reference.get_init_inputs()
        with torch.device("meta"):
            model = module.ModelNew(*arguments)
        model = model.to_empty(device="cpu").requires_grad_(False)
        if one.problem.precision in ("fp16", "bf16"):
            model = model.to(loading.DTYPES[one.problem.precision])
        with (
            emulated(
                arch=one.arch,
                device="H200",
                source_file=str(path),
                sample=sample,
                follow=True,
                limit_s=limit_s,
                skip_repeats=True,
            ) as emulation,
            torch.no_grad(),
        ):
            model(*(loading.cast(loading.lazy_zeros(item), one.problem) for item in full.inputs))
        return emulation.launches, emulation.modules


def recorded(name: str) -> Iterator[Measured]:
    """Correct versions of the recordings that a result file of replays.py timed."""
    for which, played in json.loads((RESULTS / name).read_text())["recordings"].items():
        recording = recordings.load(which)
        for row, step in zip(played["rows"], recording.steps, strict=False):
            if row["correct"] and row["median_s"]:
                yield Measured(
                    f"recorded {which} v{row['version']}",
                    recording.problem,
                    step.proposal.candidate.source,
                    row["median_s"],
                    recording.arch,
                )


def describe_builds(modules: Sequence[CompiledModule], arch: str) -> list[dict[str, Any]]:
    """The kernels of compiled modules as plain data, without their code."""
    return [
        {**to_plain(build), "ptx": "", "sass": ""}
        for module in modules
        for build in describe_module(module.ptx, module.cubin, arch)
    ]


def describe_launches(launches: Sequence[Launch]) -> list[dict[str, Any]]:
    """Launches as plain data, without source lines."""
    plain = [{**to_plain(launch), "lines": [], "findings": []} for launch in launches]
    for launch in plain:
        launch["paced"]["stalls"] = []
    return plain


def sample(one: Measured, limit_s: float) -> dict[str, Any]:
    """What the model needs of one kernel."""
    launches, modules = sampled(one, sample=SAMPLE, limit_s=limit_s)
    return {
        "label": one.label,
        "seconds": one.seconds,
        "work": to_plain(full_work(one.problem)),
        "launches": describe_launches(launches),
        "builds": describe_builds(modules, one.arch),
    }
