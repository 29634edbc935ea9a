"""Zero and tiny rows along each axis: there a norm without its eps, or with another, is wrong; a right one is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_choices import Called

from workbench import evaluate, executors, problems
from workbench.executors.jobs.trials import FAINT, FAINT_ONLY, small_cases
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.effects import Expectation
from workbench.executors.workers.inputs.special_values import make_special, why_unsuitable
from workbench.executors.workers.tolerance import measure_tolerance
from workbench.problems.reference import run_reference
from workbench.records import Candidate, Job, Verdict
from workbench.session import Session

RMS_NORM = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"
LAYER_NORM = "F.layer_norm(x, x.shape[-1:], eps=1e-6)"
COLUMNS = "x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6)"
ADDED_TO_THE_NORM = "x / (x.norm(dim=-1, keepdim=True) + 1e-8)"
GROUP_NORM = "F.group_norm(x, 2, eps=1e-6)"
SPOILED = (
    (RMS_NORM, "x: f32[512, 384]", "Float32(1e-06)", "Float32(1e-05)"),
    (RMS_NORM, "x: bf16[512, 384]", "Float32(1e-06)", "Float32(0.0)"),
    (LAYER_NORM, "x: f32[512, 384]", "Float32(1e-06)", "Float32(1e-05)"),
    (COLUMNS, "x: f32[512, 384]", "Float32(1e-06)", "Float32(1e-05)"),
    (ADDED_TO_THE_NORM, "x: f32[512, 384]", "Float32(1e-08)", "Float32(0.0)"),
    (GROUP_NORM, "x: f32[16, 8, 12, 12]", "1e-06", "1e-05"),
)


def judge(session: Session, source: str) -> Verdict:
    """The verdict on a text for the session's problem."""
    job = Job(
        problem=session.problem,
        facts=session.facts,
        candidate=Candidate(source=source),
        cases=small_cases(session.facts),
        full_sample=False,
    )
    return evaluate.evaluate(job, executors.choose("emulator")).verdict


@pytest.mark.few(1)
@pytest.mark.parametrize(("expression", "inputs", "right", "wrong"), SPOILED)
def test_another_eps_is_wrong(expression: str, inputs: str, right: str, wrong: str, tmp_path: Path) -> None:
    problem = problems.from_expression(expression, inputs=inputs)
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        source = version.proposal.candidate.source
        assert right in source
        accepted = judge(session, source)
        assert accepted.correct and "tiny rows" in accepted.tested[-2]
        failure = judge(session, source.replace(right, wrong)).failure
        assert failure is not None and "tiny rows" in failure.message and "eps" in failure.hint


def serial_norm(x: torch.Tensor) -> torch.Tensor:
    """The layer norm of x, whose sums go from element to element."""
    mean = sum(x.unbind(-1)) / x.shape[-1]
    centred = x - torch.as_tensor(mean).unsqueeze(-1)
    variance = sum(centred.square().unbind(-1)) / x.shape[-1]
    return centred * torch.rsqrt(torch.as_tensor(variance).unsqueeze(-1) + 1e-5)


@pytest.mark.parametrize(
    ("kind", "offset", "why"),
    [
        (FAINT, 0.0, ""),
        (FAINT, 3.7, "rounding decides the reference's results there"),
        (FAINT_ONLY, 3.7, ""),
    ],
)
def test_another_order_of_summation_is_right_or_rounding_decides(kind: str, offset: float, why: str) -> None:
    given = make_special([torch.randn(33, 65, generator=torch.Generator().manual_seed(1))], kind)
    model = Called(lambda x: torch.nn.functional.layer_norm(x + offset, x.shape[-1:]))
    found = run_reference(model, given, "fp32", seed=0, disturb=True)
    assert found.eager is not None and isinstance(given[0], torch.Tensor)
    tolerance = measure_tolerance(found.exact[0], found.eager[0], "float32", found.terms, found.eps)
    assert why_unsuitable(Expectation(found, (), 1, ()), [tolerance]) == why
    assert why or compare(serial_norm(given[0] + offset), found.exact[0], tolerance)["passed"]


def test_indices_that_depend_on_rounding_are_not_compared() -> None:
    for kind, why in ((FAINT, "the integers of the reference depend on rounding there"), (FAINT_ONLY, "")):
        given = make_special([torch.randn(33, 65, generator=torch.Generator().manual_seed(1))], kind)
        model = Called(lambda x: torch.softmax(x, -1).topk(2).indices)
        found = run_reference(model, given, "fp32", seed=0, disturb=True)
        assert why_unsuitable(Expectation(found, (), 1, ()), []) == why


def test_slices_along_each_axis_are_zero_or_tiny_and_infinity_stays() -> None:
    value = torch.ones(5, 6, 7)
    value[4, 5, 6] = -torch.inf
    made = make_special([value, torch.ones(8), torch.tensor(2.0), torch.arange(9)], FAINT)
    faded, vector, scalar, indices = made
    assert isinstance(faded, torch.Tensor) and isinstance(vector, torch.Tensor)
    for axis in range(3):
        assert float(faded.select(axis, 1).max()) < 1.1e-4 and not faded.select(axis, 2).any()
        assert float(faded.select(axis, 3).max()) < 1.1e-7
    assert float(faded[0, 0, 0]) == 1 and float(faded[4, 5, 6]) == -torch.inf
    assert float(vector[0]) == 1 and float(vector[1]) == pytest.approx(1e-4)
    assert scalar == 2 and isinstance(indices, torch.Tensor) and torch.equal(indices, torch.arange(9))
    (alone,) = make_special([torch.ones(8)], FAINT)
    assert isinstance(alone, torch.Tensor) and float(alone.max()) == pytest.approx(1e-4)
