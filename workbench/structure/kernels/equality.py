"""The same program twice: a key that does not depend on names of stages, or on the order of independent stages.

Two programs with one key compute the same in the same way, so the second need not be tried. The key says nothing of
programs whose texts differ in more, even where their code is equal (see `codegen.canonical` for that).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from workbench.errors import ProgramError
from workbench.language import parse
from workbench.language.ir import Call, Stage
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.structures import StructureHasher
from workbench.structure.kernels.program_graphs import describe_call, names_of


@functools.lru_cache(maxsize=1 << 12)
def program_key(text: str) -> tuple[int, ...]:
    """The canonical hashes of a program's nodes, in ascending order. Raises `ProgramError` for a text that is none."""
    graph = _dataflow(parse(text).stages)
    joined = join_graphs([graph], ("what",), ("operand",))
    return tuple(sorted(StructureHasher(graph.size).hash(joined).hashes.tolist()))


def is_same_program(one: str, other: str) -> bool:
    """Whether two programs differ in names of stages and in the order of independent stages at most."""
    return one == other or program_key(one) == program_key(other)


class TriedPrograms:
    """Programs that were tried; `in` also finds one that differs in names and in the order of independent stages."""

    def __init__(self, programs: Iterable[str | None]) -> None:
        self._keys = {_key_or_text(program) for program in programs if program}

    def __contains__(self, program: str) -> bool:
        return _key_or_text(program) in self._keys


def _key_or_text(program: str) -> tuple[int, ...] | str:
    """The key of a program; the text itself where it is none."""
    try:
        return program_key(program)
    except ProgramError:
        return program


def _dataflow(stages: tuple[Stage, ...]) -> Graph:
    """Stages, and the tensors and words that they read from outside; an edge goes from what is read, by its place."""
    made: dict[str, int] = {}
    what: list[str] = []
    edges: list[tuple[int, int]] = []
    operands: list[str] = []
    for number, stage in enumerate(stages):
        reads = [name for call in (stage.operation, *stage.epilogues) for name in names_of(call)]
        for name in reads:
            if name not in made:
                made[name] = len(what)
                what.append(f"from outside: {name}")
        node = len(what)
        what.append(_describe(stage, is_last=number == len(stages) - 1))
        edges += [(made[name], node) for name in reads]
        operands += [str(place) for place in range(len(reads))]
        if stage.result is not None:
            made[stage.result] = node
    return Graph.of(
        edges,
        size=len(what),
        directed=True,
        node_columns={"what": what},
        edge_columns={"operand": operands},
    )


def _describe(stage: Stage, *, is_last: bool) -> str:
    """A stage without the names in it: operation, settings in the order of their names, epilogues."""
    settings = sorted(str(call) for call in stage.settings)
    calls: tuple[Call, ...] = (stage.operation, *stage.epilogues)
    return f"{'result ' if is_last else ''}{' >> '.join(map(describe_call, calls))} {settings}"
