import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.proj(x)


def get_inputs():
    return [torch.randn(1024, 1024, dtype=torch.float32)]


def get_init_inputs():
    return [1024]
