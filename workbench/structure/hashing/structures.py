"""Structures of nodes: the canonical hash of each node's ego graph, and the orbits of the ego graph's members.

    StructureHasher(radius).hash(union)                          [N] a hash for each node of the graphs' union
    StructureHasher(radius).roles(RefinedEgos(union, radius))    also which orbit each member of each ego graph is in

Two nodes have one hash exactly if an isomorphism of their ego graphs takes one to the other (but for collisions of 64
bits), where the search for it stays within its budget; the `Structures` say for which it did not. An orbit is a set of
members that automorphisms which leave the anchor in place exchange. Its key is the hash of the ego graph with one of
its members set apart, so it is the same in all ego graphs of a structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.hashing.adjacency import Adjacency
from workbench.structure.hashing.canonical_form import BUDGET, BudgetSpent, CanonicalForm
from workbench.structure.hashing.egos import (
    Egos,
    Flags,
    Indices,
    RefinedEgos,
    find_settled,
    hash_egos,
)
from workbench.structure.hashing.mixing import Hashes, mix_pair

MOST_SEARCHED = 400  # members of an ego graph for which more than colour refinement is tried
MOST_COARSE = 100  # members for which single nodes are set apart where the complete search is too long
_COARSE, _REFINED = 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Structures:
    """Hashes of ego graphs. `complete` is False where the hash is only that of a refinement: `hashes` may then be equal
    for structures that are not.
    """

    hashes: Hashes  # [A]
    complete: Flags  # [A]


@dataclass(frozen=True, kw_only=True, eq=False)
class Roles:
    """Ego graphs with their structures, and the key of each member's orbit. Keys are equal within an orbit only."""

    egos: Egos
    structures: Structures
    keys: Hashes  # [M]


class _Searched:
    """What the search found out about one numbered ego graph: its hash, and once asked for the keys of its orbits."""

    def __init__(self, colours: list[int], neighbours: list[dict[int, int]], budget: int) -> None:
        self._form = CanonicalForm(neighbours, budget)
        self._colours = colours
        self.hash, self.complete = self._search()
        self._keys: list[int] | None = None

    def _search(self) -> tuple[int, bool]:
        try:
            return self._form.hash(self._colours), True
        except BudgetSpent:
            if len(self._colours) <= MOST_COARSE:
                return mix_pair(self._form.hash_coarsely(self._colours), _COARSE), False
            return mix_pair(sum(self._colours) & ((1 << 64) - 1), _REFINED), False

    @property
    def keys(self) -> list[int]:
        """The orbits' keys; colours where the search is too long."""
        if self._keys is None:
            self._keys = self._find_keys() if self.complete else self._colours
        return self._keys

    def _find_keys(self) -> list[int]:
        counts: dict[int, int] = {}
        for colour in self._colours:
            counts[colour] = counts.get(colour, 0) + 1
        try:
            return [
                colour if counts[colour] == 1 else mix_pair(colour, self._form.hash_with_marked(self._colours, node))
                for node, colour in enumerate(self._colours)
            ]
        except BudgetSpent:
            return self._colours


class StructureHasher:
    """Hashes ego graphs of one radius. What a search finds is kept for the next ego graph that looks the same."""

    def __init__(self, radius: int, budget: int = BUDGET) -> None:
        """`budget`: steps of the search in one ego graph (see `canonical_form`)."""
        self.radius = radius
        self._budget = budget
        self._known: dict[bytes, _Searched] = {}

    def hash(self, graph: Adjacency) -> Structures:
        """The structures of all nodes, in their order."""
        parts = [self._hash_batch(*batch)[0] for batch in RefinedEgos(graph, self.radius).batches()]
        return Structures(
            hashes=numpy.concatenate([part.hashes for part in parts] or [numpy.zeros(0, numpy.uint64)]),
            complete=numpy.concatenate([part.complete for part in parts] or [numpy.zeros(0, bool)]),
        )

    def roles(self, refined: RefinedEgos, anchors: Indices | None = None) -> Iterator[Roles]:
        """The ego graphs of the anchors, which ascend (by default of all nodes), some at a time, with their orbits."""
        for egos, colours in refined.batches(anchors):
            structures, searched = self._hash_batch(egos, colours)
            keys = colours.copy()
            for ego, found in searched.items():
                first = int(egos.starts[ego])
                order = found[1]
                keys[first + order] = numpy.array(found[0].keys, dtype=numpy.uint64)
            yield Roles(egos=egos, structures=structures, keys=keys)

    def _hash_batch(
        self, egos: Egos, colours: Hashes
    ) -> tuple[Structures, dict[int, tuple[_Searched, NDArray[numpy.int64]]]]:
        """Structures, and what was searched, each with the order in which it numbers the members."""
        hashes, complete = hash_egos(egos, colours), find_settled(egos, colours)
        small = numpy.diff(egos.starts) <= MOST_SEARCHED
        wanted = ~complete & small
        searched = self._search(egos.keep(wanted), colours[numpy.repeat(wanted, numpy.diff(egos.starts))])
        places = numpy.flatnonzero(wanted)
        for place, (found, _) in zip(places, searched, strict=True):
            hashes[place] = mix_pair(int(hashes[place]), found.hash)
            complete[place] = found.complete
        kept = dict(zip(places.tolist(), searched, strict=True))
        return Structures(hashes=hashes, complete=complete), kept

    def _search(self, egos: Egos, colours: Hashes) -> list[tuple[_Searched, NDArray[numpy.int64]]]:
        """Each ego graph, its members numbered by colour, looked up or searched."""
        order = numpy.lexsort((colours, egos.owners))
        place = numpy.empty_like(order)
        place[order] = numpy.arange(len(order))
        sources, targets = place[egos.sources], place[egos.targets]
        by = numpy.lexsort((targets, sources))
        sources, targets, labels, colours = sources[by], targets[by], egos.labels[by], colours[order]
        bounds = egos.starts.tolist()
        edges = egos.edge_starts[egos.starts].tolist()
        found = []
        for ego in range(len(egos.anchors)):
            low, high = bounds[ego], bounds[ego + 1]
            run = slice(edges[ego], edges[ego + 1])
            own = colours[low:high]
            key = b"".join(part.tobytes() for part in (own, sources[run] - low, targets[run] - low, labels[run]))
            known = self._known.get(key)
            if known is None:
                neighbours: list[dict[int, int]] = [{} for _ in range(high - low)]
                rows = zip(
                    (sources[run] - low).tolist(), (targets[run] - low).tolist(), labels[run].tolist(), strict=True
                )
                for source, target, label in rows:
                    neighbours[source][target] = label
                known = self._known[key] = _Searched(own.tolist(), neighbours, self._budget)
            found.append((known, order[low:high] - low))
        return found
