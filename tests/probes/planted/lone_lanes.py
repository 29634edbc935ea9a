"""Sum of each row. Slow: one lane of each warp reads a whole row by elements, and the other lanes do nothing."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

WARPS = 8


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    if lane == 0:
        total = cutlass.Float32(0.0)
        for column in range(x.shape[1]):
            total += x[row, column]  # planted
        y[row] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[x.shape[0] // WARPS, 1, 1], block=[32, WARPS, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        launch(from_dlpack(x, assumed_align=16), from_dlpack(y))
        return y
