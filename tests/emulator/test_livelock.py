"""Sampled launches whose CTAs wait for others: one that waits for a CTA outside the sample ends with that reason, one
that makes progress is left alone.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from engines import HEAD, START, aligned

from workbench.codegen import compile_program
from workbench.emulator import EmulationFault, emulated
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.sanitizer.livelock import KIND
from workbench.examples import scan
from workbench.language import Binding
from workbench.records import Launch

CHAIN = """setp.eq.u32 %p1, %r3, 0;
mul.wide.u32 %rd5, %r3, 4;
add.s64 %rd6, %rd1, %rd5;
@%p1 bra $GO;
.loc 1 7 0
$SPIN: POLL
setp.eq.u32 %p2, %r6, 0;
@%p2 bra $SPIN;
$GO: st.release.gpu.global.b32 [%rd6], 1;
"""  # each CTA waits for the flag of the one before it, and sets its own
POLLS = {
    "acquire": "ld.acquire.gpu.global.b32 %r6, [%rd6+-4];",
    "volatile": "ld.volatile.global.b32 %r6, [%rd6+-4];",
    "weak": "ld.global.b32 %r6, [%rd6+-4];",
    "atomic": "atom.global.add.u32 %r6, [%rd6+-4], 0;",
    "through shared memory": """setp.ne.u32 %p3, %r2, 0;
@%p3 bra $MEET;
ld.acquire.gpu.global.b32 %r7, [%rd6+-4];
st.shared.b32 [sm], %r7;
$MEET: bar.sync 0;
ld.shared.b32 %r6, [sm];
bar.sync 0;""",
}
SLOW = """setp.ne.u32 %p1, %r3, 0;
mov.u32 %r20, 0;
@%p1 bra $SPIN;
$WORK: add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 3000;
@%p2 bra $WORK;
st.release.gpu.global.b32 [%rd1], 1;
bra $END;
$SPIN: ld.acquire.gpu.global.b32 %r6, [%rd1];
setp.eq.u32 %p2, %r6, 0;
@%p2 bra $SPIN;
$END:
"""  # CTA 0 works for long before it sets the flag that the others wait for
COUNTED = """mov.u32 %r20, 0;
$TURN: atom.global.add.u32 %r7, [%rd1], 1;
ld.volatile.global.b32 %r6, [%rd1+64];
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 600;
@%p2 bra $TURN;
"""


def launched(
    body: str, *, ctas: int, sample: int | None, threads: int = 64, skip: bool = False
) -> tuple[Launch, np.ndarray]:
    data, memory = aligned(1024), GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "flags")
    request = GridRequest(
        entry="k",
        grid=(ctas, 1, 1),
        block=(threads, 1, 1),
        params=(data.ctypes.data.to_bytes(8, "little"), bytes(4)),
        sample=sample,
        follow=True,
        skip_repeats=skip,
    )
    return Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits()).run(request, memory), data


@pytest.mark.parametrize("poll", POLLS.values(), ids=POLLS)
def test_waiting_for_a_cta_outside_the_sample_is_said_at_once(poll: str) -> None:
    body = CHAIN.replace("POLL", poll)
    start = time.perf_counter()
    with pytest.raises(EmulationFault) as caught:
        launched(body, ctas=64, sample=4)
    assert time.perf_counter() - start < 50, "the limit of instructions is some minutes away"
    failure, finding = caught.value.failure, caught.value.finding
    assert failure.kind == KIND and failure.stage == "limits" and failure.line == 7 and "\n" not in failure.message
    assert (
        "not in the sample" in failure.message
        and "none of the 4 CTAs of 64" in failure.message
        and "of flags" in failure.message
    )
    assert (
        finding is not None
        and finding.block is not None
        and f"byte {4 * (finding.block[0] - 1)} of flags" in failure.message
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("poll", ["acquire", "volatile", "atomic"])
def test_a_wait_ends_at_its_first_test_where_repeats_are_skipped(poll: str) -> None:
    body = CHAIN.replace("POLL", POLLS[poll])
    launch, data = launched(body, ctas=64, sample=4, skip=True)
    assert launch.sampled == 4 and data[:64].sum() == 4
    once, _ = launched(body.replace("@%p2 bra $SPIN;", "@%p2 bra $GO;"), ctas=64, sample=4)
    assert launch.total == once.total and launch.paced is not None and once.paced is not None
    assert launch.paced.cycles == once.paced.cycles
    with pytest.raises(EmulationFault, match="not in the sample"):
        launched(
            body.replace("setp.eq.u32 %p2, %r6, 0;", "st.global.b32 [%rd1], 0;\nsetp.eq.u32 %p2, %r6, 0;"),
            ctas=64,
            sample=4,
            skip=True,
        )


def test_a_loop_that_counts_is_no_wait() -> None:
    launch, _ = launched(COUNTED, ctas=64, sample=2, threads=1, skip=True)
    whole, _ = launched(COUNTED, ctas=64, sample=2, threads=1)
    assert launch.total == whole.total


def test_the_whole_grid_goes_through() -> None:
    launch, data = launched(CHAIN.replace("POLL", POLLS["acquire"]), ctas=8, sample=None)
    assert launch.sampled is None and data[:8].tolist() == [1] * 8
    launch, data = launched(CHAIN.replace("POLL", POLLS["atomic"]), ctas=8, sample=8)
    assert launch.sampled is None and data[:8].tolist() == [1] * 8


def test_loops_that_get_on_are_no_standstill() -> None:
    launch, data = launched(SLOW.replace("%r3, 0", "%r3, 1"), ctas=5, sample=3)  # CTAs 1, 3 and 4 are executed
    assert launch.sampled == 3 and data[0] == 1
    launch, data = launched(COUNTED, ctas=64, sample=2, threads=1)
    assert launch.sampled == 2 and data[0] == 2 * 600


@pytest.mark.slow
def test_stream_k_says_whom_it_waits_for(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(
        compile_program(
            "gemm(a, b) .arch(sm_90a) .mma(f16) .tile(64, 64, 16) .schedule(cooperative) .streamk(yes)",
            Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("a", "b")),
        )
    )
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.max_active_clusters = lambda: 24
    with (
        emulated(arch="sm_90a", source_file=str(path), sample=4, follow=True) as emulation,
        pytest.raises(EmulationFault, match="a sampled launch waits for a CTA that is not in the sample") as caught,
    ):
        module.ModelNew()(torch.zeros(200, 656).half(), torch.zeros(656, 264).half())
    assert caught.value.failure.kind == KIND and emulation.faults == [caught.value]
    with emulated(arch="sm_90a", sample=4, follow=True, skip_repeats=True) as emulation:
        module.ModelNew()(torch.zeros(200, 656).half(), torch.zeros(656, 264).half())
    assert [launch.sampled for launch in emulation.launches] == [4]
    assert "there" in path.read_text().splitlines()[(caught.value.failure.line or 0) - 1]


def test_a_look_back_by_tickets_waits_for_none_but_the_sample() -> None:
    with emulated(cuda=True, sample=3) as emulation:
        scan.scan(torch.ones(1, 64 * 1024, device="cuda"))
    assert [launch.sampled for launch in emulation.launches if launch.grid[0] > 3 or launch.grid[1] > 3] == [3]
