"""Transpose of a matrix."""

import torch

n = 8192


class Model(torch.nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(n, n)]


def get_init_inputs():
    return []
