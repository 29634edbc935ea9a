import torch
from torch import nn


class Model(nn.Module):
    """fp8 activations with a scale per row, back to float32."""

    def forward(self, x, scale):
        return x.to(torch.float32) * scale


def get_inputs():
    return [torch.randn(2048, 4096).to(torch.float8_e4m3fn), torch.rand(2048, 1)]
