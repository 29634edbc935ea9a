"""Helpers that schedule warps by smallest block number, and handle barriers.

Kernels without atomics run freely (each warp until it waits). Others run in lockstep, block by block over all warps of
the group, so that atomics happen in the interpreter's order.
"""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import (
    ALIVE,
    ARRIVED,
    BARRIER,
    BARRIERS,
    BLOCKS,
    COUNTS,
    CTA,
    CTA_BYTES,
    CTA_WARPS,
    CTAS,
    END_BARRIER,
    EXPECTED,
    FAULT,
    FIRST_WARP,
    GAVE_UP,
    KINDS,
    LOW,
    MASK,
    NEVER,
    PARKED,
    PC,
    RESTING,
    SIZES,
    STEP_LIMIT,
    STEPS,
    TOO_LONG,
    UNIFORM,
    WARP_STRIDE,
    WARPS,
)
from workbench.emulator.compiled.runtime.helper_compiler import (
    call2,
    helper,
    load8,
    load32,
    load64,
    popcount,
    store8,
    store32,
    store64,
)
from workbench.emulator.execution.warp_scheduler import PATIENCE


@helper
def choose_block(warp: int) -> int:
    """Pick the smallest block of the runnable lanes."""
    live = load64(warp + ALIVE) & ~load64(warp + PARKED)
    low = NEVER
    for lane in range(32):
        at: int = load32(warp + PC + 4 * lane) if live >> lane & 1 else NEVER
        low = at if at < low else low
    mask = 0
    for lane in range(32):
        mask |= (load32(warp + PC + 4 * lane) == low) << lane
    mask &= live
    store64(warp + LOW, low)
    store64(warp + MASK, mask)
    store64(warp + UNIFORM, mask == live)
    return 0


@helper
def count_lanes(context: int, warp: int, block: int) -> int:
    """Count the lanes that have run a block."""
    place = load64(context + COUNTS) + 8 * block
    store64(place, load64(place) + popcount(load64(warp + MASK)))
    return 0


@helper
def advance(context: int, warp: int, block: int, taken: int, target: int) -> int:
    """The lanes of MASK have run `block`: those in `taken` go on at block `target`, the others at the next one."""
    count_lanes(context, warp, block)
    after = block + 1
    mask = load64(warp + MASK)
    if load64(warp + UNIFORM):
        if taken == mask:
            store64(warp + LOW, target)
            return 0
        if taken == 0:
            store64(warp + LOW, after)
            return 0
    for lane in range(32):
        if mask >> lane & 1:
            store32(warp + PC + 4 * lane, target if taken >> lane & 1 else after)
    return choose_block(warp)


@helper
def exit_lanes(context: int, warp: int, block: int, taken: int) -> int:
    """The lanes of `taken` exit at the end of `block`."""
    count_lanes(context, warp, block)
    after = block + 1
    store64(warp + ALIVE, load64(warp + ALIVE) & ~taken)
    mask = load64(warp + MASK)
    for lane in range(32):
        if mask >> lane & 1:
            store32(warp + PC + 4 * lane, after)
    return choose_block(warp)


@helper
def park(context: int, warp: int, block: int, taken: int, number: int, count: int, arrive: int) -> int:
    """The lanes of `taken` reach barrier `number` at the end of `block`, for `count` threads (0 = all of the CTA)."""
    count_lanes(context, warp, block)
    after = block + 1
    mask = load64(warp + MASK)
    for lane in range(32):
        if mask >> lane & 1:
            store32(warp + PC + 4 * lane, after)
        if taken >> lane & 1:
            store8(warp + BARRIER + lane, number)
    if taken != 0:
        cta = load64(warp + CTA)
        store64(cta + EXPECTED + 8 * number, count)
        if arrive:
            store64(cta + ARRIVED + 8 * number, load64(cta + ARRIVED + 8 * number) + popcount(taken))
        else:
            store64(warp + PARKED, load64(warp + PARKED) | taken)
    return choose_block(warp)


@helper
def waiting_lanes(warp: int, number: int) -> int:
    """The mask of the lanes that wait at a barrier."""
    parked: int = load64(warp + PARKED)
    if parked == 0:
        return 0
    mask = 0
    for lane in range(32):
        mask |= (load8(warp + BARRIER + lane) == number) << lane
    return mask & parked


@helper
def release_lanes(warp: int, free: int) -> int:
    """Let parked lanes run again; first store the positions of the running ones."""
    if free == 0:
        return 0
    if load64(warp + UNIFORM):
        mask = load64(warp + MASK)
        for lane in range(32):
            if mask >> lane & 1:
                store32(warp + PC + 4 * lane, load64(warp + LOW))
    store64(warp + PARKED, load64(warp + PARKED) & ~free)
    return choose_block(warp)


