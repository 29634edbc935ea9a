"""The canonical hash of one small coloured graph: refinement, then individualisation where cells are left.

Colour refinement (1-WL) gives each node a colour. Where it leaves a cell of several nodes, three steps follow, none of
which depends on an order of the nodes:

1. Edges that join two whole cells, all with one label, are taken away: the sizes of the cells determine them.
2. What is left falls into components, which are hashed one by one. A component with no two nodes of one colour, or
   without a cycle, is determined by its colours.
3. Otherwise each node of the component's smallest cell is given a colour of its own in turn, the component is hashed
   again, and the least hash counts.

The hash is complete: two graphs have one hash exactly if they are isomorphic, but for collisions of 64 bits. Where more
than a budget of steps would be needed, `BudgetSpent` is raised; as no step depends on an order, it is raised for
all graphs of an isomorphism class or for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.structure.hashing.mixing import ALL, mix, mix_pair

Neighbours = Sequence[Mapping[int, int]] | Mapping[int, Mapping[int, int]]  # node -> neighbour -> label, from the node

BUDGET = 10_000  # nodes that are given a new colour, of one graph: about a tenth of a second
_MARKED = 0x6D61726B6564


class BudgetSpent(Exception):
    """More steps are needed than the budget allows."""


class CanonicalForm:
    """Hashes of one graph under different colourings; the budget is for each call of `hash`."""

    def __init__(self, neighbours: Neighbours, budget: int = BUDGET) -> None:
        self._neighbours = neighbours
        self._budget = budget
        self._left = budget

    def hash(self, colours: Sequence[int]) -> int:
        """The canonical hash of the graph with these colours, 64 bits each. Raises `BudgetSpent`."""
        self._left = self._budget
        return self._hash_part(list(range(len(colours))), dict(enumerate(colours)), self._neighbours)

    def hash_with_marked(self, colours: Sequence[int], node: int) -> int:
        """The canonical hash with one node set apart: equal for two nodes exactly if they are in one orbit."""
        marked = list(colours)
        marked[node] = mix_pair(_MARKED, marked[node])
        return self.hash(marked)

    def hash_coarsely(self, colours: Sequence[int]) -> int:
        """A hash that is cheap but not complete: colours after each single node is set apart, as a multiset."""
        nodes = list(range(len(colours)))
        total = 0
        for node in nodes:
            marked = dict(enumerate(colours))
            marked[node] = mix_pair(_MARKED, marked[node])
            self._left = len(nodes) ** 2
            refined = self._refine(nodes, marked, self._neighbours)
            total += mix_pair(refined[node], sum(map(mix, refined.values())) & ALL)
        return mix(total & ALL)

    def _hash_part(self, nodes: list[int], colours: dict[int, int], neighbours: Neighbours) -> int:
        """The hash of the part of the graph that these nodes induce in `neighbours`."""
        colours = self._refine(nodes, colours, neighbours)
        cells = _cells(nodes, colours)
        total = mix(sum(mix(colour) * len(cell) for colour, cell in cells.items()) & ALL)
        if len(cells) == len(nodes):
            return total
        left = _without_uniform_edges(nodes, colours, cells, neighbours)
        for part in _components(nodes, left):
            total += mix(self._hash_component(part, colours, left))
        return mix(total & ALL)

    def _hash_component(self, part: list[int], colours: dict[int, int], neighbours: Neighbours) -> int:
        """The hash of one component whose colours are stable."""
        cells = _cells(part, colours)
        edges = sum(len(neighbours[node]) for node in part) // 2
        own = mix_pair(len(part), sum(mix(colour) * len(cell) for colour, cell in cells.items()) & ALL)
        if len(cells) == len(part) or edges < len(part):
            return mix_pair(own, edges)
        colour, cell = min(
            ((colour, cell) for colour, cell in cells.items() if len(cell) > 1),
            key=lambda item: (len(item[1]), item[0]),
        )
        inside = set(part)
        induced = {node: {to: label for to, label in neighbours[node].items() if to in inside} for node in part}
        least = ALL
        for node in cell:
            marked = {other: colours[other] for other in part}
            marked[node] = mix_pair(_MARKED, colour)
            least = min(least, self._hash_part(part, marked, induced))
        return mix_pair(own, least)

    def _refine(self, nodes: list[int], colours: dict[int, int], neighbours: Neighbours) -> dict[int, int]:
        """Stable colours."""
        count = len({colours[node] for node in nodes})
        while True:
            self._left -= len(nodes)
            if self._left < 0:
                raise BudgetSpent
            new = {}
            for node in nodes:
                total = 0
                for other, label in neighbours[node].items():
                    total += mix_pair(colours[other], label)
                new[node] = mix_pair(colours[node], total & ALL)
            grown = len(set(new.values()))
            colours = new
            if grown == count or grown == len(nodes):
                return colours
            count = grown


def _cells(nodes: Sequence[int], colours: Mapping[int, int]) -> dict[int, list[int]]:
    """Nodes by colour."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        found.setdefault(colours[node], []).append(node)
    return found


def _without_uniform_edges(
    nodes: Sequence[int], colours: Mapping[int, int], cells: Mapping[int, Sequence[int]], neighbours: Neighbours
) -> dict[int, dict[int, int]]:
    """The neighbours without the edges that join all nodes of a cell to all of another, or of the same, with one label.

    The colours are stable, so one node of a cell shows what holds for all.
    """
    uniform = set()
    for colour, cell in cells.items():
        counts: dict[tuple[int, int], int] = {}
        for other, label in neighbours[cell[0]].items():
            counts[colours[other], label] = counts.get((colours[other], label), 0) + 1
        for (to, label), count in counts.items():
            if count == len(cells[to]) - (to == colour):
                uniform.add((colour, to, label))
    return {
        node: {
            other: label
            for other, label in neighbours[node].items()
            if (colours[node], colours[other], label) not in uniform
        }
        for node in nodes
    }


def _components(nodes: Sequence[int], neighbours: Mapping[int, Mapping[int, int]]) -> list[list[int]]:
    """The connected components."""
    seen: set[int] = set()
    found = []
    for start in nodes:
        if start in seen:
            continue
        seen.add(start)
        part = [start]
        for node in part:
            fresh = [other for other in neighbours[node] if other not in seen]
            seen.update(fresh)
            part.extend(fresh)
        found.append(part)
    return found
