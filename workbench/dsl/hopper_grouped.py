"""ggemm(a, b, offsets) -> one persistent Hopper kernel for products of groups of rows, as a mixture of experts needs them.

a (rows, k) holds the groups one after the other, b (groups, k, n) a matrix for each, offsets (groups) int32 one past each group's last row; d (rows, n).
Every group may have any number of rows, none too; the offsets must not decrease, nor go beyond the rows. Where they are in the host's memory they are looked at;
reading a GPU's would wait for it, so that the kernel takes what is out of range as 0 or the last row, and a group that ends before it starts as none: nothing is
read or written outside of the matrices, but the rows of such groups are wrong or not written. How many tiles there are is only known on the device: each CTA counts them and walks over its share, so
the host never waits. One descriptor serves all groups, since TMA may start at any row; a tile that reaches past its group's end reads rows of the
next group, and its threads store only the rows that are its own. Rows after the last group's end are not written.
"""

from __future__ import annotations

import textwrap

from workbench.dsl import epilogue, hopper, hopper_checks, hopper_finish
from workbench.dsl.expecting import called, empty, expect, expect_ends, some_k
from workbench.dsl.hopper_forward import TURNED, operand_lines
from workbench.dsl.hopper_operands import OPERANDS
from workbench.dsl.hopper_plan import plan_of
from workbench.dsl.hopper_text import KERNEL
from workbench.dsl.ir import Binding, Rejection, Stage, setting
from workbench.dsl.operation import ARCH, Operation, Setting
from workbench.dsl.pieces import UNARY, Parts, definitions

