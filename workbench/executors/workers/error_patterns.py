"""Describes the wrong elements of an output: a map, where they lie, and a pattern that explains their values.

Pure functions on arrays. An output is seen as a matrix: its last axis has the columns, all others are rows. Of a large
output some rows are looked at, among them the wrong ones.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from workbench.records import WrongValues

MAP_ROWS, MAP_COLUMNS = 32, 64
MOST_ELEMENTS = 1 << 16  # that are looked at
MOST_LOCATED = 1 << 24
HOLDS = 0.97  # share of the wrong elements that a pattern must explain
PROBES = 128  # wrong elements that are compared first
LINES = 8  # rows or columns that are compared first
LEAST = 4  # elements that a pattern must explain
SHIFTS = (1, -1, 2, -2, 4, -4, 32, -32)
TILES = (256, 128, 64, 32, 16, 8)
AXIS = {1: "the last axis", 2: "the second last axis"}
CLOSE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass
class _Wrong:
    """The output and what is expected, with the wrong elements `bad`; `close` is the relative distance of a match."""

    got: Array
    expected: Array
    bad: Mask
    close: float
    whole_numbers: bool

    def agrees(self, value: Array, among: Mask | None = None) -> bool:
        """Whether the output has these values at nearly all wrong elements (of those in `among`)."""
        if not self._may_agree(value, among):
            return False
        at = self.bad if among is None else self.bad & among
        count = int(at.sum())
        if count < min(LEAST, int(self.bad.sum())) or not count:
            return False
        wanted, got = np.broadcast_to(value, self.got.shape)[at], self.got[at]
        known = np.isfinite(wanted) & np.isfinite(got)
        if known.sum() < HOLDS * count:
            return False
        typical = float(np.median(np.abs(wanted[known]))) if known.any() else 0.0
        near = np.abs(got - wanted)[known] <= self.close * np.abs(wanted[known]) + self.close * 1e-2 * typical
        return bool(near.sum() >= HOLDS * count)

    @functools.cached_property
    def probes(self) -> tuple[NDArray[np.intp], ...]:
        """Indices of some wrong elements."""
        found = np.flatnonzero(self.bad)
        return np.unravel_index(found[:: max(len(found) // PROBES, 1)], self.bad.shape)

    def _may_agree(self, value: Array, among: Mask | None) -> bool:
        """Whether some elements agree, which is quick to see."""
        wanted, got = np.broadcast_to(value, self.got.shape)[self.probes], self.got[self.probes]
        if among is not None:
            wanted, got = wanted[among[self.probes]], got[among[self.probes]]
        return self._are_near(got, wanted)

    def may_be_moved(self) -> bool:
        """Whether the wrong elements tell others' places: a few values differ, and they are not nearly their own."""
        return len(np.unique(self.expected[self.bad])) >= LEAST and not self.agrees(self.expected)

    def may_be_shifted(self, axis: int, step: int) -> bool:
        """Whether some elements are the expected ones `step` before them, which is quick to see."""
        source = self.probes[-axis] - step
        inside = (source >= 0) & (source < self.expected.shape[-axis])
        at = [index[inside] for index in self.probes]
        here = self.got[tuple(at)]
        at[-axis] = source[inside]
        return self._are_near(here, self.expected[tuple(at)])

    def _are_near(self, got: Array, wanted: Array) -> bool:
        near = np.abs(got - wanted) <= 2 * self.close * np.maximum(np.abs(wanted), np.median(np.abs(wanted)))
        return not len(near) or bool(near.mean() > HOLDS - 0.2)


