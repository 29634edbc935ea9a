import torch
import torch.nn as nn


class Model(nn.Module):
    """A ring of the last rows: writes its slot, returns the mean over the ring."""

    def __init__(self, slots, dim):
        super().__init__()
        self.slots = slots
        self.register_buffer("ring", torch.zeros(slots, dim))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        self.ring.index_copy_(0, self.at, x)
        self.at.copy_((self.at + 1) % self.slots)
        return self.ring.mean(0)


def get_inputs():
    return [torch.randn(1, 2048)]


def get_init_inputs():
    return [64, 2048]
