"""Numbers that forward is given: which other values cases have, and what the numbers become in the graph."""

from __future__ import annotations

import re

import pytest

from workbench import problems
from workbench.analysis import coverage
from workbench.errors import ProblemError
from workbench.problems import inspection
from workbench.problems.tracing.uses import BRANCH, find_uses
from workbench.records import Check, Facts, GivenNumber, NumberUse, Operation, Outcome

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"


def inspect(forward: str, inputs: str, **options: object) -> Facts:
    """The facts of a problem of a forward and of what get_inputs returns."""
    body = "\n".join(f"        {line}" for line in forward.splitlines()[1:])
    source = f"{HEAD}    {forward.splitlines()[0]}\n{body}\n\n\ndef get_inputs():\n    return {inputs}\n"
    return inspection.inspect(problems.load(source, **options))  # type: ignore[arg-type]


def find(facts: Facts, name: str) -> GivenNumber:
    return next(one for one in facts.given if one.name == name)


def test_a_factor_has_other_values_also_a_negative_one() -> None:
    facts = inspect(
        "def forward(self, x, alpha: float):\nreturn torch.where(x > 0, x, alpha * x)", "[torch.randn(512, 256), 0.1]"
    )
    alpha = find(facts, "alpha")
    assert len(alpha.others) == 2 and min(alpha.others) < 0 and 0.1 not in alpha.others
    assert [facts.other_numbers(case.name) for case in facts.cases if case.name.startswith("numbers")] == [
        {"alpha": value} for value in alpha.others
    ]
    assert facts.other_numbers("full") == facts.other_numbers("shrunk") == facts.other_numbers("odd") == {}
    assert alpha.uses == alpha.full_uses == (NumberUse(op="mul", place="1", expression="alpha"),)


def test_a_position_has_values_that_the_reference_accepts() -> None:
    facts = inspect(
        "def forward(self, x, k, pos: int):\ny = x.clone()\ny[:, pos:pos + 16] = k\nreturn y",
        "[torch.randn(64, 128), torch.randn(64, 16), 100]",
    )
    others = find(facts, "pos").others
    assert len(others) == 2 and all(type(pos) is int and 0 <= pos <= 112 for pos in others)
    assert {use.expression for use in find(facts, "pos").uses} == {"pos", "pos + 16"}


def test_a_flag_has_its_other_value() -> None:
    facts = inspect(
        "def forward(self, x, twice: bool):\nreturn x * 2 if twice else torch.relu(x)", "[torch.randn(64, 64), True]"
    )
    assert find(facts, "twice").others == (False,) and find(facts, "twice").unclear == BRANCH


def test_a_number_that_is_a_size_follows_it() -> None:
    facts = inspect("def forward(self, x, n: int):\nreturn x.view(n, -1).relu()", "[torch.randn(4096, 7), 4096]")
    nodes = find(facts, "n")
    assert nodes.follows and not nodes.others
    values = {facts.size_values(case.name)["x_0"] for case in facts.cases}
    assert len(values) > 2  # it would not run if n stayed


def test_numbers_that_bound_indices_vary_with_them() -> None:
    facts = inspect(
        "def forward(self, src, idx, nodes: int):\n"
        "return src.new_zeros(nodes, 8).scatter_add(0, idx[:, None].expand_as(src), src)",
        "[torch.randn(5000, 8), torch.randint(0, 1000, (5000,)), 1000]",
    )
    assert min(find(facts, "nodes").others) < 1000 < max(find(facts, "nodes").others)


def test_what_the_reference_does_not_take_or_feel_is_no_other_value() -> None:
    facts = inspect(
        "def forward(self, x, half: int, unused: float):\nreturn x.view(x.shape[0], half, 2).relu()",
        "[torch.randn(64, 14), 7, 3.0]",
    )
    assert {one.name: one.others for one in facts.given} == {"half": (), "unused": ()}
    check = Check(case="shrunk", trial=0, timed=False, passed=True)
    said = coverage.untested_sizes(facts, Outcome(executor="emulator", arch="sm_80", device="H200", checks=(check,)))
    assert "forward's argument unused was only tested at 3.0" in said


def test_a_number_is_not_varied_by_the_effect_of_another() -> None:
    forward = "def forward(self, x, n: int, alpha: float, unused: float):\nreturn x[:, :n] * alpha"
    facts = inspect(forward, "[torch.randn(4096, 4096), 1000, 0.5, 3.0]")
    case = next(case for case in facts.cases if case.name == "numbers")
    assert case.outputs[0].shape[1] == find(facts, "n").others[0] < case.inputs[0].shape[1]
    assert len(find(facts, "alpha").others) == 2 and not find(facts, "unused").others


def test_a_kept_number_stays() -> None:
    forward, inputs = "def forward(self, x, alpha: float):\nreturn x * alpha", "[torch.randn(64, 64), 0.5]"
    kept = inspect(forward, inputs, keep=("alpha",))
    assert not find(kept, "alpha").others and not any(case.name.startswith("numbers") for case in kept.cases)
    with pytest.raises(ProblemError, match="--keep beta: no such size"):
        inspect(forward, inputs, keep=("beta",))


def test_a_number_of_the_text_is_varied_by_its_name() -> None:
    source = (
        f"{HEAD}    def forward(self, x, pos: int):\n        return x + pos\n\n\n"
        "def get_inputs():\n    pos = 100\n    return [torch.randn(64, 64), pos]\n"
    )
    facts = inspection.inspect(problems.load(source))
    assert find(facts, "pos").key == "pos" and len(find(facts, "pos").others) == 2


