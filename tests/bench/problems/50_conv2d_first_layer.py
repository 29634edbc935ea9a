"""AlexNet's first layer: 11 x 11 filters, stride 4, with a bias. KernelBench level 1, problem 50."""

import torch
import torch.nn as nn

batch_size = 256
image = 224


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 96, kernel_size=11, stride=4, padding=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, 3, image, image)]


def get_init_inputs():
    return []
