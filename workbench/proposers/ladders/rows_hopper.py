"""The ladder of row kernels on Hopper: the reduced axis at full size, and settings near the speed of a copy.

Rules are inferred unless a line says measured. 32 floats of a row per thread stay in registers at 1024 threads. A
device of 132 SMs needs 32 KB or more in flight on each SM, and either many waves of CTAs or no half-empty wave.
Measured on an H200 (2026-11-22, workbench/landscapes): a thread best keeps 16 elements of four bytes, or 32 of two
(64 in a softmax). For logits of a cross-entropy, which stores little, it is 32. Channels in segments are read by 8
floats a thread.
"""

from __future__ import annotations

import math
from functools import partial

from workbench.language import Call
from workbench.language.expressions import axes
from workbench.language.expressions.lowering import expansion, moments, normalise
from workbench.language.expressions.reduction_passes import plan
from workbench.language.operations.channel_norms import BATCH_NORMS, GROUP_MEANS
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.records import record

SMS = 132
# from so many columns on, a row in a cluster of 8 is faster than two passes over it; measured on an H200 at 262144
# (slower) and 393216 (faster)
LONG = 300_000
L1 = 1 << 18  # bytes of an SM's L1 cache; a longer vector is read from L2 again for each row (inferred)
KEPT = 32  # elements of a row in the registers of a thread (inferred)


@record
class RowLayout:
    """A reduction at full size in terms of axes.View.

    `walks` counts the passes over a row, including the one that writes. Each pass reads `tensors` tensors.
    """

    batches: int
    rows: int
    columns: int
    walks: int
    whole: bool
    tensors: int = 1
    strided: bool = False
    segments: bool = False
    run: int = 1  # contiguous elements; a vector must not cross their end

    @property
    def length(self) -> int:
        """Elements along the reduced axis."""
        return self.rows if self.strided else self.columns


def find_layout(context: Context) -> RowLayout | None:
    """Extents and axis of the computation's main stage; None unless its tensor's extents are known at full size."""
    found, facts = context.found, context.facts
    call = found.operation
    if facts is None or not call.positional or call.name == "crossentropy":
        return None
    named = dict(call.named)
    axis: object = named.get("axis", "last")
    if call.name in (*BATCH_NORMS, "groupnorm", "instancenorm"):
        value: object = normalise("x", 1e-5, False)
        axis = {
            **dict.fromkeys(BATCH_NORMS, named.get("axis", Call(name="but", positional=(1,)))),
            "groupnorm": Call(name="groups", positional=(named.get("groups", 1),)),
            "instancenorm": Call(name="over_from", positional=(2,)),
        }[call.name]
    elif call.name == GROUP_MEANS:
        value, axis = moments("x"), Call(name="over_from", positional=(2,))
    else:
        value = call.positional[0] if call.name == "rowwise" else expansion(_stage(call))
    details = plan(value)
    operands = dict(found.operands)
    plain = (
        call.positional[0] if isinstance(call.positional[0], str) else "x"
    )  # named norms and reductions call theirs x
    names = [operands.get(name, operands.get(plain, name) if name == "x" else name) for name in details.plain]
    values = dict(found.values)
    known = {spec.name: spec.shape for spec in (*facts.full, *facts.cases[-1].inputs)}
    shape = next((known[own] for name in names if (own := values.get(name, name)) in known), None)
    if shape is None or not details.levels:
        return None
    walks = len(details.levels) + details.whole
    return layout_of_axis(shape, axis, walks, details.whole, len(details.plain))


def _stage(call: Call):  # type: ignore[no-untyped-def]
    from workbench.language import Stage

    return Stage(operation=call)


