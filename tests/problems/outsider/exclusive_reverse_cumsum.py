import torch
import torch.nn as nn


class Model(nn.Module):
    """Reward to go: the discounted rewards after each step, the step itself excluded."""

    def forward(self, rewards):
        total = torch.flip(torch.cumsum(torch.flip(rewards, [1]), dim=1), [1])
        return total - rewards


def get_inputs():
    return [torch.randn(512, 2000)]
