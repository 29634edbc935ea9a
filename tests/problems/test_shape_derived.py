"""Tensors made of sizes, attention with a mask, bags, masks by row: programs, and kernels that are right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from expected import check_planned

from workbench import Session, problems
from workbench.problems import inspection
from workbench.problems.reference import WidenedDtypes
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Facts

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]
"""
HEADS = "torch.randn(2, 4, 16, 8), torch.randn(2, 4, 48, 8), torch.randn(2, 4, 48, 8)"
ANGLES = FILE.format(
    init="pass",
    arguments="t",
    forward="f = torch.exp(torch.arange(32, dtype=torch.float32) * -0.3); a = t[:, None].float() * f; "
    "return torch.cat([a.cos(), a.sin()], -1)",
    inputs="torch.randint(0, 99, (4,))",
)
CACHED = FILE.format(
    init="pass",
    arguments="q, k, v",
    forward="s, t = q.shape[2], k.shape[2]; mask = torch.ones(s, t, dtype=torch.bool, device=q.device).tril(t - s); "
    "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    inputs=HEADS,
)
MASKED = FILE.format(
    init="pass",
    arguments="q, k, v, mask",
    forward="return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    inputs=f"{HEADS}, torch.rand(16, 48) > 0.5",
)
COMBINED = FILE.format(
    init="self.a = nn.Linear(8, 8)",
    arguments="q, k, v, mask, causal",
    forward="return F.scaled_dot_product_attention(self.a(q), k, v, attn_mask=mask[:, None, None, :] & causal)",
    inputs=f"{HEADS}, torch.rand(2, 48) > 0.5, torch.rand(16, 48) > 0.3",
)
BIAS = FILE.format(
    init="pass",
    arguments="q, k, v, bias",
    forward="return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias, -1) @ v",
    inputs=f"{HEADS}, torch.randn(4, 16, 48)",
)
PACKED = FILE.format(
    init="self.qkv = nn.Linear(width, 3 * width)",
    arguments="x, mask",
    forward="b, t, c = x.shape; q, k, v = self.qkv(x).view(b, t, 3, 8, c // 8).permute(2, 0, 3, 1, 4); "
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]); "
    "return x + y.transpose(1, 2).reshape(b, t, c)",
    inputs="torch.randn(2, 20, 256), torch.arange(20)[None] < torch.randint(4, 20, (2, 1))",
).replace("(self):", "(self, width):")
PACKED += "\n\ndef get_init_inputs():\n    return [256]\n"
APART = PACKED.replace(
    "self.qkv = nn.Linear(width, 3 * width)",
    "self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))",
).replace(
    "q, k, v = self.qkv(x).view(b, t, 3, 8, c // 8).permute(2, 0, 3, 1, 4)",
    "q, k, v = (f(x).view(b, t, 8, c // 8).transpose(1, 2) for f in (self.q, self.k, self.v))",
)
PROJECTED = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(width, inner)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, 2, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])


def get_inputs():
    return [torch.randn(3, 20, 24), torch.arange(20)[None] < torch.randint(4, 20, (3, 1))]


def get_init_inputs():
    return [24, 1024]
