"""The predicates of a model: (structure, leaf of its master tree), and how many nodes satisfy each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.features import Block, Encoder, FeatureSettings, Matrix, Orbit, find_blocks
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import Adjacency, join_graphs
from workbench.structure.hashing.egos import Indices
from workbench.structure.hashing.structures import StructureHasher
from workbench.structure.master_tree import Condition, MasterTree

Counts = NDArray[numpy.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownStructure:
    """A structure of the vocabulary: its number, the hash of its stable colours, the radius, how many nodes had it, its
    orbits, and one such node.
    """

    number: int
    colours: int
    radius: int
    support: int
    orbits: tuple[Orbit, ...]
    example: int  # a node of the union of the graphs that were learnt from


@dataclass(frozen=True, kw_only=True)
class Predicate:
    """A node has the structure at this place of the vocabulary, and falls into this leaf of its master tree."""

    structure: int
    leaf: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """Nodes of one known structure, and the leaf of the whole master tree that each is in."""

    nodes: Indices
    leaves: NDArray[numpy.int64]


class Vocabulary:
    """Known structures with their master trees."""

    def __init__(self, radii: Sequence[int], settings: FeatureSettings, degrees: bool, least_support: int) -> None:
        """`least_support`: a structure must occur at so many nodes to be known."""
        self._settings = settings
        self._least = least_support
        self.encoder = Encoder(degrees=degrees)
        self._hashers = [StructureHasher(radius) for radius in radii]
        self.structures: tuple[KnownStructure, ...] = ()
        self.trees: tuple[MasterTree, ...] = ()

    def learn_structures(self, graphs: Sequence[Graph]) -> tuple[list[Block], Adjacency]:
        """Finds the structures of the graphs; the blocks of their nodes, in the order of `structures`, and the graphs'
        union.
        """
        self.encoder.fit(graphs)
        adjacency, rows = self._join(graphs)
        found = [
            (hasher.radius, block)
            for hasher in self._hashers
            for block in find_blocks(adjacency, rows, hasher, self._settings, self._least)
        ]
        found.sort(key=lambda item: (-len(item[1].nodes), item[0], item[1].structure))
        self.structures = tuple(
            KnownStructure(
                number=block.structure,
                colours=block.colours,
                radius=radius,
                support=len(block.nodes),
                orbits=block.orbits,
                example=int(block.nodes[0]),
            )
            for radius, block in found
        )
        return [block for _, block in found], adjacency

    def _join(self, graphs: Sequence[Graph]) -> tuple[Adjacency, Matrix]:
        """The graphs' union, and the encoded attributes of its nodes."""
        adjacency = join_graphs(graphs, self._settings.node_identity, self._settings.edge_identity)
        return adjacency, self.encoder.encode(graphs, adjacency)

    def grow(
        self, blocks: Sequence[Block], labels: NDArray[numpy.int64], most_leaves: int, seed: int
    ) -> tuple[MasterTree, ...]:
        """The master tree of each structure. `labels` holds each node's label, or -1 for one that is left out."""
        trees = []
        for block in blocks:
            own = labels[block.nodes]
            used = own >= 0
            trees.append(MasterTree(block.features[used], own[used], most_leaves if used.any() else 1, seed))
        return tuple(trees)

    def place(self, blocks: Sequence[Block], trees: Sequence[MasterTree]) -> list[Placed]:
        """The leaf of each node of each structure."""
        return [
            Placed(nodes=block.nodes, leaves=tree.apply(block.features))
            for block, tree in zip(blocks, trees, strict=True)
        ]

    def find_known(self, graphs: Sequence[Graph]) -> tuple[list[Placed], Adjacency]:
        """The nodes of other graphs, by known structure, with their leaves in the grown trees; the graphs' union."""
        adjacency, rows = self._join(graphs)
        found: dict[int, Block] = {}
        for hasher in self._hashers:
            known = {one.number: one.colours for one in self.structures if one.radius == hasher.radius}
            blocks = find_blocks(adjacency, rows, hasher, self._settings, 1, known)
            found |= {block.structure: block for block in blocks}
        nothing = Placed(nodes=numpy.zeros(0, numpy.int64), leaves=numpy.zeros(0, numpy.int64))
        placed = [
            Placed(nodes=found[known.number].nodes, leaves=tree.apply(found[known.number].features))
            if known.number in found
            else nothing
            for known, tree in zip(self.structures, self.trees, strict=True)
        ]
        return placed, adjacency

    def describe_feature(self, structure: int, condition: Condition) -> str:
        """A condition of a structure's master tree in words: "mean degree of 2 nodes 1 hop away > 2.5"."""
        names = self.encoder.names
        known = self.structures[structure]
        name = names[condition.feature % len(names)]
        place = condition.feature // len(names)
        orbit = known.orbits[place] if place < len(known.orbits) else None
        what = f"share of {name}" if "=" in name else name
        many = orbit is not None and orbit.size > 1
        sign = ">" if condition.over else "<="
        return f"{'mean ' if many and '=' not in name else ''}{what} of {orbit} {sign} {condition.threshold:.4g}"


class CountCache:
    """Counts of the leaves of each structure at each granularity, computed once.

    The counts of granularity q are sums of the whole tree's; nothing is fitted or placed again.
    """

    def __init__(self, placed: Sequence[Placed], trees: Sequence[MasterTree], owners: Indices, rows: int) -> None:
        """`owners` maps each node of the union to its row (graph); `rows` is their number."""
        self._placed, self._trees, self._owners, self._rows = placed, trees, owners, rows
        self._kept: dict[tuple[int, int], Counts] = {}

    def columns(self, structure: int, leaves: int) -> Counts:
        """[rows, leaves of the cut]: how many nodes of each row are in each leaf; no column for granularity 0."""
        leaves = min(leaves, self._trees[structure].leaves)
        key = (structure, leaves)
        if key not in self._kept:
            self._kept[key] = self._count(structure, leaves)
        return self._kept[key]

    def _count(self, structure: int, leaves: int) -> Counts:
        if leaves == 0:
            return numpy.zeros((self._rows, 0), numpy.float32)
        tree, placed = self._trees[structure], self._placed[structure]
        kept = tree.leaves_of_cut(leaves)
        column = numpy.searchsorted(kept, tree.cut(leaves)[placed.leaves])
        flat = self._owners[placed.nodes] * len(kept) + column
        counts = numpy.bincount(flat, minlength=self._rows * len(kept)).reshape(self._rows, len(kept))
        return counts.astype(numpy.float32)

    def matrix(self, granularities: Sequence[int]) -> Counts:
        """[rows, predicates] of all structures, each cut at its granularity."""
        parts = [self.columns(i, leaves) for i, leaves in enumerate(granularities)]
        return numpy.hstack(parts) if parts else numpy.zeros((self._rows, 0), numpy.float32)


def list_predicates(trees: Sequence[MasterTree], granularities: Sequence[int]) -> tuple[Predicate, ...]:
    """The predicates of the columns of `CountCache.matrix`."""
    return tuple(
        Predicate(structure=i, leaf=int(leaf))
        for i, (tree, leaves) in enumerate(zip(trees, granularities, strict=True))
        if leaves
        for leaf in tree.leaves_of_cut(min(leaves, tree.leaves))
    )
