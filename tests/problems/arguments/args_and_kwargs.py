import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, mask=None, *, eps=1e-6):
        z = (x - y) / (y.abs() + eps)
        return z if mask is None else z * mask


def get_inputs():
    return [torch.randn(2048, 1000), torch.randn(2048, 1000)], {"mask": torch.rand(2048, 1), "eps": 1e-3}
