"""Reductions over rows of indices in the forms that people write, as the planner takes them, run on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from emitted import found, run_on

from workbench.errors import ProblemError
from workbench.problems.inspection import inspect
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Problem
from workbench.session import Session

INPUTS = {
    "x": "torch.randn(N, 6)",
    "p": "torch.arange(R + 1) * 3",
    "i": "torch.randint(0, N, (R * 3,))",
    "d": "torch.randint(0, R, (R * 3,))",
    "w": "torch.randn(R * 3)",
    "o": "torch.arange(R + 1).int() * 3",
    "s": "torch.randint(0, N, (R * 3,)).int()",
}
SIZES = "N, R = 4096, 1000"
DIFF = "(p[1:] - p[:-1])"
ROWS = f"torch.repeat_interleave({DIFF}, output_size=i.shape[0])"
MEAN = (
    "h1 = gather(x, i, axis=0, layers=1) |> h2 = scatter_add(out, d, src, axis=0, layers=1) |> "
    "h3 = scatter_add(out_2, d, h1, axis=0, layers=1) |> h4 = elementwise(max(h2, 1)) |> "
    "h5 = view(h4, unflatten=(0, -1, 1)) |> elementwise(div(h3, spread(h5)))"
)
ZEROS = "torch.zeros(p.shape[0] - 1, x.shape[1])"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("body", "program"),
    [
        ("torch.segment_reduce(x[i], 'sum', offsets=p)", "aggregate(x, indptr, indices)"),
        (
            "torch.segment_reduce(x[i], 'mean', offsets=p)",
            "aggregate(x, indptr, indices, op=mean, empty=identity)",
        ),
        (
            "torch.segment_reduce(x.index_select(0, i), 'max', offsets=p)",
            "aggregate(x, indptr, indices, op=max, empty=identity)",
        ),
        ("torch.segment_reduce(x[i], 'sum', lengths=p[1:] - p[:-1])", "aggregate(x, indptr, indices)"),
        ("torch.segment_reduce(x[i.int().long()], 'sum', offsets=p)", None),  # another vector for large numbers
        ("torch.segment_reduce(x[s.long()], 'sum', offsets=o.long())", "aggregate(x, indptr, indices)"),
        (
            "nn.functional.embedding_bag(s.long(), x, o.long(), mode='sum', include_last_offset=True)",
            "aggregate(x, indptr, indices)",
        ),
        (
            "torch.segment_reduce(x.gather(0, i.unsqueeze(1).expand(-1, x.shape[1])), 'max', offsets=p)",
            "aggregate(x, indptr, indices, op=max, empty=identity)",
        ),
        (f"torch.zeros_like(x).index_add_(0, {ROWS}, x[i])", "aggregate(x, indptr, indices)"),
        (
            "torch.zeros_like(x).index_add_(0, d, x[i])",
            "h1 = gather(x, i, axis=0, layers=1) |> scatter_add(out, d, h1, axis=0, layers=1)",
        ),
        ("torch.segment_reduce(x[i], 'mean', offsets=p, initial=0)", "aggregate(x, indptr, indices, op=mean)"),
        (
            "torch.segment_reduce(x[i] * w[:, None], 'sum', offsets=p)",
            "aggregate(x, indptr, indices, weighted=1)",
        ),
        (
            "nn.functional.embedding_bag(i, x, p, mode='max', include_last_offset=True)",
            "aggregate(x, indptr, indices, op=max)",
        ),
        ("nn.functional.embedding_bag(i, x, p[:-1], mode='mean')", "aggregate(x, indptr, indices, op=mean)"),
        (
            "nn.functional.embedding_bag(i, x, p, mode='sum', per_sample_weights=w, include_last_offset=True)",
            "aggregate(x, indptr, indices, weighted=1)",
        ),
        (
            f"torch.segment_reduce(x[i], 'sum', offsets=p) / {DIFF}.clamp(min=1).unsqueeze(1)",
            "aggregate(x, indptr, indices, op=mean)",
        ),
        (
            "torch.segment_reduce(x[i], 'sum', offsets=p) / p.diff()[:, None]",
            "aggregate(x, indptr, indices, op=mean, empty=identity)",
        ),
        (f"{ZEROS}.index_add(0, {ROWS}, x[i])", "aggregate(x, indptr, indices)"),
        (
            f"{ZEROS}.index_add(0, {ROWS}, x[i]) / {DIFF}.clamp(min=1)[:, None]",
            "aggregate(x, indptr, indices, op=mean)",
        ),
        (
            f"{ZEROS}.index_add(0, d, x[i])",
            "h1 = gather(x, i, axis=0, layers=1) |> scatter_add(out, d, h1, axis=0, layers=1)",
        ),
        (
            f"{ZEROS}.scatter_add(0, d[:, None].expand(-1, x.shape[1]), x[i])",
            "h1 = gather(x, i, axis=0, layers=1) |> scatter_add(out, d, h1, axis=0, layers=1)",
        ),
        (
            f"{ZEROS}.scatter_reduce(0, d[:, None].expand(-1, x.shape[1]), x[i], 'sum')",
            "h1 = gather(x, i, axis=0, layers=1) |> scatter_add(out, d, h1, axis=0, layers=1)",
        ),
        (
            f"{ZEROS}.scatter_reduce(0, {ROWS}[:, None].expand(-1, x.shape[1]), x[i], 'amax', include_self=False)",
            "aggregate(x, indptr, indices, op=max)",
        ),
        (
            f"{ZEROS}.index_reduce(0, {ROWS}, x[i], 'mean', include_self=False)",
            "aggregate(x, indptr, indices, op=mean)",
        ),
        (
            f"{ZEROS}.scatter_reduce(0, d[:, None].expand(-1, x.shape[1]), x[i], 'amax', include_self=False)",
            "h1 = gather(x, i, axis=0, layers=1) |> scatter_max(out, d, h1, axis=0, layers=1)",
        ),
        (f"{ZEROS}.scatter_reduce(0, d[:, None].expand(-1, x.shape[1]), x[i], 'mean', include_self=False)", MEAN),
        (f"{ZEROS}.index_reduce(0, d, x[i], 'mean', include_self=False)", MEAN),
        (
            f"{ZEROS}.index_add(0, d, x[i])"
            " / x.new_zeros(p.shape[0] - 1).scatter_add(0, d, x.new_ones(d.shape[0])).clamp(min=1)[:, None]",
            "h1 = gather(x, i, axis=0, layers=1) |> h2 = scatter_add(out, d, h1, axis=0, layers=1) |> "
            "h3 = scatter_add(out_2, d, src, axis=0, layers=1) |> h4 = elementwise(max(h3, 1)) |> "
            "h5 = view(h4, unsqueeze=1) |> elementwise(div(h2, spread(h5)))",
        ),
        (
            f"{ZEROS}.index_add(0, {ROWS}, x[i])"
            f" / x.new_zeros(p.shape[0] - 1).scatter_add(0, {ROWS}, x.new_ones(i.shape[0])).clamp(min=1)[:, None]",
            "aggregate(x, indptr, indices, op=mean)",
        ),
        (
            "torch.relu(torch.segment_reduce((2 * x)[i], 'sum', offsets=p))",
            "h1 = elementwise(mul(x, 2)) |> h2 = aggregate(h1, p, i) |> elementwise(relu(h2))",
        ),
    ],
)
def test_forms(body: str, program: str | None) -> None:
    computation = found(body, full=SIZES, **INPUTS)
    assert (computation and plain_program(computation)) == program


@pytest.mark.parametrize(
    "body",
    [
        "torch.segment_reduce(x[i], 'max', offsets=p, initial=0)",  # a maximum with 0
        "torch.segment_reduce(x[i], 'min', offsets=p)",
        "nn.functional.embedding_bag(i, x, p, mode='sum', include_last_offset=True, padding_idx=2)",
        f"{ZEROS}.scatter_reduce(0, {ROWS}[:, None].expand(-1, x.shape[1]), x[i], 'amax')",  # a maximum with 0
        f"{ZEROS}.scatter_reduce(0, d[:, None].expand(-1, x.shape[1]), x[i], 'amax')",
        f"{ZEROS}.scatter_reduce(0, d[:, None].expand(-1, x.shape[1]), x[i], 'amin', include_self=False)",
        "torch.zeros(p.shape[0] - 1, 9).scatter_add(0, d[:, None].expand(-1, x.shape[1]), x[i])",  # of six columns
        f"{ZEROS}.scatter_add(0, d[:, None] - d[:, None] + torch.zeros_like(x[i]).long(), x[i])",  # places by element
        f"{ZEROS}.index_reduce(0, {ROWS}, x[i], 'mean')",  # the zero counts too
    ],
)
def test_other_computations_are_refused(body: str) -> None:
    computation, facts = found(body, full=SIZES, facts=True, **INPUTS)
    assert computation is None
    if "embedding_bag" not in body:
        with pytest.raises(Unrecognised, match=r"it knows torch\.segment_reduce"):
            recognise(facts)


@pytest.mark.parametrize(("spread", "is_mean"), [("", False), (".unsqueeze(1)", True)])
def test_a_sum_is_divided_by_the_counts_of_its_rows_only(spread: str, is_mean: bool) -> None:
    body = f"torch.segment_reduce(x[i], 'sum', offsets=p) / {DIFF}.clamp(min=1){spread}.expand(-1, x.shape[1])"
    body = body if is_mean else body.replace("expand(-1, ", "expand(x.shape[1], ")
    computation = found(body, full=SIZES, **(INPUTS | {"x": "torch.randn(N, R)"}))
    assert computation is None or ("op=mean" in plain_program(computation)) == is_mean
    assert computation is not None or not is_mean


def test_an_index_by_column_is_none_by_row() -> None:
    by_column = {"x": "torch.randn(N, R * 3)", "d": "torch.randint(0, R, (R * 3,))"}
    body = "torch.zeros(p.shape[0] - 1, x.shape[1]).scatter_add(0, d{}.expand(i.shape[0], x.shape[1]), x[i])"
    assert found(body.format(""), full=SIZES, **(INPUTS | by_column)) is None
    assert found(body.format("[:, None]"), full=SIZES, **(INPUTS | by_column)) is not None


def test_offsets_without_the_last_are_closed() -> None:
    body = "nn.functional.embedding_bag(i, x, p, mode='sum')"
    computation = found(body, full=SIZES, **(INPUTS | {"p": "torch.arange(R) * 3"}))
    expression = dict(computation.operands)["indptr"]
    x, p, i = torch.randn(20, 6), torch.tensor([0, 2, 2, 7]), torch.randint(0, 20, (9,))
    indptr = eval(expression, {"torch": torch, "p": p, "i": i})
    assert indptr.tolist() == [0, 2, 2, 7, 9]
    result = run_on(plain_program(computation), (x, indptr, i), ("x", "indptr", "indices"))
    torch.testing.assert_close(result, torch.nn.functional.embedding_bag(i, x, p, mode="sum"))


GAT = {
    "h": "torch.randn(N, 2, 4)",
    "a": "torch.randn(R, 2)",
    "b": "torch.randn(N, 2)",
    "w": "torch.randn(R * 3)",
    "p": "torch.arange(R + 1) * 3",
    "i": "torch.randint(0, N, (R * 3,))",
}
ROWS_OF = "torch.repeat_interleave(torch.arange(p.shape[0] - 1), p.diff(), output_size=i.shape[0])"
SPREAD = "torch.repeat_interleave({}, p.diff(), dim=0, output_size=i.shape[0])"

SCORES = f"nn.functional.leaky_relu(b[i] + {SPREAD.format('a')}, 0.2)"


def softmax_of(scores: str, eps: str = "") -> str:
    """A softmax over the neighbours, with its steps named by lambdas."""
    largest = SPREAD.format("torch.segment_reduce(s, 'max', offsets=p)")
    total = SPREAD.format(f"(torch.segment_reduce(e, 'sum', offsets=p){eps})")
    return f"(lambda s: (lambda e: e / {total})(torch.exp(s - {largest})))({scores})"


@pytest.mark.parametrize(
    ("body", "program"),
    [
        (f"a[{ROWS_OF}] + b[i]", "sddmm(q, k, indptr, indices, op=add)"),
        (f"(b[i] * {SPREAD.format('a')}).sum(dim=-1)", "sddmm(q, k, indptr, indices)"),
        (softmax_of("w"), "segment_softmax(scores, indptr)"),
        (
            f"torch.segment_reduce({softmax_of(SCORES, ' + 1e-16')}.unsqueeze(-1) * h[i], 'sum', offsets=p)",
            "h1 = sddmm(a, b, p, i, op=add) |> h2 = elementwise(leaky_relu(h1, 0.2)) |> h3 = segment_softmax(h2, p) |> "
            "aggregate(h, p, i, weighted=1, weight=h3)",
        ),
    ],
)
def test_attention_over_neighbours(body: str, program: str | None) -> None:
    computation = found(body, full=SIZES, **GAT)
    assert (computation and plain_program(computation)) == program


LAYER = """
import torch, torch.nn as nn
from torch_geometric.nn import {conv}
N, E, C, D = 2048, 16384, 32, {width}

