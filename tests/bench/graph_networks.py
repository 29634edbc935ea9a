"""Networks to compare SymGraph with, in torch alone: a GIN, and a network that explains itself by weights of edges.

GIN: Xu et al., 2019; sums over neighbours, a two-layer perceptron, batch normalisation. The self-explaining one follows
GSAT (Miao et al., 2022): a first GIN gives each edge a weight, which is drawn from a relaxed Bernoulli distribution in
training and held near a prior by its information; a second pass over the weighted edges predicts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.structure.graph import Graph

HIDDEN, LAYERS, RATE, BATCH = 64, 3, 0.01, 128
PRIOR, INFORMATION = 0.7, 0.1


@dataclass
class Batch:
    """Nodes, edges in both directions, and the graph of each node."""

    nodes: Tensor
    edges: Tensor
    owners: Tensor
    graphs: int


def join(graphs: Sequence[Graph]) -> Batch:
    """A batch of graphs. Nodes have ten ones as features, as in the published sets."""
    starts = np.cumsum([0, *(graph.size for graph in graphs)])
    edges = np.concatenate([graph.edges + first for graph, first in zip(graphs, starts, strict=False)])
    both = torch.from_numpy(np.concatenate([edges, edges[:, ::-1]]).T.copy())
    owners = torch.from_numpy(np.repeat(np.arange(len(graphs)), np.diff(starts)))
    return Batch(torch.ones(int(starts[-1]), 10), both, owners, len(graphs))


class Gin(nn.Module):
    """Layers of sums over neighbours; predicts graphs, or nodes."""

    def __init__(self, classes: int, of_nodes: bool) -> None:
        super().__init__()
        widths = [10, *[HIDDEN] * LAYERS]
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(one, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
            )
            for one in widths[:-1]
        )
        self.out, self.of_nodes = nn.Linear(HIDDEN * LAYERS if of_nodes else HIDDEN, classes), of_nodes

    def embed(self, batch: Batch, weights: Tensor | None = None) -> list[Tensor]:
        """The nodes' values after each layer."""
        values, found = batch.nodes, []
        source, target = batch.edges
        for layer in self.layers:
            sent = values[source] if weights is None else values[source] * weights[:, None]
            values = layer(values + torch.zeros_like(values).index_add(0, target, sent))
            found.append(values)
        return found

    def forward(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        found = self.embed(batch, weights)
        if self.of_nodes:
            return self.out(torch.cat(found, dim=1))
        pooled = torch.zeros(batch.graphs, HIDDEN).index_add(0, batch.owners, found[-1])
        return self.out(pooled)

    def loss(self, batch: Batch, labels: Tensor, used: Tensor | slice) -> Tensor:
        return functional.cross_entropy(self(batch)[used], labels)


class SelfExplaining(Gin):
    """A GIN on edges whose weights it predicts itself."""

    def __init__(self, classes: int, of_nodes: bool) -> None:
        super().__init__(classes, of_nodes)
        self.weigh = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def logits(self, batch: Batch) -> Tensor:
        last = self.embed(batch)[-1]
        return self.weigh(torch.cat([last[batch.edges[0]], last[batch.edges[1]]], dim=1))[:, 0]

    def forward(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        return super().forward(batch, torch.sigmoid(self.logits(batch)) if weights is None else weights)

    def loss(self, batch: Batch, labels: Tensor, used: Tensor | slice) -> Tensor:
        logits = self.logits(batch)
        noise = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        drawn = torch.sigmoid(logits + torch.log(noise) - torch.log1p(-noise))
        share = torch.sigmoid(logits).clamp(1e-6, 1 - 1e-6)
        information = share * torch.log(share / PRIOR) + (1 - share) * torch.log((1 - share) / (1 - PRIOR))
        predicted = super().forward(batch, drawn)
        return functional.cross_entropy(predicted[used], labels) + INFORMATION * information.mean()


def train_on_graphs(
    kind: type[Gin], graphs: Sequence[Graph], labels: np.ndarray, epochs: int, seed: int
) -> tuple[Gin, float]:
    """The trained network and the seconds of the processor that it took."""
    torch.manual_seed(seed)
    start = time.process_time()
    batches = [
        (join([graphs[i] for i in part]), torch.from_numpy(labels[part]))
        for part in np.array_split(np.random.default_rng(seed).permutation(len(graphs)), -(-len(graphs) // BATCH))
    ]
    model = kind(int(labels.max()) + 1, of_nodes=False)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(epochs):
        for batch, wanted in batches:
            optimiser.zero_grad()
            model.loss(batch, wanted, slice(None)).backward()
            optimiser.step()
    return model.eval(), time.process_time() - start


def train_on_nodes(
    kind: type[Gin], graph: Graph, labels: np.ndarray, used: np.ndarray, epochs: int, seed: int
) -> tuple[Gin, float]:
    """The trained network and the seconds of the processor that it took."""
    torch.manual_seed(seed)
    start = time.process_time()
    batch, wanted, rows = join([graph]), torch.from_numpy(labels[used]), torch.from_numpy(used)
    model = kind(int(labels.max()) + 1, of_nodes=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(epochs):
        optimiser.zero_grad()
        model.loss(batch, wanted, rows).backward()
        optimiser.step()
    return model.eval(), time.process_time() - start


def predict(model: Gin, graphs: Sequence[Graph]) -> np.ndarray:
    """The most probable class of each graph, or of each node of the graphs."""
    with torch.no_grad():
        return model(join(graphs)).argmax(dim=1).numpy()
