import torch
import torch.nn as nn


class Model(nn.Module):
    """Audio front end: two-sample stride, like the convolutions of wav2vec."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(80, 384, kernel_size=3, stride=2, padding=1, dtype=torch.float16)
        self.act = nn.GELU()

    def forward(self, mel):
        return self.act(self.conv(mel))


def get_inputs():
    return [torch.randn(8, 80, 3000, dtype=torch.float16)]
