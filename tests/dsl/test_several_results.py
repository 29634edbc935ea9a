"""Modules that return several tensors, and modules that read or join parts of tensors: the planner's program."""

from __future__ import annotations

import pytest
import torch
from running import run
from test_row_recognition import IMAGE, ONE, TWO, computes, problem

from workbench.language import check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

HALF = "torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), -1) * y"
PAIR = "dict(zip(('values', 'places'), x.topk(3, dim=-1)))"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("forward", "inputs", "init", "said"),
    [
        ("(lambda z: (self.m(z), z))(x + y)", TWO, "self.m = nn.LayerNorm(d)", "outputs(h2, h1)"),
        ("torch.relu(x), torch.sigmoid(y)", TWO, "pass", "outputs(h1, h2)"),
        ("(lambda z: (z.sum(0), z))(F.linear(x, y))", TWO, "pass", "outputs("),
        ("{'y': torch.relu(x), 'x': x}", ONE, "pass", "outputs(h1, x)"),
        (PAIR, ONE, "pass", "topk(x, k=3)"),
        ("x.topk(3)[0]", ONE, "pass", "view(h1, item=0)"),
        ("x.max(1)", ONE, "pass", "op=argmax"),
        ("F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]", ONE, "pass", "chunk=(1, 1, 2)"),
        (HALF, TWO, "pass", "share=(1, 1, 2)"),
        ("torch.relu(x[:, 1:-1] + y[:, 2:])", TWO, "pass", "slice=(1, 1, -1)"),
        ("torch.relu(x[:, -1])", IMAGE, "pass", "layer=(1, -1)"),
        ("torch.cat([x @ y.T, x], dim=1)", TWO, "pass", "concat("),
        ("torch.cat([x, torch.relu(y), x])", TWO, "pass", "axis=0"),
        ("torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)", ONE, "pass", "every=(1, 1, 2)"),
        ("torch.repeat_interleave(x, 2, dim=1) + 1.0", ONE, "pass", "concat(h1, h1, axis=2)"),
    ],
)
def test_results_and_parts_are_computed(forward: str, inputs: tuple[str, ...], init: str, said: str) -> None:
    assert said in computes(problem(forward, inputs, init), "sm_80")


@pytest.mark.parametrize(
    "forward",
    [
        "torch.relu(x[:, : x.shape[1] * 3 // 5])",  # no part that a view has
        "x.topk(x.shape[1] // 4)[0]",  # a number made of a size
        "torch.relu(x[:, :8:2])",
        "torch.repeat_interleave(x, 11, dim=1) + 1.0",  # more copies than are put side by side
        "x.topk(3, largest=False)[0]",
    ],
)
def test_other_parts_are_refused(forward: str) -> None:
    with pytest.raises(Unrecognised):
        recognise(inspect(problem(forward, sizes=(64, 4096))))


@pytest.mark.parametrize(
    ("shapes", "axis"), [(((3, 5, 4), (3, 1, 4), (3, 0, 4)), 1), (((2, 6), (2, 3)), 1), (((2, 3), (5, 3)), 0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_of_any_dtype_are_put_side_by_side(
    shapes: tuple[tuple[int, ...], ...], axis: int, dtype: torch.dtype
) -> None:
    names = ("a", "b", "c")[: len(shapes)]
    given = tuple(torch.randint(0, 2, shape).to(dtype) for shape in shapes)
    got = run(f"concat({', '.join(names)}, axis={axis})", given, names)
    assert torch.equal(got, torch.cat(given, axis)) and got.dtype == dtype


def test_concat_reads_parts_and_transposed_tensors() -> None:
    wide, tall = torch.randn(4, 10), torch.randn(5, 4)
    got = run("h = view(a, chunk=(1, 1, 2)) |> concat(h, b, axis=1)", (wide, tall.t()), ("a", "b"))
    assert torch.equal(got, torch.cat([wide[:, 5:], tall.t()], 1))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("h = outputs(x, y) |> elementwise(relu(h))", "operation"),
        ("concat(x)", "operands"),
        ("concat(x, relu(y))", "operands"),
        ("topk(x, k=200)", "k"),
        ("view(x, chunk=(1, 2, 2))", "chunk"),
        ("view(x, slice=(1, 2, 3, 4))", "slice"),
        ("view(x, every=(1, 0, 0))", "every"),
    ],
)
def test_programs_that_mean_nothing_are_rejected(text: str, field: str) -> None:
    assert field in {item.field for item in check(parse(text))}


def test_tensors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape on all axes but 1"):
        run("concat(a, b, axis=1)", (torch.randn(2, 3), torch.randn(3, 3)), ("a", "b"))
