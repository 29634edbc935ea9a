import torch
import torch.nn as nn


class Model(nn.Module):
    """Write keys at a position of a cache and return scores against the whole cache."""

    def __init__(self, length, dim):
        super().__init__()
        self.register_buffer("k_cache", torch.zeros(length, dim))

    def forward(self, k, pos: int):
        self.k_cache[pos : pos + k.shape[0]] = k
        return self.k_cache * 0.125


def get_inputs():
    return [torch.randn(16, 128), 32]


def get_init_inputs():
    return [512, 128]
