import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """causal LM loss: shift, flatten, ignore -100"""

    def forward(self, logits, labels):
        shift_logits = logits[:, :-1, :].contiguous().float()
        shift_labels = labels[:, 1:].contiguous()
        return F.cross_entropy(
            shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=-100, label_smoothing=0.1
        )


def get_inputs():
    logits = torch.randn(2, 513, 32000, dtype=torch.bfloat16)
    labels = torch.randint(0, 32000, (2, 513))
    labels[:, :100] = -100
    return [logits, labels]
