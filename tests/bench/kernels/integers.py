"""The kernel for integers_problem.py: one element per thread."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def mix_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 256 + thread
    if at < count:
        a = x[at] * cutlass.Int32(-1640531535) + y[at]
        a = a ^ (a >> 15)
        a = a * cutlass.Int32(1597334677)
        a = a ^ (a << 7)
        result = a & y[at]
        if a > y[at]:
            result = a
            if x[at] < a:
                result = x[at]
        out[at] = result


@cute.jit
def mix(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    mix_kernel(x, y, out, count).launch(grid=[(count + 255) // 256, 1, 1], block=[256, 1, 1])


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        mix(
            from_dlpack(x).mark_layout_dynamic(),
            from_dlpack(y).mark_layout_dynamic(),
            from_dlpack(out).mark_layout_dynamic(),
            cutlass.Int32(x.numel()),
        )
        return out
