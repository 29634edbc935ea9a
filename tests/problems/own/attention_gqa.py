import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        k = k.repeat_interleave(4, dim=1)
        v = v.repeat_interleave(4, dim=1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    q = torch.randn(2, 32, 1024, 64, dtype=torch.float16)
    k = torch.randn(2, 8, 1024, 64, dtype=torch.float16)
    v = torch.randn(2, 8, 1024, 64, dtype=torch.float16)
    return [q, k, v]


def get_init_inputs():
    return []
