"""Which text of `hopper_store` a plan needs, filled in: from the finished tile to the result, with the epilogues on the way."""

from __future__ import annotations

import textwrap

from workbench.dsl import epilogue
from workbench.dsl.epilogue import START, Chain, Read
from workbench.dsl.hopper_plan import Plan
from workbench.dsl.hopper_store import ADD_PARTS, ADD_UP, FETCH, GATHER, REDUCE_COLUMNS, REDUCE_ROWS, SPREAD, STORE, STORE_SETUP
from workbench.dsl.hopper_text import EARLY
from workbench.dsl.reductions import COMBINE

PIECE = {"store": "j * cute.size(piece) + e", "reduce": "j * (STORE_N // 2) + e"}


def fields(plan: Plan, chain: Chain, result: str) -> dict[str, str]:
    """The pieces of KERNEL that say what happens to a finished tile; `result` is CuTe DSL's type of what is stored."""
    if plan.reduced:
        return _reduced(plan, chain)
    if plan.in_cluster:
        return _in_cluster(plan, chain)
    return _stored(plan, Chain() if plan.splits > 1 else chain, result, chain)


def helpers(plan: Plan, chain: Chain) -> str:
    """Functions that the kernel and forward call: fetching a part of a tensor, and how it is presented."""
    wide = any(read.along == "both" for read in chain.reads)
    return ((FETCH if plan.splits == 1 else "") + (SPREAD if plan.splits == 1 else epilogue.SPREAD)) if wide else ""


def by_kernel_rows(plan: Plan, chain: Chain) -> bool:
    """Whether the kernel reduces along its own n: the transposed product's rows are the result's columns."""
    return chain.by_rows != plan.swap


def has_pairs(plan: Plan, chain: Chain) -> bool:
    """Whether the kernel reads a (m, n) tensor with its fragments, two columns at a time where it can."""
    return plan.splits == 1 and any(read.along == "both" for read in chain.reads)


def _early(plan: Plan) -> str:
    return EARLY if plan.early else ""


def _pdl(plan: Plan) -> str:
    return ", use_pdl=True" if plan.early else ""


def _stored(plan: Plan, chain: Chain, result: str, whole: Chain) -> dict[str, str]:
    major = "COL_MAJOR" if plan.swap else "ROW_MAJOR"
    pairs = has_pairs(plan, chain)
    body = piece_lines(plan, chain, result)
    setup = STORE_SETUP.format(by_columns=plan.swap, major=major, result=result, held=_held(chain))
    across = {"e_row": "e % 64", "e_column": "e // 64"} if plan.swap else {"e_row": "e // STORE_N", "e_column": "e % STORE_N"}
    combine = ""
    if plan.splits > 1:
        names = [read.role for read in whole.reads]
        text = textwrap.indent("\n".join(epilogue.lines(whole.calls, epilogue.plain)), " " * 8)
        combine = ADD_PARTS.format(parameter="".join(f"{name}: cute.Tensor, " for name in names), argument="".join(f"{name}, " for name in names), epilogue=text, early=_early(plan), pdl=_pdl(plan)).replace("\n\n        d[", "\n        d[")
    return {
        "store_constants": f"STORE_N, BUFFERS = {plan.store_columns}, {plan.buffers}  # columns of 64 rows that leave in one store, and how many such pieces a warpgroup has\n",
        "kernel_target": "tma_d: cute.CopyAtom, d: cute.Tensor, d_plain: cute.Tensor", "kernel_constants": "layout_d: cute.ComposedLayout, by_tma: cutlass.Constexpr," + " pairs: cutlass.Constexpr," * pairs,
        "shared_target": f"    shared_d = memory.allocate_tensor({result}, layout_d.outer, 1024, swizzle=layout_d.inner)\n", "extents": "d_plain.shape",
        "store_setup": setup, "fetch_first": _fetch_first(chain), "store": STORE.format(fetch=_fetch(chain, "rows"), finish=textwrap.indent("\n".join(body), " " * 24), **across),
        "launch_target": "d: cute.Tensor, ", "launch_constants": ", by_tma: cutlass.Constexpr" + ", pairs: cutlass.Constexpr" * pairs + ", resident: cutlass.Constexpr", "views": "a, b, d",
        "launch_about": "a (batch, m, k), b (batch, n, k), d (batch, m, n); `resident` clusters run at once.",
        "layout_target": f"    layout_d = sm90.make_smem_layout_epi({result}, LayoutEnum.{major}, (64, STORE_N), GROUPS * BUFFERS)\n",
        "launch_setup": "    tma_d, view_d = None, d\n    if cutlass.const_expr(by_tma):\n        tma_d, view_d = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), d, cute.slice_(layout_d, (None, None, 0)), (64, STORE_N))\n    m, n, batches = d.shape\n",
        "launch_arguments": "tma_d, view_d, d, tiled_mma, layout_a, layout_b, layout_d, by_tma" + ", pairs" * pairs, "combine": combine, **_persistent(),
    }  # fmt: skip


