"""Planted bugs: each is found, on its line; and kernels without one raise no suspicion."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.emulator import EmulationFault

sys.path.insert(0, str(Path(__file__).parent / "bugs"))
from case import Case, cases, planted

FILES = ("copies", "shared", "copies_async", "hopper_copies", "hopper_products", "meetings")
KERNELS = [case for file in FILES for case in cases(importlib.import_module(file))]
BUGS = [(case, name, kind, lines) for case in KERNELS for name, (kind, lines) in planted(case).items()]
CORRECT = [(case, name) for case in KERNELS for name in case.correct]
OF_A_LAUNCH = ("bad_launch", "uncoalesced", "bank_conflict")  # kinds that no one thread is to blame for
WITHOUT_ADDRESS = (
    *OF_A_LAUNCH,
    "barrier_deadlock",
    "barrier_divergence",
    "uninitialised_register",
    "leaked_copy",
    "wgmma_in_flight",
    "wgmma_fence_missing",
)


def emulated(case: type[Case]) -> Any:
    return workbench.emulated(device="H200", arch=case.arch, sanitize=True)


@pytest.mark.few(40)
@pytest.mark.parametrize(
    ("case", "mistake", "kind", "lines"), BUGS, ids=[f"{case.__name__}-{name}" for case, name, *_ in BUGS]
)
def test_a_planted_bug_is_found_on_its_line(case: type[Case], mistake: str, kind: str, lines: set[int]) -> None:
    with emulated(case) as emulation:
        with contextlib.suppress(EmulationFault):
            case(mistake).check()
        findings = emulation.findings
        assert kind in [finding.kind for finding in findings], findings
        (finding, *_) = [finding for finding in findings if finding.kind == kind]
        assert finding.line in lines, finding
        assert [Path(file).stem for file in emulation.source_files(finding.kernel, finding.line)] == [case.__module__]
    assert {other.kind for other in findings if other.severity == "error"} <= {kind}
    assert len(finding.message.split()) > 5 and finding.kernel
    if kind not in OF_A_LAUNCH:
        assert finding.thread is not None and finding.block is not None
    if kind not in WITHOUT_ADDRESS:
        assert finding.address is not None


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("case", "variant"), CORRECT, ids=[f"{case.__name__}-{name or 'plain'}" for case, name in CORRECT]
)
def test_a_correct_kernel_is_not_suspected(case: type[Case], variant: str) -> None:
    with emulated(case) as emulation:
        got, expected = case(variant).check()
        assert torch.equal(got, expected.to(got.dtype))
        assert emulation.launches and not [finding for finding in emulation.findings if finding.kind not in case.advice]


def test_there_are_enough_of_both() -> None:
    assert len(BUGS) >= 44 and len(CORRECT) >= 42 and len(KERNELS) >= 40
    assert len({kind for *_, kind, _ in BUGS}) >= 20 and all(planted(case) for case in KERNELS)
