import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """prime sizes, batch of one; hinge-like margin per row"""

    def forward(self, x, y):
        d = (x - y).abs()
        loss = torch.where(d < 0.5, d * d, d - 0.25)
        return loss.sum(-1).sqrt(), F.softplus(loss, beta=2.0)


def get_inputs():
    return [torch.randn(1, 7, 8191, dtype=torch.float64).float(), torch.randn(1, 7, 8191)]
