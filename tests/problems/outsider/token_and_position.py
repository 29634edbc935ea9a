import torch
import torch.nn as nn


class Model(nn.Module):
    """GPT-2's input: token embedding plus learned position embedding."""

    def __init__(self, vocab_size=50257, block_size=1024, n_embd=768):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)

    def forward(self, idx):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        return self.wte(idx) + self.wpe(pos)


def get_inputs():
    return [torch.randint(0, 50257, (8, 1024))]
