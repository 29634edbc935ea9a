"""Rows of landscapes as graphs of programs with a rank: what rules on times are learnt from.

A row's rank is its place among its landscape's correct rows, from 0 (fastest) to 1. Ranks of different problems can be
compared, times cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.landscapes import Landscape, Row
from workbench.structure.graph import Graph, collect_columns
from workbench.structure.kernels.program_graphs import Attributes, attributes_of_program


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedRow:
    """A row, the landscape it is of, the attributes of its program's stages, and its rank."""

    landscape: str
    row: Row
    stages: tuple[Attributes, ...]
    rank: float


def rank_rows(places: Iterable[tuple[str, Landscape]]) -> list[RankedRow]:
    """The correct rows of landscapes, given as pairs of a name and a landscape."""
    found = []
    for name, place in places:
        rows = place.correct
        context = context_attributes(place)
        for number, row in enumerate(rows):
            stages = tuple({**one, **context, **compiled_attributes(row)} for one in attributes_of_program(row.program))
            found.append(RankedRow(landscape=name, row=row, stages=stages, rank=number / max(1, len(rows) - 1)))
    return found


def context_attributes(place: Landscape) -> Attributes:
    """What a rule may say of the problem: its intensity, its size and its dtype."""
    facts = place.facts
    return problem_attributes(facts["flops"], facts["least_bytes"], facts["precision"], facts["kind"])


def problem_attributes(flops: float, least_bytes: float, precision: str, kind: str) -> Attributes:
    """The same of a problem without a landscape; `kind` as `cutegen landscape` has it: matmul, norm, softmax, ..."""
    return {
        "FLOPs per byte": round(flops / least_bytes, 3),
        "log2 of FLOPs": round(math.log2(max(flops, 1.0)), 2),
        "log2 of bytes": round(math.log2(least_bytes), 2),
        "precision": str(precision),
        "problem": str(kind),
    }


def compiled_attributes(row: Row) -> Attributes:
    """What the compiler said of the row's largest kernel; not known of programs that were not compiled."""
    known = {
        "registers": row.registers,
        "spilled bytes": row.spill_bytes,
        "shared bytes": row.shared_bytes,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def stage_graphs(rows: Sequence[RankedRow]) -> tuple[Graph, NDArray[numpy.int64]]:
    """All stages of all rows as nodes of one graph without edges, and the row of each."""
    owners = numpy.array([number for number, one in enumerate(rows) for _ in one.stages])
    columns = collect_columns([stage for one in rows for stage in one.stages])
    return Graph.of([], size=len(owners), node_columns=columns), owners
