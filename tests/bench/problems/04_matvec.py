"""Matrix times vector, with very long rows. KernelBench level 1, problem 4."""

import torch
import torch.nn as nn

m = 2048
k = 1048576


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(m, k), torch.rand(k, 1)]


def get_init_inputs():
    return []
