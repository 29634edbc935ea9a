import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        s = x.abs().amax(dim=-1, keepdim=True) / 448.0
        q = (x / s).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return q, s


def get_inputs():
    return [torch.randn(1024, 4096)]