LOCATE = '''\
@cute.jit
def end_of(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """One past the last row of a group, within the matrix whatever the offset is."""
    return cutlass.min(cutlass.max(offsets[group], 0), rows)


@cute.jit
def start_of(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32):
    """The first row of a group."""
    start = cutlass.Int32(0)
    if group > 0:
        start = end_of(offsets, group - 1, rows)
    return start


@cute.jit
def tiles_of(offsets: cute.Tensor, group: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """How many pieces of work a group is, in clusters."""
    own = cutlass.max(end_of(offsets, group, rows) - start_of(offsets, group, rows), 0)
    return (own + TILE_M * CLUSTER_M - 1) // (TILE_M * CLUSTER_M) * columns


@cute.jit
def locate(offsets: cute.Tensor, work: cutlass.Int32, group: cutlass.Int32, before: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """(group, pieces of work before it) of a piece of work, searched from `group` on."""
    tiles = tiles_of(offsets, group, rows, columns)
    while work >= before + tiles:
        before += tiles
        group += 1
        tiles = tiles_of(offsets, group, rows, columns)
    return group, before

'''
WORKS = """\
    columns = (n + TILE_N * CLUSTER_N - 1) // (TILE_N * CLUSTER_N)
    works = cutlass.Int32(0)
    for index in cutlass.range(offsets.shape[0], unroll=4):
        works += tiles_of(offsets, index, m, columns)
"""
FIND = """\
problem, before = locate(offsets, work, problem, before, m, columns)
high = tiles_of(offsets, problem, m, columns) // columns
tile_m = (work - before) % high * CLUSTER_M + in_m
tile_n = (work - before) // high * CLUSTER_N + in_n"""
FIND_LOADED = """
rows_a = cute.local_tile(cute.domain_offset((start_of(offsets, problem, m), 0, 0), a), (TILE_M, TILE_K), (None, None, None))
_, from_rows = cpasync.tma_partition(tma_a, in_n, cute.make_layout(CLUSTER_N), cute.group_modes(shared_a, 0, 2), cute.group_modes(rows_a, 0, 2))"""
FIND_MULTIPLIED = """
m0 = start_of(offsets, problem, m) + tile_m * TILE_M + group * ROWS
n0 = tile_n * TILE_N
end = end_of(offsets, problem, m)"""
STORE = """\
            # the rows of the next group start where this one's end: only whole tiles can leave through TMA
            whole = cutlass.Boolean(False)
            if cutlass.const_expr(by_tma):
                whole = m0 + ROWS <= end
            tiles_d = cute.local_tile(cute.domain_offset((m0, 0, 0), d), (64, STORE_N), (None, None, None))
            for i in cutlass.range_constexpr(ROWS // 64):
                for j in cutlass.range_constexpr(TILE_N // STORE_N):
                    # 64 rows and STORE_N columns at a time: registers, shared memory, global memory
                    buffer = group * BUFFERS + (i * (TILE_N // STORE_N) + j) % BUFFERS
                    row, column = m0 + 64 * i, n0 + STORE_N * j
                    for e in cutlass.range_constexpr(cute.size(piece)):
{finish}
                    if cutlass.const_expr(by_tma):
                        if warp_index % 4 == 0:
                            with cute.arch.elect_one():
                                cute.arch.cp_async_bulk_wait_group(0, read=True)  # what was in this buffer has left
                    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                    cute.copy(to_shared, piece, into_d[None, None, None, buffer])
                    if cutlass.const_expr(by_tma):
                        cute.arch.fence_proxy("async.shared", space="cta")
                    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                    if cutlass.const_expr(by_tma):
                        out_d, target_d = cpasync.tma_partition(tma_d, 0, cute.make_layout(1), cute.group_modes(shared_d, 0, 2), cute.group_modes(tiles_d, 0, 2))
                        if whole and warp_index % 4 == 0:
                            with cute.arch.elect_one():
                                cute.copy(tma_d, out_d[None, buffer], target_d[None, i, column // STORE_N, 0])
                                cute.arch.cp_async_bulk_commit_group()
                    if not whole:
                        for e in cutlass.range(lane, 64 * STORE_N, 128, unroll=4):
                            if row + e // STORE_N < end and column + e % STORE_N < n:
                                d_plain[row + e // STORE_N, column + e % STORE_N, 0] = shared_d[e // STORE_N, e % STORE_N, buffer]
        if cutlass.const_expr(by_tma):
            if warp_index % 4 == 0:
                with cute.arch.elect_one():
                    cute.arch.cp_async_bulk_wait_group(0, read=True)
"""
FORWARD = """\
a, b = {a}, {b}
{expected}
d = torch.empty(a.shape[-{side_a}], b.shape[-{side_b}], dtype={dtype}, device=a.device)
{nothing}
d3 = d.unsqueeze(0)
ends = {offsets}.detach().to(torch.int32)
(left, left_first), (right, right_first) = operand(a, {a_turned}), operand(b, {b_rows_first})  # as (1, rows, k) and (groups, n, k)
by_tma = {by_tma}
call(gemm, (by_tma, left_first, right_first), (
    left, right,
    from_dlpack(ends).mark_layout_dynamic(),
    from_dlpack(d3, assumed_align=16 if by_tma else None).mark_layout_dynamic(leading_dim=2),
), (by_tma, resident()))
return d"""
START = "{indent}problem, before = cutlass.Int32(0), cutlass.Int32(0)\n"


def emit(stage: Stage, binding: Binding) -> Parts:
    """The kernel of `hopper` with another walk over the tiles and another store."""
    plan, chain = plan_of(stage), epilogue.chain_of(stage)
    base = hopper.fields_of(plan, chain, definitions(epilogue.functions_of(stage)))
    finish = textwrap.indent("\n".join(hopper_finish.piece_lines(plan, chain, hopper.result_of(plan)[0])), " " * 24)
    setup = str(base["store_setup"])
    fields = {
        **base, "parameter": "offsets: cute.Tensor, ", "argument": "offsets, ", "place": LOCATE, "works": WORKS, "batch_a": "0", "batch_b": "problem", "from_a": "from_rows",
        "start_loaded": START.format(indent=" " * 12), "start_multiplied": START.format(indent=" " * 8), "find_loaded": textwrap.indent(FIND + FIND_LOADED, " " * 16), "find_multiplied": textwrap.indent(FIND + FIND_MULTIPLIED, " " * 12),
        "store_setup": setup[: setup.index("        if cutlass.const_expr(by_tma):")], "store": STORE.format(finish=finish), "raster": "rows of tiles (here a group's all)",
        "most_works": "((m + TILE_M * CLUSTER_M - 1) // (TILE_M * CLUSTER_M) + offsets.shape[0]) * ((n + TILE_N * CLUSTER_N - 1) // (TILE_N * CLUSTER_N))  # at most",
        "launch_about": "a (1, rows, k), b (groups, n, k), offsets (groups), d (1, rows, n); `resident` clusters run at once.",
    }  # fmt: skip
    return Parts(kernels=KERNEL.format(operands=OPERANDS.format(**fields), **fields), forward=_forward(stage, binding), imports=hopper.imports_of(plan))


