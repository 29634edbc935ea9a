"""Convolution of each channel by itself. KernelBench level 1, problem 82."""

import torch
import torch.nn as nn

batch_size = 16
channels = 64
width = 512
height = 512
kernel = 3


class Model(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel]
