"""Kernels that are alike, by the structures that their graphs have in common.

A sketch counts the structures of a kernel's graph, of 0 to 2 hops, kinds of nodes and edges included: of its program
(see `program_graphs`), with one more for each setting, or of its Python source (`source_graphs`). Sketches of one form
are compared: the share of structures that both have, each weighed by how rare it is among all that are compared.
"""

from __future__ import annotations

import ast
import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from workbench.landscapes import landscapes
from workbench.records import record
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.mixing import hash_text, mix_pair
from workbench.structure.hashing.structures import StructureHasher
from workbench.structure.kernels.program_graphs import attributes_of_program, program_graph
from workbench.structure.kernels.source_graphs import source_graph

RADII = (0, 1, 2)
LEAST_SHARE = 0.05  # kernels with less in common are not alike
PACKAGE = Path(__file__).parents[2]
Form = Literal["program", "source"]


@record
class Sketch:
    """A kernel: its name, what was counted, a line about it, its text, and the counts of its structures."""

    name: str
    form: Form
    about: str
    text: str
    counts: tuple[tuple[int, int], ...]


@record
class Alike:
    """A kernel that is like another; `share` is from 0 (nothing in common) to 1."""

    sketch: Sketch
    share: float


def sketch_source(source: str, name: str, about: str = "") -> Sketch:
    """The sketch of a Python source. Raises `UserError` where it is none."""
    return Sketch(
        name=name,
        form="source",
        about=about,
        text=source,
        counts=_as_counts(_structures(source_graph(source), ("kind",), ("kind",))),
    )


def sketch_program(program: str, name: str, about: str = "") -> Sketch:
    """The sketch of a muCUTLASS program. Raises `ProgramError` where it is none."""
    graph = program_graph(program, with_settings=False)
    found = _structures(graph, ("kind",), ("operand",)) + _structures(graph, ("kind", "call"), ("operand",))
    for attributes in attributes_of_program(program):
        found.update(hash_text(f"{name} {value}") for name, value in attributes.items())
    return Sketch(name=name, form="program", about=about, text=program, counts=_as_counts(found))


def _structures(graph: Graph, node_identity: tuple[str, ...], edge_identity: tuple[str, ...]) -> Counter[int]:
    joined = join_graphs([graph], node_identity, edge_identity)
    found: Counter[int] = Counter()
    for radius in RADII:
        salt = mix_pair(radius, len(node_identity))
        found.update(mix_pair(salt, value) for value in StructureHasher(radius).hash(joined).hashes.tolist())
    return found


def _as_counts(found: Counter[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(found.items()))


@functools.cache
def recorded_kernels() -> tuple[Sketch, ...]:
    """The fastest program of each landscape."""
    return tuple(
        sketch_program(place.best.program, name, str(place.facts["kind"]))
        for name, place in landscapes().items()
        if place.best is not None
    )


@functools.cache
def example_kernels() -> tuple[Sketch, ...]:
    """The worked examples, each with the kernel's modules that it imports."""
    found = []
    for path in sorted((PACKAGE / "examples").glob("*.py")):
        if path.stem != "__init__":
            text = path.read_text(encoding="utf-8")
            about = text.lstrip('"').partition("\n")[0].rstrip('"')
            sources = [text, *(one.read_text(encoding="utf-8") for one in _kernel_modules(text))]
            found.append(sketch_source("\n".join(map(_without_future, sources)), path.stem, about))
    return tuple(found)


def _without_future(source: str) -> str:
    return source.replace("from __future__ import annotations\n", "")


def _kernel_modules(source: str) -> list[Path]:
    """The files of `workbench.kernels`' packages that a source imports, in the order of the imports."""
    names = [
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("workbench.kernels.")
    ]
    paths = [PACKAGE.joinpath(*name.split(".")[1:]) for name in names if name and name.count(".") > 2]
    return [path.with_suffix(".py") for path in dict.fromkeys(paths) if path.with_suffix(".py").is_file()]


def find_alike(wanted: Sketch, others: Iterable[Sketch], most: int = 3) -> tuple[Alike, ...]:
    """The others of the same form that are alike, most alike first; of equal ones the first."""
    pool = [one for one in others if one.form == wanted.form]
    weights = _rarities([wanted, *pool])
    found = [Alike(sketch=one, share=share_of(wanted, one, weights)) for one in pool]
    return tuple(sorted((one for one in found if one.share >= LEAST_SHARE), key=lambda one: -one.share)[:most])


def _rarities(sketches: Sequence[Sketch]) -> dict[int, float]:
    """Structure -> the logarithm of how few of the sketches have it."""
    seen = Counter(structure for one in sketches for structure, _ in one.counts)
    return {structure: math.log(1 + len(sketches) / count) for structure, count in seen.items()}


def share_of(one: Sketch, other: Sketch, weights: dict[int, float]) -> float:
    """Weighted share of the structures that two sketches have in common (Ruzicka's similarity)."""
    here, there = dict(one.counts), dict(other.counts)
    common = sum(weights[key] * min(count, there.get(key, 0)) for key, count in here.items())
    every = sum(weights[key] * max(here.get(key, 0), there.get(key, 0)) for key in {*here, *there})
    return common / every if every else 1.0
