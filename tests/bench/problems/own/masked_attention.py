"""Attention with a mask of its own for each sequence."""

import torch
import torch.nn as nn
import torch.nn.functional as F

B, H, S, D = 8, 16, 1024, 64


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def get_inputs():
    return [torch.randn(B, H, S, D), torch.randn(B, H, S, D), torch.randn(B, H, S, D), torch.rand(B, 1, S, S) > 0.2]


def get_init_inputs():
    return []
