import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_dim, hidden, out_dim, n_layers=3):
        super().__init__()
        dims = [in_dim] + [hidden] * (n_layers - 1)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:])])
        self.head = nn.Linear(hidden, out_dim, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x).squeeze(-1)


def get_init_inputs():
    return [60, 256, 1]


def get_inputs():
    return [torch.randn(16384, 60)]
