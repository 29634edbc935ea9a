"""Transposed convolution of cubes. KernelBench level 1, problem 61."""

import torch
import torch.nn as nn

batch_size = 8
channels_in = 48
channels_out = 48
depth = 64
height = 64
width = 64
kernel = 3


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel):
        super().__init__()
        self.conv = nn.ConvTranspose3d(channels_in, channels_out, kernel, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels_in, depth, height, width)]


def get_init_inputs():
    return [channels_in, channels_out, kernel]