def _forward(stage: Stage, binding: Binding) -> str:
    plan, bound = plan_of(stage), dict(binding.operands)
    a, b = bound.get("a", "a"), bound.get("b", "b")
    a_turned, b_turned = a.endswith(TURNED), b.endswith(TURNED)
    expected = [*operand_lines(bound, a_turned, b_turned, "b.shape[0], "), expect(called("offsets", bound), bound.get("offsets", "offsets"), "(b.shape[0],)", "INDICES")]
    expected.append(expect_ends(called("offsets", bound), bound.get("offsets", "offsets"), f"a.shape[-{1 if a_turned else 2}]"))
    return FORWARD.format(
        expected="\n".join(expected), nothing="\n".join([*empty("d"), *some_k(f"a.shape[-{2 if a_turned else 1}]", -2 if a_turned else -1, -1 if b_turned else -2)]),
        a=a.removesuffix(TURNED), b=b.removesuffix(TURNED), side_a=1 if a_turned else 2, side_b=2 if b_turned else 1, dtype=hopper.result_of(plan)[1], offsets=bound.get("offsets", "offsets"), a_turned=a_turned, b_rows_first=not b_turned,
        by_tma="d.shape[-1] * d.element_size() % 16 == 0  # otherwise the threads store the result" if plan.store == "tma" else "False",
    )  # fmt: skip


def check(stage: Stage) -> list[Rejection]:
    """Rejections: what a scheduled product allows, cooperative only, epilogues without tensors."""
    found = [*epilogue.check(stage), *hopper_checks.check(stage)]
    if setting(stage, "schedule") == "pingpong":
        found.append(Rejection(field="schedule", value="pingpong", reason="the warpgroups of pingpong skip each other's tiles, which belong to groups of any size", legal="cooperative"))
    chain = epilogue.chain_of(stage) if not found else None
    if chain is not None and (chain.reads or chain.reduction):
        name = chain.reads[0].role if chain.reads else chain.reduction.name if chain.reduction else ""
        found.append(Rejection(field="epilogue", value=name, reason="ggemm's epilogues are functions and numbers", legal="leave it out"))
    return found


SETTINGS = (
    ARCH, Setting(name="tile", values=((128, 256, 64), (128, 128, 64), (128, 64, 64), (64, 256, 64), (64, 128, 64), (64, 64, 64)), closed=False), Setting(name="mma", values=("f16", "bf16", "tf32", "e4m3", "e5m2"), closed=False),
    Setting(name="stages", values=(2, 3, 4, 5, 6, 8), closed=False), Setting(name="schedule", values=("cooperative",), closed=False, required=True), Setting(name="cluster", values=((2, 1), (1, 2), (2, 2)), closed=False),
    Setting(name="store", values=("direct",), closed=False), Setting(name="launch", values=("early",), reason="whether the next kernel may start while this one ends"),
)  # fmt: skip
OPERATIONS = (
    Operation(
        name="ggemm", about="ggemm(a, b, offsets): groups of rows of a (rows, k), each times its matrix of b (groups, k, n); offsets (groups): one past each group's last row; sm_90a with a schedule",
        settings=SETTINGS, emit=emit, check=check, epilogues=("scale", "clamp", "add", "sub", "mul", "div", "max", "min", *UNARY, "cast"), roles=("a", "b", "offsets"),
    ),
)  # fmt: skip
