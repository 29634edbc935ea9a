"""Forms of modules that people write: masks made of ones, heads repeated up to an input's, integers among floats."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import Session, problems
from workbench.problems import inspection
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import Unrecognised, recognise

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]
"""
SCORES = "torch.randn(4, 64, 48)"
KEYS = "torch.randn(2, 8, 32, 16), torch.randn(2, 2, 48, 16)"
COUNTED = "torch.randn(64, 48), torch.randint(0, 9, (64, 48))"


def program(body: str, arguments: str, inputs: str) -> str:
    text = FILE.format(body=body, arguments=arguments, inputs=inputs)
    return plain_program(recognise(inspection.inspect(problems.load(text))))


@pytest.mark.parametrize(
    ("mask", "compared"),
    [
        ("torch.ones(64, 48, dtype=torch.bool).tril()", "eq(gt("),
        ("torch.ones(64, 48).triu(1).bool()", "ne(where(lt("),
        ("~torch.ones(64, 48, dtype=torch.bool).tril(2)[None]", "add("),
    ],
)
def test_a_mask_made_of_ones_is_a_comparison_of_places(mask: str, compared: str) -> None:
    rows, columns = ("x.shape[1]", "x.shape[2]")
    body = f"return torch.softmax(x.masked_fill({mask.replace('64, 48', f'{rows}, {columns}')}, -1e9), -1)"
    found = program(body, "x", SCORES)
    assert "index=1" in found and "index=2" in found and compared in found


def test_a_mask_of_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(Unrecognised):
        program("return torch.ones(x.shape[1], x.shape[2]).tril().expand(4, -1, -1) * 2", "x", SCORES)


@pytest.mark.parametrize(
    "repeated",
    [
        "k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)",
        "k[:, :, None].expand(k.shape[0], k.shape[1], q.shape[1] // k.shape[1], *k.shape[2:]).reshape("
        "k.shape[0], q.shape[1], *k.shape[2:])",
    ],
)
def test_heads_are_repeated_up_to_those_of_an_input(repeated: str) -> None:
    found = program(f"return torch.softmax(q @ {repeated}.transpose(-2, -1), -1)", "q, k", KEYS)
    assert "view(k, repeat=1, like=q, axes=(1, 1))" in found


def test_a_row_for_each_sample_is_repeated_up_to_the_batch() -> None:
    found = program(
        "return torch.cat([t.expand(x.shape[0], -1, -1), x], 1)", "x, t", f"{SCORES}, torch.randn(1, 1, 48)"
    )
    assert "view(t, repeat=0, like=x, axes=(0, 0)) |> concat(h1, x, axis=1)" in found


def test_integers_are_read_where_torch_rounds_them_to_float32() -> None:
    assert program("return x * n", "x, n", COUNTED) == "elementwise(mul(x, n))"
    assert "cast(f32)" in program("return n.float().mean(-1)", "x, n", COUNTED)


@pytest.mark.parametrize(
    "body",
    ["return n * 2", "return (n.sum(-1)).float()", "return x.half() * n", "return x * (n * n)"],
)
def test_integers_are_not_read_where_they_are_calculated_with(body: str) -> None:
    with pytest.raises(Unrecognised):
        program(body, "x, n", COUNTED)


def test_softplus_has_its_beta() -> None:
    assert program("return F.softplus(x, beta=2)", "x", SCORES) == "elementwise(div(softplus(mul(x, 2.0)), 2.0))"


TOGETHER = FILE.format(
    arguments="x, n",
    body="m = torch.triu(torch.ones(x.shape[1], x.shape[2]), diagonal=1).bool()\n"
    "        y = torch.softmax(x.masked_fill(m, torch.finfo(x.dtype).min), -1)\n"
    "        return y * n.bool(), (x * n).sum(-1), n.float().mean(-1)",
    inputs="torch.randn(4, 24, 40), torch.randint(0, 3, (4, 24, 40))",
)


def test_they_give_right_kernels(tmp_path: Path) -> None:
    with Session.create(TOGETHER, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        assert version.trials[-1].verdict.correct, version.trials[-1].verdict
