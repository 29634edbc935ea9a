"""Records every kernel, copy and memset of some calls, by CUPTI through torch's profiler. It needs no permission."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from workbench.profilers import sass
from workbench.profilers.profile_client import ProfiledRun, needs_gpu, run_profiled
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Job, Outcome, Profile, Span, Timeline
from workbench.wire import Json

WALL_S = 180.0
CALLS = 5
SHOWN = 2000  # spans that a profile holds
GAPS = 20
KINDS: dict[str, Literal["kernel", "copy", "memset"]] = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "memset",
}


class TimelineProfiler(Profiler):
    """Shows order, length and overlap of a version's device activities."""

    name = "timeline"

    def why_not(self) -> str | None:
        """Needs a GPU."""
        return needs_gpu()

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """Record the spans of some warm calls at full size."""
        with run_profiled(job, "timeline", context, case="full", wall_s=WALL_S, options={"calls": CALLS}) as seen:
            return profile_of(job, outcome, seen)


def profile_of(job: Job, outcome: Outcome, seen: ProfiledRun) -> Profile:
    """The profile from the trace that the process wrote."""
    found = spans(seen.text("trace.json"))
    timeline = make_timeline(found, CALLS) if found else None
    notes = [f"the candidate did not get through: {seen.failure.message}"] if seen.failure else []
    if timeline is None:
        notes.append("CUPTI saw nothing on the device: another profiler may hold it")
    elif len(found) > SHOWN:
        notes.append(f"{len(found)} spans were seen, the first {SHOWN} are kept")
    return Profile(
        launches=(),
        builds=seen.builds,
        occupancy=(),
        limits=(),
        findings=(),
        summary=summary(timeline) if timeline else "no timeline",
        provenance="measured",
        by="timeline",
        device=outcome.device or job.device,
        case="full",
        timeline=timeline,
        lines=sass.source_lines(seen.builds, job.candidate.source),
        notes=tuple(notes),
        protections=seen.protections,
        versions=seen.versions,
    )


def spans(trace: str) -> list[Span]:
    """Device activities of a Chrome trace of torch's profiler (in microseconds), in order. The first starts at 0 s."""
    try:
        events = json.loads(trace)["traceEvents"] if trace else []
        chosen = sorted(
            (event for event in events if event.get("ph") == "X" and event.get("cat") in KINDS),
            key=lambda event: float(event["ts"]),
        )
        begin = float(chosen[0]["ts"]) if chosen else 0.0
        return [_span(event, begin) for event in chosen]
    except (ValueError, KeyError, TypeError, AttributeError):  # the candidate ran beside what wrote it
        return []


def _span(event: Json, begin: float) -> Span:
    given = event.get("args", {})
    return Span(
        name=str(event.get("name", "")),
        start_s=(float(event["ts"]) - begin) * 1e-6,
        duration_s=float(event.get("dur", 0.0)) * 1e-6,
        stream=int(given.get("stream", event.get("tid", 0)) or 0),
        kind=KINDS[event["cat"]],
        grid=_triple(given.get("grid")),
        block=_triple(given.get("block")),
        registers=given.get("registers per thread"),
        shared_bytes=given.get("shared memory"),
    )


def _triple(value: object) -> tuple[int, int, int]:
    return (int(value[0]), int(value[1]), int(value[2])) if isinstance(value, list) and len(value) == 3 else (0, 0, 0)


def make_timeline(found: Sequence[Span], calls: int) -> Timeline:
    """The timeline of some spans: busy time is their union, gaps are the times between them."""
    busy, gaps, end = 0.0, [], found[0].start_s
    for span in found:
        if span.start_s > end:
            gaps.append(span.start_s - end)
        last = span.start_s + span.duration_s
        busy += max(0.0, last - max(end, span.start_s))
        end = max(end, last)
    return Timeline(
        calls=calls,
        spans=tuple(found[:SHOWN]),
        total_s=end - found[0].start_s,
        busy_s=busy,
        launch_gaps=tuple(sorted(gaps, reverse=True)[:GAPS]),
    )


def summary(timeline: Timeline) -> str:
    """One sentence: the number of kernels, the device's busy share, and the kernel that takes longest."""
    by_name: dict[str, float] = {}
    for span in timeline.spans:
        by_name[span.name] = by_name.get(span.name, 0.0) + span.duration_s
    name, taken = max(by_name.items(), key=lambda item: item[1])
    kernels = sum(span.kind == "kernel" for span in timeline.spans)
    said = [
        f"{kernels / timeline.calls:g} kernel launches a call, "
        f"the device busy {timeline.busy_s / timeline.total_s:.0%} of the time (measured)"
        if timeline.total_s
        else f"{kernels} kernel launches"
    ]
    said.append(f"{taken / sum(by_name.values()):.0%} of it in {name[:60]}")
    return "; ".join(said)