def piece_lines(plan: Plan, chain: Chain, result: str) -> list[str]:
    """Statements that bring one sum through the epilogues into the piece that is stored."""
    lines = _lines(plan, chain, "store")
    source = "results[j * cute.size(piece) + e, i, 0]"
    return [f"total = {source}", *lines, f"piece[e] = total.to({result})"] if lines else [f"piece[e] = {source}.to({result})"]


def _persistent() -> dict[str, str]:
    return {"walk": "Persistent CTAs:", "ahead": ", also ahead of the tile at hand", "blocks": "in_m, in_n, cluster", "cluster_k": "1", "grid": "[CLUSTER_M, CLUSTER_N, cutlass.min(works, resident)]", "cluster": "[CLUSTER_M, CLUSTER_N, 1]"}


def _reduced(plan: Plan, chain: Chain) -> dict[str, str]:
    rows, how, pairs = by_kernel_rows(plan, chain), chain.how, has_pairs(plan, chain)
    start, text = START[how], (REDUCE_ROWS if by_kernel_rows(plan, chain) else REDUCE_COLUMNS)
    into = "found[e // 2 % 2]" if rows else "found[e // 4 * 2 + e % 2]"
    body = [f"total = totals[{PIECE['reduce']}, i, 0]", *_lines(plan, chain, "reduce")]
    store = text.format(
        start=start, fetch=_fetch(chain, "rows" if rows else "columns"), finish=textwrap.indent("\n".join(body), " " * 24), combine=COMBINE[how].format(a=into, b="total"), combine_value=COMBINE[how].format(a="value", b="other"),
    )  # fmt: skip
    after = [*(["total = total / extent"] if how == "mean" else []), *epilogue.lines(chain.after, epilogue.plain)]
    gather = GATHER.format(
        how=how, what="columns" if chain.by_rows else "rows", early=_early(plan), pdl=_pdl(plan), start=start, combine=COMBINE[how].format(a="total", b="partial[part, batch, at]"),
        combine_found=COMBINE[how].format(a="total", b="found[other, lane]"), after=textwrap.indent("\n".join(after), " " * 8),
    ).replace("\n\n        d[", "\n        d[")  # fmt: skip
    return {
        "store_constants": f"STORE_N = {plan.store_columns}  # columns of 64 rows that are reduced together\n", "kernel_target": "partial: cute.Tensor", "kernel_constants": "pairs: cutlass.Constexpr," * pairs,
        "shared_target": "", "extents": "a.shape[0], b.shape[0], a.shape[2]", "store_setup": _held(chain), "fetch_first": _fetch_first(chain), "store": store,
        "launch_target": "partial: cute.Tensor, ", "launch_constants": ", pairs: cutlass.Constexpr" * pairs + ", resident: cutlass.Constexpr", "views": "a, b",
        "launch_about": f"a (batch, m, k), b (batch, n, k); partial (parts, batch, {'m' if rows else 'n'}): what each tile gives; `resident` clusters run at once.",
        "layout_target": "", "launch_setup": "    m, n, batches = a.shape[0], b.shape[0], a.shape[2]\n", "launch_arguments": "partial, tiled_mma, layout_a, layout_b" + ", pairs" * pairs, "combine": gather, **_persistent(),
    }  # fmt: skip


