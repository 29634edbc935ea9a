"""NaN in the inputs is tested where torch defines what comes of it, and the verdict says what was left out, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_tiny_rows import judge

from workbench import problems
from workbench.problems.reference.choices import Choice, take_equal_values
from workbench.session import Session

LOSS = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100)


def get_inputs():
    labels = torch.randint(0, 500, (4, 256))
    labels[:, :64] = -100
    return [torch.randn(4, 256, 500), labels]
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("problem", "right", "wrong", "said"),
    [
        (
            problems.from_expression("x.argmax(-1)", inputs="x: f32[256, 1000]"),
            "return (a > b) | ((a != a) & (b == b))",
            "return a > b",
            "indices are not torch's",
        ),
        (problems.load(LOSS), ", nan=True", "", "is NaN in torch's result"),
    ],
)
def test_a_kernel_without_a_rule_for_nan_leaves_a_doubt(
    problem: problems.Problem, right: str, wrong: str, said: str, tmp_path: Path
) -> None:
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        source = version.proposal.candidate.source
        assert right in source
        accepted, doubted = judge(session, source), judge(session, source.replace(right, wrong))
        assert accepted.correct and accepted.doubts == () and "NaN and infinity" in " ".join(accepted.tested)
        assert len(doubted.doubts) == 1 and doubted.doubts[0].startswith("drops NaN: ") and said in doubted.doubts[0]
        refuses = "the reference does not take them: view size is not compatible with input tensor's size and stride"
        layouts = ("offset and padded layout", "transposed layout")
        assert accepted.left_out == tuple(f"{kind} ({refuses})" for kind in layouts if "view" in problem.source)


@pytest.mark.slow
def test_what_the_reference_makes_nan_of_is_left_out_with_the_reason(tmp_path: Path) -> None:
    problem = problems.from_expression("torch.log(x) > 0.5", inputs="x: f32[256, 300]")
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        found = version.trials[-1].verdict
        assert found.correct
        assert "NaN and infinity" in " ".join(found.tested)  # which bools compare
        assert found.left_out == ()
    logarithm = problems.from_expression("torch.log(x.abs() - 1e-3)", inputs="x: f32[256, 300]")
    with Session.create(logarithm, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        found = version.trials[-1].verdict
        kinds = ("zeros and one sign", "zero and tiny rows")
        wanted = {f"{kind} (the reference gives NaN or infinity there)" for kind in kinds}
        assert wanted <= {*found.left_out}  # others by chance: a value below 1e-3
    norm = problems.from_expression("F.layer_norm(x + 3, x.shape[-1:])", inputs="x: f32[256, 300]")
    with Session.create(norm, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        found = version.trials[-1].verdict
        assert found.correct and " tiny rows" in " ".join(found.tested)
        assert found.left_out == ("zero rows (rounding decides the reference's results there)",)


def test_any_of_several_nan_may_be_chosen() -> None:
    values = torch.tensor([[1.0, torch.nan, torch.nan, 0.0]])
    wanted = torch.tensor([1])
    choice = Choice(wanted.unsqueeze(1), values, 1)
    for index, is_alike in ((2, True), (0, False)):
        got = torch.tensor([index])
        assert torch.equal(take_equal_values(got, wanted, lambda: [choice]), got) == is_alike
