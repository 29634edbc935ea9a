"""Convolution of images that are wider than high with square filters. KernelBench level 1, problem 55."""

import torch
import torch.nn as nn

batch_size = 8
channels_in = 64
channels_out = 128
height = 512
width = 1024
kernel = 3


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels_in, height, width)]


def get_init_inputs():
    return [channels_in, channels_out, kernel]
