"""Sum of each row. Slow: after coalesced loads the first lane of every warp alone adds up what the others loaded."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

WARPS, LOADS = 8, 2  # a lane loads LOADS vectors of 4 in a turn


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    kept = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((WARPS, 4, 32 * LOADS), stride=(128 * LOADS, 1, 4)), 16
    )
    total = cutlass.Float32(0.0)
    for first in range(0, x.shape[2], 32 * LOADS):
        for turn in cutlass.range_constexpr(LOADS):
            at = lane + 32 * turn
            kept[warp, None, at].store(x[row, None, first + at].load())
        cute.arch.sync_warp()
        if lane == 0:
            for other in cutlass.range_constexpr(32 * LOADS):
                for each in cutlass.range_constexpr(4):
                    total += kept[warp, each, other]  # planted
        cute.arch.sync_warp()
    if lane == 0:
        y[row] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    rows, columns = x.shape
    fours = cute.make_layout((rows, 4, columns // 4), stride=(columns, 1, 4))
    kernel(cute.make_tensor(x.iterator, fours), y).launch(grid=[rows // WARPS, 1, 1], block=[32, WARPS, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        launch(from_dlpack(x, assumed_align=16), from_dlpack(y))
        return y
