"""The rows that a GraphSAGE layer aggregates in one mini-batch, as inputs of a problem."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import relabel
from workbench.graphs.generators import COMMUNITY_NODES, Nodes, stochastic_block_model
from workbench.graphs.graph import Graph, Ints

if TYPE_CHECKING:
    import torch

LEAST_COMMUNITIES = 16  # also of a graph that was shrunk for the emulator, so that the knobs still act


@functools.lru_cache(maxsize=4)
def _make_graph(nodes: int, degree: int) -> Graph:
    given = Nodes(features=1, classes=1, train=1.0, val=0.0)
    communities = max(1, nodes // COMMUNITY_NODES, min(LEAST_COMMUNITIES, nodes // 8))
    return relabel(stochastic_block_model(nodes, communities, degree, given=given), "given").graph


@functools.lru_cache(maxsize=64)
def _sample(nodes: int, degree: int, batch: int, fanout: int, mix: float, p: float) -> tuple[Ints, Ints]:
    policy = Policy(mix=mix, p=p, batch=batch, fanouts=(fanout, fanout))
    first = next(iter(MiniBatches(_make_graph(nodes, degree), policy).epoch(0)))
    return first.indptr, first.reads()


def sample_rows(
    nodes: int, degree: int, batch: int, fanout: int, mix: float, p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(indptr int64[rows + 1], indices int64[edges]): what the first layer of a mini-batch reads of all `nodes` rows.

    The graph is a block model with contiguous communities of about 200 nodes, or 16 smaller ones where nodes are few.
    Every node is a training node. `batch` roots with two hops of `fanout` neighbours; mix and p are the knobs of
    `batches.Policy`. The same arguments give the same rows.
    """
    import torch

    indptr, indices = _sample(nodes, degree, batch, fanout, mix, p)
    return torch.tensor(indptr.tolist()), torch.tensor(indices.tolist())  # lists, for tensors without memory too
