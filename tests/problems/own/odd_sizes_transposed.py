import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat([x.permute(0, 2, 1).contiguous() @ y, y], dim=1)


def get_inputs():
    x = torch.randn(7, 1000, 333).transpose(1, 2)
    y = torch.randn(7, 333, 64)
    return [x, y]


def get_init_inputs():
    return []
