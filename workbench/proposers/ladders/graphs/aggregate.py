"""The ladder of aggregate: 16-byte loads, several neighbours in flight per thread, then more threads for long rows.

The bytes that an H100 or H200 needs in flight on each SM are some 40 KB (bandwidth times latency over 132 SMs); at 2048
threads with 4 loads of 16 bytes each there are 128 KB, so the first rung is bound by memory if x's rows are long enough
for its threads. These rules are inferred.
"""

from __future__ import annotations

import math

from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition.graph import python_expression
from workbench.records import record

CTA = 256  # threads
LONG_ROW = 64  # neighbours in the mean from which on several groups share a row


@record
class Size:
    """Columns of a row of x, and neighbours of a row of the result in the mean."""

    columns: int
    neighbours: float


def find_size(context: Context) -> Size | None:
    """The size at the full case; None if the shapes are not known there."""
    known = known_shapes(context)
    x, indptr, indices = (known.get(role) for role in ("x", "indptr", "indices"))
    if x is None or indptr is None or indices is None:
        return None
    return Size(columns=math.prod(x[1:]), neighbours=indices[0] / max(indptr[0] - 1, 1))


def known_shapes(context: Context) -> dict[str, tuple[int, ...]]:
    """The shapes of operands by their roles, of those that are known at the full case."""
    if context.facts is None:
        return {}
    given = (*context.facts.full, *context.facts.cases[-1].inputs)
    known = {python_expression(spec.name): spec.shape for spec in given}
    return {role: known[text] for role, text in context.found.operands if text in known}


def threads_of_row(columns: int, vector: int) -> int:
    """Threads for the vectors of a row: all of them if they are few, else as many as leave few idle."""
    vectors = max(math.ceil(columns / math.gcd(columns, vector)), 1)
    if vectors <= 32:
        return max(1 << (vectors - 1).bit_length(), 4)
    return min((128, 64, 32), key=lambda threads: (-(-vectors // threads) * threads, -threads))


def aggregate_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of aggregate."""
    size, wide = find_size(context), context.wide
    threads = threads_of_row(size.columns, wide) if size is not None else 32

    def rung(title: str, reason: str, *, split: int = 1, unroll: int = 4, cta: int = CTA, need: str = "") -> Rung:
        rows = max(cta // (threads * split), 1)
        settings = (
            put("rows", rows),
            put("threads_per_row", threads),
            put("split", split),
            put("vector", wide),
            put("unroll", unroll),
        )
        return Rung(settings=settings, title=title, reason=reason, need=need)

    plain = rung(
        "four neighbours on the way per thread",
        "loads of 16 bytes, next to each other in a row of x; each waits for its index first, so four are on the way",
    )
    shared = rung(
        "four groups of threads per row",
        "long rows end sooner; the groups' parts are added in a fixed order",
        split=4,
        need="parallel",
    )
    first = (shared, plain) if size is not None and size.neighbours >= LONG_ROW else (plain, shared)
    return (
        *first,
        rung("eight neighbours on the way", "more loads in flight", unroll=8, need="parallel"),
        rung("two neighbours on the way", "rows with few neighbours; fewer registers", unroll=2, need="parallel"),
        rung("CTAs of 64 threads", "a CTA ends with its longest row: fewer rows wait for it", cta=64, need="parallel"),
        rung("eight groups of threads per row", "for very long rows", split=8, unroll=2, cta=512, need="parallel"),
        Rung(
            settings=(put("rows", 8), put("threads_per_row", 32), put("vector", 1), put("unroll", 1)),
            title="one element per thread",
            reason="the simplest correct kernel",
        ),
    )