"""
BAG = FILE.format(
    init="self.table = nn.EmbeddingBag(100, 16, mode='mean')",
    arguments="ids",
    forward="return self.table(ids)",
    inputs="torch.randint(0, 100, (64, 5))",
)
BY_ROW = FILE.format(
    init="pass",
    arguments="x, m",
    forward="return torch.softmax(x.masked_fill(m, -1e9), -1)",
    inputs="torch.randn(33, 48), torch.rand(33, 1) > 0.5",
)
BY_CHANCE = FILE.format(init="pass", arguments="x", forward="return torch.exp(x) / 32", inputs="torch.randn(16, 32)")
TEXTS = {
    "angles": ANGLES,
    "cached": CACHED,
    "masked": MASKED,
    "packed": PACKED,
    "apart": APART,
    "projected": PROJECTED,
    "as_many_samples": PACKED.replace("(2, 20, 256)", "(8, 20, 256)").replace("(2, 1)", "(8, 1)"),
    "same_at_both": PROJECTED.replace("[24, 1024]", "[24, 256]"),
    "combined": COMBINED,
    "bias": BIAS,
    "bag": BAG,
    "by_row": BY_ROW,
}
LONG = ("cached", "apart", "projected")  # like another one


def open_text(text: str) -> Facts:
    return inspection.open_problem(problems.load(text)).facts


def test_numbers_of_sizes_have_expressions() -> None:
    assert [(one.name, one.expression.split(",")[0]) for one in open_text(ANGLES).made] == [
        ("arange", "torch.arange(32")
    ]
    made = {one.name: one for one in open_text(CACHED).made}
    assert made["tril"].extents == ("q.shape[2]", "k.shape[2]")
    assert made["tril"].expression.endswith(".tril(k.shape[2] - q.shape[2])")
    assert made["attention_scale"].expression.startswith("torch.full((), q.shape[3] ** -0.5")


@pytest.mark.parametrize("text", [PACKED, APART], ids=["packed", "apart"])
def test_the_dimension_of_heads_is_a_share_of_a_size(text: str) -> None:
    made = {one.name: one for one in open_text(text).made}
    assert made["attention_scale"].expression.startswith("torch.full((), (x.shape[2] // 8) ** -0.5")


def test_a_number_of_a_reshape_is_a_size_or_equals_one_by_chance() -> None:
    facts = open_text(TEXTS["as_many_samples"])
    assert facts.cases[0].inputs[0].shape[0] == facts.cases[-1].inputs[0].shape[0] == 8
    assert any({spec.name: spec.shape for spec in one.values}["x"][0] != 8 for one in facts.between)
    assert "unflatten=(2, 3, 8, -1)" in plain_program(recognise(facts))
    with pytest.raises(Unrecognised):
        recognise(dataclasses.replace(facts, between=()))
    same = open_text(TEXTS["same_at_both"])
    assert "unflatten=(2, 2, -1)" in plain_program(recognise(same))
    assert "unflatten=(2, 2, 128)" in plain_program(recognise(dataclasses.replace(same, between=())))
    assert not open_text(MASKED).between  # nothing is reshaped


def test_the_dimension_of_heads_is_a_share_of_a_parameters_size() -> None:
    (scale,) = open_text(PROJECTED).made
    assert scale.expression.startswith('torch.full((), (self.get_parameter("q.weight").shape[0] // 2) ** -0.5')


def test_an_attention_whose_scale_varies_and_has_no_expression_is_not_written() -> None:
    facts = dataclasses.replace(open_text(PROJECTED), made=())
    with pytest.raises(Unrecognised, match="scaled_dot_product_attention"):
        recognise(facts)


def test_a_number_that_is_a_size_by_chance_is_a_constant() -> None:
    facts = open_text(BY_CHANCE)
    assert facts.constants == (32,)
    assert plain_program(recognise(facts)) == "elementwise(div(exp(x), 32))"
    assert not open_text(BY_CHANCE.replace("/ 32", "/ x.shape[1]")).constants


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TEXTS)
def test_the_planner_has_a_program(name: str) -> None:
    check_planned(inspection.open_problem(problems.load(TEXTS[name])))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in TEXTS])
def test_the_first_kernel_is_right_at_every_case(name: str, tmp_path: Path) -> None:
    with Session.create(TEXTS[name], root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        assert version.trials[-1].verdict.correct, version.trials[-1].verdict


@pytest.mark.parametrize("make", [lambda: torch.zeros(3), lambda: torch.tensor([0.0, 0.0, 0.0])])
def test_tensors_of_the_default_dtype_are_widened_too(make: object) -> None:
    index, rows = torch.tensor([0, 2, 2]), torch.ones(3, dtype=torch.float64)
    with WidenedDtypes(torch.float64):
        total = make().index_add_(0, index, rows)  # type: ignore[operator]
    assert total.dtype == torch.float64
    assert total.tolist() == [1.0, 0.0, 2.0]
