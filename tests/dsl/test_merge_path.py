"""aggregate on the merge path against torch on the emulator: rows of any length, parts of rows in a fixed order."""

from __future__ import annotations

import random

import pytest
import torch
from emitted import run_on
from running import launched
from test_aggregate import COUNTS, NAMES, make_graph, reduce_rows

from workbench.language import check, parse
from workbench.language.parser import format_call
from workbench.proposers.ladders.graphs.aggregate import MANY, Size, rungs_of

SMALL = ".merge_path(32) .rows(2) .threads_per_row(16)"  # 64 neighbours and ends of rows in a CTA
LENGTHS = {
    "mixed": COUNTS,
    "one row has all": (0, 0, 700, 0),
    "the first row ends with a CTA": (63, 64, 1, 0, 0, 200, 3),
    "no row ends in most CTAs": (400, 5, 400),
    "empty rows": (0,) * 200 + (3,) + (0,) * 70,
    "one neighbour each": (1,) * 150,
    "one row": (300,),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_rows_of_any_length(lengths: str, op: str, arch: str) -> None:
    x, (indptr, indices) = torch.randn(40, 12), make_graph(counts=LENGTHS[lengths])
    result = run_on(f"aggregate(x, indptr, indices, op={op}) {SMALL}", (x, indptr, indices), NAMES, arch=arch)
    torch.testing.assert_close(result, reduce_rows(x, indptr, indices, op))


def draw_settings(draw: random.Random) -> str:
    """Settings of the merge path that the language allows."""
    while True:
        names = {"merge_path": (32, 64, 128), "threads_per_row": (4, 8, 32, 64), "rows": (1, 2, 8, 32)}
        names |= {"unroll": (1, 2, 4, 8), "vector": (1, 4, 8)}
        text = " ".join(f".{name}({draw.choice(values)})" for name, values in names.items())
        if not check(parse(f"aggregate(x, indptr, indices) {text}")):
            return text


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    draw = random.Random(seed)
    weighted, dtype = draw.choice((0, 0, 1, 2)), draw.choice((torch.float32, torch.float16, torch.bfloat16))
    op = "sum" if weighted else draw.choice(("sum", "mean", "max"))
    nodes, columns = draw.choice((1, 5, 40)), draw.choice((1, 4, 8, 13, 40))
    counts = tuple(draw.choice((0, 0, 1, 2, 3, 70, 200)) for _ in range(draw.choice((1, 3, 50, 120))))
    indptr, indices = make_graph(nodes, counts)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, *((3,) if weighted == 2 else ()), columns, generator=generator).to(dtype)
    weights = [torch.randn(len(indices), *((3,) if weighted == 2 else ()), generator=generator)] if weighted else []
    factor = weights[0].reshape(len(indices), *((3,) if weighted == 2 else ()), 1) if weighted else None
    text = f"aggregate(x, indptr, indices, op={op}, weighted={int(weighted > 0)}) {draw_settings(draw)}"
    given = (x, indptr.to(draw.choice((torch.int32, torch.int64))), indices, *weights)
    result = run_on(text, given, (*NAMES, "weight")[: len(given)], arch=draw.choice(("sm_80", "sm_90a")))
    limit = {"rtol": 1e-4, "atol": 2e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(result, reduce_rows(x, indptr, indices, op, factor), **limit)


def test_parts_of_a_row_are_added_in_a_fixed_order_in_float32() -> None:
    x, (indptr, indices) = (torch.randn(40, 8) * 100).half(), make_graph(counts=(3, 2900, 1))
    one, two = (run_on(f"aggregate(x, indptr, indices) {SMALL}", (x, indptr, indices), NAMES) for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one, reduce_rows(x, indptr, indices, "sum"), rtol=1e-3, atol=1e-1)


def test_indices_that_no_row_has_are_not_read() -> None:
    x, (indptr, indices) = torch.randn(40, 8), make_graph(counts=(3, 90, 0, 40))
    padded = torch.cat((torch.full((130,), 10**6), indices, torch.full((200,), -1)))
    result = run_on(f"aggregate(x, indptr, indices) {SMALL}", (x, indptr + 130, padded), NAMES)
    torch.testing.assert_close(result, reduce_rows(x, indptr, indices, "sum"))


def test_launches_depend_on_shapes_only() -> None:
    found = []
    for counts in ((300, 0, 0, 0), (75, 75, 75, 75), (0, 1, 0, 299)):
        given = (torch.randn(40, 8), *make_graph(counts=counts))
        _, emulation = launched(f"aggregate(x, indptr, indices) {SMALL}", given, NAMES, arch="sm_90a")
        found.append([(launch.kernel, launch.grid) for launch in emulation.launches])
    assert [grid for _, grid in found[0]] == [(5, 1, 1), (4, 1, 1)] and found[0] == found[1] == found[2]
    given = (torch.randn(40, 8), *make_graph(counts=(30, 20)))
    _, emulation = launched(f"aggregate(x, indptr, indices) {SMALL}", given, NAMES, arch="sm_90a")
    assert [launch.grid for launch in emulation.launches] == [(1, 1, 1)]  # no row has parts in several CTAs


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".merge_path(48)", "merge_path=48"),
        (".merge_path(64) .split(2)", "merge path"),
        (".merge_path(64) .rows(1) .threads_per_row(8)", "is 8"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(f"aggregate(x, indptr, indices) {text}")))


@pytest.mark.parametrize("columns", [1, 24, 128, 602])
@pytest.mark.parametrize(("edges", "rows"), [(MANY, MANY // 4), (MANY // 2, MANY // 4), (1000, 10)])
def test_the_ladder_follows_the_size(edges: int, rows: int, columns: int) -> None:
    programs = [
        "aggregate(x, indptr, indices) " + " ".join(f".{format_call(call)}" for call in rung.settings)
        for rung in rungs_of(Size(columns=columns, edges=edges, rows=rows), 4)
    ]
    assert not [item for program in programs for item in check(parse(program))]
    assert len(set(programs)) == len(programs)
    assert ("merge_path" in programs[0]) == (edges >= MANY or edges >= 64 * rows)
    assert any("merge_path" in program for program in programs[1:])
