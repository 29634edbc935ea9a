"""The ladder of aggregate: 16-byte loads, several neighbours in flight per thread, long rows shared by CTAs.

The bytes that an H100 or H200 needs in flight on each SM are some 40 KB (bandwidth times latency over 132 SMs); at 2048
threads with 4 loads of 16 bytes each there are 128 KB, so a rung is bound by memory if its threads have even work. How
even rows are is not known from shapes. With many indices the merge path comes first, which takes as long for one row as
for many: on an H200 it was faster than torch.sparse.mm on each of ten whole graphs, though without hubs rows were
faster still. With few indices its searches and its second kernel cost more than they save. A table of rows larger than
L2 is read again from DRAM; columns in parts, one after the other, make it smaller. MANY and LONG_ROW are inferred.
"""

from __future__ import annotations

import math

from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition.graph import python_expression
from workbench.records import record

CTA = 256  # threads
MOST_ROWS = 32  # of a CTA
LONG_ROW = 64  # neighbours in the mean from which on rows are shared
MANY = 1 << 19  # indices from which on the merge path comes first


@record
class Size:
    """Columns of a row of x, indices, and rows of the result."""

    columns: int
    edges: int
    rows: int

    @property
    def is_long(self) -> bool:
        """Whether rows are long in the mean, or may be."""
        return self.edges >= MANY or self.edges >= LONG_ROW * self.rows


def find_size(context: Context) -> Size | None:
    """The size at the full case; None if the shapes are not known there."""
    known = known_shapes(context)
    x, indptr, indices = (known.get(role) for role in ("x", "indptr", "indices"))
    if x is None or indptr is None or indices is None:
        return None
    return Size(columns=math.prod(x[1:]), edges=indices[0], rows=max(indptr[0] - 1, 1))


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
    return rungs_of(find_size(context), context.wide)


def rungs_of(size: Size | None, wide: int) -> tuple[Rung, ...]:
    """The rungs of aggregate for a size, with `wide` elements in 16 bytes."""
    threads = threads_of_row(size.columns, wide) if size is not None else 32
    halves = 2 if threads >= 16 else 1

    def rung(
        title: str,
        reason: str,
        *,
        cta: int = CTA,
        parts: int = 1,
        split: int = 1,
        unroll: int = 4,
        items: int = 0,
        need: str = "parallel",
    ) -> Rung:
        own = threads // parts
        settings = (
            put("rows", min(max(cta // (own * split), 1), MOST_ROWS)),
            put("threads_per_row", own),
            *(() if items else (put("split", split),)),
            put("vector", wide),
            put("unroll", unroll),
            *((put("merge_path", items),) if items else ()),
        )
        return Rung(settings=settings, title=title, reason=reason, need=need)

    path = rung(
        "even shares of neighbours and ends of rows",
        "the merge path: a long row is shared by CTAs, short ones leave no thread idle; parts are added in order",
        parts=halves,
        items=64,
        need="",
    )
    small = rung(
        "CTAs of 64 threads",
        "loads of 16 bytes, four on the way per thread; a CTA ends with its longest row, so few rows wait for it",
        cta=64,
        need="",
    )
    larger = rung("larger even shares", "fewer searches for the first row, fewer parts of rows", items=128, unroll=8)
    others = (
        rung("four neighbours on the way per thread", "larger CTAs: fewer to start"),
        rung("smaller even shares", "more CTAs for few neighbours", items=32),
        rung("eight neighbours on the way", "more loads in flight", cta=64, unroll=8),
        rung("two neighbours on the way", "rows with few neighbours; fewer registers", unroll=2),
        rung("four groups of threads per row", "long rows end sooner; parts are added in a fixed order", split=4),
    )
    tiled = tuple(
        rung(
            f"columns in {parts} parts, one after the other",
            "a part of each row of x is in use at a time, so L2 holds more of what is read again",
            parts=parts,
            split=parts,
        )
        for parts in (2, 4)
        if threads >= 4 * parts
    )
    simple = Rung(
        settings=(put("rows", 8), put("threads_per_row", 32), put("vector", 1), put("unroll", 1)),
        title="one element per thread",
        reason="the simplest correct kernel",
    )
    if size is not None and size.is_long:
        return (path, larger, small, *tiled, *others, simple)
    return (small, *tiled, path, larger, *others, simple)
