"""The candidate under a profiler stays confined, also below a tool that starts it; traces and energy as records.

The tool here is a shell script where ncu would be.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from workbench import problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs import sandbox
from workbench.profilers import energy, ncu, recorded, timeline
from workbench.profilers.profile_client import run_profiled
from workbench.records import Candidate, Facts, Job, Outcome, Problem, Profile, Span
from workbench.session import Session

TOOL = """#!/bin/sh
# prints a page, or starts what stands behind -o REPORT
for word in "$@"; do if [ "$word" = --import ]; then echo "page of $*"; exit 0; fi; done
echo "==PROF== Connected"
while [ "$1" != -o ]; do shift; done
touch "$2.ncu-rep"
shift 2
exec "$@"
"""
HOSTILE = """
import os, socket

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "it worked"

server = socket.create_server(("127.0.0.1", 0))  # its own loopback is there: a tool needs it
said = [
    tried(lambda: socket.create_connection(("127.0.0.1", int("{port}")), 2)),
    tried(lambda: open("{outside}", "w")),
    tried(lambda: open("{private}").read()),
    str("SECRET" in os.environ),
]
raise RuntimeError(" ".join(said))
"""


@pytest.fixture(scope="module")
def relu() -> tuple[Problem, Facts]:
    problem = problems.load("relu")
    return problem, WorkerInspector().inspect(problem)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_text(TOOL)
    path.chmod(0o755)
    return path


def test_a_candidate_below_a_tool_reaches_neither_network_nor_files(
    relu: tuple[Problem, Facts], tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    if not sandbox.landlock_abi():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setenv("SECRET", "1")
    (tmp_path / "private").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as outside:
        source = (
            HOSTILE.replace("{port}", str(outside.getsockname()[1]))
            .replace("{outside}", str(tmp_path / "left"))
            .replace("{private}", str(tmp_path / "private"))
        )
        job = Job(problem=relu[0], facts=relu[1], candidate=Candidate(source=source))
        options = {"command": [str(tool)], "pages": {"raw": ["--page", "raw"]}, "inner": "emulator"}
        with run_profiled(
            job, "ncu", case="shrunk", wall_s=60, options=options, loopback=True, readable=[str(tool)]
        ) as seen:
            assert seen.failure is not None and seen.tool_status == 0 and "Connected" in seen.tool_said
            said = seen.failure.message.split()
            assert seen.text("raw.csv").startswith("page of --import")
        assert said[-4:] == ["ConnectionRefusedError", "PermissionError", "PermissionError", "False"] or (
            seen.exposed and "network" in seen.exposed[0]
        )
        assert "Landlock" in seen.protections and not (tmp_path / "left").exists()


def test_a_tool_that_cannot_start_is_a_note_not_a_crash(relu: tuple[Problem, Facts]) -> None:
    job = Job(problem=relu[0], facts=relu[1], candidate=Candidate(source="x = 1\n"))
    with run_profiled(
        job, "ncu", case="shrunk", wall_s=60, options={"command": ["/usr/bin/false"], "pages": {}}, loopback=True
    ) as seen:
        profile = ncu.profile_of(job, Outcome(executor="gpu", arch="sm_90a", device="H200"), seen)
    assert (
        profile.kernels == ()
        and any("ncu left no counters" in note for note in profile.notes)
        and profile.summary == "no kernel was profiled"
    )


def test_without_permission_for_counters_the_profile_degrades_by_name(
    relu: tuple[Problem, Facts], tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.write_text(
        '#!/bin/sh\necho "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA '
        'GPU Performance Counters on the target device 0."\nexit 1\n'
    )
    tool.rename(tool.with_name("ncu"))
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    job = Job(problem=relu[0], facts=relu[1], candidate=Candidate(source="x = 1\n"))
    profile = ncu.NcuProfiler().profile(job, Outcome(executor="gpu", arch="sm_90a", device="H200"))
    assert (
        profile.by == "timeline"
        and profile.notes[0].startswith(
            "no hardware counters: the driver gives counters to administrators only (ERR_NVGPUCTRPERM)"
        )
        and "shown instead: timeline and SASS" in profile.notes[0]
    )


def test_a_session_profiles_lines_with_waiting_and_pipes(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="emulator") as session:
        session.generate()
        profile = session.profile()
    (kernel,) = profile.kernels
    assert (
        kernel.provenance == "counted"
        and kernel.duration_s is None
        and kernel.modelled_s
        and kernel.flops
        and kernel.l2_bytes
        and kernel.limits
    )
    waiting = [line for line in profile.lines if line.stalls]
    assert (
        waiting
        and all(line.stall_unit == "modelled cycles" for line in waiting)
        and any(dict(line.instructions).get("lsu") for line in profile.lines)
    )
    from workbench.views.plots import profile as profile_plots

    assert profile_plots.available_plots(profile) == ("roofline", "pipes", "occupancy", "source")


TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 5563.1,
            "dur": 9.2,
            "args": {"correlation": 7},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "kernel_cutlass_second",
            "pid": 0,
            "tid": 7,
            "ts": 5600.5,
            "dur": 10.0,
            "args": {
                "device": 0,
                "stream": 7,
                "registers per thread": 40,
                "shared memory": 2048,
                "grid": [132, 1, 1],
                "block": [256, 1, 1],
            },
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "kernel_cutlass_first",
            "pid": 0,
            "tid": 7,
            "ts": 5580.5,
            "dur": 10.0,
            "args": {
                "device": 0,
                "stream": 7,
                "registers per thread": 30,
                "shared memory": 0,
                "grid": [64, 2, 1],
                "block": [128, 1, 1],
            },
        },
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy DtoD (Device -> Device)",
            "pid": 0,
            "tid": 20,
            "ts": 5605.5,
            "dur": 10.0,
            "args": {"stream": 20},
        },
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
}


def test_a_trace_becomes_spans_in_order_and_busy_time_is_their_union() -> None:
    found = timeline.spans(json.dumps(TRACE))
    assert [(span.name, span.kind, span.stream) for span in found] == [
        ("kernel_cutlass_first", "kernel", 7),
        ("kernel_cutlass_second", "kernel", 7),
        ("Memcpy DtoD (Device -> Device)", "copy", 20),
    ]
    assert (
        found[0].start_s == 0
        and found[0].grid == (64, 2, 1)
        and found[1].registers == 40
        and found[1].shared_bytes == 2048
    )
    made = timeline.make_timeline(found, 1)
    assert (
        made.total_s == pytest.approx(35e-6)
        and made.busy_s == pytest.approx(25e-6)
        and made.launch_gaps == (pytest.approx(10e-6),)
    )
    assert "2 kernel launches a call, the device busy 71%" in timeline.summary(made)
    for broken in (
        "",
        "{}",
        "no json",
        '{"traceEvents": [3]}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "now"}]}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "args": 3}]}',
    ):
        assert timeline.spans(broken) == []


def test_a_real_trace_of_torch_without_a_gpu_has_no_spans(tmp_path: Path) -> None:
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watching:
        torch.ones(8).sum()
    watching.export_chrome_trace(str(tmp_path / "trace.json"))
    text = (tmp_path / "trace.json").read_bytes()
    assert timeline.spans((gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text).decode()) == []


def loop(
    power_w: float, idle_w: float, busy: float, *, sensor_s: float = 0.1
) -> tuple[list[energy.Reading], list[tuple[str, float]], list[dict[str, float]]]:
    """What a device would show: `busy` of each window at the power that its calls take, the rest idle, a counter that
    moves every `sensor_s` only."""
    marks, windows, pieces, at = [("idle", 1.0)], [], [(0.0, 2.5, idle_w)], 2.5
    for number in range(4):
        marks.append(("pause", at))
        start = at + 0.2 + number * 0.0375
        pieces += [(at, start, idle_w), (start, start + 1.2, busy * power_w + (1 - busy) * idle_w)]
        marks.append((f"window {number + 1}", start))
        windows.append({"start": start, "end": start + 1.2, "calls": 1000, "busy_s": 1.2 * busy})
        at = start + 1.2
    marks.append(("end", at))

    def joules(until: float) -> float:
        return sum(watts * (min(end, until) - begin) for begin, end, watts in pieces if until > begin)

    readings = [(n * 0.02, 5000 + joules(n * 0.02 // sensor_s * sensor_s)) for n in range(int((at + 0.2) / 0.02))]
    return readings, marks, windows


@pytest.mark.parametrize("busy", [1.0, 0.6])
def test_energy_leaves_out_gaps_and_the_sensor_lag(busy: float) -> None:
    found = energy.compute_energy(*loop(600.0, 100.0, busy))
    assert found is not None and found.idle_w == pytest.approx(100, rel=0.05) and found.duty == pytest.approx(busy)
    assert (
        found.joules_per_call == pytest.approx(600 * busy * 1.2 / 1000, rel=0.03)
        and found.low_joules <= found.joules_per_call <= found.high_joules
    )
    assert found.uncorrected_joules == pytest.approx((600 * busy + 100 * (1 - busy)) * 1.2 / 1000, rel=0.1)
    assert found.seconds_per_call == pytest.approx(1.2 * busy / 1000) and len(found.samples) <= 2 * energy.KEPT


def test_energy_that_did_not_move_is_none() -> None:
    readings, marks, windows = loop(600.0, 100.0, 1.0)
    assert energy.compute_energy([(when, 1.0) for when, _ in readings], marks, windows) is None


def test_profiles_merge_keep_and_come_back(tmp_path: Path) -> None:
    one = Profile(
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
        summary="a",
        by="ncu",
        notes=("x",),
        protections=("Landlock",),
    )
    spans = tuple(Span(name=f"k{n}", start_s=n * 1e-3, duration_s=1e-4) for n in range(100))
    two = Profile(
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
        summary="b",
        by="timeline",
        notes=("x", "y"),
        timeline=timeline.make_timeline(spans, 100),
    )
    made = recorded.merge_profiles((one, two))
    assert (
        made.by == "ncu+timeline" and made.notes == ("x", "y") and made.timeline is not None and made.summary == "a; b"
    )
    small = recorded.compact(made)
    assert small.timeline is not None and len(small.timeline.spans) == recorded.SPANS_KEPT
    recorded.save(tmp_path / "p.json", [recorded.Recorded(name="n", source="s", profile=small)])
    assert recorded.load(tmp_path / "p.json")["n"].profile == small
    assert all(item.profile.by for item in recorded.load().values())  # those that are shipped can be read
