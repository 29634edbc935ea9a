import torch
from torch import nn


class Model(nn.Module):
    """foreach SGD over a list of parameters, in place."""

    def forward(self, params, grads, lr=0.1):
        for p, g in zip(params, grads):  # noqa: B905 - as people write it
            p.add_(g, alpha=-lr)


def get_inputs():
    shapes = [(1024, 1024), (1024,), (512, 1024)]
    return [[torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes]]
