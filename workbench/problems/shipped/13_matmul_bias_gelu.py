"""Linear layer followed by GELU: a matrix product with a fused epilogue."""

import torch
import torch.nn as nn

rows = 8192
features_in = 4096
features_out = 4096


class Model(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x), approximate="tanh")


def get_inputs():
    return [torch.randn(rows, features_in)]


def get_init_inputs():
    return [features_in, features_out]
