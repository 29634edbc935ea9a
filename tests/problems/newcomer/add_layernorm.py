import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(1280, eps=1e-6)

    def forward(self, x, residual):
        residual = x + residual
        return self.ln(residual), residual


def get_inputs():
    return [torch.randn(16, 257, 1280), torch.randn(16, 257, 1280)]
