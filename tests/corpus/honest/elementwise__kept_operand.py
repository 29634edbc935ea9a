"""Correct: relu; the output and its operand of CuTe DSL are kept on the class for each shape."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for c in range(thread, x.shape[1], 32):
        y[row, c] = cute.arch.fmax(x[row, c], cutlass.Float32(0.0), nan=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    kept = {}

    def forward(self, x):
        if x.shape not in self.kept:
            y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            self.kept[x.shape] = y, from_dlpack(y).mark_layout_dynamic(leading_dim=1)
        y, operand = self.kept[x.shape]
        launch(from_dlpack(x).mark_layout_dynamic(leading_dim=1), operand)
        return y
