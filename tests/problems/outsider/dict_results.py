from typing import Optional

import torch
import torch.nn as nn


class Model(nn.Module):
    """Statistics of a batch of activations for logging, and the activations standardised by them."""

    def forward(self, x: torch.Tensor, weight: Optional[torch.Tensor] = None):
        mean = x.mean(dim=1)
        std = x.std(dim=1)
        y = (x - mean[:, None]) / (std[:, None] + 1e-6)
        if weight is not None:
            y = y * weight
        return {"normalized": y, "mean": mean, "std": std}


def get_inputs():
    return [torch.randn(1024, 4096), None]
