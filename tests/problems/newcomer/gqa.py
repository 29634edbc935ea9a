import torch
import torch.nn as nn


class Model(nn.Module):
    """grouped-query attention written by hand, causal"""

    def __init__(self, n_heads=32, n_kv=8, head_dim=128):
        super().__init__()
        self.rep = n_heads // n_kv
        self.scale = head_dim**-0.5

    def forward(self, q, k, v):
        k = k.repeat_interleave(self.rep, dim=1)
        v = v.repeat_interleave(self.rep, dim=1)
        att = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        L, S = att.shape[-2:]
        mask = torch.ones(L, S, dtype=torch.bool, device=q.device).tril()
        att = att.masked_fill(~mask, torch.finfo(att.dtype).min)
        att = torch.softmax(att.float(), dim=-1).to(q.dtype)
        return att @ v


def get_inputs():
    return [
        torch.randn(1, 32, 1024, 128, dtype=torch.bfloat16),
        torch.randn(1, 8, 1024, 128, dtype=torch.bfloat16),
        torch.randn(1, 8, 1024, 128, dtype=torch.bfloat16),
    ]
