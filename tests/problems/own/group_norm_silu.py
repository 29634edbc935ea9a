import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(8, 320, 64, 64)]


def get_init_inputs():
    return [32, 320]
