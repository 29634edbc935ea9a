"""Correct: relu into memory that numpy made, with a small table of numpy's; the kernel writes all of the result."""

import cutlass
import numpy as np
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, table: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for c in range(thread, x.shape[1], 32):
        y[row, c] = cute.arch.fmax(x[row, c], table[thread % 4], nan=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, table: cute.Tensor):
    kernel(x, y, table).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.from_numpy(np.zeros(4, np.float32))

    def forward(self, x):
        y = torch.from_numpy(np.empty(tuple(x.shape), np.float32))
        a, b = (from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (x, y))
        launch(a, b, from_dlpack(self.table))
        return y
