import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b, sa, sb):
        return torch._scaled_mm(a, b.t(), scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16)


def get_inputs():
    return [
        torch.randn(512, 1024).to(torch.float8_e4m3fn),
        torch.randn(768, 1024).to(torch.float8_e4m3fn),
        torch.tensor(0.5),
        torch.tensor(0.25),
    ]
