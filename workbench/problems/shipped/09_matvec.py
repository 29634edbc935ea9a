"""Matrix times vector: every matrix element is used once, so memory limits it."""

import torch
import torch.nn as nn

m = 8192
k = 65536


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, x):
        return torch.matmul(a, x)


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, 1)]


def get_init_inputs():
    return []
