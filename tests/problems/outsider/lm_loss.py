import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Shifted language model loss as in Hugging Face's causal models."""

    def forward(self, logits, labels):
        logits = logits.float()
        shift_logits = logits[:, :-1, :].contiguous()
        shift_labels = labels[:, 1:].contiguous()
        return F.cross_entropy(shift_logits.view(-1, 32000), shift_labels.view(-1), ignore_index=-100)


def get_inputs():
    labels = torch.randint(0, 32000, (4, 512))
    labels[:, :16] = -100
    return [torch.randn(4, 512, 32000, dtype=torch.bfloat16), labels]
