"""Rates and overheads of convolutions by wgmma, shared by their models."""

from __future__ import annotations

L2_BYTES_PER_CYCLE = 40  # of one SM while all SMs read; inferred from products, which reach at least 32
# part of one step that no multiplication hides (inferred); TMA needs at least a cycle per row of a tile (inferred)
STEP_CYCLES = 60
TILE_CYCLES = 800  # overhead of one tile: addresses of its results, the first wait; inferred
# one result of a warpgroup through shared memory to global memory; inferred from the instructions of its store
ELEMENT_CYCLES = 14 / 128


def count_store_cycles(rows: int, filters: int) -> float:
    """Cycles that a warpgroup takes to store its tile of `rows` positions."""
    return TILE_CYCLES + rows * filters * ELEMENT_CYCLES
