"""Correct: relu behind an operator of its own, as torch.library registers it, into a workspace for all sizes."""

import functools

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


@functools.lru_cache(maxsize=None)
def workspace(shape, dtype):
    return torch.empty(shape, dtype=dtype)


@torch.library.custom_op("honest::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    kept = workspace(tuple(x.shape), x.dtype)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for source, target in ((x, kept), (kept, y)):
        launch(*(from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (source, target)))
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return relu(x)
