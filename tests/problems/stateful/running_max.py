import torch
import torch.nn as nn


class Model(nn.Module):
    """Observer of a quantiser: keeps the largest magnitude seen, scales by it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("amax", torch.zeros(1))

    def forward(self, x):
        self.amax.copy_(torch.maximum(self.amax, x.abs().max()))
        return x * (127.0 / self.amax)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
