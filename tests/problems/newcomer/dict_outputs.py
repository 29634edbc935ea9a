from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn


@dataclass
class HeadOutput:
    loss: Optional[torch.Tensor]
    logits: torch.Tensor
    pooled: torch.Tensor


class Model(nn.Module):
    def __init__(self, hidden=768, num_labels=9):
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.out_proj = nn.Linear(hidden, num_labels)

    def forward(self, hidden_states, attention_mask=None, labels=None):
        if attention_mask is None:
            pooled = hidden_states.mean(dim=1)
        else:
            m = attention_mask.unsqueeze(-1).to(hidden_states.dtype)
            pooled = (hidden_states * m).sum(dim=1) / m.sum(dim=1).clamp(min=1e-9)
        logits = self.out_proj(torch.tanh(self.dense(pooled)))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits, labels)
        return HeadOutput(loss=loss, logits=logits, pooled=pooled)


def get_inputs():
    return {
        "hidden_states": torch.randn(32, 128, 768),
        "attention_mask": torch.ones(32, 128, dtype=torch.long),
    }
