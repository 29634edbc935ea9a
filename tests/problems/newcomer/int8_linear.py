import torch
import torch.nn as nn


class W8Linear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        w = torch.randn(out_features, in_features)
        scale = w.abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(w / scale).to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.bfloat16))

    def forward(self, x):
        return x @ self.weight.t().to(x.dtype) * self.scale + self.bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = W8Linear(2048, 1536)

    def forward(self, x):
        return self.lin(x)


def get_inputs():
    return [torch.randn(3, 333, 2048, dtype=torch.bfloat16)]
