"""A function compiled with --enable-tvm-ffi takes torch tensors in a named tuple."""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch


class Operands(NamedTuple):
    """Both tensors of a call."""

    x: cute.Tensor
    y: cute.Tensor


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor):
    """One element a thread."""
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        y[i] = x[i] * 2.0


@cute.jit
def scale(operands: Operands):
    """Launch scale_kernel."""
    scale_kernel(operands.x, operands.y).launch(grid=((cute.size(operands.x) + 127) // 128, 1, 1), block=(128, 1, 1))


n = cute.sym_int()
fake = Operands(*(cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,)) for _ in range(2)))
compiled = cute.compile(scale, fake, options="--enable-tvm-ffi")
a = torch.randn(1000, device="cuda")
b = torch.empty_like(a)
compiled(Operands(a, b))
torch.testing.assert_close(b, a * 2)
