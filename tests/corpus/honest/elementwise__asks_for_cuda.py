"""Correct: relu in a file that names the device, as files for a GPU alone do."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, zero: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for c in range(thread, x.shape[1], 32):
        y[row, c] = cute.arch.fmax(x[row, c], zero[0], nan=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, zero: cute.Tensor):
    kernel(x, y, zero).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.register_buffer("zero", torch.zeros(4, device="cuda"), persistent=False)
        self.cuda()

    def forward(self, x):
        x = x.cuda().to("cuda", torch.float32).to(device="cuda:0")
        with torch.device("cuda"):
            y = torch.empty(x.shape, dtype=x.dtype)
        a, b = (from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (x, y))
        launch(a, b, from_dlpack(self.zero))
        return y
