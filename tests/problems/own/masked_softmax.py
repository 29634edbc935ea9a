import torch
from torch import nn


class Model(nn.Module):
    def forward(self, scores, mask):
        scores = scores.masked_fill(mask == 0, float("-inf"))
        return torch.softmax(scores, dim=-1)


def get_inputs():
    scores = torch.randn(8, 12, 1024, 1024)
    mask = torch.ones(1024, 1024, dtype=torch.int32).tril()
    return [scores, mask]


def get_init_inputs():
    return []
