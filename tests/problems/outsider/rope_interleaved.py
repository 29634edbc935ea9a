import torch
import torch.nn as nn


def rotate_every_two(x):
    x1 = x[..., ::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


class Model(nn.Module):
    """GPT-J's rotary embedding on q and k."""

    def forward(self, q, k, sin, cos):
        sin = torch.repeat_interleave(sin[None, :, None, :], 2, dim=3)
        cos = torch.repeat_interleave(cos[None, :, None, :], 2, dim=3)
        return q * cos + rotate_every_two(q) * sin, k * cos + rotate_every_two(k) * sin


def get_inputs():
    position = torch.arange(2048, dtype=torch.float32)
    inv_freq = 1.0 / (10000 ** (torch.arange(0, 64, 2) / 64))
    angle = torch.outer(position, inv_freq)
    return [
        torch.randn(2, 2048, 16, 64),
        torch.randn(2, 2048, 16, 64),
        angle.sin(),
        angle.cos(),
    ]
