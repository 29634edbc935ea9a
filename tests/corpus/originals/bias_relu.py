"""Correct: relu(x + b), one CTA per row."""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 64
compiled = {}


@cute.kernel
def kernel(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = x.shape[1]
    turns = (columns + THREADS - 1) // THREADS
    for turn in range(turns):
        c = turn * THREADS + tidx
        if c < columns:
            v = x[row, c] + b[c]
            y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0))


@cute.jit
def launch(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    kernel(x, b, y).launch(grid=[x.shape[0], 1, 1], block=[THREADS, 1, 1], stream=stream)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        views = [from_dlpack(t).mark_layout_dynamic() for t in (x, b, y)]
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        launch(*views, stream)
        return y
