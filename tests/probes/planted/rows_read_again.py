"""Softmax. Slow: three kernels in a row read the matrix from DRAM three times."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

WARPS = 8  # a warp takes a row


@cute.kernel
def maxima(x: cute.Tensor, tops: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    top = cute.make_rmem_tensor(4, cutlass.Float32)
    top.fill(-cutlass.Float32.inf)
    for at in range(lane, x.shape[2], 32):
        four = x[row, None, at].load()  # planted
        for each in cutlass.range_constexpr(4):
            top[each] = cute.arch.fmax(top[each], four[each])
    best = cute.arch.fmax(cute.arch.fmax(top[0], top[1]), cute.arch.fmax(top[2], top[3]))
    best = cute.arch.warp_reduction_max(best)
    tops[row] = best


@cute.kernel
def sums(x: cute.Tensor, tops: cute.Tensor, totals: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    top, total = tops[row], cutlass.Float32(0.0)
    for at in range(lane, x.shape[2], 32):
        four = x[row, None, at].load()  # planted
        for each in cutlass.range_constexpr(4):
            total += cute.math.exp(four[each] - top, fastmath=True)
    total = cute.arch.warp_reduction_sum(total)
    totals[row] = total


@cute.kernel
def quotients(x: cute.Tensor, tops: cute.Tensor, totals: cute.Tensor, y: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + warp
    top, whole = tops[row], totals[row]
    for at in range(lane, x.shape[2], 32):
        four = x[row, None, at].load()  # planted
        y[row, None, at].store(cute.math.exp(four - top, fastmath=True) / whole)


@cute.jit
def launch(x: cute.Tensor, tops: cute.Tensor, totals: cute.Tensor, y: cute.Tensor):
    rows, columns = x.shape
    fours = cute.make_layout((rows, 4, columns // 4), stride=(columns, 1, 4))
    x, y = cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)
    maxima(x, tops).launch(grid=[rows // WARPS, 1, 1], block=[32, WARPS, 1])
    sums(x, tops, totals).launch(grid=[rows // WARPS, 1, 1], block=[32, WARPS, 1])
    quotients(x, tops, totals, y).launch(grid=[rows // WARPS, 1, 1], block=[32, WARPS, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        tops, totals = torch.empty(2, x.shape[0], dtype=x.dtype, device=x.device)
        launch(
            from_dlpack(x, assumed_align=16),
            from_dlpack(tops),
            from_dlpack(totals),
            from_dlpack(y, assumed_align=16),
        )
        return y
