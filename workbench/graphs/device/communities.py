"""Communities found by torch where the edges live: a parallel Louvain method.

Nodes move to the neighbouring community with the highest gain of modularity, a random half of them at a time, until few
move; communities become nodes, and so on (Blondel and others 2008; moves of many nodes at a time as in Lu,
Halappanavar and Kalyanaraman 2015). Inferred here: half of the nodes a round, at most `ROUNDS` rounds a level, and a
level ends when fewer than `FEW` of the nodes moved.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from workbench.graphs.conversion import edges_of
from workbench.graphs.graph import Graph, Ints

ROUNDS, FEW = 24, 0.002


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Links:
    """A weighted, symmetric graph: row and col int64[E], weight float64[E], sorted by row; `nodes` of them."""

    nodes: int
    row: torch.Tensor
    col: torch.Tensor
    weight: torch.Tensor

    def join(self, group: torch.Tensor, count: int) -> _Links:
        """The graph of groups: parallel edges are added, edges inside a group stay as a loop."""
        key, place = torch.unique(group[self.row] * count + group[self.col], return_inverse=True)
        weight = torch.zeros(len(key), dtype=torch.float64, device=key.device).index_add_(0, place, self.weight)
        return _Links(nodes=count, row=key // count, col=key % count, weight=weight)


def louvain_on_device(graph: Graph, device: torch.device | str, seed: int = 0) -> Ints:
    """Communities by a parallel Louvain method on a torch device: int64[N], numbered from 0.

    Edges count in both directions. On a GPU, additions come in any order, so that ties may fall differently.
    """
    source, target = (torch.from_numpy(np.ascontiguousarray(one)).long().to(device) for one in edges_of(graph))
    both = torch.cat((source * graph.nodes + target, target * graph.nodes + source))
    key, weight = torch.unique(both, return_counts=True)
    links = _Links(nodes=graph.nodes, row=key // graph.nodes, col=key % graph.nodes, weight=weight.double())
    generator = torch.Generator(device=device).manual_seed(seed)
    community = torch.arange(graph.nodes, device=device)
    while True:
        found, count = _compact(_move_nodes(links, generator))
        community = found[community]
        if count == links.nodes:
            return np.asarray(community.cpu().numpy(), np.int64)
        links = links.join(found, count)


def _compact(group: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The groups numbered from 0, and how many they are."""
    names, place = torch.unique(group, return_inverse=True)
    return place, len(names)


def _move_nodes(links: _Links, generator: torch.Generator) -> torch.Tensor:
    """The group of each node after the rounds of one level: int64[nodes]."""
    device = links.row.device
    group = torch.arange(links.nodes, device=device)
    strength = torch.zeros(links.nodes, dtype=torch.float64, device=device).index_add_(0, links.row, links.weight)
    for _ in range(ROUNDS):
        moves = torch.rand(links.nodes, generator=generator, device=device) < 0.5
        better = _choose_groups(links, group, strength)
        changed = moves & (better != group)
        group = torch.where(changed, better, group)
        if int(changed.sum()) < FEW * links.nodes:
            break
    return group


def _choose_groups(links: _Links, group: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    """The group in which each node adds most to the modularity; its own on a tie: int64[nodes]."""
    total = float(links.weight.sum())
    size = torch.zeros_like(strength).index_add_(0, group, strength)
    outward = links.row != links.col
    own = torch.arange(links.nodes, device=group.device) * links.nodes + group
    key = torch.cat((links.row[outward] * links.nodes + group[links.col[outward]], own))
    weight = torch.cat((links.weight[outward], torch.zeros_like(strength)))
    pairs, place = torch.unique(key, return_inverse=True)
    shared = torch.zeros(len(pairs), dtype=torch.float64, device=key.device).index_add_(0, place, weight)
    node, other = pairs // links.nodes, pairs % links.nodes
    stays = other == group[node]
    around = size[other] - torch.where(stays, strength[node], 0.0)  # without the node itself
    gain = shared - strength[node] * around / total
    gain = torch.where(stays, gain + 1e-9 * strength[node], gain)
    best = torch.full_like(strength, -torch.inf).scatter_reduce_(0, node, gain, "amax")
    chosen = torch.full_like(group, links.nodes)
    is_best = gain == best[node]
    return chosen.scatter_reduce_(0, node[is_best], other[is_best], "amin")
