import torch
from torch import nn

from .constants import EPS


class ScaleNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x):
        n = torch.norm(x, dim=-1, keepdim=True).clamp(min=EPS)
        return x / n * self.g


class SquaredReLU(nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2