class Model(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = {conv}(c, d{more})

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

def get_inputs():
    return [torch.randn(N, C), torch.randint(0, N, (2, E))]

def get_init_inputs():
    return [C, D]
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("conv", "more"),
    [("SAGEConv", ""), ("SAGEConv", ", aggr='max'"), ("GATConv", ", heads=2, add_self_loops=False")],
    ids=["mean", "max", "attention"],
)
def test_layers_of_pytorch_geometric(conv: str, more: str, tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text(LAYER.format(conv=conv, more=more, width=48))
    with Session.create(str(tmp_path / "layer.py"), root=tmp_path / "sessions") as session:
        version = session.generate()
        assert version is not None
        verdict = version.trials[-1].verdict
    assert verdict.correct and not verdict.doubts, verdict


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [15, 64])
@pytest.mark.parametrize("more", ["", ", heads=2", ", heads=2, concat=False"])
@pytest.mark.parametrize("conv", ["GATConv", "GATv2Conv"])
def test_attention_at_any_width_and_number_of_heads(conv: str, more: str, width: int) -> None:
    # these widths are the same at the shrunk and the full case and others between them
    source = LAYER.format(conv=conv, more=f", add_self_loops=False{more}", width=width)
    program = plain_program(recognise(inspect(Problem(name="layer", source=source))))
    if more:  # the heads are split off the product, at whatever width
        assert "unflatten=(1, 2, -1)" in program or "like=" in program
    else:
        assert "unsqueeze=1" in program
    assert f", {width})" not in program


def test_self_loops_of_a_layer_are_refused_with_what_to_write() -> None:
    source = LAYER.format(conv="GATConv", more="", width=48)
    with pytest.raises(ProblemError, match=r"add_self_loops=False") as refused:
        inspect(Problem(name="layer", source=source))
    assert "\n" not in str(refused.value)
