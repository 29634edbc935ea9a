import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, heads=8, length=1024, dim=64):
        super().__init__()
        self.register_buffer("cache", torch.zeros(heads, length, dim))

    def forward(self, keys):
        self.cache[:, : keys.shape[1]] = keys * 0.125


def get_inputs():
    return [torch.randn(8, 256, 64)]
