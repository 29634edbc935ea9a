import torch
from torch import nn

from newcomer_layers.layers import ScaleNorm, SquaredReLU


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = ScaleNorm(640)
        self.up = nn.Linear(640, 1600, bias=False)
        self.act = SquaredReLU()

    def forward(self, x):
        return self.act(self.up(self.pre(x)))


def get_inputs():
    return [torch.randn(1000, 640)]
