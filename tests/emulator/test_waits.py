"""wgmma is asynchronous: results used before the wait, registers changed without a fence, stages overwritten while they are multiplied; each on its line, and correct loops pass."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.emulator import EmulationFault
from workbench.emulator.hook import Emulation, emulated

sys.path.insert(0, str(Path(__file__).parent / "hopper"))
from configurations import matrix

FOLDER = Path(__file__).parent / "hopper"


def run(k: int, **options: Any) -> tuple[torch.Tensor, torch.Tensor, Emulation]:
    """(expected, found, emulation) of one pipelined product."""
    from waiting import Waiting

    a, b, d = matrix(64, k, torch.float16, 1, 1), matrix(32, k, torch.float16, 1, 2), torch.empty((64, 32))
    with emulated(arch="sm_90a", device="H200") as emulation:
        Waiting(**options)(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)))
    total = torch.zeros(64, 32, dtype=torch.float64)
    for step in range(0, k, 64):
        total = total * (0.5 if options.get("scaled") else 1) + a[:, step : step + 64].double() @ b[:, step : step + 64].double().t()
    return total, d, emulation


def text(line: int | None) -> str:
    """That line of the kernel."""
    return (FOLDER / "waiting.py").read_text(encoding="utf-8").splitlines()[(line or 1) - 1]


@pytest.mark.parametrize("k", [64, 128, 576])
@pytest.mark.parametrize("scaled", [False, True])
def test_correct_loops_are_not_suspected(k: int, scaled: bool) -> None:
    expected, found, emulation = run(k, scaled=scaled)
    assert torch.equal(found.double(), expected)
    assert not [finding for finding in emulation.findings if finding.kind.startswith(("leaked", "wgmma", "shared", "global"))]


@pytest.mark.parametrize(("mistake", "kind", "mark", "said", "cure"), [
    ("wait", "wgmma_in_flight", "store", "an accumulator of the wgmma of line {multiply}, which has not been waited for, is read by thread (128, 0, 0)", "wait_group(0)"),
    ("one too few", "wgmma_in_flight", "store", "an accumulator of the wgmma of line {multiply}", "wait_group(0)"),
    ("commit", "wgmma_in_flight", "store", "was never committed", "commit_group"),
    ("fence", "wgmma_fence_missing", "multiply", "a wgmma that no wgmma.fence precedes is issued by thread (128, 0, 0)", "warpgroup.fence()"),
    ("release", "wgmma_in_flight", "load", "which the wgmma of line {multiply} still reads (nothing waited for that multiplication), is overwritten by a TMA load, issued by thread (0, 0, 0)", "before the stage is released"),
])  # fmt: skip
def test_a_missing_wait_is_found_on_its_line(mistake: str, kind: str, mark: str, said: str, cure: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(128 if mistake == "commit" else 576, mistake=mistake)
    failure, finding = caught.value.failure, caught.value.finding
    assert failure.kind == kind and text(failure.line).rstrip().endswith(f"# {mark}"), failure
    multiply = next(n for n in range(1, 200) if text(n).rstrip().endswith("# multiply"))
    assert said.format(multiply=multiply) in failure.message and cure in failure.hint, failure
    assert finding is not None and finding.thread is not None and finding.block == (0, 0, 0)


@pytest.mark.parametrize(("mistake", "kind", "mark", "said"), [
    ("scale", "wgmma_fence_missing", "multiply", "accumulator registers were written after the last wgmma.fence"),
    ("scale in flight", "wgmma_in_flight", "scale", "an accumulator of the wgmma of line"),
])  # fmt: skip
def test_accumulators_that_the_threads_change(mistake: str, kind: str, mark: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(576, mistake=mistake, scaled=True)
    failure = caught.value.failure
    assert failure.kind == kind and text(failure.line).rstrip().endswith(f"# {mark}") and said in failure.message, failure
