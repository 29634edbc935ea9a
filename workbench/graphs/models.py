"""GraphSAGE and GAT in plain torch, on the CSR arrays of a mini-batch or on a whole graph. Imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

ModelName = Literal["sage", "gat"]
MODELS: tuple[ModelName, ...] = ("sage", "gat")
CHUNK_EDGES = 1 << 21  # of a whole graph that are aggregated at once, which bounds the memory


class SageLayer(nn.Module):  # type: ignore[misc]
    """GraphSAGE with mean aggregation (Hamilton, Ying and Leskovec 2017): W1 x_v + W2 mean(x_u)."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.own, self.near = nn.Linear(width, out), nn.Linear(width, out, bias=False)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor
    ) -> torch.Tensor:
        """float32[T, out] from source float32[S, width], target float32[T, width] and the CSR arrays of T rows."""
        counts = indptr.diff()
        rows = torch.repeat_interleave(counts, output_size=len(indices))
        total = torch.zeros_like(target).index_add_(0, rows, source[indices])
        return self.own(target) + self.near(total / counts.clamp(min=1).unsqueeze(1))


class GatLayer(nn.Module):  # type: ignore[misc]
    """Graph attention (Veličković and others 2018) with a loop at each node; heads lie side by side."""

    def __init__(self, width: int, out: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, -(-out // heads)
        self.project = nn.Linear(width, heads * self.size, bias=False)
        self.score = nn.Parameter(torch.empty(2, heads, self.size))
        nn.init.xavier_uniform_(self.score)
        self.finish = nn.Linear(heads * self.size, out)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor
    ) -> torch.Tensor:
        """float32[T, out] from source float32[S, width], target float32[T, width] and the CSR arrays of T rows."""
        count = len(target)
        far, near = (self.project(part).view(-1, self.heads, self.size) for part in (source, target))
        rows = torch.repeat_interleave(indptr.diff(), output_size=len(indices))
        of_target = (near * self.score[0]).sum(-1)
        logits = (far * self.score[1]).sum(-1)[indices] + of_target[rows]
        loops = (near * self.score[1]).sum(-1) + of_target
        logits, loops = (nn.functional.leaky_relu(part, 0.2) for part in (logits, loops))
        with torch.no_grad():  # the largest of a row leaves the softmax as it is
            highest = loops.scatter_reduce(0, rows.unsqueeze(1).expand_as(logits), logits, "amax")
        weights, own = torch.exp(logits - highest[rows]), torch.exp(loops - highest)
        total = own.index_add(0, rows, weights)
        mixed = (own.unsqueeze(-1) * near).index_add(0, rows, weights.unsqueeze(-1) * far[indices])
        return self.finish((mixed / total.unsqueeze(-1)).reshape(count, -1))


class GraphModel(nn.Module):  # type: ignore[misc]
    """Layers of one kind with ReLU and dropout between them."""

    def __init__(
        self, kind: ModelName, width: int, hidden: int, classes: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = [width, *[hidden] * (layers - 1), classes]
        pairs = list(itertools.pairwise(sizes))
        self.layers = nn.ModuleList(SageLayer(*pair) if kind == "sage" else GatLayer(*pair, heads) for pair in pairs)
        self.dropout = dropout

    def forward(
        self,
        features: torch.Tensor,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        ends: Sequence[int],
        edges: Sequence[int],
    ) -> torch.Tensor:
        """Logits of the roots, float32[ends[0], classes]; edges[h] is indptr[ends[h]], on the host."""
        found = features
        for number, layer in enumerate(self.layers):
            hop = len(self.layers) - 1 - number
            count = ends[hop]
            found = layer(found, found[:count], indptr[: count + 1], indices[: edges[hop]])
            found = self._between(found, number)
        return found

    def _between(self, found: torch.Tensor, number: int) -> torch.Tensor:
        if number == len(self.layers) - 1:
            return found
        return nn.functional.dropout(torch.relu(found), self.dropout, self.training)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def predict_all(self, features: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Logits of all nodes with all their neighbours, float32[N, classes]: nothing is sampled."""
        self.eval()
        starts = _chunks(indptr)
        found = features
        for number, layer in enumerate(self.layers):
            parts = []
            for first, last in itertools.pairwise(starts):
                rows = indptr[first : last + 1]
                begin, end = int(rows[0]), int(rows[-1])
                parts.append(layer(found, found[first:last], rows - begin, indices[begin:end]))
            found = self._between(torch.cat(parts), number)
        return found


def _chunks(indptr: torch.Tensor) -> list[int]:
    """Bounds of runs of rows with about CHUNK_EDGES edges each, the last one N."""
    marks = torch.tensor([*range(CHUNK_EDGES, int(indptr[-1]), CHUNK_EDGES)], dtype=torch.int64, device=indptr.device)
    inner = torch.searchsorted(indptr, marks).unique().tolist()
    count = len(indptr) - 1
    return [0, *(one for one in inner if 0 < one < count), count]
