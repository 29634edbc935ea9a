"""Convolution of cubes with filters of 3 x 5 x 7. KernelBench level 1, problem 60."""

import torch
import torch.nn as nn

batch_size = 16
channels_in = 3
channels_out = 64
width = 64
height = 64
depth = 64
kernel = (3, 5, 7)


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel):
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels_in, width, height, depth)]


def get_init_inputs():
    return [channels_in, channels_out, kernel]
