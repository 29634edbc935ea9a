"""Mean over the neighbours of graph nodes, in compressed rows: `mix` and `inside` set how random their order is.

Nodes are numbered by community. A neighbour is of its row's community with probability `inside`, else any node. With
mix=0 rows come community by community, with mix=1 in random order: two knobs of the order in which data meets a cache.
"""

import torch
import torch.nn as nn

nodes = 262144
rows = 65536
degree = 16
columns = 128
communities = 12
inside = 0.9
mix = 1.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, indptr, indices):
        return torch.segment_reduce(x[indices], "mean", offsets=indptr, initial=0)


def get_inputs():
    own = torch.randint(0, communities, (rows,))
    own = own[torch.argsort(own + mix * communities * torch.rand(rows))]
    counts = torch.randint(0, 2 * degree + 1, (rows,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    edges = int(indptr[-1])
    community = torch.repeat_interleave(own, counts)
    near = community * nodes // communities + torch.randint(0, max(nodes // communities, 1), (edges,))
    indices = torch.where(torch.rand(edges) < inside, near, torch.randint(0, nodes, (edges,)))
    return [torch.randn(nodes, columns), indptr, indices.clamp(max=nodes - 1)]


def get_init_inputs():
    return []