def describe(
    got: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor, operands: Mapping[str, torch.Tensor] | None = None
) -> WrongValues:
    """The description of an output with wrong elements `bad`. `operands` are inputs and parameters of the reference."""
    shape, kind = tuple(expected.shape), expected.dtype
    columns = shape[-1] if shape else 1
    flags = bad.reshape(-1, columns)
    cells = _draw_map(flags)
    where = locate(flags.cpu().numpy()) if flags.numel() <= MOST_LOCATED else ""
    if got.numel() > MOST_ELEMENTS:
        rows = _choose_rows(flags)
        got, expected, bad = (one.reshape(-1, columns)[rows] for one in (got, expected, bad))
        operands = {}
    else:
        got, expected, bad = (one.reshape(shape or (1,)) for one in (got, expected, bad))
    wrong = _Wrong(
        got=_to_array(got),
        expected=_to_array(expected),
        bad=bad.cpu().numpy(),
        close=CLOSE.get(got.dtype, 1e-3),
        whole_numbers=not kind.is_floating_point,
    )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without a wrong element have no median
        pattern = next(_name_patterns(wrong, {key: _to_array(value) for key, value in (operands or {}).items()}), "")
    return WrongValues(cells=cells, rows=len(flags), columns=columns, where=where, pattern=pattern)


def _to_array(value: torch.Tensor) -> Array:
    found: Array = value.detach().to("cpu", torch.float64).numpy()
    return found


