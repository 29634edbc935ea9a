import torch
from torch import nn
from torch.nn import functional as F


class GEGLU(nn.Module):
    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.proj = nn.Linear(dim_in, dim_out * 2)

    def forward(self, x):
        x, gate = self.proj(x).chunk(2, dim=-1)
        return x * F.gelu(gate)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.ff = GEGLU(320, 1280).half()

    def forward(self, hidden):
        return self.ff(hidden)


def get_inputs():
    return [torch.randn(2, 4096, 320).half()]
