"""A polynomial of every element: many FLOPs for a byte."""

import torch

rows = 4096
columns = 4096


class Model(torch.nn.Module):
    def forward(self, x):
        r = torch.ones_like(x)
        for _ in range(64):
            r = r * x + 0.5
        return r


def get_inputs():
    return [torch.rand(rows, columns) - 0.5]


def get_init_inputs():
    return []
