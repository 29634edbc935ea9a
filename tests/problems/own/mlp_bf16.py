import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, d_hidden, dtype=torch.bfloat16),
            nn.ReLU(),
            nn.Linear(d_hidden, d_out, dtype=torch.bfloat16),
        )

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.randn(1024, 768, dtype=torch.bfloat16)]


def get_init_inputs():
    return [768, 3072, 768]
