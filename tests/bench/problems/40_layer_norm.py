"""Layer normalisation over all axes but the first. KernelBench level 1, problem 40."""

import torch
import torch.nn as nn

batch_size = 16
features = 64
height = 256
width = 256


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch_size, features, height, width)]


def get_init_inputs():
    return [(features, height, width)]
