"""Correct: relu into a tensor that the class keeps for each shape; every call writes it anew."""

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
        key = x.shape, x.dtype
        if key not in self.kept:
            self.kept[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        y = self.kept[key]
        launch(*(from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (x, y)))
        return y
