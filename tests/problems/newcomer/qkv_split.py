import torch
import torch.nn as nn


class Model(nn.Module):
    """fused qkv projection split into heads, class token in front"""

    def __init__(self, dim=384, num_heads=6):
        super().__init__()
        self.num_heads = num_heads
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.qkv = nn.Linear(dim, dim * 3)

    def forward(self, x):
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        return q.contiguous(), k.transpose(-2, -1), v


def get_inputs():
    return [torch.randn(8, 196, 384)]
