import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x):
        return (x / self.scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def get_inputs():
    return [torch.randn(2048, 2048, dtype=torch.bfloat16)]
