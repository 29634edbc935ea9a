"""The predicates of a model: (structure, leaf of its master tree), and how many nodes satisfy each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy
from numpy.typing import NDArray

from workbench.structure.features import Block, Encoder, FeatureSettings, Matrix, Orbit, find_blocks
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import Adjacency, join_graphs
from workbench.structure.hashing.egos import Indices
from workbench.structure.hashing.mixing import sum_runs
from workbench.structure.hashing.structures import StructureHasher
from workbench.structure.master_tree import Condition, MasterTree

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix, csr_matrix

Counts = NDArray[numpy.float32]
AnyCounts = Union[Counts, "csc_matrix"]  # sparse where there are many


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What the rows of counts are: some of the graphs, or some nodes of their union with what is next to them.

    Nodes are counted in places: of a graph, or each in one of its own.
    """

    places: Indices  # [N]: the place in which each node of the union is counted, or -1
    size: int  # number of places
    own: Indices  # [R]: the place of each row
    near: csr_matrix | None = None  # [R, places]: the neighbours of each row's node

    @classmethod
    def of_graphs(cls, adjacency: Adjacency, wanted: Indices) -> Rows:
        """The graphs of these numbers."""
        place = numpy.full(len(adjacency.graph_starts) - 1, -1)
        place[wanted] = numpy.arange(len(wanted))
        return cls(places=place[adjacency.graph_of], size=len(wanted), own=numpy.arange(len(wanted)))

    @classmethod
    def of_nodes(cls, adjacency: Adjacency, wanted: Indices) -> Rows:
        """The nodes of these numbers."""
        from scipy.sparse import csr_matrix

        ones = numpy.ones(len(adjacency.targets), numpy.float32)
        near = csr_matrix((ones, adjacency.targets, adjacency.starts), shape=(adjacency.size, adjacency.size))[wanted]
        needed = numpy.union1d(wanted, near.indices)
        place = numpy.full(adjacency.size, -1)
        place[needed] = numpy.arange(len(needed))
        moved = csr_matrix((near.data, place[near.indices], near.indptr), shape=(len(wanted), len(needed)))
        return cls(places=place, size=len(needed), own=place[wanted], near=moved)


class RowCounts:
    """Counts of the leaves of structures, cut at any granularity, in rows.

    The counts of a granularity are sums of the whole trees'; nothing is fitted or placed again.
    """

    def __init__(self, placed: Sequence[Placed], trees: Sequence[MasterTree], rows: Rows) -> None:
        self._trees, self._rows = trees, rows
        nothing = numpy.zeros(0, numpy.int64)
        self._firsts = numpy.cumsum([0, *(tree.size for tree in trees)])
        places = numpy.concatenate([nothing, *(rows.places[one.nodes] for one in placed)])
        leaves = [one.leaves + first for one, first in zip(placed, self._firsts, strict=False)]
        self._leaves = numpy.concatenate([nothing, *leaves])[places >= 0]
        self._places = places[places >= 0]
        self._cuts: dict[tuple[int, int], tuple[Indices, int]] = {}

    def _columns(self, granularities: Sequence[int]) -> tuple[Indices, int]:
        """(the column that counts each leaf of all trees, or -1; the number of columns)."""
        found = numpy.full(self._firsts[-1], -1)
        number = 0
        for structure, leaves in enumerate(granularities):
            if leaves:
                if (structure, leaves) not in self._cuts:
                    tree = self._trees[structure]
                    kept = tree.leaves_of_cut(leaves)
                    self._cuts[structure, leaves] = numpy.searchsorted(kept, tree.cut(leaves)), len(kept)
                cut, more = self._cuts[structure, leaves]
                found[self._firsts[structure] : self._firsts[structure + 1]] = cut + number
                number += more
        return found, number

    def matrix(self, granularities: Sequence[int]) -> Counts:
        """[rows, predicates] of all structures, each cut at its granularity; of nodes then those of the neighbours."""
        columns, number = self._columns(granularities)
        found = columns[self._leaves]
        flat = (self._places * number + found)[found >= 0]
        held = numpy.bincount(flat, minlength=self._rows.size * number)
        counts: Counts = held.reshape(self._rows.size, number).astype(numpy.float32)
        if self._rows.near is None:
            return counts
        return numpy.hstack([counts[self._rows.own], self._rows.near @ counts])

    def sparse_matrix(self, granularities: Sequence[int]) -> csr_matrix:
        """`matrix` without its zeros."""
        from scipy.sparse import csr_matrix, hstack

        columns, number = self._columns(granularities)
        found = columns[self._leaves]
        some = found >= 0
        ones = numpy.ones(int(some.sum()), numpy.float32)
        counts = csr_matrix((ones, (self._places[some], found[some])), shape=(self._rows.size, number))
        if self._rows.near is None:
            return counts
        return hstack([counts[self._rows.own], self._rows.near @ counts], format="csr")

    def hash_rows(self) -> NDArray[numpy.uint64]:
        """[rows]: hashes that are equal for rows whose counts are equal at every granularity."""
        drawn = numpy.random.default_rng(0).integers(1 << 62, size=(2, self._firsts[-1])).astype(numpy.uint64)
        own, near = (_sum_at(self._places, factors[self._leaves], self._rows.size) for factors in drawn)
        found = own[self._rows.own]
        if self._rows.near is not None:
            found = found + sum_runs(near[self._rows.near.indices], self._rows.near.indptr)
        return found


def _sum_at(places: Indices, values: NDArray[numpy.uint64], size: int) -> NDArray[numpy.uint64]:
    """[size]: the sums of the values at each place, modulo 2**64."""
    order = numpy.argsort(places, kind="stable")
    return sum_runs(values[order], numpy.searchsorted(places[order], numpy.arange(size + 1)))


def list_predicates(trees: Sequence[MasterTree], granularities: Sequence[int]) -> tuple[Predicate, ...]:
    """The predicates of the columns of `RowCounts.matrix`, before those of neighbours."""
    return tuple(
        Predicate(structure=i, leaf=int(leaf))
        for i, (tree, leaves) in enumerate(zip(trees, granularities, strict=True))
        if leaves
        for leaf in tree.leaves_of_cut(min(leaves, tree.leaves))
    )