@helper
def complete_barriers(context: int, cta: int) -> int:
    """Release every barrier that all threads of the CTA have reached; returns their number."""
    warps: int = load64(context + CTA_WARPS)
    stride: int = load64(context + WARP_STRIDE)
    first: int = load64(cta + FIRST_WARP)
    alive = 0
    parked = 0
    for w in range(warps):
        alive += popcount(load64(first + w * stride + ALIVE))
        parked += popcount(load64(first + w * stride + PARKED))
    released = 0
    number = 0
    while number < BARRIERS and parked > 0:
        lanes = 0
        for w in range(warps):
            lanes += popcount(waiting_lanes(first + w * stride, number))
        if lanes > 0:
            expected = load64(cta + EXPECTED + 8 * number) if load64(cta + EXPECTED + 8 * number) > 0 else alive
            parked -= lanes
            if lanes + load64(cta + ARRIVED + 8 * number) >= expected:
                store64(cta + ARRIVED + 8 * number, 0)
                released += 1
                for w in range(warps):
                    release_lanes(first + w * stride, waiting_lanes(first + w * stride, number))
        number += 1
    return released


@helper
def must_stop(context: int, steps: int) -> int:
    """Whether compiled code must stop: a fault, or more instructions than the limit."""
    if steps > load64(context + STEP_LIMIT):
        store64(context + FAULT, TOO_LONG)
    return load64(context + FAULT) != 0


@helper
def run_warp(context: int, warp: int) -> int:
    """Run one warp until none of its lanes can go on."""
    steps: int = load64(context + STEPS)
    blocks: int = load64(context + BLOCKS)
    sizes: int = load64(context + SIZES)
    low: int = load64(warp + LOW)
    while low != NEVER:
        call2(load64(blocks + 8 * low), context, warp)
        steps += load64(sizes + 8 * low)
        if must_stop(context, steps):
            return 0
        low = load64(warp + LOW)
    store64(context + STEPS, steps)
    return 0


@helper
def run_free(context: int, cta: int) -> int:
    """Run one CTA to its end, warp by warp between barriers."""
    warps: int = load64(context + CTA_WARPS)
    stride: int = load64(context + WARP_STRIDE)
    store64(context + STEPS, 0)
    while 1:
        alive = 0
        for w in range(warps):
            warp = load64(cta + FIRST_WARP) + w * stride
            run_warp(context, warp)
            if load64(context + FAULT) != 0:
                return 0
            alive |= load64(warp + ALIVE)
        if alive == 0:
            return 0
        if complete_barriers(context, cta) == 0:
            store64(context + FAULT, GAVE_UP)
            return 0
    return 0


@helper
def complete_all_barriers(context: int, ctas: int) -> int:
    """Complete the barriers of a whole group."""
    released = 0
    for n in range(ctas):
        released += complete_barriers(context, load64(context + CTAS) + n * CTA_BYTES)
    return released


@helper
def lowest_block(context: int, warps: int) -> int:
    """The smallest block at which a warp that does not rest can go on."""
    stride: int = load64(context + WARP_STRIDE)
    first: int = load64(context + WARPS)
    low = NEVER
    for w in range(warps):
        here: int = load64(first + w * stride + LOW)
        low = here if here < low and load64(first + w * stride + RESTING) == 0 else low
    return low


@helper
def rest_warps(context: int, warps: int, block: int) -> int:
    """Let the warps at `block` rest; returns the smallest block of the others. If there are none, all run again."""
    stride: int = load64(context + WARP_STRIDE)
    first: int = load64(context + WARPS)
    for w in range(warps):
        if load64(first + w * stride + LOW) == block:
            store64(first + w * stride + RESTING, 1)
    return lowest_block(context, warps)


@helper
def wake_warps(context: int, warps: int) -> int:
    """End the rest of all warps; returns how many rested."""
    stride: int = load64(context + WARP_STRIDE)
    first: int = load64(context + WARPS)
    woken = 0
    for w in range(warps):
        woken += load64(first + w * stride + RESTING)
        store64(first + w * stride + RESTING, 0)
    return woken


@helper
def run_lockstep(context: int, ctas: int) -> int:
    """Run a group of CTAs to its end, always the smallest block over all present warps; spinning warps let others go
    first (execution/warp_scheduler.py).
    """
    warps = load64(context + CTA_WARPS) * ctas
    stride: int = load64(context + WARP_STRIDE)
    first: int = load64(context + WARPS)
    steps = 0
    before = -1
    backs = 0
    while 1:
        low = lowest_block(context, warps)
        if low == NEVER:
            if wake_warps(context, warps) > 0:
                before = -1
                continue
            alive = 0
            for w in range(warps):
                alive |= load64(first + w * stride + ALIVE)
            if alive == 0:
                return 0
            if complete_all_barriers(context, ctas) == 0:
                store64(context + FAULT, GAVE_UP)
                return 0
            continue
        if low <= before:
            backs += 1
            if backs > PATIENCE:
                backs = 0
                other = rest_warps(context, warps, low)
                if other == NEVER:
                    wake_warps(context, warps)
                else:
                    low = other
        before = low
        for w in range(warps):
            if load64(first + w * stride + LOW) == low and load64(first + w * stride + RESTING) == 0:
                call2(load64(load64(context + BLOCKS) + 8 * low), context, first + w * stride)
        steps += load64(load64(context + SIZES) + 8 * low)
        if must_stop(context, steps):
            return 0
        if load8(load64(context + KINDS) + low) == END_BARRIER:
            complete_all_barriers(context, ctas)
    return 0
