"""Helpers that initialise the records of warps and CTAs, and run CTAs group by group."""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import (
    ALIVE,
    BLOCK_X,
    BLOCK_Y,
    CTA,
    CTA_BYTES,
    CTA_WARPS,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    CTAS,
    FAULT,
    FIRST_WARP,
    GRID_X,
    GRID_Y,
    GROUP,
    LOCAL,
    LOCAL_STRIDE,
    LOCKSTEP,
    REGISTERS,
    SHARED,
    SHARED_BYTES,
    SMID,
    SMS,
    THREADS,
    TID_X,
    TID_Y,
    TID_Z,
    WARP_INDEX,
    WARP_LOCAL,
    WARP_SHARED,
    WARP_STRIDE,
    WARP_WRITTEN,
    WARPS,
    WRITTEN,
)
from workbench.emulator.compiled.runtime.helper_compiler import (
    fill,
    helper,
    load64,
    store32,
    store64,
)
from workbench.emulator.compiled.runtime.schedule import choose_block, run_free, run_lockstep


@helper
def start_warp(context: int, warp: int, cta: int, index: int, place: int, block: int) -> int:
    """Initialise a warp's record: `place` is the CTA's number in its group, `block` its number in the grid."""
    threads: int = load64(context + THREADS)
    bx: int = load64(context + BLOCK_X)
    by: int = load64(context + BLOCK_Y)
    fill(warp, 0, TID_X)
    fill(warp + REGISTERS, 0, load64(context + WARP_STRIDE) - REGISTERS)
    alive = 0
    for lane in range(32):
        thread = index * 32 + lane
        alive |= (thread < threads) << lane
        store32(warp + TID_X + 4 * lane, thread % bx)
        store32(warp + TID_Y + 4 * lane, thread // bx % by)
        store32(warp + TID_Z + 4 * lane, thread // (bx * by))
    stride: int = load64(context + LOCAL_STRIDE) * 32
    store64(warp + ALIVE, alive)
    store64(warp + CTA, cta)
    store64(warp + WARP_INDEX, index)
    store64(warp + WARP_SHARED, load64(context + SHARED) + place * load64(context + SHARED_BYTES))
    store64(warp + WARP_WRITTEN, load64(context + WRITTEN) + place * load64(context + SHARED_BYTES))
    store64(warp + WARP_LOCAL, load64(context + LOCAL) + (place * load64(context + CTA_WARPS) + index) * stride)
    fill(load64(warp + WARP_LOCAL), 0, stride)
    gx: int = load64(context + GRID_X)
    gy: int = load64(context + GRID_Y)
    store64(warp + CTAID_X, block % gx)
    store64(warp + CTAID_Y, block // gx % gy)
    store64(warp + CTAID_Z, block // (gx * gy))
    store64(warp + SMID, block % load64(context + SMS))
    return choose_block(warp)


@helper
def start_cta(context: int, place: int, block: int) -> int:
    """Initialise a CTA's records and its shared memory."""
    cta = load64(context + CTAS) + place * CTA_BYTES
    warps: int = load64(context + CTA_WARPS)
    stride: int = load64(context + WARP_STRIDE)
    size: int = load64(context + SHARED_BYTES)
    fill(cta, 0, CTA_BYTES)
    store64(cta + FIRST_WARP, load64(context + WARPS) + place * warps * stride)
    fill(load64(context + SHARED) + place * size, 0, size)
    fill(load64(context + WRITTEN) + place * size, 0, size)
    for w in range(warps):
        start_warp(context, load64(cta + FIRST_WARP) + w * stride, cta, w, place, block)
    return cta


@helper
def run_ctas(context: int, first: int, last: int) -> int:
    """Run the CTAs with numbers in [first, last); returns the number of the first CTA of the group that stopped."""
    group: int = load64(context + GROUP)
    at = first
    while at < last and load64(context + FAULT) == 0:
        count = group if at + group < last else last - at
        for n in range(count):
            start_cta(context, n, at + n)
        if load64(context + LOCKSTEP):
            run_lockstep(context, count)
        else:
            run_free(context, load64(context + CTAS))
        at += count
    return at
