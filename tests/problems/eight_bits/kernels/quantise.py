import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, out: cute.Tensor, scales: cute.Tensor, columns: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    largest = cutlass.Float32(0.0)
    for i in cutlass.range(thread, columns, 32):
        v = x[row, i]
        largest = cute.arch.fmax(largest, cute.arch.fmax(v, -v))
    for step in cutlass.range_constexpr(5):
        largest = cute.arch.fmax(largest, cute.arch.shuffle_sync_bfly(largest, offset=16 >> step))
    scale = largest / cutlass.Float32(448.0)
    if thread == 0:
        scales[row] = scale
    for i in cutlass.range(thread, columns, 32):
        v = x[row, i] / scale
        v = cute.arch.fmin(cute.arch.fmax(v, cutlass.Float32(-448.0)), cutlass.Float32(448.0))
        out[row, i] = v.to(cutlass.Float8E4M3FN)


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, scales: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32):
    kernel(x, out, scales, columns).launch(grid=[rows, 1, 1], block=[32, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        s = torch.empty(x.shape[0], 1, device=x.device)
        out = from_dlpack(q.view(torch.uint8)).mark_layout_dynamic(leading_dim=1)
        out.element_type = cutlass.Float8E4M3FN
        launch(
            from_dlpack(x).mark_layout_dynamic(leading_dim=1),
            out,
            from_dlpack(s.view(-1)).mark_layout_dynamic(),
            cutlass.Int32(x.shape[0]),
            cutlass.Int32(x.shape[1]),
        )
        return q, s
