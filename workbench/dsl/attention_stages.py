"""Text of attention in three kernels: scores = q @ k^T, their softmax in place, then scores @ v, with a gemm of this language for both products.

For head dimensions that do not fit into a CTA's registers. The scores go through memory: 4 x queries x keys elements more than the operands.
"""

from __future__ import annotations

import textwrap

from workbench.dsl import gemm
from workbench.dsl.ir import Binding, Call, Stage
from workbench.dsl.pieces import Parts

SOFTMAX = '''
CAUSAL = {causal}  # whether query i sees keys 0 to i only


@cute.kernel
def softmax_kernel(scores: cute.Tensor, scale: cutlass.Float32, rows: cutlass.Int32, queries: cutlass.Int32, keys: cutlass.Int32, threads: cutlass.Constexpr, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """softmax(scale * row) in place; `threads` threads keep a row in registers, `turns` vectors of `width` each."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    scratch = memory.allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), 16)
    row = block * (256 // threads) + thread // threads if cutlass.const_expr(threads == 32) else block
    lane = thread % threads
    vectors = keys // width
    own = cute.make_rmem_tensor(cute.make_layout((width, turns)), scores.element_type)
    values = cute.make_rmem_tensor(cute.make_layout((width, turns)), cutlass.Float32)
    values.fill(-cutlass.Float32.inf)
    pieces = cute.zipped_divide(scores, (width,))
    start = cutlass.Int64(row) * vectors
    seen = keys
    if cutlass.const_expr(CAUSAL):
        seen = cutlass.min(keys, row % queries + 1)
    if row < rows:
        for turn in cutlass.range_constexpr(turns):
            if turn * threads + lane < vectors:
                cute.autovec_copy(pieces[None, start + turn * threads + lane], own[None, turn])
        for turn in cutlass.range_constexpr(turns):
            for e in cutlass.range_constexpr(width):
                if (turn * threads + lane) * width + e < seen:
                    values[e, turn] = own[e, turn].to(cutlass.Float32) * scale
    top = values.load().reduce(cute.ReductionOp.MAX, -cutlass.Float32.inf, 0)
    for step in cutlass.range_constexpr(5):
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 16 >> step))
    if cutlass.const_expr(threads > 32):
        if thread % 32 == 0:
            scratch[thread // 32, 0] = top
        cute.arch.sync_threads()
        for warp in cutlass.range_constexpr(threads // 32):
            top = cute.arch.fmax(top, scratch[warp, 0])
    values.store(cute.math.exp2((values.load() - top) * math.log2(math.e), fastmath=True))
    total = values.load().reduce(cute.ReductionOp.ADD, 0.0, 0)
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, 16 >> step)
    if cutlass.const_expr(threads > 32):
        if thread % 32 == 0:
            scratch[thread // 32, 1] = total
        cute.arch.sync_threads()
        total = cutlass.Float32(0.0)
        for warp in cutlass.range_constexpr(threads // 32):
            total += scratch[warp, 1]
    values.store(values.load() * (1.0 / total))
    own.store(values.load().to(own.element_type))
    if row < rows:
        for turn in cutlass.range_constexpr(turns):
            if turn * threads + lane < vectors:
                cute.autovec_copy(own[None, turn], pieces[None, start + turn * threads + lane])


@cute.jit
def softmax(scores: cute.Tensor, scale: cutlass.Float32, rows: cutlass.Int32, queries: cutlass.Int32, keys: cutlass.Int32, stream: cuda.CUstream, threads: cutlass.Constexpr, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    blocks = (rows + 7) // 8 if cutlass.const_expr(threads == 32) else rows
    softmax_kernel(scores, scale, rows, queries, keys, threads, width, turns).launch(grid=[blocks, 1, 1], block=[256 if cutlass.const_expr(threads == 32) else threads, 1, 1], stream=stream)


def three(tensor):
    """(batch, heads, rows, columns) as (batch * heads, rows, columns)."""
    return tensor.detach().flatten(0, 1)

'''
FORWARD = """
if k4.shape[1] != q4.shape[1]:
    raise ValueError(f"{q4.shape[1]} heads of q and {k4.shape[1]} of k: this kernel wants as many; .schedule(flash) or no schedule lets heads share")
scores = scores_of(three(q4), three(k4))
queries, keys = scores.shape[1:]
width = math.gcd(16 // scores.element_size(), keys)
threads = 32 if keys <= 1024 else 256 if keys <= 16384 else 1024
turns = -(-keys // (width * threads))
for (part,) in by_rows(scores.view(-1, queries * keys)):
    call(softmax, (scores.dtype, threads, width, turns), (
        from_dlpack(part.view(-1), assumed_align=width * part.element_size()).mark_layout_dynamic(), cutlass.Float32(scale), cutlass.Int32(part.shape[0] * queries), cutlass.Int32(queries), cutlass.Int32(keys),
    ), (threads, width, turns))
out = out_of(scores, three(v4)).view(out.shape)
"""


def product(stage: Stage) -> Stage:
    """The gemm that both products are."""
    kept = tuple(Call(name="schedule", positional=("cooperative",)) if call.name == "schedule" else call for call in stage.settings)
    if not any(call.name == "mma" for call in kept):
        kept = tuple(call for call in kept if call.name != "schedule")  # float32 on the ordinary pipes
        kept += () if any(call.name == "tile" for call in kept) else (Call(name="tile", positional=(128, 128, 8)), Call(name="thread_tile", positional=(8, 8)))
    return Stage(operation=Call(name="gemm", positional=("a", "b")), settings=kept)


def emit(stage: Stage, causal: bool) -> Parts:
    """The kernels, functions `scores_of` and `out_of`, and what forward does between views of its operands and the result."""
    inner = product(stage)
    first = gemm.emit(inner, Binding(init_source="", forward_arguments=("a", "b"), operands=(("a", "a"), ("b", "b.transpose(-2, -1)"))))
    second = gemm.emit(inner, Binding(init_source="", forward_arguments=("a", "b"), operands=(("a", "a"), ("b", "b"))))
    functions = "".join(f'\n\ndef {name}(a, b):\n    """{about}"""\n{textwrap.indent(part.forward, "    ")}\n' for name, about, part in (("scores_of", "a @ b^T of every batch.", first), ("out_of", "a @ b of every batch.", second)))
    return Parts(kernels=first.kernels.rstrip() + "\n\n" + SOFTMAX.format(causal=causal) + functions, forward=FORWARD, imports="\n".join(dict.fromkeys(["import math", *first.imports.splitlines()])))
