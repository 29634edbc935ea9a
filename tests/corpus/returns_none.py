# expect: stage=check kind=wrong_outputs
import torch
import torch.nn as nn
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    if i < n:
        y[i] = cute.arch.fmax(x[i], cutlass.Float32(0.0))


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    relu_kernel(x, y, n).launch(grid=[(n + 127) // 128, 1, 1], block=[128, 1, 1])


def tensor(t):
    return from_dlpack(t.view(-1)).mark_layout_dynamic()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu(tensor(x), tensor(y), x.numel())
        return None
