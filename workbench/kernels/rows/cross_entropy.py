"""Cross entropy of logits or log-probabilities (..., classes) and class indices: per row, mean or sum."""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute

from workbench.kernels.host import (
    FLOAT_DTYPES,
    INDEX_DTYPES,
    DynamicTensor,
    call,
    check_operand,
    check_rank,
    split_by_rows,
)
from workbench.kernels.rows.host import access_width, flat_tensor, turns_of
from workbench.kernels.rows.row_reduce import locate_row, reduce_row
from workbench.kernels.rows.vectors import as_vectors, load_vectors
from workbench.kernels.static import Static, bind, dtype, torch_dtype


@cute.kernel
def loss_kernel(
    cfg: Static,
    x: cute.Tensor,
    target: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute the loss of each row; x is (vectors, width)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    row, lane = locate_row(cfg.rows, tidx, bidx)
    memory = ()
    if cutlass.const_expr(cfg.rows.is_combined and cfg.is_of_logits):
        smem = cutlass.memory.SmemAllocator()
        memory = tuple(
            smem.allocate_tensor(dtype(slot.kind), cute.make_layout(cfg.rows.memory_places), 16)
            for slot in cfg.rows.memory
        )
    if row < rows:
        if cutlass.const_expr(cfg.is_of_logits):
            vectors = columns // width
            start = row * vectors
            kept = ()
            if cutlass.const_expr(cfg.rows.is_kept):  # the thread's vectors of the row stay in registers
                kept = load_vectors(cfg.rows, (), (x,), (), (), lane, vectors, start, width, turns, ())
            values = reduce_row(
                cfg.rows, (x,), (), (), kept, memory, start, lane, columns, vectors, tidx, width, turns, ()
            )
        if lane == 0:
            wanted = target[row].to(cutlass.Int32)
            loss = cutlass.Float32(0.0)
            if wanted >= columns:
                loss = cutlass.Float32(float("nan"))  # no such class
            elif wanted >= 0:  # others are ignored, as torch does -100
                i = row * columns + wanted
                picked = x[i // width, i % width].to(cutlass.Float32)
                if cutlass.const_expr(cfg.is_of_logits):
                    largest = values[0]
                    total = values[-1]
                    above = cute.math.log(total, fastmath=True) + largest
                    loss = cute.arch.fmax(above - picked, cutlass.Float32(0.0), nan=True)
                    if cutlass.const_expr(cfg.smoothing > 0):
                        loss += cfg.smoothing * (above - values[1] - loss)
                else:
                    loss = -picked
            y[row] = loss.to(y.element_type)


@cute.jit
def launch_losses(
    cfg: Static,
    x: cute.Tensor,
    target: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    if cutlass.const_expr(cfg.rows.threads <= 32):
        ctas = (rows + (cfg.rows.rows_per_cta - 1)) // cfg.rows.rows_per_cta
    else:
        ctas = rows
    loss_kernel(cfg, as_vectors(x, width), target, y, rows, columns, width, turns).launch(
        grid=[ctas, 1, 1], block=[cfg.rows.cta_threads, 1, 1], stream=stream
    )


@cute.kernel
def total_kernel(cfg: Static, losses: cute.Tensor, target: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32):
    """Sum the losses of all rows in one CTA of 1024 threads; rows with a negative class are ignored."""
    tidx, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    totals = smem.allocate_tensor(cutlass.Float32, cute.make_layout(32), 16)
    counts = smem.allocate_tensor(cutlass.Int32, cute.make_layout(32), 16)
    total = cutlass.Float32(0.0)
    count = cutlass.Int32(0)
    for row in range(tidx, rows, 1024):
        if target[row] >= 0:
            total += losses[row]
            count += 1
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
        count += cute.arch.shuffle_sync_bfly(count, offset=16 >> step)
    if tidx % 32 == 0:
        totals[tidx // 32] = total
        counts[tidx // 32] = count
    cute.arch.sync_threads()
    if tidx < 32:
        total = totals[tidx]
        count = counts[tidx]
        for step in cutlass.range_constexpr(5):
            total += cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
            count += cute.arch.shuffle_sync_bfly(count, offset=16 >> step)
        if tidx == 0:
            if cutlass.const_expr(cfg.reduction == "mean"):
                out[0] = (total / count).to(out.element_type)
            else:
                out[0] = total.to(out.element_type)


@cute.jit
def launch_total(
    cfg: Static,
    losses: cute.Tensor,
    target: cute.Tensor,
    out: cute.Tensor,
    rows: cutlass.Int32,
    stream: cuda.CUstream,
):
    total_kernel(cfg, losses, target, out, rows).launch(grid=[1, 1, 1], block=[1024, 1, 1], stream=stream)


def cross_entropy(cfg: Static, names: Static, x, target):
    """Return the losses of the rows of x (..., classes), or their mean or sum; negative classes are ignored.

    x is float32, float16 or bfloat16, and so is the result unless it is cast; target (...) is int64 or int32.
    """
    x = x.detach().contiguous()
    target = target.detach()
    check_rank(names[0], x, 1)
    check_operand(names[0], x, x.shape, FLOAT_DTYPES)
    check_operand(names[1], target, x.shape[:-1], INDEX_DTYPES)
    rows, columns = x.shape[:-1].numel(), x.shape[-1]
    kind = torch_dtype(cfg.rows.out) if cfg.rows.out else x.dtype
    target = target.contiguous().view(-1)
    if cutlass.const_expr(cfg.reduction == "none"):
        losses = torch.empty(x.shape[:-1], dtype=kind, device=x.device)
        if losses.numel() == 0:
            return losses
    else:
        losses = torch.empty(rows, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=kind, device=x.device)
    for logits, part, classes in split_by_rows(x.view(rows, columns), losses.view(-1), target):
        width = access_width(cfg.rows, columns, (logits,))
        turns = turns_of(cfg.rows, columns, width)
        call(
            bind(launch_losses, cfg),
            (x.dtype, target.dtype, losses.dtype, width, turns),
            (
                flat_tensor(logits.view(-1), width),
                DynamicTensor(classes),
                DynamicTensor(part),
                logits.shape[0],
                columns,
            ),
            (width, turns),
        )
    if cutlass.const_expr(cfg.reduction == "none"):
        return losses
    call(
        bind(launch_total, cfg),
        (out.dtype, target.dtype),
        (
            DynamicTensor(losses),
            DynamicTensor(target),
            DynamicTensor(out.view(1)),
            rows,
        ),
    )
    return out
