"""GraphSAGE's aggregation in one mini-batch: the mean of the features of each node's drawn neighbours.

mix and p say in which order the graph's nodes come (cutegen docs graphs): from chance (1, 0.5) to structure (0, 1).
"""

import torch
import torch.nn as nn

from workbench.graphs.sampled_rows import sample_rows

nodes = 60000
degree = 18
features = 128
batch_size = 1024
fanout = 10
mix = 1.0
p = 0.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, indptr, indices):
        return torch.segment_reduce(x[indices], "mean", offsets=indptr, initial=0)


def get_inputs():
    indptr, indices = sample_rows(nodes, degree, batch_size, fanout, mix, p)
    return [torch.randn(nodes, features), indptr, indices]


def get_init_inputs():
    return []
