"""Draws neighbours of nodes: the second knob, and LABOR. Whole frontiers at once, without a loop over nodes."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from workbench.errors import UserError
from workbench.graphs.graph import Graph, Ints, positions_of_rows
from workbench.graphs.roots import check_share

ALL = -1  # as a fan-out: every neighbour that may be drawn


class Draw(Protocol):
    """Draws neighbours for a frontier."""

    def __call__(self, frontier: Ints, fanout: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """(how many neighbours each node of the frontier got, int64[F]; the neighbours in that order, int64[sum])."""


class BiasedDraw:
    """Weighted draws without replacement: weight p for a neighbour in the node's community, 1 - p for another.

    The law is that of drawing one after the other in proportion to the weights that are left (as torch.multinomial
    does); a weight of 0 is never drawn, unless all weights of a node are 0: then all count alike. p=0.5 is uniform.

    With two weights it suffices to draw how many come from each side (Wallenius' noncentral hypergeometric law, drawn
    step by step) and then uniformly on each side. So the cost is in the fan-out, not in the degree.
    """

    def __init__(self, graph: Graph, community: Ints, p: float) -> None:
        check_share("p", p)
        self.p = float(p)
        rows = np.repeat(np.arange(graph.nodes), np.diff(graph.indptr))
        is_near = community[graph.indices] == community[rows]
        # neighbours of the own community first, else in their order
        self._indices = graph.indices[np.argsort(2 * rows + ~is_near, kind="stable")].astype(np.int64)
        self._starts, self._degrees = graph.indptr[:-1], np.diff(graph.indptr)
        self._near = np.bincount(rows[is_near], minlength=graph.nodes)

    def __call__(self, frontier: Ints, fanout: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """As `Draw` says; fan-out -1 takes all that may be drawn."""
        starts, near, far = self._sides(frontier)
        if fanout == ALL:
            return near + far, self._indices[positions_of_rows(starts, near + far)]
        takes_near = _split_draws(near, far, min(fanout, int((near + far).max(initial=0))), self.p, rng)
        takes = np.minimum(fanout, near + far)
        width = int(takes.max(initial=0))
        first = _draw_distinct(near, takes_near, width, rng)
        second = _draw_distinct(far, takes - takes_near, width, rng) + near[:, None]
        step = np.arange(width)
        chosen = np.where(
            step < takes_near[:, None],
            first,
            np.take_along_axis(second, np.maximum(step - takes_near[:, None], 0), axis=1),
        )
        kept = step < takes[:, None]
        return takes, self._indices[(starts[:, None] + chosen)[kept]]

    def _sides(self, frontier: Ints) -> tuple[Ints, Ints, Ints]:
        """(first position, neighbours inside, neighbours outside) of each node, int64[F] each.

        What has weight 0 is left out. If nothing else is there, it counts as inside, all alike.
        """
        starts, degrees = self._starts[frontier], self._degrees[frontier]
        near = self._near[frontier]
        far = degrees - near
        if self.p == 1:
            return starts, np.where(near == 0, far, near), np.zeros_like(far)
        if self.p == 0:
            return np.where(far == 0, starts, starts + near), np.where(far == 0, near, far), np.zeros_like(far)
        return starts, near, far


def _split_draws(near: Ints, far: Ints, fanout: int, p: float, rng: np.random.Generator) -> Ints:
    """How many of min(fanout, near + far) draws fall inside, for each node: int64[F]."""
    if not far.any():
        return np.minimum(fanout, near)
    left_near, left_far = near.copy(), far.copy()
    for _ in range(fanout):
        inside, outside = p * left_near, (1 - p) * left_far
        is_near = rng.random(len(near)) * (inside + outside) < inside
        left_near -= is_near
        left_far -= ~is_near & (left_far > 0)
    return near - left_near


def _draw_distinct(count: Ints, takes: Ints, width: int, rng: np.random.Generator) -> Ints:
    """For each row takes[i] different numbers below count[i], uniform among all sets: int64[F, width], rest unused.

    Floyd's algorithm on all rows at once: step j draws t <= count - takes + j, and takes that bound itself if t was
    drawn before.
    """
    drawn = np.full((len(count), width), -1, np.int64)
    for step in range(int(takes.max(initial=0))):
        bound = np.maximum(count - takes + step, 0)
        one = (rng.random(len(count)) * (bound + 1)).astype(np.int64)
        seen = (drawn[:, :step] == one[:, None]).any(axis=1)
        drawn[:, step] = np.where(seen, bound, one)
    return drawn


class LaborDraw:
    """LABOR-0 (Balin and Çatalyürek, NeurIPS 2023): a neighbour u of v is taken if r_u <= fanout / degree(v).

    r_u is one uniform number for each node u and hop, the same for all v, so that frontiers share neighbours. The
    expected number of neighbours is min(fanout, degree).
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, frontier: Ints, fanout: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """As `Draw` says; the counts vary round the fan-out."""
        starts = self._graph.indptr[frontier]
        degrees = self._graph.indptr[frontier + 1] - starts
        neighbours = self._graph.indices[positions_of_rows(starts, degrees)].astype(np.int64)
        if fanout == ALL:
            return degrees, neighbours
        rows = np.repeat(np.arange(len(frontier)), degrees)
        kept = _hash_to_unit(neighbours, int(rng.integers(1 << 62))) * degrees[rows] < fanout
        return np.bincount(rows[kept], minlength=len(frontier)), neighbours[kept]


def _hash_to_unit(numbers: Ints, key: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A number in [0, 1) for each whole number and the key: SplitMix64's finaliser (Steele, Lea and Flood 2014)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def check_fanouts(fanouts: tuple[int, ...]) -> None:
    """Raise `UserError` unless there is a fan-out for each hop, above 0 or -1 for all."""
    if not fanouts or any(one < 1 and one != ALL for one in fanouts):
        raise UserError(f"fan-outs {fanouts}: write one number for each hop, above 0, or -1 for all neighbours")
