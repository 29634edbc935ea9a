import torch
import torch.nn as nn


class Model(nn.Module):
    """Weight-only int8 linear layer: one scale per output row, activations in bf16."""

    def __init__(self, in_features=2048, out_features=4096):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (out_features, in_features), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(out_features, dtype=torch.bfloat16) * 0.01)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(dtype=x.dtype)) * self.scales


def get_inputs():
    return [torch.randn(1, 32, 2048, dtype=torch.bfloat16)]
