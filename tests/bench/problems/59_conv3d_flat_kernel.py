"""Convolution of volumes with filters that are one element deep. KernelBench level 1, problem 59."""

import torch
import torch.nn as nn

batch_size = 16
channels_in = 3
channels_out = 64
height = 256
width = 256
depth = 10
kernel = 3


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel):
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, (kernel, kernel, 1), bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels_in, height, width, depth)]


def get_init_inputs():
    return [channels_in, channels_out, kernel]
