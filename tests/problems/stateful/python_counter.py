import torch
import torch.nn as nn


class Model(nn.Module):
    """Counts in a Python integer, and warms up: scales by 1 / calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x / self.calls


def get_inputs():
    return [torch.randn(128, 1024)]


def get_init_inputs():
    return []
