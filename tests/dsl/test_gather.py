"""gather and scatters in the language against torch on the emulator; an index out of range is a finding.

Recognition; rejections.
"""

from __future__ import annotations

import pytest
import torch
from emitted import found, run_on

from workbench.emulator import EmulationFault
from workbench.language import check, parse


def numbers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


def test_gather() -> None:
    x, names = torch.randn(3, 7, 12), ("x", "index")
    some, few = numbers(7, 3, 9, 12), numbers(7, 4)
    assert torch.equal(run_on("gather(x, index, axis=1)", (x, some), names), x.gather(1, some))
    assert torch.equal(run_on("gather(x, index, axis=1, layers=1)", (x, few.int()), names), x.index_select(1, few))
    assert torch.equal(
        run_on("gather(x, index, axis=2, layers=1) .unroll(1)", (x.transpose(0, 1), few), names),
        x.transpose(0, 1).index_select(2, few),
    )
    table, tokens = torch.randn(40, 24).half(), numbers(40, 3, 5)
    assert torch.equal(run_on("gather(x, index, layers=1)", (table, tokens), names), table[tokens])
    assert run_on("gather(x, index, layers=1)", (table, tokens[:0]), names).shape == (0, 5, 24)


@pytest.mark.parametrize("wrong", [40, -1])
@pytest.mark.parametrize("text", ["gather(x, index, layers=1)", "gather(x, index)"])
def test_an_index_out_of_range_is_one_finding(text: str, wrong: int) -> None:
    index = torch.full((3, 24) if "layers" not in text else (3,), wrong)
    with pytest.raises(EmulationFault, match="out of bounds"):
        run_on(text, (torch.randn(40, 24), index), ("x", "index"))


def test_scatter_add() -> None:
    out, names = torch.randn(3, 7, 12), ("out", "index", "src")
    index, src = numbers(7, 3, 9, 12), torch.randn(3, 9, 12)
    torch.testing.assert_close(
        run_on("scatter_add(out, index, src, axis=1)", (out, index, src), names), out.scatter_add(1, index, src)
    )
    torch.testing.assert_close(
        run_on("scatter_add(out, index, src, axis=1)", (out.half(), index, src.half()), names),
        out.half().scatter_add(1, index, src.half()),
        rtol=1e-2,
        atol=1e-2,
    )
    torch.testing.assert_close(
        run_on("scatter_add(out, index, src, axis=1, layers=1)", (out, index[0, :, 0], src), names),
        out.index_add(1, index[0, :, 0], src),
    )
    with pytest.raises(ValueError, match="same extents on all axes but 1"):
        run_on("scatter_add(out, index, src, axis=1)", (out, index[:, :, :5], src[:, :, :5]), names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_scatter_max(dtype: torch.dtype) -> None:
    out, names = torch.randn(3, 7, 12).to(dtype), ("out", "index", "src")
    index, src = numbers(5, 3, 9, 12), torch.randn(3, 9, 12).to(dtype)  # nothing goes to two of the seven
    src[0, :2, :2] = torch.tensor([[float("nan"), float("inf")], [-float("nan"), -0.0]])
    src[1] = -src[1].abs()
    src[2, :, 0] = -float("inf")
    result = run_on("scatter_max(out, index, src, axis=1)", (out, index, src), names)
    wanted = out.scatter_reduce(1, index, src, "amax", include_self=False)
    torch.testing.assert_close(result, wanted, equal_nan=True, rtol=0, atol=0)
    rows = index[0, :, 0].contiguous()
    result = run_on("scatter_max(out, index, src, axis=1, layers=1)", (out, rows.int(), src), names)
    wanted = out.scatter_reduce(1, rows[None, :, None].expand(3, 9, 12), src, "amax", include_self=False)
    torch.testing.assert_close(result, wanted, equal_nan=True, rtol=0, atol=0)
    empty = run_on("scatter_max(out, index, src, axis=1, layers=1)", (out, rows[:0], src[:, :0]), names)
    torch.testing.assert_close(empty, out, rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [4, -1])
def test_a_row_out_of_range_is_found_in_a_maximum(wrong: int) -> None:
    out, index, src = torch.randn(4, 8), torch.tensor([0, wrong, 1]), torch.randn(3, 8)
    with pytest.raises(EmulationFault, match="out of bounds"):
        run_on("scatter_max(out, index, src, layers=1)", (out, index, src), ("out", "index", "src"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gather(x)", "takes 2 operands"),
        ("scatter_add(x, i)", "takes 3 operands"),
        ("scatter_max(x, i)", "scatter_max(out, index, src)"),
        ("gather(x, i, axis=-1)", "axis=-1"),
        ("gather(x, i, layers=2)", "layers=2"),
        ("gather(x, i, dim=1)", "no such argument"),
        ("gather(x, i) .unroll(3)", "unroll=3"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


MANY, FEW = "torch.randint(0, 16, (20, 24))", "torch.randint(0, 16, (20,))"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("body", "inputs", "kind", "named"),
    [
        ("torch.gather(x, 0, i)", {"x": "20, 24", "i": MANY}, "gather", {"axis": 0}),
        ("torch.index_select(x, -1, i)", {"x": "20, 24", "i": FEW}, "gather", {"axis": 1, "layers": 1}),
        ("torch.nn.functional.embedding(i, x)", {"x": "20, 24", "i": MANY}, "gather", {"axis": 0, "layers": 1}),
        ("x.scatter_add(0, i, s)", {"x": "20, 24", "i": MANY, "s": "20, 24"}, "scatter_add", {"axis": 0}),
        ("x.index_add(0, i, s)", {"x": "20, 24", "i": FEW, "s": "20, 24"}, "scatter_add", {"axis": 0, "layers": 1}),
    ],
)
def test_recognised(body: str, inputs: dict[str, str], kind: str, named: dict[str, object]) -> None:
    computation = found(body, **inputs)
    assert computation is not None and computation.kind == kind and dict(computation.operation.named) == named


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("x.index_add(0, i, s, alpha=2)", {"x": "20, 24", "i": FEW, "s": "20, 24"}),
        ("torch.gather(x, 0, i)", {"x": "20, 30", "i": MANY}),
        ("torch.gather(2 * x, 0, i)", {"x": "20, 24", "i": MANY}),
        ("x.scatter_reduce(0, i, s, 'amax')", {"x": "20, 24", "i": MANY, "s": "20, 24"}),
        ("x.scatter_add(0, i, s)", {"x": "20, 24", "i": MANY, "s": "30, 24"}),
        ("torch.nn.functional.embedding(i, x, max_norm=1.0)", {"x": "20, 24", "i": MANY}),
    ],
)
def test_other_computations_are_not_taken_for_it(body: str, inputs: dict[str, str]) -> None:
    computation = found(body, **inputs)
    assert computation is None or computation.kind not in ("gather", "scatter_add")
