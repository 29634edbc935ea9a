"""Draws neighbours of whole frontiers on a torch device: the laws of `workbench.graphs.neighbors`, in a few kernels.

The host is asked for sizes only, since a tensor cannot be made without its size.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from workbench.graphs.graph import Graph, Ints
from workbench.graphs.neighbors import ALL
from workbench.graphs.roots import check_share


class DeviceDraw(Protocol):
    """Draws neighbours for a frontier, int64[F] on the device."""

    def __call__(
        self, frontier: torch.Tensor, fanout: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(how many neighbours each node of the frontier got, int64[F]; the neighbours in that order, int64[sum])."""


class Rows:
    """Rows of a graph in compressed form on a device: indptr int64[N + 1], indices int64[E]."""

    def __init__(self, indptr: Ints, indices: Ints, device: torch.device) -> None:
        self.indptr = torch.from_numpy(np.ascontiguousarray(indptr, np.int64)).to(device)
        self.indices = torch.from_numpy(np.ascontiguousarray(indices, np.int64)).to(device)

    def extents(self, frontier: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(first position, length) of each row of the frontier, int64[F] each."""
        starts = self.indptr[frontier]
        return starts, self.indptr[frontier + 1] - starts


def list_positions(starts: torch.Tensor, counts: torch.Tensor, total: int) -> torch.Tensor:
    """Positions starts[i], starts[i] + 1, ... of all rows i one after the other: int64[total], total = counts.sum()."""
    offsets = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts, output_size=total)
    return torch.arange(total, device=starts.device) + offsets


def list_rows(counts: torch.Tensor, total: int) -> torch.Tensor:
    """Row i counts[i] times, for all rows: int64[total]."""
    return torch.repeat_interleave(counts, output_size=total)


class DeviceBiasedDraw:
    """The law of `neighbors.BiasedDraw`: successive draws without replacement, weight p inside and 1 - p outside.

    Each neighbour gets an arrival time -log(u) / weight; the `fanout` that come first are those that successive
    weighted draws choose (Efraimidis and Spirakis 2006). One sort by (row, time) serves the whole frontier. Edges of
    weight 0 are left out of the arrays, unless a node has no others: then all its edges count alike.
    """

    def __init__(self, graph: Graph, community: Ints, p: float, device: torch.device) -> None:
        check_share("p", p)
        rows = np.repeat(np.arange(graph.nodes), np.diff(graph.indptr))
        weights = np.where(community[graph.indices] == community[rows], float(p), 1 - float(p))
        is_lost = (np.bincount(rows, weights, graph.nodes) == 0)[rows]
        weights[is_lost] = 1.0
        kept = weights > 0
        counts = np.bincount(rows[kept], minlength=graph.nodes)
        self._rows = Rows(np.concatenate(([0], np.cumsum(counts))), graph.indices[kept], device)
        self._weights = None if p in (0, 0.5, 1) else torch.from_numpy(weights[kept]).to(device)

    def __call__(
        self, frontier: torch.Tensor, fanout: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `DeviceDraw` says; fan-out -1 takes all that may be drawn."""
        starts, counts = self._rows.extents(frontier)
        if fanout == ALL:
            return counts, self._rows.indices[list_positions(starts, counts, int(counts.sum()))]
        takes = counts.clamp(max=fanout)
        total, taken = torch.stack((counts.sum(), takes.sum())).tolist()
        positions = list_positions(starts, counts, total)
        times = torch.empty(total, dtype=torch.float64, device=frontier.device).exponential_(generator=generator)
        if self._weights is not None:
            times /= self._weights[positions]
        # bits of a float that is not negative are in its order: one whole number holds row and time
        keys = (list_rows(counts, total) << 32) | times.float().view(torch.int32)
        firsts = list_positions(counts.cumsum(0) - counts, takes, taken)
        return takes, self._rows.indices[positions[keys.argsort(stable=True)[firsts]]]


class DeviceLaborDraw:
    """The law of `neighbors.LaborDraw`: u is taken for v if r_u <= fanout / degree(v), one r_u for each u and hop."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self._rows = Rows(graph.indptr, graph.indices, device)

    def __call__(
        self, frontier: torch.Tensor, fanout: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `DeviceDraw` says; the counts vary round the fan-out."""
        starts, counts = self._rows.extents(frontier)
        total = int(counts.sum())
        neighbours = self._rows.indices[list_positions(starts, counts, total)]
        if fanout == ALL:
            return counts, neighbours
        key = torch.empty(1, dtype=torch.int64, device=frontier.device).random_(generator=generator)
        degrees = torch.repeat_interleave(counts, counts, output_size=total)
        is_kept = hash_to_unit(neighbours, key) * degrees < fanout
        return count_by_row(is_kept, counts), neighbours[is_kept]


def count_by_row(is_kept: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """How many of each row's entries are kept: int64[F], of bool[counts.sum()]."""
    before = torch.nn.functional.pad(is_kept.cumsum(0), (1, 0))
    ends = counts.cumsum(0)
    return before[ends] - before[ends - counts]


def hash_to_unit(numbers: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A float64 in [0, 1) for each whole number and the key: SplitMix64's finaliser (Steele, Lea and Flood 2014)."""
    mixed = numbers * _signed(0x9E3779B97F4A7C15) + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ _shift_right(mixed, shift)) * _signed(factor)
    mixed = mixed ^ _shift_right(mixed, 31)
    return _shift_right(mixed, 11).double() * 2.0**-53


def _signed(number: int) -> int:
    """The int64 with the bits of this uint64."""
    return number - (1 << 64) if number >> 63 else number


def _shift_right(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """As for uint64: zeros come in."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
