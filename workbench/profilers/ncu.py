"""Nsight Compute on one version: counters of each launch, and stalls on each source line.

ncu runs in the candidate's sandbox (executors/workers/profile_worker.py), so the candidate stays confined.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import UserError
from workbench.profilers import ncu_metrics, ncu_pages, sass
from workbench.profilers.profile_client import ProfiledRun, needs_gpu, run_profiled
from workbench.profilers.timeline import TimelineProfiler
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Job, KernelMetrics, LineProfile, Outcome, Profile, Work

WALL_S = 300.0
LAUNCHES = 16  # launches of one call that are profiled
TENSOR_BUSY = 0.01  # share of the tensor pipe from which a kernel computes on it (inferred: others show up to 0.0001)
NO_PERMISSION = "ERR_NVGPUCTRPERM"
PERMISSION = (
    f"the driver gives counters to administrators only ({NO_PERMISSION}): "
    "run as root, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0"
)
PROBLEM_FLOPS = "FLOPs are the problem's (counted): ncu does not say what the tensor cores did"  # a note
PARAMETERS = Path("/proc/driver/nvidia/params")
PAGES = {
    "raw": ["--page", "raw", "--csv", "--print-units", "base"],
    "source": ["--page", "source", "--csv", "--print-units", "base", "--print-kernel-base", "function"],
}


class NcuProfiler(Profiler):
    """Counters of the device. Without permission for them the profile shows the timeline and SASS, and says so."""

    name = "ncu"

    option_names = ("sections",)  # names of `ncu_metrics.SECTIONS`; all sections if none is named

    def why_not(self) -> str | None:
        """Needs a GPU and ncu. Whether ncu may read counters is known only when it runs."""
        missing = needs_gpu()
        if missing:
            return missing
        return (
            None
            if shutil.which("ncu")
            else "ncu is not on the path; it comes with the CUDA toolkit and with Nsight Compute"
        )

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """Counters of every launch of one call at full size, stalls by source line.

        Without permission for counters the timeline is shown. Raises `UserError` for an unknown section.
        """
        sections = select_sections(context.options.get("sections", ()))
        order = (False, True) if not _is_restricted() else (True,) if os.geteuid() == 0 else (False,)
        denied = False
        for administrator in order:
            with run_profiled(
                job,
                "ncu",
                context,
                case="full",
                wall_s=WALL_S,
                options={"command": command(sections), "pages": PAGES},
                loopback=True,
                user_namespace=not administrator,
                readable=_tool_folders(),
            ) as seen:
                denied = NO_PERMISSION in seen.tool_said
                if denied and not administrator and os.geteuid() == 0:
                    continue  # in a user namespace root loses its rights
                if denied:
                    break
                return profile_of(job, outcome, seen, sections)
        return _fall_back(job, outcome, context)


def select_sections(named: object) -> tuple[str, ...]:
    """The named sections of a report, or all if none is named. Raises `UserError` for an unknown name."""
    chosen = tuple(map(str, named)) if isinstance(named, (list, tuple)) else (str(named),)
    unknown = [name for name in chosen if name not in ncu_metrics.SECTIONS]
    if unknown:
        raise UserError(f"no section is called {unknown[0]!r}; there are: {', '.join(ncu_metrics.SECTIONS)}")
    return chosen or tuple(ncu_metrics.SECTIONS)


def _fall_back(job: Job, outcome: Outcome, context: RunContext) -> Profile:
    """Profile by timeline and SASS instead of counters, with a note that says why."""
    found = TimelineProfiler().profile(job, outcome, context)
    why = f"no hardware counters: {PERMISSION}; shown instead: timeline and SASS"
    return dataclasses.replace(found, notes=(why, *found.notes))


def command(sections: Sequence[str]) -> list[str]:
    """ncu and its options, up to the report's name.

    ncu flushes caches before each pass and leaves clocks as they are. cudaProfilerStart and Stop enclose one call.
    """
    named = [part for name in sections for section in ncu_metrics.SECTIONS[name] for part in ("--section", section)]
    metrics = ",".join((*ncu_metrics.METRICS.values(), *ncu_metrics.TENSOR_OPS))
    return [
        shutil.which("ncu") or "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--profile-from-start",
        "off",
        "--target-processes",
        "application-only",
        "--launch-count",
        str(LAUNCHES),
        *named,
        "--metrics",
        metrics,
    ]


def _tool_folders() -> list[str]:
    """Paths of ncu that it must be able to read in the sandbox."""
    path = shutil.which("ncu")
    own = [str(Path(path).resolve().parent)] if path else []
    return [
        *own,
        "/opt/nvidia",
        "/etc/machine-id",
        "/etc/passwd",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
    ]


def _is_restricted() -> bool:
    """Whether the driver gives counters to administrators only."""
    try:
        return "RmProfilingAdminOnly: 1" in PARAMETERS.read_text()
    except OSError:
        return False


def profile_of(
    job: Job, outcome: Outcome, seen: ProfiledRun, sections: Sequence[str] = tuple(ncu_metrics.SECTIONS)
) -> Profile:
    """The profile from the files that ncu wrote."""
    kernels, lines, placed, notes = _read_pages(job, seen)
    notes += _missing_notes(seen, sections, bool(kernels), placed)
    return Profile(
        launches=(),
        builds=seen.builds,
        occupancy=tuple(
            (item.kernel, item.achieved_occupancy, item.limiter)
            for item in kernels
            if item.achieved_occupancy is not None
        ),
        limits=(),
        findings=(),
        summary=summary(kernels),
        provenance="measured",
        by="ncu",
        device=outcome.device or job.device,
        case="full",
        kernels=kernels,
        lines=lines,
        notes=tuple(notes),
        protections=seen.protections,
        versions=seen.versions,
    )


def _read_pages(
    job: Job, seen: ProfiledRun
) -> tuple[tuple[KernelMetrics, ...], tuple[LineProfile, ...], float, list[str]]:
    """(kernels, source lines, share of the stall samples that are on a line, notes)."""
    lines, placed, notes = sass.source_lines(seen.builds, job.candidate.source), 0.0, [*seen.exposed]
    try:
        kernels, assumed = add_flops(ncu_pages.kernels(seen.text("raw.csv")), job)
        lines, placed = ncu_pages.samples_by_line(seen.text("source.csv"), sass.listings(seen.builds), lines)
        notes += assumed
    # any of these, because the candidate ran beside ncu and could have written the pages
    except (csv.Error, ValueError, KeyError, IndexError, ArithmeticError) as error:
        kernels = ()
        notes.append(f"ncu's pages cannot be read: {error}")
    return kernels, lines, placed, notes


def _missing_notes(seen: ProfiledRun, sections: Sequence[str], counted: bool, placed: float) -> list[str]:
    """Notes on what the profile lacks."""
    notes = []
    if seen.failure is not None:
        notes.append(f"the candidate did not get through: {seen.failure.message}")
    if not counted:
        notes.append(f"ncu left no counters: {last_error(seen.tool_said)}")
    elif "source" in sections and not placed:
        notes.append(
            "stall samples could not be put on source lines"
            if seen.text("source.csv")
            else "ncu left no source page, so there are no stalls by line"
        )
    if placed and placed < 0.9:
        notes.append(f"{placed:.0%} of the stall samples are on known source lines")
    return notes


def add_flops(kernels: tuple[KernelMetrics, ...], job: Job) -> tuple[tuple[KernelMetrics, ...], tuple[str, ...]]:
    """Give the only kernel of a call the problem's FLOPs if ncu does not count them, on tensor cores if their pipe was
    busy. Returns (kernels, notes).
    """
    work = next((item for item in job.facts.work if item.case == "full"), None)
    if len(kernels) != 1 or kernels[0].flops is not None or work is None or not work.flops:
        return kernels, ()
    return (credit_flops(kernels[0], work),), (PROBLEM_FLOPS,)


def credit_flops(kernel: KernelMetrics, work: Work) -> KernelMetrics:
    """The only kernel of a call with the problem's FLOPs, on tensor cores if their pipe was busy."""
    on_tensor_cores = dict(kernel.pipes).get("tensor", 0.0) > TENSOR_BUSY
    return dataclasses.replace(
        kernel,
        flops=float(work.flops),
        tensor_flops=((work.dtype, float(work.flops)),) if on_tensor_cores else (),
    )


