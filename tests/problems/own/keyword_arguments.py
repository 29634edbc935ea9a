import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, scale=2.0, bias=None):
        x = x * scale
        return x if bias is None else x + bias


def get_inputs():
    return {"x": torch.randn(1024, 2048), "bias": torch.randn(2048)}


def get_init_inputs():
    return {}
