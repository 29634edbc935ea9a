"""Mini-batches: roots, the neighbours drawn for them hop by hop, and the policies that make an epoch of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from workbench.errors import UserError
from workbench.graphs.graph import Graph, Ints, positions_of_rows
from workbench.graphs.neighbors import BiasedDraw, Draw, LaborDraw, check_fanouts
from workbench.graphs.roots import check_share, cut, mixed_order, static_order
from workbench.records import record

PolicyName = Literal["comm-rand", "uniform", "norand", "labor", "cluster-gcn"]
POLICIES: tuple[PolicyName, ...] = ("comm-rand", "uniform", "norand", "labor", "cluster-gcn")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A sampled subgraph. `nodes` (int64[U]) are its input rows: the roots, then the new nodes of each hop.

    `ends[h]` nodes are within h hops of the roots. Row v of the CSR arrays has the neighbours drawn for nodes[v] as
    positions in `nodes`; all nodes but those of the last hop have a row. Of L layers, layer l (from 1) computes the
    first ends[L - l] nodes. `sample_s` is the time that numpy took to make it.
    """

    nodes: Ints
    ends: tuple[int, ...]
    indptr: Ints
    indices: Ints
    sample_s: float = 0.0

    @property
    def roots(self) -> Ints:
        """The nodes whose labels the batch trains on."""
        return np.asarray(self.nodes[: self.ends[0]], np.int64)

    @property
    def edges(self) -> tuple[int, ...]:
        """The number of edges of the first ends[h] rows, for each hop h."""
        return tuple(self.indptr[list(self.ends[:-1])].tolist())

    def reads(self) -> Ints:
        """The nodes whose features an aggregation reads, row by row as the CSR arrays have them: int64[edges]."""
        return np.asarray(self.nodes[self.indices], np.int64)


class NeighborSampler:
    """Draws neighbours of roots, hop by hop. A node is expanded once, in the hop after the one that found it.

    That is what PyTorch Geometric's NeighborSampler does. A batch depends on the seed, the epoch and its roots only.
    """

    def __init__(self, graph: Graph, draw: Draw, fanouts: Sequence[int], seed: int = 0) -> None:
        self.fanouts = tuple(fanouts)
        check_fanouts(self.fanouts)
        self.graph, self.draw, self.seed = graph, draw, seed
        self._place = np.full(graph.nodes, -1, np.int64)  # position of a node in the batch that is being made

    def sample(self, roots: Ints, epoch: int = 0) -> Batch:
        """The batch of these roots. Raises `UserError` if one is named twice or is no node."""
        start = time.perf_counter()
        if not len(roots):
            raise UserError("a batch needs a root")
        # the roots of an epoch are disjoint, so the first one tells its batches apart
        rng = np.random.default_rng((self.seed, epoch, int(roots[0])))
        parts, ends = [roots], [len(roots)]
        counts: list[Ints] = []
        drawn: list[Ints] = []
        try:
            self._place[roots] = np.arange(len(roots))
            if not np.array_equal(self._place[roots], np.arange(len(roots))):
                raise UserError("a batch names a root twice")
            for fanout in self.fanouts:
                taken, neighbours = self.draw(parts[-1], fanout, rng)
                fresh = self._place_new(neighbours, ends[-1])
                counts.append(taken)
                drawn.append(self._place[neighbours])
                parts.append(fresh)
                ends.append(ends[-1] + len(fresh))
        except IndexError:
            raise UserError(f"roots must be nodes, 0 to {self.graph.nodes - 1}") from None
        finally:
            for part in parts:
                self._place[part[part < self.graph.nodes]] = -1
        return Batch(
            nodes=np.concatenate(parts),
            ends=tuple(ends),
            indptr=np.concatenate(([0], np.cumsum(np.concatenate(counts)))),
            indices=np.concatenate(drawn),
            sample_s=time.perf_counter() - start,
        )

    def _place_new(self, neighbours: Ints, known: int) -> Ints:
        """The neighbours that are new to the batch, each once, after they were given places from `known` on."""
        fresh = neighbours[self._place[neighbours] < 0]
        self._place[fresh] = np.arange(len(fresh))  # the last of equals stays
        once: Ints = fresh[self._place[fresh] == np.arange(len(fresh))]
        self._place[once] = np.arange(known, known + len(once))
        return once


