"""reduce(x, axis=middle): x is (batch, rows, columns), and each column of each batch is reduced over rows."""

from __future__ import annotations

import textwrap

from workbench.dsl.expecting import called, empty, expect, expect_axes, expect_some
from workbench.dsl.ir import Binding, Stage, number
from workbench.dsl.pieces import Parts
from workbench.dsl.reductions import COMBINE
from workbench.dsl.rowloops import START

MIDDLE = '''
@cute.kernel
def reduce_kernel(x: cute.Tensor, y: cute.Tensor, batches: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks = (columns + {width} - 1) // {width}
    block, batch = cta % blocks, cta // blocks  # along one axis of the grid: the others end at 65535
{body}


@cute.jit
def reduce(x: cute.Tensor, y: cute.Tensor, batches: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream):
    reduce_kernel(x, y, batches, rows, columns).launch(grid=[((columns + {width} - 1) // {width}) * batches, 1, 1], block=[{threads}, 1, 1], stream=stream)
'''


def emit(stage: Stage, binding: Binding) -> Parts:
    """Text of the kernel and of forward; `split` warps share one column's rows."""
    op = str(dict(stage.operation.named).get("op", "sum"))
    threads, split = number(stage, "threads", 128), number(stage, "split", 1)
    result = "value / rows" if op == "mean" else "value"
    combine = COMBINE[op].format(a="value", b="x[batch, row, column].to(cutlass.Float32)")
    if split == 1:
        body = f"""
        column = block * {threads} + thread
        if column < columns:
            value = {START[op]}
            for row in range(rows):
                value = {combine}
            y[batch, column] = ({result}).to(y.element_type)
        """
        width, doc, count = threads, f"The {op} over rows: one thread per column, so a warp reads 32 neighbouring columns.", threads
    else:
        again = COMBINE[op].format(a="value", b="parts[lane, warp]")
        body = f"""
        lane = thread % 32
        first = thread // 32
        column = block * 32 + lane
        parts = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((32, {split})), 16)
        value = {START[op]}
        if column < columns:
            for row in range(first, rows, {split}):
                value = {combine}
        parts[lane, first] = value
        cute.arch.sync_threads()
        if first == 0:
            if column < columns:
                for warp in cutlass.range_constexpr(1, {split}):
                    value = {again}
                y[batch, column] = ({result}).to(y.element_type)
        """
        width, doc, count = 32, f"The {op} over rows: {split} warps share 32 columns and meet in shared memory.", 32 * split
    bound = dict(binding.operands)
    x = bound.get("x", "x")
    text = MIDDLE.format(doc=doc, body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "), width=width, threads=count)
    forward = [
        f"x = {x}.contiguous()", expect_axes(called("x", bound), "x", 3, 3), expect(called("x", bound), "x", "x.shape"), "batches, rows, columns = x.shape",
        "y = torch.empty(batches, columns, dtype=x.dtype, device=x.device)", *empty("y"), *(expect_some(called("x", bound), "x", "rows", op) if op in ("max", "min") else ()), "call(reduce, x.dtype, (",
        "    from_dlpack(x).mark_layout_dynamic(leading_dim=2),", "    from_dlpack(y).mark_layout_dynamic(leading_dim=1),", "    cutlass.Int32(batches), cutlass.Int32(rows), cutlass.Int32(columns),", "))", "return y",
    ]  # fmt: skip
    return Parts(kernels=text, forward="\n".join(forward))
