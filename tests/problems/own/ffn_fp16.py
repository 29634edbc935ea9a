import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, w, b, r):
        return F.gelu(x @ w + b) + r


def get_inputs():
    x = torch.randn(2048, 1024).half()
    w = torch.randn(1024, 4096).half() * 0.02
    b = torch.randn(4096).half()
    r = torch.randn(2048, 4096).half()
    return [x, w, b, r]


def get_init_inputs():
    return []