@record
class Policy:
    """How mini-batches are made. `mix` and `p` are the two knobs of COMM-RAND.

    comm-rand    roots by `mixed_order(mix)`, neighbours by `BiasedDraw(p)`
    uniform      the same with mix=1 and p=0.5: the stock shuffle and the stock sampler
    norand       roots community by community in a fixed order, neighbours by `BiasedDraw(p)`
    labor        roots as uniform, neighbours by `LaborDraw`
    cluster-gcn  whole communities, drawn without replacement, with all edges among them (Chiang and others, KDD 2019);
                 our communities stand in for METIS's parts, as many for a batch as hold about `batch` roots
    """

    name: PolicyName = "comm-rand"
    mix: float = 1.0
    p: float = 0.5
    fanouts: tuple[int, ...] = (10, 10)
    batch: int = 1024
    seed: int = 0

    def check(self) -> None:
        """Raise `UserError` for a value that no policy takes."""
        if self.name not in POLICIES:
            raise UserError(f"no policy {self.name!r}; there are: {', '.join(POLICIES)}")
        check_share("mix", self.mix)
        check_share("p", self.p)
        check_fanouts(self.fanouts)
        if self.batch < 1:
            raise UserError(f"a batch of {self.batch} roots: it must have one at least")
        if self.seed < 0:
            raise UserError(f"seed={self.seed}: it must not be negative")

    @property
    def knobs(self) -> tuple[float, float] | None:
        """(mix, p) as they are used; None for a policy without them."""
        return {"comm-rand": (self.mix, self.p), "uniform": (1.0, 0.5)}.get(self.name)


class MiniBatches:
    """The mini-batches of a graph's training nodes by a policy. Communities are the graph's own.

    Raises `UserError` if the graph has no communities or no training nodes.
    """

    def __init__(self, graph: Graph, policy: Policy) -> None:
        policy.check()
        if graph.community is None:
            raise UserError(f"graph {graph.name!r} has no communities: find them with workbench.graphs.relabel")
        self.graph, self.policy = graph, policy
        self.community = graph.community
        self.roots: Ints = np.flatnonzero(graph.train).astype(np.int64)
        if not len(self.roots):
            raise UserError(f"graph {graph.name!r} has no training nodes")
        p = (policy.knobs or (1.0, policy.p))[1]
        draw = LaborDraw(graph) if policy.name == "labor" else BiasedDraw(graph, self.community, p)
        self.sampler = NeighborSampler(graph, draw, policy.fanouts, policy.seed)

    def order(self, epoch: int) -> Ints:
        """All roots in the order of an epoch: int64[R]."""
        if self.policy.name == "norand":
            return static_order(self.roots, self.community)
        mix = (self.policy.knobs or (1.0, 0.5))[0]
        return mixed_order(self.roots, self.community, mix, np.random.default_rng((self.policy.seed, epoch)))

    def epoch(self, number: int) -> Iterator[Batch]:
        """The mini-batches of an epoch; the same number gives the same batches."""
        if self.policy.name == "cluster-gcn":
            yield from self._clusters(number)
            return
        for roots in cut(self.order(number), self.policy.batch):
            yield self.sampler.sample(roots, number)

    def _clusters(self, number: int) -> Iterator[Batch]:
        count = int(self.community.max()) + 1
        rng = np.random.default_rng((self.policy.seed, number))
        many = max(1, round(self.policy.batch * count / len(self.roots)))
        for chosen in cut(rng.permutation(count), many):
            batch = _induced(self.graph, self.community, chosen, len(self.policy.fanouts))
            if batch.ends[0]:
                yield batch


def _induced(graph: Graph, community: Ints, chosen: Ints, hops: int) -> Batch:
    """The batch of whole communities with all edges among their nodes, training nodes first."""
    start = time.perf_counter()
    inside = np.flatnonzero(np.isin(community, chosen))
    nodes = np.concatenate((inside[graph.train[inside]], inside[~graph.train[inside]]))
    place = np.full(graph.nodes, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    degrees = graph.indptr[nodes + 1] - graph.indptr[nodes]
    neighbours = place[graph.indices[positions_of_rows(graph.indptr[nodes], degrees)]]
    rows = np.repeat(np.arange(len(nodes)), degrees)[neighbours >= 0]
    return Batch(
        nodes=nodes,
        ends=(int(graph.train[inside].sum()), *[len(nodes)] * hops),
        indptr=np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(nodes))))),
        indices=neighbours[neighbours >= 0],
        sample_s=time.perf_counter() - start,
    )