def layout_of_axis(shape: tuple[int, ...], axis: object, walks: int, whole: bool, tensors: int) -> RowLayout | None:
    """The layout of a reduction over an axis of a tensor of `shape`; None for a tensor without elements."""
    total = math.prod(shape)
    if total == 0 or not shape:
        return None
    made = partial(RowLayout, walks=walks, whole=whole, tensors=tensors)
    if isinstance(axis, Call) and axis.name == "but":
        channels = shape[1]
        return made(batches=1, rows=channels, columns=total // channels, segments=True, run=math.prod(shape[2:]))
    if length := _row_length(shape, axis):
        return made(batches=1, rows=total // length, columns=length, run=length)
    first, last = axes.axis_range(axis)
    batches, rows = math.prod(shape[:first]), math.prod(shape[first : last + 1])
    columns = total // (batches * rows)
    return made(batches=batches, rows=rows, columns=columns, strided=True, run=columns)


def _row_length(shape: tuple[int, ...], axis: object) -> int:
    """Elements of a contiguous row that the axis reduces; 0 if the reduced elements are not contiguous."""
    if axis == "all":
        return math.prod(shape)
    if axis == "last":
        return shape[-1]
    if not isinstance(axis, Call) or axis.name not in ("last", "groups", "over_from"):
        return 0
    number = int(str(axis.positional[0]))
    if axis.name == "last":
        return math.prod(shape[-number:])
    return math.prod(shape) // (shape[0] * number) if axis.name == "groups" else math.prod(shape[2:])


def hopper_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs for Hopper, fastest first by the rules above; none if the size is not known."""
    found = find_layout(context)
    if context.arch == "sm_90a" and context.found.kind == "crossentropy":
        kept = (put("vector", context.wide), Call(name="kept"))
        return tuple(
            Rung(
                settings=(put("threads_per_row", threads), *kept),
                title=f"row kept in the registers of {threads} threads",
                reason="the row is read from memory once",
                need="parallel",
            )
            for threads in _entropy_threads(context)
        )
    if context.arch != "sm_90a" or found is None:
        return ()
    places = dict(context.found.operation.named).get("op") in ("argmax", "argmin")
    chosen = (
        split_columns(found, context.wide)
        if found.strided and context.found.kind in BATCH_NORMS
        else _strided_choices(found, context.wide, 8 if places else 4)
        if found.strided
        else _row_choices(found, context.wide, context.found.kind)
    )
    if context.found.kind == "matvec":
        chosen = [*_shared_vector(found, context.wide), *chosen]
    return tuple(
        Rung(settings=settings, title=title, reason=reason, need="parallel") for settings, title, reason in chosen
    )


def _entropy_threads(context: Context) -> tuple[int, ...]:
    """Threads for a row of logits; none if a row does not fit into registers."""
    shape = context.facts.cases[-1].inputs[0].shape if context.facts is not None else ()
    if len(shape) != 2 or shape[1] > 1024 * KEPT:
        return ()
    threads = round_to_power(shape[1] / KEPT, 32, 1024)
    return tuple(dict.fromkeys((threads, min(2 * threads, 1024), min(4 * threads, 1024))))


Choice = tuple[tuple[Call, ...], str, str]


def round_to_power(value: float, least: int, most: int) -> int:
    """The smallest power of two that is at least `value`, within limits."""
    return min(max(1 << max(math.ceil(math.log2(max(value, 1))), 0), least), most)


def count_parts(found: RowLayout, threads: int = 256, each: int = 64) -> int:
    """CTAs per row: 124 per SM over all rows, so that the last wave does not matter.

    Each thread has at least `each` elements of a part.
    """
    return max(min(math.ceil(16384 / found.rows), found.columns // (threads * each)), 2)


def _row_choices(found: RowLayout, wide: int, kind: str) -> list[Choice]:
    vector = put("vector", wide)
    made: list[Choice] = _channel_choices(found, wide) if found.segments else []
    kept = _kept_rows(found, wide, kind) if found.walks > 1 and not found.segments else []
    late = bool(kept) and put("cluster", 8) in kept[0][0] and found.columns < LONG
    made += [] if late else kept
    parts = count_parts(found)
    if (
        found.segments
        or (found.rows < 4 * SMS and found.columns >= 1 << 14)
        or (found.walks > 1 and found.columns * found.tensors > 1 << 19)
    ):
        made += [
            (
                (put("threads_per_row", 256), vector, put("unroll", unroll), put("parts", max(int(parts * more), 2))),
                f"{max(int(parts * more), 2)} CTAs per row",
                "long rows in parts, so that the whole device reads",
            )
            for unroll, more in ((4, 1), (2, 1), (4, 0.25))
        ]
    if found.segments:
        return made
    threads = round_to_power(found.columns / (4 * wide), 32, 256)
    for count in dict.fromkeys((threads, min(2 * threads, 512), max(threads // 2, 32))):
        made.append(
            (
                (put("threads_per_row", count), vector, put("unroll", 4)),
                f"{count} threads per row, four vectors in flight",
                "enough loads in flight to hide the memory's latency",
            )
        )
    return made + (kept if late else [])


def _channel_choices(found: RowLayout, wide: int) -> list[Choice]:
    """Channels in contiguous segments: small CTAs whose threads make two accesses at once."""
    if found.run % (2 * wide) or wide == 8:  # no vector is longer than 8
        return []
    vector, parts = put("vector", 2 * wide), round_to_power(65536 / found.rows, 2, 1024)
    ways = ((128, 1, parts), (32, 2, max(parts // 8, 2)))
    return [
        (
            (put("threads_per_row", threads), vector, put("unroll", unroll), put("parts", count)),
            f"{count} CTAs of {threads} threads per channel",
            "each thread reads two neighbouring vectors at once",
        )
        for threads, unroll, count in ways
    ]


def _kept_rows(found: RowLayout, wide: int, kind: str) -> list[Choice]:
    """The row in the registers of one CTA, or of a cluster's CTAs."""
    made: list[Choice] = []
    vector, each = put("vector", wide), max(KEPT // found.tensors, 8)
    for cluster in (1, 2, 4, 8):
        threads = round_to_power(found.columns / cluster / (each if wide == 8 else each // 2), 32, 1024)
        if cluster > 1 and (threads < 256 or found.columns < 8192):
            continue
        if found.columns <= threads * cluster * each * (1.5 if cluster == 8 else 1):
            extra = (put("cluster", cluster),) if cluster > 1 else ()
            title = f"row kept in the registers of {threads} threads" + (
                f" of each of {cluster} CTAs" if cluster > 1 else ""
            )
            settings = (put("threads_per_row", threads), vector, Call(name="kept"), *extra)
            if kind == "softmax" and wide == 8 and cluster == 1 and threads > 32:
                fewer = (put("threads_per_row", threads // 2), vector, Call(name="kept"), put("unroll", 2))
                made.append(
                    (
                        fewer,
                        f"row kept in the registers of {threads // 2} threads, two vectors in flight",
                        (
                            "the row is read from memory once; "
                            "half the warps wait for each other at its maximum and its sum"
                        ),
                    )
                )
            made.append(
                (
                    settings,
                    title,
                    "the row is read from memory once; a cluster's CTAs combine through each other's shared memory"
                    if cluster > 1
                    else "the row is read from memory once",
                )
            )
    return made[:3]  # a smaller cluster starts sooner


def _shared_vector(found: RowLayout, wide: int) -> list[Choice]:
    """Four rows at once, if each SM still has a CTA and the vector is longer than L1.

    Measured on an H200 at 2048 x 1048576 of float32 in a hand-written kernel: 1.9 ms, 2% less than one row per CTA.
    """
    if found.rows < 4 * SMS or found.columns * 16 // wide <= L1:
        return []
    return [
        (
            (put("threads_per_row", 256), put("vector", wide), put("rows", 4)),
            "four rows at once, 256 threads",
            "the vector comes from L2 once for four rows",
        )
    ]


def _strided_choices(found: RowLayout, wide: int, most: int) -> list[Choice]:
    """Choices for a strided axis, at first with `most` vectors in flight (measured: 4 for values, 8 for places)."""
    width = wide if found.run % wide == 0 else 1
    vector = put("vector", wide)
    lanes = found.batches * math.ceil(found.columns / width)  # threads if each has all rows of its columns
    wanted = SMS * 1024
    split = round_to_power(wanted / max(lanes, 1), 1, 16)
    made: list[Choice] = []
    if found.walks > 1:
        made = _kept_columns(found, width, split, vector)
        made += split_columns(found, wide)[:1] if not made and found.whole and lanes * 8 < wanted else []
    elif lanes * 16 < wanted and found.rows >= 4096:
        parts = max(min(wanted // max(lanes, 1) // 4, found.rows // 64), 2)
        settings = (put("split", 4), vector, put("unroll", 4), put("parts", parts))
        reason = "few long columns are reduced in parts, which a second kernel puts together"
        made = [(settings, f"columns in {parts} parts", reason)]
    shared = _shared_columns(width, split, vector)
    if split == 1 and most == 4 and found.walks == 1:
        # measured on an H200 at 4096 rows: one of these is faster than threads with columns of their own
        made, shared = made + shared[:1], shared[1:]
    made += [*(_own_columns(most, vector) if split == 1 else ()), *shared]
    if found.walks == 1 and found.run % wide and found.batches * math.ceil(found.columns / 1024) >= SMS:
        return [*_bulk_copied_rows(), *made]  # inferred: here a thread loads single elements, a bulk copy does not
    return made


def split_columns(found: RowLayout | None, wide: int) -> list[Choice]:
    """Columns in parts, so that the whole device reads and writes: two waves of CTAs with as many threads as fit."""
    width = wide if found is None or found.run % wide == 0 else 1
    ctas = found.batches * math.ceil(found.columns / (32 * width)) if found is not None else SMS
    rows = found.rows if found is not None else 1 << 14
    ways = ((4, 4, 32), (8, 4, 16), (16, 2, 8))  # warps, vectors in flight, CTAs for each SM
    return [
        (
            (put("split", split), put("vector", wide), put("unroll", unroll), put("parts", parts)),
            f"columns in {parts} parts, {split} warps share some",
            "all CTAs reduce a part of some columns each; what they find is put together, and then all write",
        )
        for split, unroll, each in ways
        for parts in (max(min(each * SMS // ctas, rows // (split * unroll)), 2),)
    ]


def _kept_columns(found: RowLayout, width: int, split: int, vector: Call) -> list[Choice]:
    """Columns in the registers of a CTA's warps, if they fit."""
    each = max(KEPT // found.tensors, 8)
    counts = (
        round_to_power(found.rows * width / each, max(split, 4), 32),
        round_to_power(2 * found.rows * width / each, 4, 32),
    )
    return [
        (
            (put("split", warps), vector, Call(name="kept")),
            f"columns kept in the registers of {warps} warps",
            "each column is read from memory once",
        )
        for warps in dict.fromkeys(counts)
        if found.rows * width <= warps * each * 1.5 and warps * width * 32 * 4 * 2 <= 48 * 1024
    ]


def _shared_columns(width: int, split: int, vector: Call) -> list[Choice]:
    """Several warps for the same columns."""
    return [
        (
            (put("split", warps), vector, put("unroll", unroll)),
            f"{warps} warps share columns",
            "more warps keep more loads in flight",
        )
        for warps, unroll in ((max(split, 4), 4), (max(split, 8), 2))
        if warps * width * 128 * 2 <= 48 * 1024
    ]


def _own_columns(most: int, vector: Call) -> list[Choice]:
    """Threads that reduce columns of their own."""
    return [
        (
            (put("threads", threads), vector, put("unroll", unroll)),
            f"{threads} threads with columns of their own, {unroll} vectors in flight",
            "enough loads in flight to hide the memory's latency",
        )
        for threads, unroll in ((128, most), (128, 12 - most), (256, 4), (64, 4))
    ]


def _bulk_copied_rows() -> list[Choice]:
    """Rows through shared memory by bulk copies, which need no alignment of the rows."""
    title = "rows through shared memory by bulk copies"
    reason = "rows that begin at no multiple of 16 bytes are brought in whole all the same"
    return [
        ((put("threads", 512), put("through", "shared")), f"{title}, 512 threads", reason),
        ((put("through", "shared"),), title, reason),
    ]
