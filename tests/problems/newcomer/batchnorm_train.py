import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(96, momentum=0.2)
        self.act = nn.LeakyReLU(0.2)
        self.train()

    def forward(self, x):
        return self.act(self.bn(x))


def get_inputs():
    return [torch.randn(32, 96, 501) * 3 + 1]
