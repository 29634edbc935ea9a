"""A problem with a window, as text."""

WINDOW = """import torch

WINDOW = 128


class Model(torch.nn.Module):
    def forward(self, scores):
        s = scores.shape[-1]
        i = torch.arange(s)[:, None]
        j = torch.arange(s)[None, :]
        keep = (j <= i) & (i - j < WINDOW)
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(8, 1024, 1024)]
"""
