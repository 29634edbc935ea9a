import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, *, scale, bias=None, mask=None, alpha=1.5):
        y = x * scale * alpha
        if bias is not None:
            y = y + bias
        return y if mask is None else y.masked_fill(mask, 0.0)


def get_inputs():
    return {"x": torch.randn(1024, 2048), "scale": torch.rand(2048), "mask": torch.rand(1024, 2048) > 0.5}
