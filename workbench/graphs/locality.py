"""What an order of mini-batches does to a cache, without a GPU: rows, bytes, edges inside, labels, hits of a model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.errors import UserError
from workbench.graphs.batches import Batch
from workbench.graphs.graph import Bools, Graph, Ints
from workbench.records import record

LINE_BYTES = 128  # of an L2 cache of NVIDIA's since Volta


@record
class CacheModel:
    """A cache with least-recently-used replacement in each set; `ways` 0 is fully associative.

    It models one cache that every read passes, in one order, starting empty. Row v of the features begins at
    v * row_bytes, rounded up to whole lines. It models no sectors, no hashing of addresses, no other traffic, and no
    threads that read at the same time: hit rates compare orders, they do not predict a GPU's counter.
    """

    capacity_bytes: int = 1 << 20
    ways: int = 16
    line_bytes: int = LINE_BYTES

    def hits(self, rows: Ints, row_bytes: int) -> Bools:
        """Whether each read of a row (int64[reads]) finds its first line: bool[reads].

        All lines of a row are read together, so its other lines do as the first one where sets and lines divide each
        other; the number of sets is rounded down to such a multiple, or down to one set of whole rows.
        """
        lines = -(-row_bytes // self.line_bytes)
        total = self.capacity_bytes // self.line_bytes
        if total < lines or row_bytes < 1 or self.ways < 0:
            raise UserError(
                f"a cache of {self.capacity_bytes} bytes and {self.ways} ways holds no row of {row_bytes} bytes"
            )
        sets = total // self.ways // lines if self.ways else 0
        if sets < 2:
            return _lru_hits(rows, total // lines)
        return _set_hits(rows, rows % sets, self.ways)


def _lru_hits(rows: Ints, capacity: int) -> Bools:
    """Whether each read is among the last `capacity` different rows: exact, one read after the other."""
    kept: OrderedDict[int, None] = OrderedDict()
    found = np.zeros(len(rows), bool)
    for at, row in enumerate(rows.tolist()):
        if row in kept:
            kept.move_to_end(row)
            found[at] = True
        else:
            kept[row] = None
            if len(kept) > capacity:
                kept.popitem(last=False)
    return found


def _set_hits(rows: Ints, sets: Ints, ways: int) -> Bools:
    """Whether each read finds its row among the last `ways` of its set: exact, all sets step by step together."""
    order = np.argsort(sets, kind="stable")
    _, first, counts = np.unique(sets[order], return_index=True, return_counts=True)
    longest = np.argsort(-counts, kind="stable")  # so that the sets that still read are a prefix
    first, counts = first[longest], counts[longest]
    active = np.searchsorted(-counts, -np.arange(counts.max(initial=0)), side="left")
    tags = np.full((len(first), ways), -1, np.int64)  # most recent first
    found = np.zeros(len(rows), bool)
    for step, many in enumerate(active.tolist()):
        reads = order[first[:many] + step]
        here = tags[:many]
        match = here == rows[reads][:, None]
        hit = match.any(axis=1)
        found[reads] = hit
        depth = np.where(hit, match.argmax(axis=1), ways - 1)
        moves = np.arange(1, ways) <= depth[:, None]
        here[:, 1:] = np.where(moves, here[:, :-1], here[:, 1:])
        here[:, 0] = rows[reads]
    return found


@record
class BatchLocality:
    """What one mini-batch reads. `label_bits` is the entropy of its roots' labels."""

    roots: int
    unique_rows: int
    feature_bytes: int  # of the unique rows
    edges: int
    inside_share: float  # of the edges, those within a community
    label_bits: float
    hit_rate: float  # of the reads of rows by the aggregation


@record
class EpochLocality:
    """Means over the mini-batches of an epoch; shares and hit rate are over all edges."""

    batches: int
    unique_rows: float
    feature_bytes: float
    edges: float
    inside_share: float
    label_bits: float
    hit_rate: float


def measure_batches(graph: Graph, batches: Sequence[Batch], cache: CacheModel | None = None) -> list[BatchLocality]:
    """The locality of each mini-batch; the cache keeps its lines from one to the next.

    The reads are those of the first layer's aggregation: for each target row, the rows of its neighbours.
    """
    cache = cache or CacheModel()
    if graph.community is None:
        raise UserError(f"graph {graph.name!r} has no communities: find them with workbench.graphs.relabel")
    reads = [batch.reads() for batch in batches]
    hits = cache.hits(np.concatenate(reads), graph.row_bytes) if reads else np.zeros(0, bool)
    ends = np.cumsum([len(one) for one in reads])
    found = []
    for batch, read, hit in zip(batches, reads, np.split(hits, ends[:-1]), strict=True):
        targets = np.repeat(batch.nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
        inside = graph.community[targets] == graph.community[read]
        found.append(
            BatchLocality(
                roots=len(batch.roots),
                unique_rows=len(batch.nodes),
                feature_bytes=len(batch.nodes) * graph.row_bytes,
                edges=len(read),
                inside_share=float(inside.mean()) if len(read) else 0.0,
                label_bits=_entropy(graph.labels[batch.roots]),
                hit_rate=float(hit.mean()) if len(read) else 0.0,
            )
        )
    return found


def _entropy(labels: Ints) -> float:
    """The entropy of labels in bits."""
    shares = np.unique(labels, return_counts=True)[1] / max(len(labels), 1)
    return float(-(shares * np.log2(shares)).sum()) + 0.0


def summarise(found: Sequence[BatchLocality]) -> EpochLocality:
    """The means of an epoch. Raises `UserError` without batches."""
    if not found:
        raise UserError("an epoch without mini-batches has no locality")
    edges = sum(one.edges for one in found)

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(found)

    return EpochLocality(
        batches=len(found),
        unique_rows=mean(one.unique_rows for one in found),
        feature_bytes=mean(one.feature_bytes for one in found),
        edges=mean(one.edges for one in found),
        inside_share=sum(one.inside_share * one.edges for one in found) / max(edges, 1),
        label_bits=mean(one.label_bits for one in found),
        hit_rate=sum(one.hit_rate * one.edges for one in found) / max(edges, 1),
    )
