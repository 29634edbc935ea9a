"""The ladder of row kernels: threads per row, vectors, rows kept in registers; columns for strided axes; parts of rows.

On Hopper the fastest rungs come first.
"""

from __future__ import annotations

from workbench.language import Call
from workbench.language.expressions import axes
from workbench.language.limits import KEPT_MOST
from workbench.language.operations.channel_norms import BATCH_NORMS, GROUP_MEANS
from workbench.proposers.ladders import rows_hopper
from workbench.proposers.ladders.base import Context, Rung, put

FEW, ONE_CTA = 16, 1 << 14  # at most so many rows cannot fill a device; from so many columns on one CTA takes long
LONG_ROW = 1 << 16  # from so many columns on, one thread exceeds the emulator's limits (inferred)


def row_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a computation over rows."""
    if dict(context.found.operation.named).get("logits") == 0:
        return (
            Rung(
                settings=(put("threads_per_row", 1),),
                title="one thread per row",
                reason="a row's loss is one of its elements",
            ),
        )
    rungs = (*rows_hopper.hopper_rungs(context), *_ladder(context))
    if context.found.kind == GROUP_MEANS:  # whose rows have no parts
        return tuple(rung for rung in rungs if "parts" not in {call.name for call in rung.settings})
    return rungs


def _ladder(context: Context) -> tuple[Rung, ...]:
    """One thread per row, one warp, wide accesses, a CTA, then fewer passes over the row."""
    if context.found.middle:
        return _middle_rungs()
    lay = rows_hopper.find_layout(context)
    along = axes.view(dict(context.found.operation.named).get("axis", "last")) if lay is None else lay
    if along.strided:
        return _column_rungs(context, lay)
    if context.found.operation.name in BATCH_NORMS or along.segments:
        return _segment_rungs(context)
    wide = context.wide
    if dict(context.found.operation.named).get("axis") == "all" or (
        lay is not None and lay.rows <= FEW and lay.columns >= ONE_CTA
    ):
        return _few_rows_rungs(wide, lay)
    softmax = _online_softmax(wide) if context.found.kind == "softmax" else ()
    several_passes = lay is not None and lay.walks > 1 and lay.columns <= 32 * 1024
    named = context.found.kind in ("softmax", "layernorm", "rmsnorm", "crossentropy")
    kept = (
        _kept_rows(wide, lay.columns * lay.tensors if lay else _count_classes(context))
        if named or several_passes
        else ()
    )
    # one thread would walk over very many elements alone
    first = 1 if _count_classes(context) >= ONE_CTA or (lay is not None and lay.columns >= LONG_ROW) else 0
    return (*_more_threads(wide)[first:], *softmax, *kept, *(_shared_rows(wide) if lay is not None else ()))


def _count_classes(context: Context) -> int:
    """Logits of a row of a cross-entropy at full size; 0 if they are not known."""
    if context.found.kind != "crossentropy":
        return 0
    inputs = context.facts.cases[-1].inputs if context.facts is not None else ()
    return inputs[0].shape[-1] if inputs and inputs[0].shape else 0


def _more_threads(wide: int) -> tuple[Rung, ...]:
    """One thread for a row, then a warp, then a CTA."""
    return (
        Rung(
            settings=(put("threads_per_row", 1),),
            title="one thread per row",
            reason="the simplest correct kernel: each thread walks its own row",
        ),
        Rung(
            settings=(put("threads_per_row", 32),),
            title="one warp per row",
            reason="neighbouring threads read neighbouring elements, so a request touches the fewest sectors",
            need="sectors",
        ),
        Rung(
            settings=(put("threads_per_row", 32), put("vector", wide)),
            title=f"{wide} elements per access",
            reason="128-bit accesses need fewer memory instructions",
            need="requests",
        ),
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide)),
            title="one CTA per row",
            reason="long rows: more threads keep more loads of the row in flight",
            need="parallel",
        ),
    )


def _online_softmax(wide: int) -> tuple[Rung, ...]:
    return (
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), put("passes", 2)),
            title="online softmax",
            reason="maximum and sum in one pass: the row is read twice instead of three times",
            need="passes",
        ),
    )


def _kept_rows(wide: int, elements: int) -> tuple[Rung, ...]:
    """Rows in registers, which are read from memory once, as far as these hold so many elements."""
    rungs = (
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), Call(name="kept")),
            title="row kept in registers",
            reason="the row is read from memory once, however often the kernel walks over it",
            need="passes",
        ),
        Rung(
            settings=(put("threads_per_row", 1024), put("vector", wide), Call(name="kept")),
            title="1024 threads keep the row",
            reason="a quarter of the registers per thread, so that long rows fit",
            need="parallel",
        ),
    )
    return tuple(rung for rung, threads in zip(rungs, (256, 1024), strict=True) if elements <= KEPT_MOST * threads)


def _shared_rows(wide: int) -> tuple[Rung, ...]:
    """Several CTAs for each row."""
    return (
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), put("unroll", 4), put("parts", 512)),
            title="CTAs share a row",
            reason=(
                "few long rows leave most of the device idle: "
                "each is reduced in parts, which a second kernel puts together"
            ),
            need="parallel",
        ),
    )


def _few_rows_rungs(wide: int, lay: rows_hopper.RowLayout | None) -> tuple[Rung, ...]:
    """Rungs for few rows: a row never has only one thread, and all CTAs share long rows."""
    one = Rung(
        settings=(put("threads_per_row", 1024), put("vector", wide)),
        title="one CTA of 1024 threads per row",
        reason="the simplest kernel that does not leave a whole row to one thread",
    )
    if lay is not None and lay.columns < ONE_CTA:
        return (
            one,
            Rung(
                settings=(put("threads_per_row", 256), put("vector", wide)),
                title="256 threads per row",
                reason="a smaller CTA has fewer warps to wait for",
                need="parallel",
            ),
        )
    parts = rows_hopper.count_parts(lay, each=16) if lay is not None else 64
    shared = tuple(
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), put("unroll", unroll), put("parts", count)),
            title=title,
            reason=reason,
            need=need,
        )
        for unroll, count, title, reason, need in (
            (1, parts, f"{parts} CTAs per row", "all CTAs sum up a part each, which a second kernel puts together", ""),
            (4, parts, "four vectors in flight", "each thread loads four vectors before it uses the first", "parallel"),
            (
                4,
                max(parts // 4, 2),
                f"{max(parts // 4, 2)} CTAs per row",
                "fewer parts for the second kernel",
                "parallel",
            ),
        )
    )
    return (*shared, one)


def _column_rungs(context: Context, lay: rows_hopper.RowLayout | None) -> tuple[Rung, ...]:
    wide = context.wide
    if context.found.operation.name in BATCH_NORMS:
        return tuple(
            Rung(settings=settings, title=title, reason=reason, need="parallel" if n else "")
            for n, (settings, title, reason) in enumerate(rows_hopper.split_columns(lay, wide))
        )
    return (
        Rung(
            settings=(put("threads", 128),),
            title="one thread per column",
            reason="the simplest correct kernel; a warp reads 32 neighbouring columns",
        ),
        Rung(
            settings=(put("threads", 128), put("vector", wide), put("unroll", 4)),
            title="vectors, four in flight",
            reason="each thread loads several vectors of its columns before it uses the first",
            need="requests",
        ),
        Rung(
            settings=(put("split", 8), put("vector", wide), put("unroll", 2)),
            title="8 warps share columns",
            reason="more warps keep more loads in flight",
            need="parallel",
        ),
    )


def _segment_rungs(context: Context) -> tuple[Rung, ...]:
    wide = context.wide
    return (
        Rung(
            settings=(put("threads_per_row", 32), put("parts", 8)),
            title="eight warps per channel",
            reason="the simplest correct kernel: parts of a channel, then the parts together",
        ),
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), put("parts", 32)),
            title="32 CTAs per channel",
            reason="vectors, and enough CTAs to fill the device",
            need="requests",
        ),
        Rung(
            settings=(put("threads_per_row", 256), put("vector", wide), put("unroll", 4), put("parts", 64)),
            title="four vectors in flight",
            reason="more loads in flight",
            need="parallel",
        ),
    )


def _middle_rungs() -> tuple[Rung, ...]:
    return (
        Rung(
            settings=(put("threads", 128),),
            title="one thread per column",
            reason="the simplest correct kernel; a warp reads 32 neighbouring columns",
        ),
        Rung(
            settings=(put("split", 8),),
            title="8 warps share a column's rows",
            reason="one thread per column leaves most of the device idle: more warps keep more loads in flight",
            need="parallel",
        ),
        Rung(
            settings=(put("split", 16),),
            title="16 warps share a column's rows",
            reason="still more loads in flight",
            need="parallel",
        ),
        Rung(settings=(put("threads", 256),), title="256 columns per CTA", reason="wider CTAs", need=""),
    )
