"""Helpers that blocks call for memory instructions: they count, then make the checked access."""

from __future__ import annotations

from workbench.emulator.compiled.codegen.layout import ADDRESS, BASE
from workbench.emulator.compiled.runtime.count import count_sectors, count_wavefronts
from workbench.emulator.compiled.runtime.helper_compiler import helper, load64, store64
from workbench.emulator.compiled.runtime.memory import (
    local_access,
    read_global,
    read_shared,
    write_global,
    write_shared,
)


@helper
def add_offset(context: int, offset: int) -> int:
    """ADDRESS = BASE + offset."""
    for lane in range(32):
        store64(context + ADDRESS + 8 * lane, load64(context + BASE + 8 * lane) + offset)
    return 0


@helper
def access_global(
    context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int
) -> int:
    """ld.global or st.global."""
    if mask == 0:
        return 0
    add_offset(context, offset)
    count_sectors(context, mask, spec, size * vector)
    return write_global(context, mask, size, vector) if write else read_global(context, mask, size, vector)


@helper
def access_shared(
    context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int
) -> int:
    """ld.shared or st.shared."""
    if mask == 0:
        return 0
    add_offset(context, offset)
    count_wavefronts(context, mask, spec, size * vector, write)
    return write_shared(context, warp, mask, size, vector) if write else read_shared(context, warp, mask, size, vector)


@helper
def access_local(context: int, warp: int, mask: int, spec: int, size: int, vector: int, write: int, offset: int) -> int:
    """ld.local or st.local, which are not counted."""
    add_offset(context, offset)
    return local_access(context, warp, mask, size, vector, write)
