import torch
import torch.nn as nn


class Model(nn.Module):
    """Sum of all inputs so far; the buffer is assigned, not written in place."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("total", torch.zeros(dim))

    def forward(self, x):
        self.total = self.total + x.sum(dim=0)
        return self.total


def get_inputs():
    return [torch.randn(512, 768)]


def get_init_inputs():
    return [768]
