"""What runs on the device when, by CUPTI through torch's profiler: every kernel, copy and memset of some calls. Needs no permission for counters."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Literal

from workbench.profilers import sass
from workbench.profilers.watched import Seen, needs_gpu, watched
from workbench.records import Job, Outcome, Profile, Span, Timeline

WALL_S = 180.0
CALLS = 5
SHOWN = 2000  # spans that are kept
GAPS = 20
KINDS: dict[str, Literal["kernel", "copy", "memset"]] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}


class TimelineProfiler:
    """The order, length and overlap of what a version launches."""

    name = "timeline"

    def __init__(self) -> None:
        self.stop: threading.Event | None = None

    def why_not(self) -> str | None:
        """Needs a GPU."""
        return needs_gpu()

    def profile(self, job: Job, outcome: Outcome, /) -> Profile:
        """The spans of some warm calls at full size."""
        with watched(job, "timeline", case="full", wall_s=WALL_S, stop=self.stop, options={"calls": CALLS}) as seen:
            return profile_of(job, outcome, seen)


def profile_of(job: Job, outcome: Outcome, seen: Seen) -> Profile:
    """The record of a trace that was left behind."""
    found = spans(seen.text("trace.json"))
    timeline = timeline_of(found, CALLS) if found else None
    notes = [f"the candidate did not get through: {seen.failure.message}"] if seen.failure else []
    if timeline is None:
        notes.append("CUPTI saw nothing on the device: another profiler may hold it")
    elif len(found) > SHOWN:
        notes.append(f"{len(found)} spans were seen, the first {SHOWN} are kept")
    return Profile(
        launches=(), builds=seen.builds, occupancy=(), limits=(), findings=(), summary=summary(timeline) if timeline else "no timeline", provenance="measured", by="timeline", device=outcome.device or job.device,
        case="full", timeline=timeline, lines=sass.source_lines(seen.builds, job.candidate.source), notes=tuple(notes), protections=seen.protections, versions=seen.versions,
    )  # fmt: skip


def spans(trace: str) -> list[Span]:
    """Device activities of a Chrome trace as torch's profiler writes it (times in microseconds), in order, the first at 0 s."""
    try:
        events = json.loads(trace)["traceEvents"] if trace else []
        chosen = sorted((event for event in events if event.get("ph") == "X" and event.get("cat") in KINDS), key=lambda event: float(event["ts"]))
        begin = float(chosen[0]["ts"]) if chosen else 0.0
        return [_span(event, begin) for event in chosen]
    except (ValueError, KeyError, TypeError, AttributeError):  # the candidate ran beside what wrote it
        return []


def _span(event: dict[str, Any], begin: float) -> Span:
    given = event.get("args", {})
    return Span(
        name=str(event.get("name", "")), start_s=(float(event["ts"]) - begin) * 1e-6, duration_s=float(event.get("dur", 0.0)) * 1e-6, stream=int(given.get("stream", event.get("tid", 0)) or 0),
        kind=KINDS[event["cat"]], grid=_triple(given.get("grid")), block=_triple(given.get("block")), registers=given.get("registers per thread"), shared_bytes=given.get("shared memory"),
    )  # fmt: skip


def _triple(value: Any) -> tuple[int, int, int]:
    return (int(value[0]), int(value[1]), int(value[2])) if isinstance(value, list) and len(value) == 3 else (0, 0, 0)


def timeline_of(found: Sequence[Span], calls: int) -> Timeline:
    """Busy time as the union of the spans, and the gaps between them."""
    busy, gaps, end = 0.0, [], found[0].start_s
    for span in found:
        if span.start_s > end:
            gaps.append(span.start_s - end)
        last = span.start_s + span.duration_s
        busy += max(0.0, last - max(end, span.start_s))
        end = max(end, last)
    return Timeline(calls=calls, spans=tuple(found[:SHOWN]), total_s=end - found[0].start_s, busy_s=busy, launch_gaps=tuple(sorted(gaps, reverse=True)[:GAPS]))


def summary(timeline: Timeline) -> str:
    """One sentence: how many kernels, how busy the device was, which kernel takes longest."""
    by_name: dict[str, float] = {}
    for span in timeline.spans:
        by_name[span.name] = by_name.get(span.name, 0.0) + span.duration_s
    name, taken = max(by_name.items(), key=lambda item: item[1])
    kernels = sum(span.kind == "kernel" for span in timeline.spans)
    said = [f"{kernels / timeline.calls:g} kernel launches a call, the device busy {timeline.busy_s / timeline.total_s:.0%} of the time (measured)" if timeline.total_s else f"{kernels} kernel launches"]
    said.append(f"{taken / sum(by_name.values()):.0%} of it in {name[:60]}")
    return "; ".join(said)
