"""Dilated and padded convolution with filters of 5 x 9. KernelBench level 1, problem 80."""

import torch
import torch.nn as nn

batch_size = 8
channels_in = 32
channels_out = 64
width = 512
height = 512
kernel = (5, 9)
padding = (2, 4)
dilation = (2, 3)


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel, padding, dilation):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, padding=padding, dilation=dilation, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels_in, height, width)]


def get_init_inputs():
    return [channels_in, channels_out, kernel, padding, dilation]
