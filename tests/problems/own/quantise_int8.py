import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, w, scale):
        return x @ (w.to(torch.bfloat16) * scale)


def get_inputs():
    B, K, N = 256, 4096, 4096
    x = torch.randn(B, K, dtype=torch.bfloat16)
    w = torch.randint(-128, 128, (K, N), dtype=torch.int8)
    scale = torch.rand(N, dtype=torch.bfloat16) / 128
    return [x, w, scale]


def get_init_inputs():
    return []
