"""Zero and tiny rows along each axis: there a norm without its eps, or with another, is wrong, and a right one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import evaluate, executors, problems
from workbench.executors.jobs.trials import small_cases
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
