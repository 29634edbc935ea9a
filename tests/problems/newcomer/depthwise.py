import torch
import torch.nn as nn


class Model(nn.Module):
    """MobileNet block: depthwise 3x3 stride 2, BN (eval), ReLU6, pointwise"""

    def __init__(self):
        super().__init__()
        self.dw = nn.Conv2d(144, 144, kernel_size=3, stride=2, padding=1, groups=144, bias=False)
        self.bn = nn.BatchNorm2d(144)
        self.act = nn.ReLU6(inplace=True)
        self.pw = nn.Conv2d(144, 32, 1)
        self.eval()

    def forward(self, x):
        return self.pw(self.act(self.bn(self.dw(x))))


def get_inputs():
    return [torch.randn(16, 144, 56, 56)]
