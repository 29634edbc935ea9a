"""A graph whose nodes carry features and labels, as arrays in compressed sparse rows (CSR)."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UserError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Raw = NDArray[np.generic]  # of any numbers

MASKS = ("train", "val", "test")
UNLABELLED = -1
PART_BYTES = 1 << 24  # of rows that are worth a thread


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # arrays have no truth value, so no == of all fields
class Graph:
    """Row v of the CSR arrays lists the nodes from which v aggregates: `indices[indptr[v]:indptr[v + 1]]`.

    indptr: int64[N + 1], from 0, never falling. indices: int32 or int64[E], each in 0..N-1. features: float32[N, F].
    labels: int64[N], -1 for a node without a label. train, val, test: bool[N], disjoint, on labelled nodes only.
    community: int64[N], a number from 0 for each node, or None if nobody gave one; generators plant it.
    Raises `UserError` with one line for the first defect.
    """

    indptr: Ints
    indices: Ints
    features: Floats
    labels: Ints
    train: Bools
    val: Bools
    test: Bools
    community: Ints | None = None
    name: str = "graph"
    _digest: list[str] = field(default_factory=list, repr=False)  # filled at first use

    def __post_init__(self) -> None:
        defect = next(_defects(self), None)
        if defect is not None:
            raise UserError(f"graph {self.name!r}: {defect}")

    @property
    def nodes(self) -> int:
        """The number of nodes, N."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of entries of the CSR arrays, E; an undirected edge is two."""
        return len(self.indices)

    @property
    def classes(self) -> int:
        """The number of classes: the largest label plus one."""
        return int(self.labels.max(initial=UNLABELLED)) + 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a node's features."""
        return int(self.features.shape[1] * self.features.itemsize)

    def digest(self) -> str:
        """Hex SHA-256 of all arrays: the name under which results of this graph are kept."""
        if not self._digest:
            import numpy as np

            hashed = hashlib.sha256()
            for name in (*("indptr", "indices", "features", "labels"), *MASKS, "community"):
                array = getattr(self, name)
                if array is not None:
                    wide = array.astype(np.int64) if name == "indices" else array
                    hashed.update(f"{name}{wide.shape}".encode() + np.ascontiguousarray(wide).tobytes())
            self._digest.append(hashed.hexdigest())
        return self._digest[0]


def _defects(graph: Graph) -> Iterator[str]:
    """One line for each defect, the causes of others first."""
    yield from _dtype_defects(graph)
    count, edges = len(graph.indptr) - 1, len(graph.indices)
    if count < 0 or graph.indptr[0] != 0:
        yield "indptr must begin with 0 and have one entry more than there are nodes"
    falls = np.flatnonzero(np.diff(graph.indptr) < 0)
    if len(falls):
        yield f"indptr falls at node {falls[0]}: offsets of rows must not fall"
    if graph.indptr[-1] != edges:
        yield f"indptr ends with {graph.indptr[-1]}, but indices has {edges} entries; they must be equal"
    outside = np.flatnonzero((graph.indices < 0) | (graph.indices >= count))
    if len(outside):
        yield f"indices[{outside[0]}] is {graph.indices[outside[0]]}, but nodes are numbered 0 to {count - 1}"
    for name in ("features", "labels", *MASKS, *(("community",) if graph.community is not None else ())):
        length = len(getattr(graph, name))
        if length != count:
            yield f"{name} has {length} rows, but there are {count} nodes"
    yield from _value_defects(graph)


def _dtype_defects(graph: Graph) -> Iterator[str]:
    wanted = {
        "indptr": ("int64", 1),
        "indices": ("int32 or int64", 1),
        "features": ("float32", 2),
        "labels": ("int64", 1),
        **dict.fromkeys(MASKS, ("bool", 1)),
        **({"community": ("int64", 1)} if graph.community is not None else {}),
    }
    for name, (dtypes, dimensions) in wanted.items():
        array = getattr(graph, name)
        if not hasattr(array, "dtype") or str(array.dtype) not in dtypes.split(" or "):
            yield f"{name} is {getattr(array, 'dtype', type(array).__name__)}; it must be a numpy array of {dtypes}"
        elif array.ndim != dimensions:
            yield f"{name} has {array.ndim} dimensions; it must have {dimensions}"


def _value_defects(graph: Graph) -> Iterator[str]:
    with np.errstate(over="ignore", invalid="ignore"):
        total = graph.features.sum()  # one pass without a matrix of flags: finite only if all features are
    if not np.isfinite(total):
        bad = np.flatnonzero(~np.isfinite(graph.features).all(axis=1))
        if len(bad):
            yield f"features of node {bad[0]} are not finite: replace NaN and infinity"
    low = np.flatnonzero(graph.labels < UNLABELLED)
    if len(low):
        yield f"the label of node {low[0]} is {graph.labels[low[0]]}; write -1 for a node without a label"
    if graph.community is not None and (graph.community < 0).any():
        yield f"node {np.flatnonzero(graph.community < 0)[0]} has a negative community; number them from 0"
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        both = np.flatnonzero(getattr(graph, one) & getattr(graph, other))
        if len(both):
            yield f"node {both[0]} is in {one} and in {other}: the three masks must be disjoint"
    for name in MASKS:
        blank = np.flatnonzero(getattr(graph, name) & (graph.labels == UNLABELLED))
        if len(blank):
            yield f"node {blank[0]} is in {name} but has no label"


def positions_of_rows(starts: Ints, counts: Ints) -> Ints:
    """Positions starts[i], starts[i] + 1, ... of all rows i one after the other: int64[counts.sum()]."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    offsets: Ints = np.repeat(starts - (ends - counts), counts)
    return np.arange(total, dtype=np.int64) + offsets


def take_rows(matrix: Floats, order: Ints) -> Floats:
    """matrix[order], by as many threads as there are cores: numpy copies with one."""
    taken = np.empty((len(order), matrix.shape[1]), matrix.dtype)
    parts = max(1, min(os.cpu_count() or 1, matrix.nbytes // PART_BYTES))
    bounds = np.linspace(0, len(order), parts + 1).astype(int).tolist()

    def take(first: int, last: int) -> None:
        np.take(matrix, order[first:last], axis=0, out=taken[first:last], mode="clip")

    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(take, bounds[:-1], bounds[1:]))
    return taken


def permute(graph: Graph, order: Ints) -> Graph:
    """The graph with node order[i] as node i: rows, neighbours' numbers, features, labels and masks; rows sorted.

    Raises `UserError` if the order is no permutation of the nodes.
    """

    order = np.asarray(order, dtype=np.int64)
    if len(order) != graph.nodes or not np.array_equal(np.sort(order), np.arange(graph.nodes)):
        raise UserError(f"graph {graph.name!r}: an order must name each of the {graph.nodes} nodes once")
    place = np.empty(graph.nodes, np.int64)
    place[order] = np.arange(graph.nodes)
    counts = np.diff(graph.indptr)[order]
    indptr = np.concatenate(([0], np.cumsum(counts)))
    neighbours = place[graph.indices[positions_of_rows(graph.indptr[:-1][order], counts)]]
    rows = np.repeat(np.arange(graph.nodes), counts)
    indices = neighbours[np.argsort(rows * graph.nodes + neighbours, kind="stable")].astype(graph.indices.dtype)
    return dataclasses.replace(
        graph,
        indptr=indptr,
        indices=indices,
        features=take_rows(graph.features, order),
        labels=graph.labels[order],
        community=None if graph.community is None else graph.community[order],
        **{name: getattr(graph, name)[order] for name in MASKS},
        _digest=[],
    )