def last_error(said: str) -> str:
    """The last error that ncu printed, in one line."""
    rows = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in rows if "==ERROR==" in line or "Error" in line]
    return (errors or rows or ["it said nothing"])[-1][:300]


def summary(kernels: Sequence[KernelMetrics]) -> str:
    """One sentence: the kernels' time, the busiest unit, and the reason for which warps wait most."""
    if not kernels:
        return "no kernel was profiled"
    longest = max(kernels, key=lambda item: item.duration_s or 0.0)
    said = [
        f"{len(kernels)} kernel launch{'es' if len(kernels) > 1 else ''}, "
        f"{sum(item.duration_s or 0.0 for item in kernels) * 1e6:.1f} us (measured by ncu, caches cold)"
    ]
    if longest.memory_throughput is not None and longest.sm_throughput is not None:
        said.append(f"memory {longest.memory_throughput:.0%} and SMs {longest.sm_throughput:.0%} of their peaks")
    if longest.stalls:
        whole = sum(amount for _, amount in longest.stalls)
        said.append(f"warps wait most for {longest.stalls[0][0]} ({longest.stalls[0][1] / whole:.0%} of the waiting)")
    if longest.achieved_occupancy is not None:
        said.append(
            f"{longest.achieved_occupancy:.0%} occupancy"
            + (f", limited by {longest.limiter}" if longest.limiter else "")
        )
    return "; ".join(said)
