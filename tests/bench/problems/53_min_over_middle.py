"""Smallest value over the middle axis. KernelBench level 1, problem 53."""

import torch
import torch.nn as nn

batch_size = 128
rows = 4096
columns = 4095


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.min(x, dim=self.dim)[0]


def get_inputs():
    return [torch.rand(batch_size, rows, columns)]


def get_init_inputs():
    return [1]