def _in_cluster(plan: Plan, chain: Chain) -> dict[str, str]:
    share = plan.tile[0] * plan.tile[1] // plan.splits
    stride, at = ("(1, TILE_M + 4)", "at % TILE_M, at // TILE_M") if plan.swap else ("(TILE_N + 8, 1)", "at // TILE_N, at % TILE_N")
    text = textwrap.indent("\n".join(epilogue.lines(chain.calls, lambda read: _turned(read) if plan.swap else epilogue.plain(read))), " " * 16)
    return {
        "store_constants": f"SHARE, THREADS, EACH = {share}, {plan.threads}, {min(8, -(-share // plan.threads))}  # outputs that one CTA adds up, its threads, how many of them a thread loads at once\n",
        "kernel_target": "d: cute.Tensor", "kernel_constants": "",
        "shared_target": f"    sums = memory.allocate_tensor(cutlass.Float32, cute.make_layout((TILE_M, TILE_N), stride={stride}), 16)\n    in_m, in_n = 0, 0  # in a cluster, CTAs share a tile, not an operand\n",
        "extents": "d.shape", "store_setup": "", "fetch_first": "", "store": ADD_UP.format(at=at, epilogue=text).replace("\n\n                d[", "\n                d["),
        "launch_target": "d: cute.Tensor, ", "launch_constants": "", "views": "a, b, d", "launch_about": "a (batch, m, k), b (batch, n, k), d (batch, m, n); SPLITS CTAs share a tile.",
        "layout_target": "", "launch_setup": "    m, n, batches = d.shape\n", "launch_arguments": "d, tiled_mma, layout_a, layout_b", "combine": "",
        "walk": "A cluster for each tile:", "ahead": "", "blocks": "in_k, _, cluster", "cluster_k": "SPLITS", "grid": "[SPLITS, 1, works]", "cluster": "[SPLITS, 1, 1]",
    }  # fmt: skip


def _turned(read: Read) -> str:
    return {"n": f"{read.role}[row]", "m": f"{read.role}[column]"}.get(read.along, f"{read.role}[batch, row, column]")


def _lines(plan: Plan, chain: Chain, way: str) -> list[str]:
    """The calls, where a tensor's element is found by the fragment's coordinates: past the edge, any value will do."""

    def element(read: Read) -> str:
        if read.along == "both":
            return f"held_{read.role}[e, this % 2]"
        if (read.along == "m") != plan.swap:
            return f"{read.role}[cutlass.min(m0 + where[{PIECE[way]}, i, 0][0], m - 1)]"
        return f"{read.role}[cutlass.min(n0 + where[{PIECE[way]}, i, 0][1], n - 1)]"

    return epilogue.lines(chain.calls, element)


def _wide(chain: Chain) -> list[str]:
    return [read.role for read in chain.reads if read.along == "both"]


def _held(chain: Chain) -> str:
    """Registers for a piece of each (m, n) tensor, and for the piece after it."""
    return "".join(f"        held_{role} = cute.make_rmem_tensor(cute.make_layout((STORE_N // 2, 2)), {role}.element_type)  # of the piece at hand, and of the next\n        held_{role}.fill(0.0)\n" for role in _wide(chain))


def _fetch_first(chain: Chain) -> str:
    return "".join(f"\n            fetch(held_{role}[None, 0], {role}, where, 0, 0, m0, n0, batch, pairs)" for role in _wide(chain))


def _fetch(chain: Chain, order: str) -> str:
    """The next piece is fetched before the one at hand is used; `order`: which of the loops over pieces is the inner one."""
    if not _wide(chain):
        return ""
    across, high = "(TILE_N // STORE_N)", "(ROWS // 64)"
    this = f"i * {across} + j" if order == "rows" else f"j * {high} + i"
    following = f"(this + 1) // {across}, (this + 1) % {across}" if order == "rows" else f"(this + 1) % {high}, (this + 1) // {high}"
    calls = "".join(f"                        fetch(held_{role}[None, (this + 1) % 2], {role}, where, {following}, m0, n0, batch, pairs)\n" for role in _wide(chain))
    return f"                    this = {this}\n                    if cutlass.const_expr(this + 1 < {high} * {across}):\n{calls}"
