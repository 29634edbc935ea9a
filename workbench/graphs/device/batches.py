"""Mini-batches made on a torch device: the policies of `workbench.graphs.batches`, with the same laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from workbench.graphs.batches import Batch, MiniBatches, Policy
from workbench.graphs.device.draws import (
    DeviceBiasedDraw,
    DeviceDraw,
    DeviceLaborDraw,
    Rows,
    count_by_row,
    list_positions,
)
from workbench.graphs.graph import Graph, Ints
from workbench.graphs.neighbors import check_fanouts
from workbench.graphs.roots import check_share, static_order

NOT_IN = torch.iinfo(torch.int64).max  # the place of a node that the batch does not have
ORDER = 0  # random numbers of an epoch's order; those of its batch k have stream k + 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceBatch:
    """A `Batch` whose arrays are int64 tensors on a device. `edges[h]` is indptr[ends[h]], on the host."""

    nodes: torch.Tensor
    ends: tuple[int, ...]
    indptr: torch.Tensor
    indices: torch.Tensor
    edges: tuple[int, ...]

    def to_host(self) -> Batch:
        """The same batch as numpy arrays."""
        nodes, indptr, indices = (one.cpu().numpy() for one in (self.nodes, self.indptr, self.indices))
        return Batch(nodes=nodes, ends=self.ends, indptr=indptr, indices=indices)


def seed_stream(generator: torch.Generator, *key: int) -> torch.Generator:
    """The generator, set to the stream of these numbers, none of them negative."""
    return generator.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))


class DeviceSampler:
    """Draws neighbours of roots, hop by hop, as `NeighborSampler` does. A batch depends on its roots and the stream."""

    def __init__(self, nodes: int, draw: DeviceDraw, fanouts: Sequence[int], device: torch.device) -> None:
        self.fanouts = tuple(fanouts)
        check_fanouts(self.fanouts)
        self.draw, self.device = draw, device
        self._place = torch.full((nodes,), NOT_IN, dtype=torch.int64, device=device)

    def sample(self, roots: torch.Tensor, generator: torch.Generator) -> DeviceBatch:
        """The batch of these roots, int64[R] on the device, R > 0. They must be different nodes: that is not checked,
        since the host would have to wait for the answer.
        """
        parts, ends = [roots], [len(roots)]
        edges: list[int] = []
        counts: list[torch.Tensor] = []
        drawn: list[torch.Tensor] = []
        self._place[roots] = torch.arange(len(roots), device=self.device)
        for fanout in self.fanouts:
            taken, neighbours = self.draw(parts[-1], fanout, generator)
            parts.append(self._place_new(neighbours, ends[-1]))
            counts.append(taken)
            drawn.append(self._place[neighbours])
            ends.append(ends[-1] + len(parts[-1]))
            edges.append(len(neighbours) + (edges[-1] if edges else 0))
        nodes = torch.cat(parts)
        self._place[nodes] = NOT_IN
        indptr = torch.nn.functional.pad(torch.cat(counts).cumsum(0), (1, 0))
        return DeviceBatch(nodes=nodes, ends=tuple(ends), indptr=indptr, indices=torch.cat(drawn), edges=tuple(edges))

    def _place_new(self, neighbours: torch.Tensor, known: int) -> torch.Tensor:
        """The neighbours that are new to the batch, each once, after they were given places from `known` on.

        Each neighbour claims a place after all that are taken; the least claim on a node stays, so that the order is
        that of the draws on any device.
        """
        claims = torch.arange(known, known + len(neighbours), device=self.device)
        self._place.scatter_reduce_(0, neighbours, claims, "amin")
        fresh = neighbours[self._place[neighbours] == claims]
        self._place[fresh] = torch.arange(known, known + len(fresh), device=self.device)
        return fresh


class DeviceRoots:
    """The order of an epoch's roots by `mix`, as `roots.mixed_order`, on a device."""

    def __init__(self, roots: Ints, community: Ints, mix: float, device: torch.device) -> None:
        check_share("mix", mix)
        found, whose = np.unique(community[roots], return_inverse=True)
        self.count, self.size = len(found), max(1, round(mix * len(found)))
        self.roots, self._whose = (torch.from_numpy(one.astype(np.int64)).to(device) for one in (roots, whose))

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """All roots: int64[R]."""
        device = self.roots.device
        shuffled = torch.randperm(len(self.roots), generator=generator, device=device)
        if self.size == self.count:
            return self.roots[shuffled]
        block = torch.randperm(self.count, generator=generator, device=device) // self.size
        return self.roots[shuffled[block[self._whose[shuffled]].argsort(stable=True)]]


