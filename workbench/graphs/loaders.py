"""Mini-batches for torch.utils.data, PyTorch Geometric and DGL. Imports torch; the other two where they are asked for.

PyTorch Geometric's own NeighborLoader needs pyg-lib or torch-sparse, which are compiled; `pyg_loader` gives its
NodeLoader our sampler instead, which is numpy. Where they are installed, `edge_weights` serves as its `weight_attr`,
and as DGL's `prob`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from workbench.errors import Unavailable, UserError
from workbench.graphs.batches import Batch, MiniBatches, NeighborSampler, Policy
from workbench.graphs.conversion import HOW_TO_GET, edges_of, to_pyg
from workbench.graphs.device.batches import DeviceBatch
from workbench.graphs.graph import Floats, Graph, Ints
from workbench.graphs.neighbors import BiasedDraw
from workbench.graphs.roots import check_share, cut, mixed_order, static_order


class RootSampler(Sampler[list[int]]):  # type: ignore[misc]
    """A batch sampler of root nodes: give it to a DataLoader as `batch_sampler`.

    Each pass is the next epoch, as with torch's RandomSampler; `set_epoch` chooses one, as with DistributedSampler.
    `epoch` is a tensor in shared memory, so that workers see it. mix is the knob of `roots.mixed_order`; `static`
    keeps one order, community by community. Items are nodes: the training nodes of the graph, or `roots`.
    """

    def __init__(
        self,
        graph: Graph,
        mix: float = 1.0,
        *,
        batch: int = 1024,
        static: bool = False,
        seed: int = 0,
        roots: Ints | None = None,
    ) -> None:
        check_share("mix", mix)
        if graph.community is None:
            raise UserError(f"graph {graph.name!r} has no communities: find them with workbench.graphs.relabel")
        if batch < 1:
            raise UserError(f"a batch of {batch} roots: it must have one at least")
        self.community, self.mix, self.batch, self.static, self.seed = graph.community, mix, batch, static, seed
        self.roots = np.flatnonzero(graph.train).astype(np.int64) if roots is None else np.asarray(roots, np.int64)
        self.epoch = torch.full((1,), -1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.epoch[0] = epoch - 1

    def __len__(self) -> int:
        return -(-len(self.roots) // self.batch)

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch += 1
        if self.static:
            order = static_order(self.roots, self.community)
        else:
            rng = np.random.default_rng((self.seed, int(self.epoch)))
            order = mixed_order(self.roots, self.community, self.mix, rng)
        for part in cut(order, self.batch):
            yield part.tolist()


@dataclasses.dataclass(slots=True, kw_only=True)
class Tensors:
    """A mini-batch on a device: input features float32[U, F], CSR arrays int64, labels of the roots int64[ends[0]].

    edges[h] is the number of edges of the first ends[h] rows.
    """

    features: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    labels: torch.Tensor
    ends: tuple[int, ...]
    edges: tuple[int, ...]


def to_tensors(batch: Batch | DeviceBatch, rows: torch.Tensor, labels: torch.Tensor) -> Tensors:
    """The batch with `rows`, the features of its nodes, and its roots' labels; all on the device of the labels."""
    device = labels.device
    roots = torch.as_tensor(batch.nodes[: batch.ends[0]], device=device)
    return Tensors(
        features=rows,
        indptr=torch.as_tensor(batch.indptr, device=device),
        indices=torch.as_tensor(batch.indices, device=device),
        labels=labels[roots],
        ends=batch.ends,
        edges=batch.edges,
    )


class _Collate:
    """Makes the batch of a list of roots; in a worker if the DataLoader has some."""

    def __init__(self, sampler: NeighborSampler, epoch: torch.Tensor) -> None:
        self.sampler, self.epoch = sampler, epoch
        self.features = torch.from_numpy(np.ascontiguousarray(sampler.graph.features))
        self.labels = torch.from_numpy(np.ascontiguousarray(sampler.graph.labels))

    def __call__(self, roots: Sequence[int]) -> Tensors:
        batch = self.sampler.sample(np.asarray(roots, np.int64), int(self.epoch))
        return to_tensors(batch, self.features[torch.from_numpy(batch.nodes)], self.labels)


def torch_loader(graph: Graph, policy: Policy, **options: Any) -> DataLoader[int]:
    """A DataLoader that yields `Tensors`; `options` are its own, such as num_workers. Not for cluster-gcn."""
    made, roots = _parts(graph, policy)
    nodes: Any = range(graph.nodes)
    return DataLoader(nodes, batch_sampler=roots, collate_fn=_Collate(made.sampler, roots.epoch), **options)


