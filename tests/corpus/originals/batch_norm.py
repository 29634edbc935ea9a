"""Correct: a batch norm in training, which updates its statistics."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass import Float32
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def norm(x: cute.Tensor, w: cute.Tensor, b: cute.Tensor, mean: cute.Tensor, var: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    col, _, _ = cute.arch.block_idx()
    n = x.shape[0]
    total = Float32(0)
    for r in cutlass.range(tid, n, 32):
        total += x[r, col]
    mu = cute.arch.warp_reduction_sum(total) / n
    squares = Float32(0)
    for r in cutlass.range(tid, n, 32):
        squares += (x[r, col] - mu) * (x[r, col] - mu)
    squares = cute.arch.warp_reduction_sum(squares)
    scale = cute.math.rsqrt(squares / n + 1e-5)
    for r in cutlass.range(tid, n, 32):
        y[r, col] = (x[r, col] - mu) * scale * w[col] + b[col]
    if tid == 0:
        mean[col] = 0.9 * mean[col] + 0.1 * mu
        var[col] = 0.9 * var[col] + 0.1 * squares / (n - 1)


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, b: cute.Tensor, mean: cute.Tensor, var: cute.Tensor, y: cute.Tensor):
    norm(x, w, b, mean, var, y).launch(grid=(x.shape[1], 1, 1), block=(32, 1, 1))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("own", torch.zeros(3))

    def forward(self, x):
        n, y = self.norm, torch.empty_like(x)
        self.own += 1
        self.calls += 1
        n.num_batches_tracked += 1
        launch(*(from_dlpack(t) for t in (x, n.weight.detach(), n.bias.detach(), n.running_mean, n.running_var, y)))
        return y