class DeviceMiniBatches:
    """The mini-batches of `batches.MiniBatches`, made on a device. The same laws, but other random numbers; those of a
    CPU and of a GPU differ too. One device gives the same batches for a seed and an epoch.
    """

    def __init__(self, made: MiniBatches, device: torch.device) -> None:
        self.graph, self.policy, self.device = made.graph, made.policy, device
        self._generator = torch.Generator(device)
        policy, community = self.policy, made.community
        mix, p = policy.knobs or (1.0, policy.p)
        self._clusters = self._static = None
        if policy.name == "cluster-gcn":
            self._clusters = _Clusters(self.graph, community, policy, len(made.roots), device)
            return
        if policy.name == "norand":
            self._static = torch.from_numpy(static_order(made.roots, community)).to(device)
        self._roots = DeviceRoots(made.roots, community, mix, device)
        is_labor = policy.name == "labor"
        draw = DeviceLaborDraw(self.graph, device) if is_labor else DeviceBiasedDraw(self.graph, community, p, device)
        self.sampler = DeviceSampler(self.graph.nodes, draw, policy.fanouts, device)

    def epoch(self, number: int) -> Iterator[DeviceBatch]:
        """The mini-batches of an epoch; the same number gives the same batches."""
        stream = seed_stream(self._generator, self.policy.seed, number, ORDER)
        if self._clusters is not None:
            yield from self._clusters.epoch(stream)
            return
        order = self._roots.order(stream) if self._static is None else self._static
        for at, roots in enumerate(order.split(self.policy.batch)):
            yield self.sampler.sample(roots, seed_stream(self._generator, self.policy.seed, number, at + 1))


class _Clusters:
    """Whole communities, drawn without replacement, with all edges among their nodes, training nodes first."""

    def __init__(self, graph: Graph, community: Ints, policy: Policy, roots: int, device: torch.device) -> None:
        self._rows = Rows(graph.indptr, graph.indices, device)
        self._community = torch.from_numpy(community).to(device)
        self._is_root = torch.from_numpy(graph.train).to(device)
        self._place = torch.full((graph.nodes,), NOT_IN, dtype=torch.int64, device=device)
        self._count = int(community.max()) + 1
        self._many = max(1, round(policy.batch * self._count / roots))
        self._hops = len(policy.fanouts)

    def epoch(self, generator: torch.Generator) -> Iterator[DeviceBatch]:
        device = self._place.device
        for chosen in torch.randperm(self._count, generator=generator, device=device).split(self._many):
            batch = self._induce(chosen)
            if batch.ends[0]:
                yield batch

    def _induce(self, chosen: torch.Tensor) -> DeviceBatch:
        is_chosen = torch.zeros(self._count, dtype=torch.bool, device=chosen.device)
        is_chosen[chosen] = True
        is_inside = is_chosen[self._community]
        nodes, others = (torch.nonzero(is_inside & one).flatten() for one in (self._is_root, ~self._is_root))
        roots, nodes = len(nodes), torch.cat((nodes, others))
        self._place[nodes] = torch.arange(len(nodes), device=chosen.device)
        starts, counts = self._rows.extents(nodes)
        places = self._place[self._rows.indices[list_positions(starts, counts, int(counts.sum()))]]
        self._place[nodes] = NOT_IN
        is_kept = places != NOT_IN
        indptr = torch.nn.functional.pad(count_by_row(is_kept, counts).cumsum(0), (1, 0))
        ends = (roots, *[len(nodes)] * self._hops)
        edges = indptr[torch.tensor(ends[:-1], device=chosen.device)].tolist()
        return DeviceBatch(nodes=nodes, ends=ends, indptr=indptr, indices=places[is_kept], edges=tuple(edges))
