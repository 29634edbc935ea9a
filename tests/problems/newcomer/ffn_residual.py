import torch
import torch.nn as nn
import torch.nn.functional as F

dev_dtype = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x, w, b, r):
        h = torch.einsum("bsd,df->bsf", x, w) + b
        return r + F.silu(h)


def get_inputs():
    x = torch.randn(4, 384, 768, dtype=dev_dtype)
    w = torch.randn(768, 3072, dtype=dev_dtype) / 768**0.5
    b = torch.zeros(3072, dtype=dev_dtype)
    r = torch.randn(4, 384, 3072, dtype=dev_dtype)
    return [x, w, b, r]
