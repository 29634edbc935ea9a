"""wgmma is asynchronous: results used before the wait, registers changed without a fence, stages overwritten while they
are multiplied; each on its line, and correct loops pass.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.emulator import EmulationFault
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.hook import Emulation, emulated
from workbench.records import Launch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "hopper"))
from configurations import matrix
from engines import HEAD, START

FOLDER = Path(__file__).parent / "hopper"


def run(k: int, **options: Any) -> tuple[torch.Tensor, torch.Tensor, Emulation]:
    """(expected, found, emulation) of one pipelined product."""
    from waiting import Waiting

    a, b, d = matrix(64, k, torch.float16, 1, 1), matrix(32, k, torch.float16, 1, 2), torch.empty((64, 32))
    with emulated(arch="sm_90a", device="H200") as emulation:
        Waiting(**options)(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)))
    total = torch.zeros(64, 32, dtype=torch.float64)
    for step in range(0, k, 64):
        total = (
            total * (0.5 if options.get("scaled") else 1)
            + a[:, step : step + 64].double() @ b[:, step : step + 64].double().t()
        )
    return total, d, emulation


def text(line: int | None) -> str:
    """That line of the kernel."""
    return (Path(__file__).parent / "hopper" / "waiting.py").read_text(encoding="utf-8").splitlines()[(line or 1) - 1]


@pytest.mark.few(1)
@pytest.mark.parametrize("k", [64, 128, 576])
@pytest.mark.parametrize("scaled", [False, True])
def test_correct_loops_are_not_suspected(k: int, scaled: bool) -> None:
    expected, found, emulation = run(k, scaled=scaled)
    assert torch.equal(found.double(), expected)
    assert not [
        finding for finding in emulation.findings if finding.kind.startswith(("leaked", "wgmma", "shared", "global"))
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mistake", "kind", "mark", "said", "cure"),
    [
        (
            "wait",
            "wgmma_in_flight",
            "store",
            "an accumulator of the wgmma of line {multiply}, which has not been waited for, "
            "is read by thread (128, 0, 0)",
            "wait_group(0)",
        ),
        ("one too few", "wgmma_in_flight", "store", "an accumulator of the wgmma of line {multiply}", "wait_group(0)"),
        ("commit", "wgmma_in_flight", "store", "was never committed", "commit_group"),
        (
            "fence",
            "wgmma_fence_missing",
            "multiply",
            "a wgmma that no wgmma.fence precedes is issued by thread (128, 0, 0)",
            "warpgroup.fence()",
        ),
        (
            "release",
            "wgmma_in_flight",
            "load",
            "which the wgmma of line {multiply} still reads (nothing waited for that multiplication), "
            "is overwritten by a TMA load, issued by thread (0, 0, 0)",
            "before the stage is released",
        ),
    ],
)
def test_a_missing_wait_is_found_on_its_line(mistake: str, kind: str, mark: str, said: str, cure: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(128 if mistake == "commit" else 576, mistake=mistake)
    failure, finding = caught.value.failure, caught.value.finding
    assert failure.kind == kind and text(failure.line).rstrip().endswith(f"# {mark}"), failure
    multiply = next(n for n in range(1, 200) if text(n).rstrip().endswith("# multiply"))
    assert said.format(multiply=multiply) in failure.message and cure in failure.hint, failure
    assert finding is not None and finding.thread is not None and finding.block == (0, 0, 0)


@pytest.mark.parametrize(
    ("mistake", "kind", "mark", "said"),
    [
        ("scale", "wgmma_fence_missing", "multiply", "accumulator registers were written after the last wgmma.fence"),
        ("scale in flight", "wgmma_in_flight", "scale", "an accumulator of the wgmma of line"),
    ],
)
def test_accumulators_that_the_threads_change(mistake: str, kind: str, mark: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(576, mistake=mistake, scaled=True)
    failure = caught.value.failure
    assert failure.kind == kind and text(failure.line).rstrip().endswith(f"# {mark}") and said in failure.message, (
        failure
    )


READY = (
    START
    + """mov.u32 %r6, sm;
