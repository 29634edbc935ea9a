import torch
from torch import nn


class Model(nn.Module):
    """Sums a list of feature maps."""

    def forward(self, maps, scale):
        total = maps[0]
        for one in maps[1:]:
            total = total + one
        return total * scale


def get_inputs():
    return [[torch.randn(512, 3072), torch.randn(512, 3072), torch.randn(512, 3072)], torch.randn(3072)]
