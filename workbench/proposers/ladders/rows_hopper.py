"""Rows on Hopper: how the reduced axis lies at full size, and settings that come near to the speed of a copy.

The rules are inferred unless a line says measured: 32 floats of a row per thread stay in registers at 1024 threads; a
device of 132 SMs wants 32 KB or more in flight on each, and CTAs in many waves or in none that is half empty. Measured
on an H200 (2026-11-22, workbench/landscapes): a thread best keeps 16 elements of four bytes, or 32 of two (64 of a
softmax); the logits of a cross-entropy, of which little is stored, 32; channels in segments are read by 8 floats a
thread.
"""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.language.expressions import axes
from workbench.language.expressions.lowering import expansion, normalise
from workbench.language.expressions.reduction_passes import plan
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.records import record

SMS = 132
# columns from which a row in a cluster of 8 is faster than two walks: measured on an H200 at 262144 (slower) and
# 393216 (faster)
LONG = 300_000
L1 = 1 << 18  # bytes of an SM's L1 cache: a longer vector comes from L2 for each row anew (inferred)
KEPT = 32  # elements of a row in the registers of a thread (inferred)


@record
class Lay:
    """A reduction at full size, as axes.View has it.

    `walks` counts the passes over a row, with the one that writes; each of them reads `tensors`.
    """

    batches: int
    rows: int
    columns: int
    walks: int
    whole: bool
    tensors: int = 1
    strided: bool = False
    segments: bool = False
    run: int = 1  # contiguous elements that a vector must not straddle

    @property
    def length(self) -> int:
        """Elements along the reduced axis."""
        return self.rows if self.strided else self.columns


def lay_of(context: Context) -> Lay | None:
    """How the computation's main stage lies, where its tensor is one of forward's."""
    found, facts = context.found, context.facts
    call = found.operation
    if facts is None or not call.positional or call.name == "crossentropy":
        return None
    named = dict(call.named)
    axis: object = named.get("axis", "last")
    if call.name in ("batchnorm", "groupnorm", "instancenorm"):
        value: object = normalise("x", 1e-5, False)
        axis = {
            "batchnorm": Call(name="but", positional=(1,)),
            "groupnorm": Call(name="groups", positional=(named.get("groups", 1),)),
            "instancenorm": Call(name="over_from", positional=(2,)),
        }[call.name]
    else:
        value = call.positional[0] if call.name == "rowwise" else expansion(_stage(call))
    details = plan(value)
    operands = dict(found.operands)
    plain = (
        call.positional[0] if isinstance(call.positional[0], str) else "x"
    )  # named norms and reductions call theirs x
    names = [operands.get(name, operands.get(plain, name) if name == "x" else name) for name in details.plain]
    shape = next((spec.shape for name in names for spec in facts.cases[-1].inputs if spec.name == name), None)
    if shape is None or not details.levels:
        return None
    walks = len(details.levels) + details.whole
    return lay(shape, axis, walks, details.whole, len(details.plain))


def _stage(call: Call):  # type: ignore[no-untyped-def]
    from workbench.language import Stage

    return Stage(operation=call)


def lay(shape: tuple[int, ...], axis: object, walks: int, whole: bool, tensors: int) -> Lay | None:
    """A shape's batches, rows and columns for an axis."""
    total = math.prod(shape)
    if total == 0 or not shape:
        return None
    if isinstance(axis, Call) and axis.name == "but":
        channels, run = shape[1], math.prod(shape[2:])
        return Lay(
            batches=1,
            rows=channels,
            columns=total // channels,
            walks=walks,
            whole=whole,
            tensors=tensors,
            segments=True,
            run=run,
        )
    length = total if axis == "all" else shape[-1] if axis == "last" else 0
    if isinstance(axis, Call) and axis.name in ("last", "groups", "over_from"):
        number = int(str(axis.positional[0]))
        length = (
            math.prod(shape[-number:])
            if axis.name == "last"
            else total // (shape[0] * number)
            if axis.name == "groups"
            else math.prod(shape[2:])
        )
    if length:
        return Lay(
            batches=1, rows=total // length, columns=length, walks=walks, whole=whole, tensors=tensors, run=length
        )
    first, last = axes.axis_range(axis)
    batches, rows = math.prod(shape[:first]), math.prod(shape[first : last + 1])
    return Lay(
        batches=batches,
        rows=rows,
        columns=total // (batches * rows),
        walks=walks,
        whole=whole,
        tensors=tensors,
        strided=True,
        run=total // (batches * rows),
    )


def rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs for Hopper, fastest first by what is said above; none where the size is not known."""
    found = lay_of(context)
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
        _strided(found, context.wide, 8 if places else 4)
        if found.strided
        else _rows(found, context.wide, context.found.kind)
    )
    if context.found.kind == "matvec":
        chosen = [*_shared_vector(found, context.wide), *chosen]
    return tuple(
        Rung(settings=settings, title=title, reason=reason, need="parallel") for settings, title, reason in chosen
    )


def _entropy_threads(context: Context) -> tuple[int, ...]:
    """Threads for a row of logits, none where a row does not fit into registers."""
    shape = context.facts.cases[-1].inputs[0].shape if context.facts is not None else ()
    if len(shape) != 2 or shape[1] > 1024 * KEPT:
        return ()
    threads = power(shape[1] / KEPT, 32, 1024)
    return tuple(dict.fromkeys((threads, min(2 * threads, 1024), min(4 * threads, 1024))))


Choice = tuple[tuple[Call, ...], str, str]


def power(value: float, least: int, most: int) -> int:
    """The power of two from `value` on, within limits."""
    return min(max(1 << max(math.ceil(math.log2(max(value, 1))), 0), least), most)


def in_parts(found: Lay, threads: int = 256, each: int = 64) -> int:
    """CTAs per row: 124 per SM over all rows, so that the last ones do not matter.

    No part is under `each` elements a thread.
    """
    return max(min(math.ceil(16384 / found.rows), found.columns // (threads * each)), 2)


def _rows(found: Lay, wide: int, kind: str) -> list[Choice]:
    vector = put("vector", wide)
    made: list[Choice] = _channels(found, wide) if found.segments else []
    kept = _kept(found, wide, kind) if found.walks > 1 and not found.segments else []
    late = bool(kept) and put("cluster", 8) in kept[0][0] and found.columns < LONG
    made += [] if late else kept
    parts = in_parts(found)
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
    threads = power(found.columns / (4 * wide), 32, 256)
    for count in dict.fromkeys((threads, min(2 * threads, 512), max(threads // 2, 32))):
        made.append(
            (
                (put("threads_per_row", count), vector, put("unroll", 4)),
                f"{count} threads per row, four vectors in flight",
                "enough loads in flight to hide the memory's latency",
            )
        )
    return made + (kept if late else [])


def _channels(found: Lay, wide: int) -> list[Choice]:
    """Channels in contiguous segments: two accesses at once for each thread of small CTAs."""
    if found.run % (2 * wide) or wide == 8:  # no vector is longer than 8
        return []
    vector, parts = put("vector", 2 * wide), power(65536 / found.rows, 2, 1024)
    ways = ((128, 1, parts), (32, 2, max(parts // 8, 2)))
    return [
        (
            (put("threads_per_row", threads), vector, put("unroll", unroll), put("parts", count)),
            f"{count} CTAs of {threads} threads per channel",
            "each thread reads two neighbouring vectors at once",
        )
        for threads, unroll, count in ways
    ]


def _kept(found: Lay, wide: int, kind: str) -> list[Choice]:
    """The row in registers, of one CTA or of a cluster's."""
    made: list[Choice] = []
    vector, each = put("vector", wide), max(KEPT // found.tensors, 8)
    for cluster in (1, 2, 4, 8):
        threads = power(found.columns / cluster / (each if wide == 8 else each // 2), 32, 1024)
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


def _shared_vector(found: Lay, wide: int) -> list[Choice]:
    """Four rows at once, where that leaves a CTA for each SM and the vector is long.

    Measured on an H200 at 2048 x 1048576 of float32 in a kernel by hand: 1.9 ms, 2% less than a row a CTA.
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


def _strided(found: Lay, wide: int, most: int) -> list[Choice]:
    """`most`: vectors in flight to begin with; measured at 4096 rows: 4 for values, 8 for places."""
    width = wide if found.run % wide == 0 else 1
    vector = put("vector", wide)
    lanes = found.batches * math.ceil(found.columns / width)  # threads if each has all rows of its columns
    wanted = SMS * 1024
    split = power(wanted / max(lanes, 1), 1, 16)
    made: list[Choice] = []
    if found.walks > 1:
        each = max(KEPT // found.tensors, 8)
        for least in dict.fromkeys(
            (power(found.rows * width / each, max(split, 4), 32), power(2 * found.rows * width / each, 4, 32))
        ):
            if found.rows * width <= least * each * 1.5 and least * width * 32 * 4 * 2 <= 48 * 1024:
                made.append(
                    (
                        (put("split", least), vector, Call(name="kept")),
                        f"columns kept in the registers of {least} warps",
                        "each column is read from memory once",
                    )
                )
    elif lanes * 16 < wanted and found.rows >= 4096:
        parts = max(min(wanted // max(lanes, 1) // 4, found.rows // 64), 2)
        made.append(
            (
                (put("split", 4), vector, put("unroll", 4), put("parts", parts)),
                f"columns in {parts} parts",
                "few long columns are reduced in parts, which a second kernel puts together",
            )
        )
    shared: list[Choice] = [
        (
            (put("split", count), vector, put("unroll", unroll)),
            f"{count} warps share columns",
            "more warps keep more loads in flight",
        )
        for count, unroll in ((max(split, 4), 4), (max(split, 8), 2))
        if count * width * 128 * 2 <= 48 * 1024
    ]
    if split == 1 and most == 4 and found.walks == 1:
        made, shared = (
            made + shared[:1],
            shared[1:],
        )  # measured on an H200 at 4096 rows: ahead of columns of a thread's own
    if split == 1:
        made += [
            (
                (put("threads", threads), vector, put("unroll", unroll)),
                f"{threads} threads with columns of their own, {unroll} vectors in flight",
                "enough loads in flight to hide the memory's latency",
            )
            for threads, unroll in ((128, most), (128, 12 - most), (256, 4), (64, 4))
        ]
    made += shared
    if found.walks == 1 and found.run % wide and found.batches * math.ceil(found.columns / 1024) >= SMS:
        # inferred: a thread's loads are of one element each here, a bulk copy's are not
        bulk = (
            "rows through shared memory by bulk copies",
            "rows that begin at no multiple of 16 bytes are brought in whole all the same",
        )
        made = [
            ((put("threads", 512), put("through", "shared")), f"{bulk[0]}, 512 threads", bulk[1]),
            ((put("through", "shared"),), *bulk),
            *made,
        ]
    return made
