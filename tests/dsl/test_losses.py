"""Cross entropy with ignored classes, smoothed labels and wider results: the planner's program and its result."""

from __future__ import annotations

import pytest
from test_row_recognition import computes, problem, proposed

from workbench.language import check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

LOGITS = "torch.randn(n, d)"
LABELS = "torch.randint(0, d, (n,)).index_fill(0, torch.arange(0, n, 3), -100)"
SMOOTHED = "F.cross_entropy(x, y, label_smoothing=0.1{})"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        (SMOOTHED.format(""), (LOGITS, LABELS), "crossentropy(x, target, smoothing=0.1)"),
        (
            SMOOTHED.format(", reduction='sum'").replace("(x", "(x.float()"),
            (f"{LOGITS}.half()", LABELS),
            "reduction=sum, smoothing=0.1) .arch(sm_90a)",
        ),
        (SMOOTHED.format(", reduction='none'"), (LOGITS, LABELS), "reduction=none, smoothing=0.1)"),
    ],
)
def test_smoothed_labels_are_computed(forward: str, inputs: tuple[str, ...], said: str) -> None:
    assert said in computes(problem(forward, inputs), "sm_90a")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        (  # of a language model: the next token
            "F.cross_entropy(x[:, :-1].reshape(-1, x.shape[-1]), y[:, 1:].reshape(-1))",
            ("torch.randn(2, n, d)", "torch.randint(0, d, (2, n))"),
            "|> crossentropy(h3, h4)",
        ),
        (
            "F.cross_entropy(x[:, :-1].reshape(-1, x.shape[-1]).float(), y[:, 1:].reshape(-1))",
            ("torch.randn(1, n, d).bfloat16()", "torch.randint(0, d, (2 * n, 1)).t()[:, ::2]"),
            "|> crossentropy(h3, h4) .arch(sm_90a)",
        ),
        (  # focal loss
            "((1 - torch.exp(-{0})) * {0}).mean()".format("F.cross_entropy(x, y, reduction='none')"),
            (LOGITS, LABELS),
            "|> reduce(mul(sub(1, exp(neg(h1))), h",
        ),
        ("F.cross_entropy(x @ z, y) * 2", (LOGITS, LABELS, "torch.randn(d, d)"), "|> h2 = crossentropy(h1, y)"),
    ],
    ids=["language model", "strided labels", "focal", "of a product"],
)
def test_a_loss_is_a_stage(forward: str, inputs: tuple[str, ...], said: str) -> None:
    assert said in computes(problem(forward, inputs), "sm_90a")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        (
            "F.cross_entropy(x.transpose(1, 2), y, reduction='none')",
            ("torch.randn(2, n, d)", "torch.randint(0, d, (2, n))"),
            "h1 = view(x, flatten=(0, 1)) .arch(sm_90a) |> h2 = view(y, flatten=(0, 1)) .arch(sm_90a) |> h3 = crossent",
        ),
        (  # of an image's pixels
            "F.cross_entropy(x, y)",
            ("torch.randn(2, d, 3, n)", "torch.randint(0, d, (2, 3, n))"),
            "h1 = view(x, order=(0, 2, 3, 1))",
        ),
        (
            "F.cross_entropy(x, y, reduction='none')",
            ("torch.randn(2, d, 3, n)", "torch.randint(0, d, (2, 3, n))"),
            "|> view(h4, unflatten=0, like=h1, axes=(0, 2))",
        ),
    ],
)
def test_classes_may_be_another_axis(forward: str, inputs: tuple[str, ...], said: str) -> None:
    assert said in computes(problem(forward, inputs), "sm_90a")


@pytest.mark.parametrize(
    "forward",
    [
        "0.9 * F.cross_entropy(x, y) - 0.1 * x.log_softmax(1).mean()",  # ignored rows count
        "F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=0)",
    ],
)
def test_other_mixtures_are_no_smoothed_labels(forward: str) -> None:
    try:
        found = recognise(inspect(problem(forward, (LOGITS, "torch.randint(0, d, (n,))"))))
    except Unrecognised:
        return
    assert found.kind != "crossentropy"


CLIP = "(lambda l, t: (F.cross_entropy(l, t) + F.cross_entropy(l.t(), t)) / 2)({}, torch.arange(x.shape[0]))"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        (  # as CLIP writes it, of features that agree: losses near zero keep their digits
            CLIP.format("x @ x.t() * 4"),
            (LOGITS,),
            "sub(h1, max(h1)), 0))), axis=0)",
        ),
        ("F.cross_entropy(x, torch.arange(x.shape[0]), reduction='none')", (LOGITS,), "axis=last) .arch(sm_80)"),
    ],
)
def test_labels_on_the_diagonal_are_positions(forward: str, inputs: tuple[str, ...], said: str) -> None:
    assert said in computes(problem(forward, inputs), "sm_80")


def test_smoothing_is_a_share_of_labels_of_logits() -> None:
    for text in ("crossentropy(x, y, smoothing=2)", "crossentropy(x, y, logits=0, smoothing=0.1)"):
        assert [item.field for item in check(parse(text))] == ["smoothing"]


def test_rows_of_many_classes_are_not_left_to_one_thread() -> None:
    few, many = (problem("F.cross_entropy(x, y)", (LOGITS, LABELS), sizes=(64, classes)) for classes in (64, 32768))
    assert "threads_per_row(1)" in proposed(few, "sm_80")[0] and "threads_per_row(32)" in proposed(many, "sm_80")[0]
