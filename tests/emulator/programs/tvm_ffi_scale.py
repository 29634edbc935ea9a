"""A function compiled with --enable-tvm-ffi takes torch tensors as they are."""

import cutlass
import cutlass.cute as cute
import torch


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor):
    """One element a thread."""
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        y[i] = x[i] * 2.0


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor):
    """Launch scale_kernel."""
    scale_kernel(x, y).launch(grid=((cute.size(x) + 127) // 128, 1, 1), block=(128, 1, 1))


n = cute.sym_int()
fake = [cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,)) for _ in range(2)]
compiled = cute.compile(scale, *fake, options="--enable-tvm-ffi")
for size in (1000, 64):
    a = torch.randn(size, device="cuda")
    b = torch.empty_like(a)
    compiled(a, b)
    torch.testing.assert_close(b, a * 2)
try:
    compiled(torch.ones(1000), b)
except ValueError as error:
    print("refused:", str(error).splitlines()[0])
