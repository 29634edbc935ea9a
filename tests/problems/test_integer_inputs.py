"""Offsets and indices as inputs: they keep their order and range at every size; bytes count the rows they name."""

from __future__ import annotations

import pytest
import torch

from workbench import problems
from workbench.problems import inspection
from workbench.problems.inputs import integers
from workbench.records import Facts

SOURCE = """
import torch
import torch.nn as nn
NODES, ROWS, DEGREE, COLUMNS = 50_000, 5_000, 10, 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(NODES, COLUMNS))
    def forward(self, x, indptr, indices):
        return {forward}

def get_inputs():
    counts = torch.randint(0, 2 * DEGREE, (ROWS,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return [torch.randn(NODES, COLUMNS), indptr, torch.randint(0, {high}, (int(indptr[-1]),))]

def get_init_inputs():
    return []
"""
SEGMENTS = "torch.segment_reduce({table}[indices], 'sum', offsets=indptr)"


def facts_of(forward: str, high: str = "NODES") -> Facts:
    return inspection.inspect(problems.load(SOURCE.format(forward=forward, high=high)))


def test_inputs_whose_shapes_depend_on_their_values() -> None:
    facts = facts_of(SEGMENTS.format(table="x"))
    assert {"shrunk", "odd", "full"} <= {case.name for case in facts.cases}
    rows = next(size for size in facts.sizes if size.name == "ROWS")
    assert rows.varied and "indptr[0]" in rows.extents


@pytest.mark.parametrize("table", ["x", "self.table"])
def test_bytes_count_the_rows_that_indices_name(table: str) -> None:
    facts = facts_of(SEGMENTS.format(table=table), high="NODES // 4")
    problem = problems.load(SOURCE.format(forward=SEGMENTS.format(table=table), high="NODES // 4"))
    case, work = facts.cases[-1], facts.work[-1]
    given = integers.make_integer_inputs(problem, case)
    rows = given["indices"].unique().numel()
    whole = 50_000 * 64 * 4  # the other table, which is no part of it, counts as an input or a parameter
    assert work.least_bytes == whole + (rows + 5_000) * 64 * 4 + 8 * (5_001 + given["indices"].numel())
    assert rows <= 12_500 and any(f"{rows:,} of 50,000 rows of {table.split('.')[-1]}" in note for note in facts.notes)
    assert not any("may be too many" in note for note in facts.notes)


def test_a_tensor_that_is_read_elsewhere_counts_whole() -> None:
    facts = facts_of(f"{SEGMENTS.format(table='x')} + x.sum()")
    assert facts.work[-1].least_bytes > 2 * 50_000 * 64 * 4
    assert any("(index)" in note and "may be too many" in note for note in facts.notes)


def test_integers_are_made_and_large_floats_are_not() -> None:
    problem = problems.load(SOURCE.format(forward=SEGMENTS.format(table="x"), high="NODES"))
    module = integers.loading.load_module(problem)
    integers.loading.seed_generators(integers.SEED)
    with integers.UnmadeFloats():
        x, indptr, indices = integers.loading.call_inputs(module, problem)
        half = (torch.ones(1 << 20) * 2).half()
    assert torch.equal(x, torch.zeros(50_000, 64)) and half.dtype == torch.float16 and not half.any()
    assert bool((indptr.diff() >= 0).all()) and int(indptr[-1]) == len(indices) and int(indices.max()) > 49_000


def test_floats_that_integers_are_computed_from_are_made() -> None:
    with integers.UnmadeFloats():
        drawn = torch.rand(1 << 20)
        scaled = drawn * 4
        scaled += 1
        features = torch.empty(1 << 12, 1 << 8).normal_() / 2
        count = (scaled.view(-1, 2) < 2).sum()
    assert abs(int(count) / (1 << 20) - 0.25) < 0.01 and not features.any()
    assert float(drawn.min()) + 1 > 0 and float(drawn.max()) > 0.9 and float(scaled.max()) > 4.5
