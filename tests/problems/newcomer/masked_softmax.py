import torch
import torch.nn as nn


class Model(nn.Module):
    """attention weights with a key padding mask (True = padding) and temperature"""

    def __init__(self, temperature=8.0):
        super().__init__()
        self.temperature = temperature

    def forward(self, scores, key_padding_mask):
        scores = scores / self.temperature
        scores = scores.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


def get_inputs():
    scores = torch.randn(8, 12, 197, 197, dtype=torch.bfloat16)
    mask = torch.zeros(8, 197, dtype=torch.bool)
    mask[:, 150:] = True
    return [scores, mask]