def _choose_rows(flags: torch.Tensor) -> torch.Tensor:
    """Some rows, in order: those with wrong elements first."""
    most = max(MOST_ELEMENTS // max(flags.shape[1], 1), 1)
    wrong = flags.any(1).nonzero()[:, 0]
    return wrong[:: max(len(wrong) // most, 1)][:most]


def _draw_map(flags: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    """The share of wrong elements in each cell of a map of at most MAP_ROWS by MAP_COLUMNS cells."""
    rows, columns = flags.shape
    high, wide = max(-(-rows // MAP_ROWS), 1), max(-(-columns // MAP_COLUMNS), 1)
    padded = torch.nn.functional.pad(flags.to(torch.float32), (0, -columns % wide, 0, -rows % high), value=math.nan)
    cells = padded.reshape(-(-rows // high), high, -(-columns // wide), wide).nanmean((1, 3))
    return tuple(tuple(round(float(share), 2) for share in line) for line in cells.cpu())


# ---- where ----------------------------------------------------------------------------------------------------------


def locate(bad: Mask) -> str:
    """Where the wrong elements of a matrix lie, as part of a sentence."""
    rows, columns = np.flatnonzero(bad.any(1)), np.flatnonzero(bad.any(0))
    count, box = int(bad.sum()), len(rows) * len(columns)
    if count == bad.size:
        return "every element"
    flat = np.flatnonzero(bad.reshape(-1))
    if count < box and flat[-1] - flat[0] + 1 == count:
        return f"elements {flat[0]} to {flat[-1]} of the output in memory order{_warp_phrase(flat)}"
    parts = [
        _describe_numbers(columns, bad.shape[1], "column"),
        _describe_numbers(rows, len(bad), "row") if len(bad) > 1 else "",
    ]
    inside = " of ".join(part for part in parts if part)
    if not inside:
        return f"spread over the output ({count / bad.size:.0%} of it)"
    if count < 0.9 * box:
        return f"in {inside} ({count / box:.0%} of the elements there)"
    return inside + (_warp_phrase(columns) if len(rows) == 1 else "")


def _warp_phrase(numbers: NDArray[np.intp]) -> str:
    is_warp = len(numbers) == 32 and numbers[0] % 32 == 0 and numbers[-1] - numbers[0] == 31
    return " (the 32 elements of one warp)" if is_warp else ""


def _describe_numbers(numbers: NDArray[np.intp], extent: int, noun: str) -> str:
    """Which rows or columns; "" for all of them."""
    first, last, count = int(numbers[0]), int(numbers[-1]), len(numbers)
    if count == extent:
        return ""
    if count == 1:
        return f"the last {noun}" if first == extent - 1 else f"{noun} {first}"
    steps = np.diff(numbers)
    if (steps == 1).all():
        tile = next((size for size in TILES if first and first % size == 0), 0)
        if last == extent - 1:
            is_tile = tile and count <= tile
            return f"the last {count} {noun}s (from {first} on{f', the last tile of {tile}' if is_tile else ''})"
        return f"the first {count} {noun}s" if not first else f"{noun}s {first} to {last}"
    if (steps == steps[0]).all():
        start = f" from {first} on" if first else ""
        return f"every {_ordinal(int(steps[0]))} {noun}{start}"
    if count > 0.9 * extent:
        return ""
    return f"{count} of {extent} {noun}s, from {first} to {last}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


# ---- patterns -------------------------------------------------------------------------------------------------------


def _name_patterns(wrong: _Wrong, operands: Mapping[str, Array]) -> Iterator[str]:
    """The patterns that hold, the most telling first."""
    got, expected, bad = wrong.got, wrong.expected, wrong.bad
    here, there = got[bad], expected[bad]
    if np.isnan(there).mean() >= HOLDS and np.isfinite(here).mean() >= HOLDS:
        yield "NaN is swallowed: NaN is expected and they are finite"
    if np.isnan(here).mean() >= HOLDS:
        yield "they are NaN: read before they were written, or 0/0 or inf - inf"
    if len(here) > 1 and (here == 0).all():
        yield "they are 0: never written, or overwritten"
    if wrong.whole_numbers:
        for step, said in ((1, "one too large"), (-1, "one too small")):
            if len(here) and (here - there == step).mean() >= HOLDS:
                yield f"they are {said}"
    for find in (_name_shift, _name_other_row, _name_transposition) if wrong.may_be_moved() else ():
        if said := find(wrong):
            yield said
    if said := _name_factor(wrong):
        yield said
    yield from _name_operands(wrong, operands)
    yield from _name_structure(wrong)


def _name_shift(wrong: _Wrong) -> str:
    for axis in range(1, min(wrong.expected.ndim, 3) + 1):
        for step in SHIFTS:
            extent = wrong.expected.shape[-axis]
            if abs(step) * 2 >= extent or not wrong.may_be_shifted(axis, step):
                continue
            inner = np.ones(extent, dtype=bool)
            inner[slice(None, step) if step > 0 else slice(step, None)] = False
            among = np.broadcast_to(inner.reshape(-1, *[1] * (axis - 1)), wrong.expected.shape)
            if wrong.agrees(np.roll(wrong.expected, step, -axis), among):
                by = "one" if abs(step) == 1 else abs(step)
                way = "" if step > 0 else ", towards the start"
                return f"they are the expected values shifted by {by} along {AXIS.get(axis, f'axis -{axis}')}{way}"
    return ""


def _name_other_row(wrong: _Wrong) -> str:
    for axis in range(1, min(wrong.expected.ndim, 3) + 1):
        if wrong.expected.shape[-axis] < 2:
            continue
        if wrong.agrees(np.take(wrong.expected, [0], -axis)):
            name = {1: "column", 2: "row"}.get(axis, f"index of axis -{axis}")
            return f"they repeat the first {name} (a broadcast along {AXIS.get(axis, f'axis -{axis}')})"
    flipped = np.flip(wrong.expected, -1)
    return "they are the expected values in reverse along the last axis" if wrong.agrees(flipped) else ""


def _name_transposition(wrong: _Wrong) -> str:
    if wrong.expected.ndim < 2 or min(wrong.expected.shape[-2:]) < 2:
        return ""
    turned = np.swapaxes(wrong.expected, -1, -2).reshape(wrong.expected.shape)
    return "they are the expected values transposed (rows and columns swapped)" if wrong.agrees(turned) else ""


def _name_factor(wrong: _Wrong) -> str:
    if wrong.agrees(-wrong.expected):
        return "they have the wrong sign"
    at = wrong.bad & (wrong.expected != 0) & np.isfinite(wrong.expected) & np.isfinite(wrong.got)
    if not at.any():
        return ""
    ratio = float(np.median(wrong.got[at] / wrong.expected[at]))
    if not ratio or not math.isfinite(ratio) or not wrong.agrees(ratio * wrong.expected):
        return ""
    if wrong.bad.sum() < 2 * LEAST:
        return ""
    for value in (2, 3, 4, 8, 16, 32):
        for one, said in ((value, f"{value} times"), (1 / value, f"1/{value} of")):
            if abs(ratio / one - 1) < wrong.close:
                return f"they are {said} the expected values"
    for extent in wrong.expected.shape:
        if extent > 1 and abs(ratio * extent - 1) < wrong.close:
            return f"they are 1/{extent} of the expected values, and {extent} is an extent of the output"
    return f"they are {ratio:.6g} times the expected values"


def _name_operands(wrong: _Wrong, operands: Mapping[str, Array]) -> Iterator[str]:
    """Patterns in which an operand is missing, used twice, or indexed by another axis.

    Elements that a ReLU may have cut are left out.
    """
    seen = (wrong.got != 0) & (wrong.expected != 0)
    for name, value in operands.items():
        if value.shape == wrong.expected.shape:
            yield from _try_operand(wrong, name, value, seen)
        if value.size < 2 or value.size != max(value.shape, default=0):
            continue
        for axis in range(wrong.expected.ndim):
            if wrong.expected.shape[axis] != value.size:
                continue
            own = _along(value.reshape(-1), axis, wrong.expected)
            yield from _try_operand(wrong, name, own, seen)
            for other in range(wrong.expected.ndim):
                if other == axis or wrong.expected.shape[other] > value.size:
                    continue
                taken = _along(value.reshape(-1)[: wrong.expected.shape[other]], other, wrong.expected)
                if wrong.agrees(wrong.expected - own + taken, seen) or wrong.agrees(wrong.expected / own * taken, seen):
                    used, due = _axis_noun(other, wrong), _axis_noun(axis, wrong)
                    yield f"{name} is indexed by the {used} instead of the {due}"


def _try_operand(wrong: _Wrong, name: str, value: Array, seen: Mask) -> Iterator[str]:
    combined: Sequence[tuple[Callable[[Array, Array], Array], str]] = (
        (np.subtract, f"{name} is missing: they are the expected values without it"),
        (np.add, f"{name} is added twice"),
        (np.divide, f"the factor {name} is missing"),
        (np.multiply, f"the factor {name} is applied twice"),
    )
    for combine, said in combined:
        if wrong.agrees(combine(wrong.expected, value), seen):
            yield said


def _along(value: Array, axis: int, like: Array) -> Array:
    return value.reshape([-1 if n == axis else 1 for n in range(like.ndim)])


def _axis_noun(axis: int, wrong: _Wrong) -> str:
    back = wrong.expected.ndim - axis
    return {1: "column", 2: "row"}.get(back, f"index of axis {axis}")


def _name_structure(wrong: _Wrong) -> Iterator[str]:
    """Whether the difference is the same for all, or depends on the row alone or on the column alone."""
    gap = wrong.got - wrong.expected
    seen = wrong.bad & np.isfinite(gap) & (wrong.got != 0) & (wrong.expected != 0)
    gap = np.where(seen, gap, np.nan)
    if gap.ndim < 2 or seen.sum() < 4 * LEAST:
        return
    middle = float(np.nanmedian(gap))
    if wrong.agrees(wrong.expected + middle, seen):
        yield f"they differ from the expected values by {middle:+.6g}"
    for axis, noun in ((-1, "row"), (-2, "column")):
        if gap.shape[axis] < LEAST or not _may_be_typical(wrong, gap, axis):
            continue
        typical = np.nan_to_num(np.nanmedian(gap, axis=axis, keepdims=True))
        if wrong.agrees(wrong.expected + typical, seen):
            yield f"they differ by a value that depends on the {noun} alone (a vector missing, doubled or misplaced)"


def _may_be_typical(wrong: _Wrong, gap: Array, axis: int) -> bool:
    """Whether the differences along an axis are alike in a few lines, which is quick to see."""
    lines = np.moveaxis(gap, axis, -1).reshape(-1, gap.shape[axis])
    lines = lines[np.flatnonzero(np.isfinite(lines).sum(1) >= LEAST)]
    lines = lines[:: max(len(lines) // LINES, 1)][:LINES, :PROBES]
    if not len(lines):
        return True
    spread = np.abs(lines - np.nanmedian(lines, 1, keepdims=True))
    scale = np.nanmedian(np.abs(wrong.expected[wrong.probes])) + np.nanmedian(np.abs(lines))
    known = np.isfinite(spread)
    return bool((spread[known] <= 4 * wrong.close * scale).mean() > HOLDS - 0.3)
