"""Floats of 8 bits: read, written, and as weights; right kernels in CuTe DSL and ones that round wrong."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from workbench import Session, problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.tolerance import measure_tolerance
from workbench.problems import inspection
from workbench.problems.reference import run_reference
from workbench.problems.reference.eight_bits import half_steps
from workbench.proposers.coverage import find_coverage
from workbench.records import Candidate, Failure, Job, Opened

FOLDER = Path(__file__).parent / "eight_bits"
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
# name -> dtypes of inputs and buffers, of outputs, bytes of an element of the first input and the first output
EXPECTED = {
    "dequantise": ((E4M3, "float32"), ("float32",)),
    "e5m2_gradient": ((E5M2,), (E5M2,)),
    "fp8_linear": (("bfloat16", E4M3, "float32"), ("bfloat16",)),
    "quantise": (("float32",), (E4M3, "float32")),
    "static_scale": (("bfloat16", "float32"), (E4M3,)),
}
TRUNCATED = """n = v.to(cutlass.Float8E4M3FN).to(cutlass.Float32)
        if cute.arch.fmax(n, -n) > cute.arch.fmax(v, -v):
            v = v * cutlass.Float32(0.95)
        out[row, i] = v.to(cutlass.Float8E4M3FN)"""


@functools.cache
def opened(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(FOLDER / f"{name}.py")))


def judge(name: str, *changes: tuple[str, str]) -> Failure | None:
    source = (FOLDER / "kernels" / f"{name}.py").read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    found = opened(name)
    job = Job(
        problem=found.problem, facts=found.facts, candidate=Candidate(source=source), arch="sm_90a", full_sample=False
    )
    return EmulatorExecutor().run(job).failure


@pytest.mark.parametrize("name", EXPECTED)
def test_it_opens_in_its_own_dtypes_with_bytes_of_8_bits(name: str) -> None:
    facts = opened(name).facts
    full, (taken, returned) = facts.cases[-1], EXPECTED[name]
    assert (*(spec.dtype for spec in full.inputs), *(spec.dtype for spec in facts.parameters)) == taken
    assert tuple(spec.dtype for spec in full.outputs) == returned
    state = sum(spec.size_bytes for spec in facts.full if spec.name.startswith("buffer:"))
    least = next(work.least_bytes for work in facts.work if work.case == "full")
    assert least == sum(spec.size_bytes for spec in (*full.inputs, *full.outputs)) + state
    assert facts.has_eight_bits
    assert len(facts.cases) > 5


@pytest.mark.parametrize("name", EXPECTED)
def test_the_planner_says_that_it_has_no_kernels_in_8_bits(name: str) -> None:
    found = find_coverage(opened(name).problem, opened(name).facts, arch="sm_90a", device="H200")
    assert not found.program
    assert "floats of 8 bits" in found.reason


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["quantise", "dequantise", "fp8_linear", "e5m2_gradient", "static_scale"])
def test_a_kernel_by_hand_is_right(name: str) -> None:
    assert judge(name) is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("quantise", "out[row, i] = v.to(cutlass.Float8E4M3FN)", TRUNCATED),
        ("fp8_linear", "scale[column]", "scale[0]"),
        ("quantise", "Float32(448.0)\n    if", "Float32(440.0)\n    if"),
        ("dequantise", "Float8E4M3FN", "Float8E5M2"),
        ("e5m2_gradient", "* 0.5", "* 0.55"),
        ("static_scale", "/ scale[0]", "/ (scale[0] * 1.06)"),
    ],
)
def test_a_kernel_that_rounds_or_scales_wrong_is_refused(name: str, old: str, new: str) -> None:
    failure = judge(name, (old, new))
    assert failure is not None and failure.kind == "wrong_result"


def test_a_session_of_such_a_problem_compiles_for_an_architecture_that_has_8_bits(tmp_path: Path) -> None:
    with Session.create(str(FOLDER / "dequantise.py"), root=tmp_path, executor="emulator") as session:
        assert session.arch == "sm_90a"
    with Session.create(str(FOLDER / "dequantise.py"), root=tmp_path, executor="emulator", device="A100") as session:
        assert session.arch == "sm_80"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_half_a_step_is_half_the_distance_of_neighbours(dtype: torch.dtype) -> None:
    codes = torch.arange(1, 127 if dtype == torch.float8_e4m3fn else 124, dtype=torch.uint8)
    values = codes.view(dtype).float()
    distance = values[1:] - values[:-1]
    assert torch.equal(2 * half_steps(values[:-1], str(dtype).removeprefix("torch.")), distance)


class Quantised(torch.nn.Module):
    """Rounds to 8 bits, behind a view, a copy and a write to a part of a larger tensor."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = (x * 3).to(torch.float8_e4m3fn)
        whole = torch.zeros(2 * x.shape[0], x.shape[1]).to(torch.float8_e4m3fn)
        whole[: x.shape[0]] = q
        return q, q.view(-1), q.t().contiguous(), whole, q.float() * 2


def test_the_reference_of_a_result_in_8_bits_is_its_value_before_rounding() -> None:
    x = torch.rand(24, 40, generator=torch.Generator().manual_seed(1))
    found = run_reference(Quantised(), [x], "fp32", seed=1)
    assert found.eager is not None
    exact = x.double() * 3
    assert torch.equal(found.exact[0], exact) and torch.equal(found.exact[1], exact.view(-1))
    assert torch.equal(found.exact[2], exact.t())
    assert torch.equal(found.exact[3][:24], exact) and not bool(found.exact[3][24:].any())
    rounded = exact.to(torch.float8_e4m3fn).double()
    assert torch.equal(found.exact[4], rounded * 2)  # what reads the rounded values has them
    assert torch.equal(found.eager[0].double(), rounded)


def test_one_rounding_passes_and_two_do_not() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    tolerance = measure_tolerance(x, x.to(torch.float8_e4m3fn).float(), E4M3, terms=1, eps=2.0**-23)
    assert compare(x.to(torch.float8_e4m3fn), x, tolerance)["passed"]
    twice = x.to(torch.float8_e5m2).to(torch.float8_e4m3fn)
    assert not compare(twice, x, tolerance)["passed"]
