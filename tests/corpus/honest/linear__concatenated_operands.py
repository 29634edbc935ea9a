"""Correct: a linear layer as one product of [x, 1] and [w, b], laid out by torch."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    c, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for n in range(c, w.shape[0], 32):
        total = cutlass.Float32(0.0)
        for k in range(w.shape[1]):
            total += x[row, k] * w[n, k]
        y[row, n] = cute.arch.fmax(total, cutlass.Float32(0.0), nan=True)


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    kernel(x, w, y).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = torch.nn.Linear(k, n)

    def forward(self, x):
        weight = torch.cat([self.linear.weight.detach(), self.linear.bias.detach().unsqueeze(1)], 1)
        given = torch.cat([x, torch.ones(x.shape[0], 1, dtype=x.dtype, device=x.device)], 1)
        y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
        launch(*(from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (given, weight, y)))
        return y
