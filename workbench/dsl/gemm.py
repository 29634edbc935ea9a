"""gemm(a, b) -> matrix product kernels: naive, shared-memory tiles with register blocking, tensor cores (multistage: `pipelined`; Hopper: `hopper`); fused epilogues.

Operands are always presented as a (batch, m, k), b (batch, k, n), d (batch, m, n), with whatever strides they have.
"""

from __future__ import annotations

import textwrap

from workbench.dsl import epilogue, hopper, pipelined
from workbench.dsl.expecting import called, empty, expect, expect_axes, some_k
from workbench.dsl.gemm_checks import check
from workbench.dsl.ir import Binding, Stage, number, setting
from workbench.dsl.operation import ARCH, Operation, Setting, of_epilogues
from workbench.dsl.pieces import Parts, definitions

NAIVE = '''{functions}
@cute.kernel
def gemm_kernel(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32):
    """One output per thread; neighbouring threads own neighbouring columns."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    across, down = (n + 31) // 32, (m + 7) // 8
    block_n, block_m, batch = block % across, block // across % down, block // across // down  # along one axis of the grid: the others end at 65535
    column = block_n * 32 + thread % 32
    row = block_m * 8 + thread // 32
    if row < m:
        if column < n:
            total = cutlass.Float32(0.0)
            for i in range(k):
                total += a[batch, row, i].to(cutlass.Float32) * b[batch, i, column].to(cutlass.Float32)
{epilogue}


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, batches: cutlass.Int32, stream: cuda.CUstream):
    gemm_kernel(a, b, {argument}d, m, n, k).launch(grid=[((n + 31) // 32) * ((m + 7) // 8) * batches, 1, 1], block=[256, 1, 1], stream=stream)
'''
TILED = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # what one CTA computes, and how much of k it stages at once
PER_M, PER_N = {pm}, {pn}  # outputs per thread
ACROSS = TILE_N // PER_N  # threads along n
THREADS = (TILE_M // PER_M) * ACROSS

{functions}
@cute.kernel
def gemm_kernel(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32):
    """Tiles of a and b go through shared memory; each thread keeps PER_M x PER_N outputs in registers."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    across, down = (n + TILE_N - 1) // TILE_N, (m + TILE_M - 1) // TILE_M
    block_n, block_m, batch = block % across, block // across % down, block // across // down  # along one axis of the grid: the others end at 65535
    memory = cutlass.memory.SmemAllocator()
    # one extra column, so that the threads of a warp fall into different banks
    tile_a = memory.allocate_tensor(cutlass.Float32, cute.make_layout((TILE_M, TILE_K), stride=(TILE_K + 1, 1)), 16)
    tile_b = memory.allocate_tensor(cutlass.Float32, cute.make_layout((TILE_K, TILE_N), stride=(TILE_N + 1, 1)), 16)
    totals = cute.make_rmem_tensor(cute.make_layout((PER_M, PER_N)), cutlass.Float32)
    totals.fill(0.0)
    mine_m = thread // ACROSS
    mine_n = thread % ACROSS
    for start in range(0, k, TILE_K):
        for step in cutlass.range_constexpr(TILE_M * TILE_K // THREADS):
            at = step * THREADS + thread
            i, j = {order_a}
            value = cutlass.Float32(0.0)
            if block_m * TILE_M + i < m:
                if start + j < k:
                    value = a[batch, block_m * TILE_M + i, start + j].to(cutlass.Float32)
            tile_a[i, j] = value
        for step in cutlass.range_constexpr(TILE_K * TILE_N // THREADS):
            at = step * THREADS + thread
            i, j = {order_b}
            value = cutlass.Float32(0.0)
            if start + i < k:
                if block_n * TILE_N + j < n:
                    value = b[batch, start + i, block_n * TILE_N + j].to(cutlass.Float32)
            tile_b[i, j] = value
        cute.arch.sync_threads()
        for inner in cutlass.range_constexpr(TILE_K):
            for p in cutlass.range_constexpr(PER_M):
                left = tile_a[mine_m + p * (TILE_M // PER_M), inner]
                for q in cutlass.range_constexpr(PER_N):
                    totals[p, q] += left * tile_b[inner, mine_n + q * ACROSS]
        cute.arch.sync_threads()
    for p in cutlass.range_constexpr(PER_M):
        for q in cutlass.range_constexpr(PER_N):
            row = block_m * TILE_M + mine_m + p * (TILE_M // PER_M)
            column = block_n * TILE_N + mine_n + q * ACROSS
            if row < m:
                if column < n:
                    total = totals[p, q]
{epilogue}


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, batches: cutlass.Int32, stream: cuda.CUstream):
    gemm_kernel(a, b, {argument}d, m, n, k).launch(grid=[((n + TILE_N - 1) // TILE_N) * ((m + TILE_M - 1) // TILE_M) * batches, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
MMA = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # what one CTA computes, and how much of k it stages at once
INPUT = cutlass.{cute_type}  # what the tensor cores multiply; they accumulate in float32
THREADS = 128  # four warps, two along m and two along n

{functions}
@cute.kernel
def gemm_kernel(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, tiled_mma: cute.TiledMma):
    """Tiles of a and b go through shared memory into tensor-core fragments (mma.sync m16n8k{mk})."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    across, down = (n + TILE_N - 1) // TILE_N, (m + TILE_M - 1) // TILE_M
    block_n, block_m, batch = block % across, block // across % down, block // across // down  # along one axis of the grid: the others end at 65535
    memory = cutlass.memory.SmemAllocator()
    # rows are padded by 16 bytes, so that the rows of a fragment fall into different banks
    tile_a = memory.allocate_tensor(INPUT, cute.make_layout((TILE_M, TILE_K), stride=(TILE_K + {pad}, 1)), 16)
    tile_b = memory.allocate_tensor(INPUT, cute.make_layout((TILE_N, TILE_K), stride=(TILE_K + {pad}, 1)), 16)
    mine = tiled_mma.get_slice(thread)
    shared_a, shared_b = mine.partition_A(tile_a), mine.partition_B(tile_b)
    part_a, part_b = tiled_mma.make_fragment_A(shared_a), tiled_mma.make_fragment_B(shared_b)
    where = mine.partition_C(cute.make_identity_tensor((TILE_M, TILE_N)))
    totals = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    totals.fill(0.0)
    for start in range(0, k, TILE_K):
        for step in cutlass.range_constexpr(TILE_M * TILE_K // THREADS):
            at = step * THREADS + thread
            i, j = {order_a}
            value = cutlass.Float32(0.0)
            if block_m * TILE_M + i < m:
                if start + j < k:
                    value = a[batch, block_m * TILE_M + i, start + j].to(cutlass.Float32)
            tile_a[i, j] = value.to(INPUT)
        for step in cutlass.range_constexpr(TILE_K * TILE_N // THREADS):
            at = step * THREADS + thread
            i, j = {order_b}
            value = cutlass.Float32(0.0)
            if start + i < k:
                if block_n * TILE_N + j < n:
                    value = b[batch, start + i, block_n * TILE_N + j].to(cutlass.Float32)
            tile_b[j, i] = value.to(INPUT)
        cute.arch.sync_threads()
        cute.autovec_copy(shared_a, part_a)
        cute.autovec_copy(shared_b, part_b)
        cute.gemm(tiled_mma, totals, part_a, part_b, totals)
        cute.arch.sync_threads()
    for e in cutlass.range_constexpr(cute.size(totals)):
        row = block_m * TILE_M + where[e][0]
        column = block_n * TILE_N + where[e][1]
        if row < m:
            if column < n:
                total = totals[e]
{epilogue}


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, batches: cutlass.Int32, stream: cuda.CUstream):
    operation = {operation}
    tiled_mma = cute.make_tiled_mma(operation, cute.make_layout((2, 2, 1)))
    gemm_kernel(a, b, {argument}d, m, n, k, tiled_mma).launch(grid=[((n + TILE_N - 1) // TILE_N) * ((m + TILE_M - 1) // TILE_M) * batches, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
MMA_OPERATIONS = {
    "f16": ("Float16", "cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))", 16, 8),
    "bf16": ("BFloat16", "cute.nvgpu.warp.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (16, 8, 16))", 16, 8),
    "tf32": ("TFloat32", "cute.nvgpu.warp.MmaTF32Op((16, 8, 8))", 8, 4),
}


def _epilogue(stage: Stage, depth: int) -> str:
    return textwrap.indent("\n".join([*epilogue.lines(epilogue.chain_of(stage).calls, epilogue.plain), "d[batch, row, column] = total.to(d.element_type)"]), " " * depth)


def emit(stage: Stage, binding: Binding) -> Parts:
    """Naive without a tile, register-blocked with tile and thread_tile, tensor cores with mma, multistage with mma and stages, Hopper's with a schedule."""
    functions = definitions(epilogue.functions_of(stage))
    if setting(stage, "schedule") is not None:
        return hopper.emit(stage, binding, functions)
    chain = epilogue.chain_of(stage)
    functions += epilogue.SPREAD if any(read.along == "both" for read in chain.reads) else ""
    common = {"functions": functions, "parameter": chain.parameters, "argument": chain.arguments}
    layout = dict(next((call.named for call in stage.settings if call.name == "layout"), ()))
    tile, mma = setting(stage, "tile"), setting(stage, "mma")
    order_a = "at // TILE_K, at % TILE_K" if layout.get("a", "row") == "row" else "at % TILE_M, at // TILE_M"
    order_b = "at // TILE_N, at % TILE_N" if layout.get("b", "row") == "row" else "at % TILE_K, at // TILE_K"
    if mma is not None:
        tm, tn, tk = tile if isinstance(tile, tuple) else (64, 64, 32)
        cute_type, operation, mk, pad = MMA_OPERATIONS[str(mma)]
        stages = number(stage, "stages", 1)
        if stages > 1:
            piped = pipelined.kernel(str(mma), (tm, tn, tk), stages, operation, mk, _epilogue(stage, 16), common)
            return Parts(kernels=piped, forward=pipelined.forward(binding, chain, hopper.STORED[str(mma)][1]), imports="import math")
        text = MMA.format(tm=tm, tn=tn, tk=tk, cute_type=cute_type, operation=operation, mk=mk, pad=pad, order_a=order_a, order_b=order_b, epilogue=_epilogue(stage, 16), **common)
    elif isinstance(tile, tuple):
        thread = setting(stage, "thread_tile", (1, 1))
        pm, pn = thread if isinstance(thread, tuple) else (1, 1)
        text = TILED.format(tm=tile[0], tn=tile[1], tk=tile[2], pm=pm, pn=pn, order_a=order_a, order_b=order_b, epilogue=_epilogue(stage, 20), **common)
    else:
        text = NAIVE.format(epilogue=_epilogue(stage, 12), **common)
    return Parts(kernels=text, forward=_forward(binding, chain))


def _forward(binding: Binding, chain: epilogue.Chain) -> str:
    bound = dict(binding.operands)
    lines = [
        f"a, b = {bound.get('a', 'a')}, {bound.get('b', 'b')}",
        expect_axes(called("a", bound), "a", 2, 3),
        "m, k = a.shape[-2:]",
        "n = b.shape[-1]",
        expect(called("a", bound), "a", "a.shape"),
        expect(called("b", bound), "b", "(*a.shape[:-2], k, n)", "(a.dtype,)"),
        f"d = torch.empty(*a.shape[:-1], n, dtype={chain.dtype('a.dtype')}, device=a.device)",
        *epilogue.expected(chain, bound, "m", "n", "d.shape"),
        *empty("d"),
        *some_k("k", -1, -2),
        "    k = 1",
        "# everything as (batch, rows, columns); the strides say how it lies in memory",
        "a3 = a if a.dim() == 3 else a.unsqueeze(0)",
        "b3 = b if b.dim() == 3 else b.unsqueeze(0)",
        "d3 = d if d.dim() == 3 else d.unsqueeze(0)",
        f"call(gemm, (a.dtype, {epilogue.keys(chain, bound)}a3.stride(2) == 1, b3.stride(2) == 1), (",
        "    from_dlpack(a3.detach()).mark_layout_dynamic(leading_dim=2 if a3.stride(2) == 1 else 1),",
        "    from_dlpack(b3.detach()).mark_layout_dynamic(leading_dim=2 if b3.stride(2) == 1 else 1),",
        *(f"    {view}," for view in epilogue.views(chain, bound)),
        "    from_dlpack(d3).mark_layout_dynamic(leading_dim=2),",
        "    cutlass.Int32(m), cutlass.Int32(n), cutlass.Int32(k), cutlass.Int32(d3.shape[0]),",
        "))",
        "return d",
    ]
    return "\n".join(lines)


TILES = tuple((m, n, k) for m in (64, 128, 256) for n in (16, 32, 64, 96, 128, 192, 256) for k in (32, 64, 128))
SETTINGS = (
    ARCH,
    Setting(name="layout", closed=False),
    Setting(name="tile", values=((32, 32, 16), (64, 64, 16), (128, 128, 8), *TILES), closed=False),
    Setting(name="thread_tile", values=((2, 2), (4, 4), (8, 4), (8, 8)), closed=False),
    Setting(name="mma", values=("f16", "bf16", "tf32", "tf32x3"), closed=False),
    Setting(name="stages", values=(2, 3, 4, 5, 6, 8), closed=False),
    Setting(name="schedule", values=("cooperative", "pingpong"), closed=False),
    Setting(name="cluster", values=((2, 1), (1, 2), (2, 2)), closed=False),
    Setting(name="raster", values=(("along_m", 4), ("along_m", 16), ("along_n", 8)), closed=False),
    Setting(name="store", values=("direct", ("tma", 4), ("tma", 8)), closed=False),
    Setting(name="splitk", values=(2, 4, 8, 16, (2, "cluster"), (4, "cluster"), (8, "cluster")), closed=False),
    Setting(name="streamk", values=("yes",), reason="whether the tiles of the last wave are cut along k"),
    Setting(name="swap", values=((),), reason="it takes nothing: the transposed product is computed"),
    Setting(name="through", values=("registers",), reason="how wgmma's first operand is read"),
    Setting(name="launch", values=("early",), reason="whether the next kernel may start while this one ends"),
)
OPERATIONS = (
    Operation(name="gemm", about="gemm(a, b): a (batch, m, k) times b (batch, k, n), batch may be missing; operands bias (n) with >> bias(), residual (m, n) with >> residual()", settings=SETTINGS, emit=emit, check=check, epilogues=epilogue.NAMES, roles=("a", "b"), implied=of_epilogues),
)
