"""Matrix product of two transposed operands."""

import torch
import torch.nn as nn

m = 2048
k = 8192
n = 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a.T, b.T)


def get_inputs():
    return [torch.randn(k, m), torch.randn(n, k)]


def get_init_inputs():
    return []