def test_numbers_inside_of_arguments() -> None:
    facts = inspect(
        'def forward(self, x, options):\nreturn x * options["scale"]', '[torch.randn(64, 64), {"scale": 0.5}]'
    )
    scale = find(facts, "options['scale']")
    assert len(scale.others) == 2 and scale.uses[0].expression == "options['scale']"


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        (
            "def forward(self, grad, scale: float):\nfound = grad.abs().max()\ngrad.mul_(scale)\nreturn found",
            "[torch.randn(64, 64), 0.25]",
        ),
        (
            "def forward(self, grads, scale: float):\nnorm = torch.stack([g.norm() for g in grads]).norm()\n"
            "for g in grads:\n    g.mul_(torch.clamp(scale / (norm + 1e-6), max=1.0))\nreturn norm",
            "[[torch.randn(64, 32), torch.randn(32)], 1.0]",
        ),
    ],
)
def test_what_an_input_becomes_shows_a_number_too(forward: str, inputs: str) -> None:
    assert len(find(inspect(forward, inputs), "scale").others) == 2


def test_a_step_that_only_another_rate_makes_visible_is_varied() -> None:
    forward = (
        "def forward(self, p, m, g, step: int, lr: float):\nm.lerp_(g, 0.1)\n"
        "p.sub_(m * (lr / (1 - 0.9**step)))\nreturn None"
    )
    facts = inspect(forward, "[torch.randn(4096), torch.randn(4096), torch.randn(4096), 20, 3e-4]")
    assert len(find(facts, "step").others) == 2 and len(find(facts, "lr").others) == 2
    case = next(case for case in facts.cases if case.name == "numbers")
    assert facts.other_numbers(case.name).keys() == {"step", "lr"}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (lambda a: a, "a"),
        (lambda a: -a, "-a"),
        (lambda a: 1 - a, "1.0 - a"),
        (lambda a: 2 * a + 3, "2.0 * a + 3.0"),
        (lambda a: 1 / a, "1.0 / a"),
        (lambda a: a * a, ""),
    ],
)
def test_expressions_of_a_number(written: object, wanted: str) -> None:
    traced = []
    for value in (0.1, 0.0625, -0.7):
        text = repr(float(written(value)))  # type: ignore[operator]
        traced.append((value, (Operation(name="mul", target="aten.mul.Tensor", operands=("x", text)),)))
    uses, unclear = find_uses("a", traced)
    assert [use.expression for use in uses] == ([wanted] if wanted else [])
    assert unclear == ("" if wanted else "mul")


def test_whole_numbers_stay_whole() -> None:
    traced = [
        (pos, (Operation(name="slice_1", target="aten.slice.Tensor", operands=("x", "1", str(pos), f"{pos + 16}")),))
        for pos in (100, 63, 7)
    ]
    uses, _ = find_uses("pos", traced)
    assert [(use.place, use.expression) for use in uses] == [("2", "pos"), ("3", "pos + 16")]
    assert not any(re.search(r"\.", use.expression) for use in uses)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("return x * (alpha * beta) + k", {"alpha": "alpha * beta", "beta": "alpha * beta", "k": "k"}),
        (
            "return x * (1 - alpha * beta) + k",
            {"alpha": "-alpha * beta + 1.0", "beta": "-alpha * beta + 1.0", "k": "k"},
        ),
        ("return x * (alpha / beta) + k", {"alpha": "alpha / beta", "beta": "alpha / beta", "k": "k"}),
        (
            "return x * (0.5 * alpha - beta) + k",
            {"alpha": "-beta + 0.5 * alpha", "beta": "-beta + 0.5 * alpha", "k": "k"},
        ),
        ("return x[:, : k + 8] * alpha + beta", {"alpha": "alpha", "beta": "beta", "k": "k + 8"}),
    ],
)
def test_an_argument_made_of_two_numbers_is_an_expression_of_both(line: str, wanted: dict[str, str]) -> None:
    facts = inspect(
        f"def forward(self, x, alpha: float, beta: float, k: int):\n{line}", "[torch.randn(64, 64), 0.7, 2.0, 6]"
    )
    assert {one.name: one.uses[0].expression for one in facts.given} == wanted
    assert not any(one.unclear for one in facts.given) and all(one.uses == one.full_uses for one in facts.given)


@pytest.mark.parametrize(
    "line",
    [
        "return x * max(alpha, beta) + k",
        "return x * (alpha * beta * k)",
        "return x * (alpha * k / 100 if k < 100 else alpha) + beta",
        "return x * min(alpha, 40.0) + beta * min(beta, 50.0) + k",
    ],
)
def test_what_is_made_of_numbers_in_another_way_is_unclear(line: str) -> None:
    facts = inspect(
        f"def forward(self, x, alpha: float, beta: float, k: int):\n{line}", "[torch.randn(64, 64), 0.7, 2.0, 6]"
    )
    assert "mul" in {one.unclear for one in facts.given}


def test_a_case_goes_beyond_a_number_that_the_text_compares_with() -> None:
    forward = "def forward(self, x, k: int):\nreturn x * (k / 100 if k < 100 else 2.0)"
    assert max(find(inspect(forward, "[torch.randn(64, 64), 6]"), "k").others) > 100
