"""Mean loss of triplets: the distance to the positive against that to the negative. KernelBench level 1, problem 99."""

import torch
import torch.nn as nn

batch_size = 32768
dim = 8192


class Model(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.loss = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor, positive, negative):
        return self.loss(anchor, positive, negative)


def get_inputs():
    return [torch.rand(batch_size, dim) * torch.rand(()), torch.rand(batch_size, dim), torch.rand(batch_size, dim)]


def get_init_inputs():
    return [1.0]
