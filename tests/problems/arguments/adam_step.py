import torch
from torch import nn


class Model(nn.Module):
    """One step of Adam: parameter and moments are updated in place, nothing is returned."""

    def forward(self, state, grad):
        state["m"].mul_(0.9).add_(grad, alpha=0.1)
        state["v"].mul_(0.999).addcmul_(grad, grad, value=0.001)
        state["p"].sub_(1e-3 * state["m"] / (state["v"].sqrt() + 1e-8))


def get_inputs():
    p, m, v = torch.randn(1 << 22), torch.randn(1 << 22), torch.rand(1 << 22)
    return {"state": {"p": p, "m": m, "v": v}, "grad": torch.randn(1 << 22)}
