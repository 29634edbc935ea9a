"""Correct: relu on a stream of its own, ordered by events, with no test for a GPU."""

import cuda.bindings.driver as cuda
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
def launch(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    kernel(x, y).launch(grid=[x.shape[0], 1, 1], block=[32, 1, 1], stream=stream)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        y = torch.empty_like(x)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(torch.cuda.current_stream())
        self.side.wait_event(start)
        with torch.cuda.device(x.device), torch.cuda.stream(self.side):
            stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
            launch(*(from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (x, y)), stream)
            y.record_stream(self.side)
            end.record()
        torch.cuda.current_stream(device=x.device).wait_stream(self.side)
        torch.cuda.synchronize(device=x.device)
        assert start.elapsed_time(end) >= 0
        return y
