import torch
import torch.nn as nn


class Model(nn.Module):
    """input standardisation with an exponential moving average of mean and variance, and a step counter"""

    def __init__(self, dim=200, decay=0.99):
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long))

    def forward(self, x):
        self.steps += 1
        self.mean.mul_(self.decay).add_(x.mean(0), alpha=1 - self.decay)
        self.var.mul_(self.decay).add_(x.var(0, unbiased=False), alpha=1 - self.decay)
        return (x - self.mean) / (self.var + 1e-5).sqrt()


def get_inputs():
    return [torch.randn(5000, 200)]
