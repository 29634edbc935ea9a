# expect: stage=run kind=misaligned
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
    if i < n // 4:
        part = cute.make_rmem_tensor(cute.make_layout(4), cutlass.Float32)
        wide = cute.make_tensor(cute.make_ptr(cutlass.Int64, (x.iterator + 1).toint(), cute.AddressSpace.gmem, assumed_align=8), cute.make_layout(2))
        y[i] = (wide[0] + wide[1]).to(cutlass.Float32)


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    relu_kernel(x, y, n).launch(grid=[(n + 127) // 128, 1, 1], block=[128, 1, 1])


def tensor(t):
    return from_dlpack(t.view(-1)).mark_layout_dynamic()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu(tensor(x), tensor(y), x.numel())
        return y
