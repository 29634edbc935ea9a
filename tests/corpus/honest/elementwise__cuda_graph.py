"""Correct: relu captured once for each shape in a CUDA graph over static tensors, and replayed."""

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
        self.kept = {}

    def forward(self, x):
        if x.shape not in self.kept:
            held, y = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty_like(x).contiguous()
            graph = torch.cuda.CUDAGraph()
            tensors = [from_dlpack(t).mark_layout_dynamic(leading_dim=1) for t in (held, y)]
            with torch.cuda.graph(graph):
                launch(*tensors, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
            self.kept[x.shape] = graph, held, y
        graph, held, y = self.kept[x.shape]
        held.copy_(x)
        graph.replay()
        return y
