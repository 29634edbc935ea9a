"""Scaled dot product attention with wide heads. KernelBench level 1, problem 97."""

import torch
import torch.nn as nn

batch_size = 32
heads = 32
length = 512
width = 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.rand(batch_size, heads, length, width) for _ in range(3)]


def get_init_inputs():
    return []
