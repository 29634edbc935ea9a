import torch
import torch.nn as nn


class Model(nn.Module):
    """A recurrent step: the hidden state is a plain attribute, not a buffer."""

    def __init__(self, dim):
        super().__init__()
        self.h = torch.zeros(32, dim)

    def forward(self, x):
        self.h = torch.tanh(self.h + x)
        return self.h


def get_inputs():
    return [torch.randn(32, 1024)]


def get_init_inputs():
    return [1024]
