"""matvec(x, vector) .rows(r): a CTA has r rows at once, so that what it loads of the vector serves all of them."""

from __future__ import annotations

from workbench.dsl.expecting import called, empty, expect, expect_axes
from workbench.dsl.expressions import vectors_of
from workbench.dsl.ir import Binding, Rejection, Stage, number, setting
from workbench.dsl.operation import THREADS_PER_ROW, UNROLL, VECTOR, Setting, unwanted
from workbench.dsl.pieces import Parts

REGISTERS_OF_SM, REGISTERS_OF_THREAD = 65_536, 256
KERNELS = '''
THREADS, ROWS = {threads}, {rows}  # of a CTA: its threads share its rows


@cute.jit
def add_products(x, vector, starts, sums, first, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """Take in `turns` vectors of a thread, from number `first` of each row on; all are loaded before the first is used, those of `vector` once."""
    x_part = cute.make_rmem_tensor(cute.make_layout((width, turns, ROWS)), x.element_type)
    vector_part = cute.make_rmem_tensor(cute.make_layout((width, turns)), vector.element_type)
    for turn in cutlass.range_constexpr(turns):
        for r in cutlass.range_constexpr(ROWS):
            cute.autovec_copy(x[starts[r] + first + turn * THREADS, None], x_part[None, turn, r])
    for turn in cutlass.range_constexpr(turns):
        cute.autovec_copy(vector[first + turn * THREADS, None], vector_part[None, turn])
    for turn in cutlass.range_constexpr(turns):
        for r in cutlass.range_constexpr(ROWS):
            for e in cutlass.range_constexpr(width):
                sums[r] = sums[r] + x_part[e, turn, r].to(cutlass.Float32) * vector_part[e, turn].to(cutlass.Float32)


@cute.kernel
def matvec_kernel(x: cute.Tensor, vector: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, vectors: cutlass.Int32, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """A CTA per ROWS rows of `vectors` vectors each; in place of rows beyond the last it reads the last again, whose sums are not stored."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((ROWS, THREADS // 32)), 16)
    starts = cute.make_rmem_tensor(cute.make_layout(ROWS), cutlass.Int32)  # of the rows, in vectors
    sums = cute.make_rmem_tensor(cute.make_layout(ROWS), cutlass.Float32)
    for r in cutlass.range_constexpr(ROWS):
        starts[r] = cutlass.min(block * ROWS + r, rows - 1) * vectors
        sums[r] = cutlass.Float32(0.0)
    whole = vectors // (THREADS * turns) * (THREADS * turns)  # vectors of a row of which every thread has as many
    for first in range(thread, whole, THREADS * turns):
        add_products(x, vector, starts, sums, first, width, turns)
    for first in cutlass.range(whole + thread, vectors, THREADS, unroll=1):
        add_products(x, vector, starts, sums, first, width, 1)
    for r in cutlass.range_constexpr(ROWS):
        value = sums[r]
        for step in cutlass.range_constexpr(5):
            value = value + cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
        if thread % 32 == 0:
            memory[r, thread // 32] = value
    cute.arch.sync_threads()
    row = block * ROWS + thread
    if (thread < ROWS) & (row < rows):
        value = memory[thread, 0]
        for warp in cutlass.range_constexpr(1, THREADS // 32):
            value = value + memory[thread, warp]
        y[row] = value.to(y.element_type)


@cute.jit
def matvec(x: cute.Tensor, vector: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, vectors: cutlass.Int32, stream: cuda.CUstream, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """x and vector as (vectors, width); y has an element for each row."""
    matvec_kernel(x, vector, y, rows, vectors, width, turns).launch(grid=[(rows + ROWS - 1) // ROWS, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''


def emit(stage: Stage, binding: Binding) -> Parts:
    """The kernel and the body of forward of a stage with rows."""
    bound, keepdim = dict(binding.operands), dict(stage.operation.named).get("keepdim", 0)
    vector, unroll = number(stage, "vector", 1), number(stage, "unroll", 1)
    lines = [
        f"x, vector = {bound.get('x', 'x')}.detach(), {bound.get('vector', 'vector')}.detach().reshape(-1)",
        expect_axes(called("x", bound), "x", 1), expect(called("x", bound), "x", "x.shape"), expect(called("vector", bound), "vector", "x.shape[-1:]", "EXACT"),
        "x, vector, columns = x.contiguous(), vector.contiguous(), x.shape[-1]", f"if x.numel() > {'1 << 31' if vector > 1 else '(1 << 31) - 1'}:", '    raise ValueError("x has too many elements for 32-bit places, 2**31 and more")',
        f"y = torch.empty({'(*x.shape[:-1], 1)' if keepdim else 'x.shape[:-1]'}, dtype=x.dtype, device=x.device)", *empty("y"),
        f"width = {vector} if columns % {vector} == 0 and (x.data_ptr() | vector.data_ptr()) % 16 == 0 else 1" if vector > 1 else "width = 1",
        f"turns = {unroll * vector} // width  # vectors of each row that a thread loads at once" if vector > 1 else f"turns = {unroll}  # elements of each row that a thread loads at once",
        "call(matvec, (x.dtype, vector.dtype, width, turns), (", f"    {vectors_of('x')},", f"    {vectors_of('vector')},", "    from_dlpack(y.view(-1)).mark_layout_dynamic(),",
        "    cutlass.Int32(y.numel()), cutlass.Int32(columns // width),", "), (width, turns))", "return y",
    ]  # fmt: skip
    return Parts(kernels=KERNELS.format(threads=number(stage, "threads_per_row", 32), rows=number(stage, "rows", 1)), forward="\n".join(lines))


def check(stage: Stage) -> list[Rejection]:
    """Rejections of settings that do not go with rows."""
    found = unwanted(stage, ("cluster", "parts"), "with rows a CTA has its rows whole", "leave it out, or rows")
    values = [setting(stage, item.name, least) for item, least in ((ROWS, 1), (UNROLL, 1), (VECTOR, 1), (THREADS_PER_ROW, 32))]
    if not all(isinstance(value, int) for value in values):
        return found  # what is no number is refused where it stands
    rows, unroll, vector, threads = map(int, map(str, values))
    if threads < 64:
        said = f"with threads_per_row({threads})" if setting(stage, "threads_per_row") is not None else f"without threads_per_row, which is {threads} then,"
        reason = f"all threads of a CTA share its rows, and {said} a CTA has several rows side by side"
        found.append(Rejection(field="rows", value=str(rows), reason=reason, legal=f"with threads_per_row 64 or more, as in .rows({rows}) .threads_per_row(128)"))
    most = min(REGISTERS_OF_SM // max(threads, 64), REGISTERS_OF_THREAD) // 2
    if rows * unroll * vector > most:
        reason = f"each thread would load {rows * unroll * vector} elements of x at once, and at most half of its registers are for them"
        found.append(Rejection(field="rows", value=str(rows), reason=reason, legal=f"rows times unroll times vector up to {most}"))
    return found


ROWS = Setting(name="rows", values=(2, 4, 8), reason="rows that a CTA has at once, each with sums of its own in every thread", meaning="a CTA has {values} rows at once, for which it loads the vector once; with threads_per_row 64 or more")
