import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Model(nn.Module):
    def forward(self, q, k, cos, sin):
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def get_inputs():
    q = torch.randn(2, 32, 1024, 128, dtype=torch.bfloat16)
    k = torch.randn(2, 8, 1024, 128, dtype=torch.bfloat16)
    return [q, k, torch.randn(1024, 128, dtype=torch.bfloat16), torch.randn(1024, 128, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
