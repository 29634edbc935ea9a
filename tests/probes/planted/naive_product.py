"""Matrix product. Slow: each thread reads a whole row and a whole column for one result."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

WIDE, HIGH = 32, 8


@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
    right, down, _ = cute.arch.thread_idx()
    across, below, _ = cute.arch.block_idx()
    row, column = below * HIGH + down, across * WIDE + right
    total = cutlass.Float32(0.0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]  # planted
    d[row, column] = total


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
    kernel(a, b, d).launch(grid=[b.shape[1] // WIDE, a.shape[0] // HIGH, 1], block=[WIDE, HIGH, 1])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        d = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        launch(*(from_dlpack(tensor).mark_layout_dynamic(leading_dim=1) for tensor in (a, b, d)))
        return d
