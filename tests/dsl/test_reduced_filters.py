"""Convolutions whose epilogue reduces the filters of each position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emitted import run_on
from torch.nn import functional as F

from workbench import problems
from workbench.language import check, parse
from workbench.language.ir import Binding, Operand
from workbench.language.limits import check_limits
from workbench.problems.inspection import inspect
from workbench.proposers.planner import list_rungs
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask
from workbench.session import Session

HALO, PINGPONG = ".mma(tf32) .tile(256, 32, 8) .schedule(halo)", ".mma(tf32) .tile(128, 64, 16) .schedule(pingpong)"
COOPERATIVE = ".mma(tf32) .tile(256, 32, 16) .schedule(cooperative) .cluster(2)"


def convolve(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, **how: int) -> torch.Tensor:
    return F.conv2d(x.double(), w.double(), bias.double(), **how)


@pytest.mark.parametrize("settings", [HALO, PINGPONG, COOPERATIVE])
@pytest.mark.parametrize(("name", "reduce"), [("rowmin", torch.amin), ("rowmax", torch.amax), ("rowmean", torch.mean)])
def test_filters_are_reduced_in_the_epilogue(settings: str, name: str, reduce: object) -> None:
    torch.manual_seed(0)
    x, w, bias = torch.randn(2, 5, 11, 13), torch.randn(20, 5, 3, 3), torch.randn(20)
    program = f"conv(x, w, padding=1) .arch(sm_90a) {settings} >> bias() >> {name}(keepdim=1) >> tanh() >> mul(2.0)"
    result = run_on(program, (x, w, bias), ("x", "w", "bias"))
    expected = 2 * torch.tanh(reduce(convolve(x, w, bias, padding=1), 1, keepdim=True))  # type: ignore[operator]
    assert result.shape == (2, 1, 11, 13)
    torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=2e-2)


def test_a_transposed_convolution_with_three_extents_sums_its_filters() -> None:
    x, w = torch.randn(2, 4, 3, 5, 4), torch.randn(4, 9, 3, 3, 3)
    program = "convtranspose(x, w, stride=2) .arch(sm_90a) .mma(tf32) .tile(128, 16, 16) .schedule(cooperative)"
    result = run_on(f"{program} >> map(square(value())) >> rowsum(keepdim=1)", (x, w), ("x", "w"))
    expected = F.conv_transpose3d(x.double(), w.double(), stride=2).square().sum(1, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=0.3)


def test_nan_of_a_filter_is_the_result() -> None:
    x, w, bias = torch.randn(1, 3, 6, 6), torch.randn(8, 3, 3, 3), torch.zeros(8)
    bias[5] = torch.nan
    result = run_on(f"conv(x, w) .arch(sm_90a) {HALO} >> bias() >> rowmax(keepdim=1)", (x, w, bias), ("x", "w", "bias"))
    assert result.isnan().all()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(patch) >> rowmin(keepdim=1)", "through shared memory"),
        ("conv(x, w) .threads(128) >> rowmin(keepdim=1)", "only kernels with a schedule"),
        ("conv(x, w, groups=2) .arch(sm_90a) .mma(tf32) .schedule(pingpong) >> rowmin(keepdim=1)", "several groups"),
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(pingpong) >> rowmin()", "the channels stay, as 1"),
        (
            "conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(halo) >> residual() >> rowsum(keepdim=1)",
            "of the result's shape is not read",
        ),
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(halo) >> colsum(keepdim=1)", ""),
    ],
)
def test_what_cannot_be_reduced_is_refused(program: str, reason: str) -> None:
    found = check(parse(program))
    assert found and reason in found[0].reason


def test_more_filters_than_a_tile_holds_are_refused_by_the_host() -> None:
    x, w = torch.randn(1, 3, 6, 6), torch.randn(40, 3, 3, 3)
    with pytest.raises(ValueError, match="40 filters are reduced in a tile of 32"):
        run_on(f"conv(x, w) .arch(sm_90a) {HALO} >> rowmin(keepdim=1)", (x, w), ("x", "w"))


def test_a_tile_that_does_not_hold_the_filters_of_a_problem_is_refused() -> None:
    program = parse(f"conv(x, w) .arch(sm_90a) {HALO} >> rowmax(keepdim=1)")
    tensors = (
        ("x", Operand(shape=(2, 3, 32, 32), dtype="float32")),
        ("w", Operand(shape=(40, 3, 3, 3), dtype="float32")),
    )
    found = check_limits(program, Binding(init_source="", forward_arguments=("x", "w"), tensors=tensors))
    assert [one.field for one in found] == ["tile"] and "40 filters are reduced, and one tile holds them" in found[
        0
    ].reason


POOLED = """
import torch, torch.nn as nn
N, C, K, H, W = 4, {channels}, {filters}, 64, 64

class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3{groups})

    def forward(self, x):
        x = self.conv(x)
        return {body}

def get_inputs():
    return [torch.randn(N, C, H, W)]

def get_init_inputs():
    return [C, K]
"""


def plan(tmp_path: Path, body: str, arch: str = "sm_90a", filters: int = 64, groups: str = "") -> str:
    """The planner's first program for a convolution that a module goes on from."""
    file = tmp_path / "pooled.py"
    file.write_text(POOLED.format(body=body, filters=filters, channels=16, groups=groups))
    problem = problems.load(str(file), precision="tf32")
    found, rungs = list_rungs(Ask(problem=problem, facts=inspect(problem), arch=arch))
    return write_program(found, rungs[0], arch)


@pytest.mark.parametrize(
    ("body", "closing"),
    [
        ("torch.tanh(torch.min(x, dim=1, keepdim=True)[0])", "rowmin(keepdim=1) >> map(tanh(value()))"),
        ("(x * 2).amax(1, keepdim=True)", "scale(2.0) >> rowmax(keepdim=1)"),
        ("x.mean(1, keepdim=True).relu() + 1", "rowmean(keepdim=1) >> map(add(relu(value()), 1))"),
    ],
)
def test_the_planner_reduces_filters_in_the_epilogue(tmp_path: Path, body: str, closing: str) -> None:
    program = plan(tmp_path, body)
    assert "|>" not in program and program.endswith(closing)


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("x - x.amax(1, keepdim=True)", {}),  # the filters are read again
        ("x.amax(1)", {}),  # the channels go
        ("x.amax(2, keepdim=True)", {}),  # another axis
        ("x.amax(1, keepdim=True)", {"arch": "sm_80"}),
        ("x.amax(1, keepdim=True)", {"filters": 512}),  # in several tiles
        ("x.amax(1, keepdim=True)", {"groups": ", groups=4"}),
    ],
)
def test_other_reductions_stay_stages(tmp_path: Path, body: str, how: dict[str, Any]) -> None:
    program = plan(tmp_path, body, **how)
    assert "|>" in program and "rowmax" not in program


@pytest.mark.timeout(300)
def test_a_module_whose_filters_are_reduced_is_right(tmp_path: Path) -> None:
    plan(tmp_path, "torch.tanh(torch.min(x, dim=1, keepdim=True)[0])", filters=24)
    with Session.create(str(tmp_path / "pooled.py"), root=tmp_path, executor="emulator", arch="sm_90a") as session:
        version = session.generate()
        assert version is not None and "rowmin" in (version.proposal.candidate.program or "")
        verdict = session.judge(version.number).trials[-1].verdict
    assert verdict.correct and not verdict.doubts
