"""Twice a matrix. Slow: every element's address is found by four divisions with rest."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, a: cutlass.Int32, b: cutlass.Int32, c: cutlass.Int32, d: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    first, rest = at // (b * c * d), at % (b * c * d)  # planted
    second, rest = rest // (c * d), rest % (c * d)  # planted
    third, fourth = rest // d, rest % d  # planted
    place = ((first % a * b + second % b) * c + third % c) * d + fourth % d  # planted
    y[place] = x[place] * 2.0


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, a: cutlass.Int32, b: cutlass.Int32, c: cutlass.Int32, d: cutlass.Int32):
    kernel(x, y, a, b, c, d).launch(grid=[x.shape[0] // THREADS, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        inner = x.shape[1]
        launch(
            *(from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, y)),
            1,
            x.shape[0],
            inner // 4,
            4,
        )
        return y