mad.lo.u32 %r7, %r2, 16, %r6;
mov.u32 %r8, 0;
st.shared.v4.b32 [%r7], {%r8, %r8, %r8, %r8};
fence.proxy.async.shared::cta;
bar.sync 0;
mov.u64 %rd5, 34360262656;
setp.ne.u32 %p2, %r8, 0;
ld.shared.b32 %r20, [%r7];
ld.shared.b32 %r21, [%r7+4];
mov.b32 %r22, %r20;
mov.b32 %r23, %r21;
wgmma.fence.sync.aligned;
"""
)
SUMS = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r20, "
    "%r21, %r22, %r23}, %rd5, %p2, 1, 1, 0;\n"
)
WIDER = (
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f1, %f2, %f3, %f4, %f11, "
    "%f12, %f13, %f14}, {%r30, %r31, %r32, %r33}, %rd5, %p2, 1, 1, 0;\n"
)
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"


def launch(body: str) -> Launch:
    """One warpgroup runs PTX text."""
    data = np.zeros(128, np.uint32)
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    request = GridRequest(
        entry="k",
        grid=(1, 1, 1),
        block=(128, 1, 1),
        params=(data.ctypes.data.to_bytes(8, "little"), (0).to_bytes(4, "little")),
    )
    return Machine(HEAD + READY + body + "ret;\n}\n", DeviceLimits()).run(request, memory)


@pytest.mark.parametrize(
    "body",
    [
        SUMS
        + COMMIT
        + "mov.b32 %f5, %f1;\n"
        + WAIT
        + "add.f32 %f6, %f5, %f1;\n",  # a copy that the compiler makes before the wait
        SUMS + COMMIT + "add.u32 %r9, %r20, 1;\n" + WAIT,  # A may be read
        SUMS + SUMS + COMMIT + SUMS + COMMIT + WAIT,  # one accumulator, one shape
        "mov.b32 %f1, 0f00000000;\nadd.u32 %r20, %r8, 1;\nmov.b32 %r21, %r20;\n"
        + SUMS
        + COMMIT
        + WAIT,  # constants and arithmetic that the compiler put behind the fence
        SUMS + COMMIT + WAIT + "add.f32 %f1, %f1, %f2;\nwgmma.fence.sync.aligned;\n" + SUMS + COMMIT + WAIT,
        SUMS + COMMIT + WAIT + "mov.u32 %r20, 7;\n" + SUMS + COMMIT + WAIT,
    ],
)
def test_what_compilers_and_pipelines_do_is_no_mistake(body: str) -> None:
    assert not [finding for finding in launch(body).findings if finding.kind != "bank_conflict"]


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            SUMS + COMMIT + "mov.b32 %f5, %f1;\nadd.f32 %f6, %f5, %f5;\n" + WAIT,
            "wgmma_in_flight",
            "an accumulator of the wgmma",
        ),
        (SUMS + COMMIT + "add.f32 %f2, %f9, %f9;\n" + WAIT, "wgmma_in_flight", "is overwritten by thread (0, 0, 0)"),
        (SUMS + COMMIT + "add.u32 %r22, %r2, 1;\n" + WAIT, "wgmma_in_flight", "an A register of the wgmma"),
        (SUMS + COMMIT + WIDER + COMMIT + WAIT, "wgmma_in_flight", "is used by a wgmma of another shape"),
        (
            "ld.shared.b32 %r20, [%r7];\n" + SUMS + COMMIT + WAIT,
            "wgmma_fence_missing",
            "a wgmma whose A registers were written after the last wgmma.fence",
        ),
        (
            "ld.shared.b32 %r9, [%r7];\nmov.b32 %r20, %r9;\n" + SUMS + COMMIT + WAIT,
            "wgmma_fence_missing",
            "a wgmma whose A registers",
        ),
        (
            SUMS + COMMIT + WAIT + "add.f32 %f1, %f1, %f2;\n" + SUMS + COMMIT + WAIT,
            "wgmma_fence_missing",
            "a wgmma whose accumulator registers",
        ),
    ],
)
def test_registers_that_a_wgmma_still_owns(body: str, kind: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        launch(body)
    assert caught.value.failure.kind == kind and said in caught.value.failure.message, caught.value.failure


@pytest.mark.parametrize("left", [SUMS, SUMS + COMMIT])
def test_a_wgmma_that_nothing_waits_for_is_said(left: str) -> None:
    assert [
        (finding.kind, finding.severity) for finding in launch(left).findings if finding.kind != "bank_conflict"
    ] == [("leaked_wgmma", "advice")]


STORED = (
    "bar.sync 0;\nsetp.eq.u32 %p3, %r2, 0;\n"
    "@%p3 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r6], 512;\n"
    "@%p3 cp.async.bulk.commit_group;\n"
)
AGAIN = "mad.lo.u32 %r9, %r2, 4, %r6;\nst.shared.b32 [%r9], %r2;\n"


def test_a_buffer_that_a_bulk_store_still_reads() -> None:
    read = "@%p3 cp.async.bulk.wait_group.read 0;\n"
    launch(STORED + read + "bar.sync 0;\n" + AGAIN)
    for body, said in (
        (STORED + AGAIN + read, "still reads (nothing waited for it), is overwritten by thread (0, 0, 0)"),
        (STORED + "bar.sync 0;\n" + AGAIN + read, "still reads"),
        (STORED + read + AGAIN, "read, with nothing to order the two, is overwritten by thread (32, 0, 0)"),
    ):
        with pytest.raises(EmulationFault) as caught:
            launch(body)
        assert (
            caught.value.failure.kind == "shared_race"
            and said in caught.value.failure.message
            and caught.value.failure.hint
        ), caught.value.failure
