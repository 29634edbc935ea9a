import torch
import torch.nn as nn


class Model(nn.Module):
    """mixture-of-experts router"""

    def __init__(self, hidden=1024, n_experts=64, k=6):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(hidden, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        probs = logits.softmax(dim=-1)
        weights, idx = torch.topk(probs, self.k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, idx


def get_inputs():
    return [torch.randn(4096, 1024)]