def _parts(graph: Graph, policy: Policy) -> tuple[MiniBatches, RootSampler]:
    if policy.name == "cluster-gcn":
        raise UserError("cluster-gcn has no roots that a loader could hand out: iterate over MiniBatches.epoch")
    made = MiniBatches(graph, policy)
    mix = policy.knobs[0] if policy.knobs else 1.0
    return made, RootSampler(
        graph, mix, batch=policy.batch, static=policy.name == "norand", seed=policy.seed, roots=made.roots
    )


def pyg_sampler(sampler: NeighborSampler, epoch: torch.Tensor | None = None) -> Any:
    """Our sampler as PyTorch Geometric's `BaseSampler`, for its NodeLoader: numpy, no compiled sampler needed."""
    try:
        from torch_geometric.sampler import BaseSampler, SamplerOutput
    except ImportError as error:
        raise Unavailable(f"PyTorch Geometric cannot be imported ({error}): {HOW_TO_GET}") from None

    class CommunitySampler(BaseSampler):  # type: ignore[misc]
        def sample_from_edges(self, *_: Any, **__: Any) -> Any:
            raise UserError("only roots that are nodes are sampled: give the loader input_nodes, not edge_label_index")

        def sample_from_nodes(self, index: Any, **_: Any) -> Any:
            number = 0 if epoch is None else int(epoch)
            batch = sampler.sample(index.node.numpy().astype(np.int64), number)
            targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
            hops = np.diff(batch.ends, prepend=0)
            edges = np.diff(batch.indptr[[0, *batch.ends[:-1]]])
            return SamplerOutput(
                node=torch.from_numpy(batch.nodes),
                row=torch.from_numpy(batch.indices),
                col=torch.from_numpy(targets),
                edge=None,
                num_sampled_nodes=hops.tolist(),
                num_sampled_edges=edges.tolist(),
                metadata=(index.input_id, index.time),
            )

    return CommunitySampler()


def pyg_loader(graph: Graph, policy: Policy, **options: Any) -> Any:
    """PyTorch Geometric's NodeLoader of the training nodes: yields Data with x, edge_index, y, n_id and batch_size.

    Its first `batch_size` nodes are the roots; `num_sampled_nodes` and `num_sampled_edges` serve trim_to_layer.
    """
    made, roots = _parts(graph, policy)
    sampler = pyg_sampler(made.sampler, roots.epoch)
    from torch_geometric.loader import NodeLoader

    return NodeLoader(to_pyg(graph), node_sampler=sampler, batch_sampler=roots, **options)


def edge_weights(graph: Graph, p: float) -> Floats:
    """A weight for each edge, p within a community and 1 - p across: float32[E], in the order of the rows.

    A sampler that knows no fallback (DGL's `prob`) finds no neighbour where all weights are 0; there they are 1.
    """
    check_share("p", p)
    if graph.community is None:
        raise UserError(f"graph {graph.name!r} has no communities: find them with workbench.graphs.relabel")
    source, target = edges_of(graph)
    weights = np.where(graph.community[source] == graph.community[target], p, 1 - p)
    total = np.bincount(target, weights, graph.nodes)
    return np.where(total[target] == 0, 1, weights).astype(np.float32)


def dgl_sampler(graph: Graph, p: float, fanouts: Sequence[int], seed: int = 0) -> Any:
    """Our sampler for DGL's DataLoader: yields (input nodes, roots, blocks). Not tested: no DGL was at hand."""
    try:
        import dgl
    except ImportError as error:
        raise Unavailable(f"DGL cannot be imported ({error}); see https://www.dgl.ai/pages/start.html") from None
    if graph.community is None:
        raise UserError(f"graph {graph.name!r} has no communities: find them with workbench.graphs.relabel")
    sampler = NeighborSampler(graph, BiasedDraw(graph, graph.community, p), fanouts, seed)

    class CommunitySampler(dgl.dataloading.Sampler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def sample(self, _: Any, seeds: torch.Tensor) -> Any:
            self.calls += 1
            batch = sampler.sample(seeds.cpu().numpy().astype(np.int64), self.calls)
            blocks = []
            for hop in reversed(range(len(sampler.fanouts))):
                rows = batch.indptr[: batch.ends[hop] + 1]
                targets = np.repeat(np.arange(batch.ends[hop]), np.diff(rows))
                edges = torch.from_numpy(batch.indices[: rows[-1]]), torch.from_numpy(targets)
                sizes = {"num_src_nodes": batch.ends[hop + 1], "num_dst_nodes": batch.ends[hop]}
                blocks.append(dgl.create_block(edges, **sizes))
            return torch.from_numpy(batch.nodes), seeds, blocks

    return CommunitySampler()
