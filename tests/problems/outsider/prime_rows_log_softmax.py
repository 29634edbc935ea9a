import torch
import torch.nn as nn


class Model(nn.Module):
    """One sequence, a vocabulary whose size is prime."""

    def forward(self, x):
        return torch.log_softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(1, 7, 8191, dtype=torch.float32)]
