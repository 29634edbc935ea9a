"""A tall matrix times a wide one: little to multiply, a large result. KernelBench level 1, problem 9."""

import torch
import torch.nn as nn

m = 32768
n = 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(m, n), torch.rand(n, m)]


def get_init_inputs():
    return []
