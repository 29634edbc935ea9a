"""The tolerance of an output: what rounding explains, and what torch eager's own error explains.

All tensors may be on the CPU or on a GPU. With e the float64 reference, |got - e| is allowed to be

    4 eps(dtype) |e|                             rounding of the output and of a few intermediates
    + 8 eps(float32) sqrt(terms) (|e| + scale)   accumulation in float32
    + 3 noise                                    three times torch eager's own error among elements alike

`terms` is the number of terms of the longest sum in the reference; the error of a sum grows like a random walk with it.
It counts as at least 64, because fast approximate functions cost an element-wise kernel some units in the last place,
and as at most 65536, because a longer serial sum in float32 is no better than one in half precision.

`scale` is local: the median magnitude of the row's nonzero elements, times the column's, over that of all rows. So it
follows rows and columns of different size, and a few huge elements do not excuse wrong small ones. A row with zeros may
be what a ReLU left of larger values; it counts as up to CLIPPED times larger, but not larger than the median row.

`noise` comes from torch eager at the problem's own precision (`problems.reference`). Elements are alike if |e| / scale
lies in the same binade. The noise in units of the scale is the largest error among them and among at least ALIKE others
of the next larger magnitudes. So an element that is small by cancellation is allowed the error that torch has there.
The term counts at most as 0.9 max(|e|, scale): zeros never pass, however inaccurate torch is.

Where torch eager's largest error is more than ILL_CONDITIONED eps of the largest |e|, the problem is ill-conditioned: a
norm of small differences from a large bias divides by a spread that is hardly more than the rounding of what it
normalises. A right kernel with another order of summation has such errors too, in other places than torch. Then every
element is allowed CANCELLED times torch's largest error, again at most 0.9 max(|e|, scale). This holds in float32 only:
ILL_CONDITIONED eps of a coarser type, and any error above DISCONTINUOUS, are too much to allow everywhere.

Torch eager itself may leave this tolerance at up to one element in a hundred (softmax of large products in bfloat16).
Then three times as many elements may leave it, by three times torch's largest error in tolerances.

A few elements, OUTLIERS of all or one, may leave the tolerance as long as their error is a typical one: accumulation
times the mean |e| of the output, or three times torch eager's largest error in their row or column, up to OUTLIER times
accumulation times its largest |e|. An activation makes a row small whose sums were not (LeakyReLU, Mish), and a norm
enlarges the errors of a row whose values lie close together. Then scale and magnitude say little about an element's
error. So may RARE of the elements of a float32 output, or one, as long as no error is above three times torch eager's
largest: a clamp may leave a single tiny element in a row, in which torch's own errors say nothing.

Where torch eager's largest error is as large as the largest |e|, and that below NEGLIGIBLE, the result is what is left
of terms that cancel (the mean of a normalised row). Then CANCELLED times this error is allowed everywhere: other trials
have to tell.

A result of 8 bits is rounded once more: its reference is the value before (`problems.reference.eight_bits`), and half a
step of the format is allowed beside the tolerance of float32, or of the arithmetic if that is in 16 bits. So a kernel
that truncates is wrong, and one whose value is on the other side of a boundary by rounding is right.

The factors are inferred: they are a few times the typical error, so that an honest kernel passes with another order of
summation, and a lower precision than the policy allows fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from workbench.problems.reference import Reference
from workbench.problems.reference.eight_bits import FORMATS, half_steps
from workbench.problems.results import NEGLIGIBLE, as_computable
from workbench.records import TensorSpec

EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
ROUNDING, ACCUMULATION, EAGER = 4.0, 8.0, 3.0  # the factors of the three terms
LEAST_TERMS, MOST_TERMS = 64, 1 << 16
NOISE_LIMIT = 0.9  # of |e| or of the scale, whichever is larger
CLIPPED = 16.0  # inferred: of 300 ReLU(ConvTranspose1d) with 33 elements a row, the worst row was 26 times too small
OUTLIERS, OUTLIER = 1 / 256, 16.0  # share of the elements; factor
RARE = 2.0**-18  # share of the elements; inferred: 24 of 2^29 was the most that right kernels on a GPU had
CANCELLED = 10.0  # factor
# in eps of the arithmetic; inferred from KernelBench in float32: usual are up to 15, an instance norm behind a
# convolution of small inputs has 50 to 110, a layer norm of a transposed one 1000
ILL_CONDITIONED = 32.0
DISCONTINUOUS = 2.0**-11  # larger errors, in the largest |e|, come from a jump (round, top-k), not from rounding
MOST_BAD = 0.01  # share of torch eager's elements outside the tolerance above which torch is no yardstick
ALIKE, FEW = 128, 8  # elements
BINADES, MIDDLE = 256, 128  # |e| / scale = 1 lies in binade MIDDLE, zeros in binade 0
SHORTEST_ROW = 32  # trailing axes are joined until a row has so many elements; columns so long have a scale too
SAMPLED = 1024  # elements that a median is taken of, about
BLOCK = 1 << 26  # elements that are compared at once
LARGEST = torch.finfo(torch.float32).max

Block = tuple[slice, slice]


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of one output, without a tensor of its size. Integers have none, but where rounding makes them of
    floats: then `least` and `most` [R, C] are the range of each (problems/reference/roundings.py).

    The scale is the product of `rows` [R, 1] and `columns` [1, C]. `noise` [BINADES] holds torch eager's errors in
    scales. `floor` is absolute, for results below the normal numbers. The larger one of `outlier_rows` [R, 1] and
    `outlier_columns` [1, C] is the error that single elements may have.
    `eager_error` is torch eager's largest error in tolerances, `eager_absolute` as it is; None if torch eager did not
    run. `uniform` is the absolute error that is allowed everywhere in ill-conditioned results, `rare` that of RARE.
    `eager_bad` is the number of torch eager's elements that leave the tolerance. `eight_bits` is the dtype of an output
    that has 8 bits, else "". Tensors are float32.
    """

    rounding: float
    accumulation: float
    floor: float
    rows: torch.Tensor
    columns: torch.Tensor
    noise: torch.Tensor
    outlier_rows: torch.Tensor
    outlier_columns: torch.Tensor
    eager_error: float | None = None
    eager_absolute: float | None = None
    eager_bad: int = 0
    uniform: float = 0.0
    rare: float = 0.0
    eight_bits: str = ""
    least: torch.Tensor | None = None
    most: torch.Tensor | None = None

    def allows(self, got: torch.Tensor, wanted: torch.Tensor, at: Block) -> torch.Tensor:
        """Which integers of a block are right."""
        if self.least is None or self.most is None:
            return got == wanted
        return (got >= on_device(self.least[at])) & (got <= on_device(self.most[at]))

    def allowed(self, expected: torch.Tensor, at: Block) -> torch.Tensor:
        """The allowed |got - expected| for the block `at` of the reference: float32, of the block's shape."""
        magnitude, scale = _magnitudes(expected), self.scale(at)
        limit = torch.maximum(magnitude, scale).mul_(NOISE_LIMIT)
        allowed = self.noise[_binade(magnitude, scale)].mul_(scale).mul_(EAGER).clamp_(min=self.uniform)
        torch.minimum(allowed, limit, out=allowed)
        allowed.add_(magnitude, alpha=self.rounding + self.accumulation).add_(scale, alpha=self.accumulation)
        return allowed.add_(self.floor).add_(self.rounding_of(expected))

    def rounding_of(self, expected: torch.Tensor) -> torch.Tensor | float:
        """The most by which a result of 8 bits differs from its value before it is rounded."""
        return half_steps(expected, self.eight_bits) if self.eight_bits else 0.0

    def excuses(self, bad: int, gross: int, elements: int, worst: float, absolute: float) -> bool:
        """Whether `bad` of so many elements with errors of up to `worst` tolerances are as good as torch eager's.

        `gross` of them have an error of more than `outlier_limit`; no element has one of more than `absolute`.
        """
        if not gross and bad <= max(OUTLIERS * elements, 1):
            return True
        if bad <= max(RARE * elements, 1) and absolute <= self.rare and math.isfinite(worst):
            return True
        few = self.eager_bad <= MOST_BAD * elements
        return few and bad <= EAGER * self.eager_bad and worst <= EAGER * (self.eager_error or 0.0)

    def outlier_limit(self, at: Block) -> torch.Tensor:
        """The error that single elements of a block may have."""
        return torch.maximum(self.outlier_rows[at[0]], self.outlier_columns[:, at[1]])

    def scale(self, at: Block) -> torch.Tensor:
        """The scale of a block."""
        return (self.rows[at[0]] * self.columns[:, at[1]]).clamp_(self.floor, LARGEST)

    def at_least(self, other: Tolerance) -> Tolerance:
        """This tolerance with a scale and a noise no less than what is typical for another.

        A few elements say little about the magnitude of a result, and about torch's error.
        """
        if not self.rounding or not other.rounding:
            return self
        rows = self.rows.clamp(min=float(other.rows.median() * other.columns.median()))
        noise = torch.maximum(_in_larger_scales(self.noise, rows / self.rows), other.noise)
        return replace(self, rows=rows, noise=noise, floor=max(self.floor, other.floor))

    def to_values(self) -> list[object]:
        """The fields in order, for `jobs.exchange.write_values`."""
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def from_values(cls, values: Sequence[Any]) -> list[Tolerance]:
        """The tolerances of which `values` has the fields, one after the other."""
        count = len(fields(cls))
        return [cls(*values[at : at + count]) for at in range(0, len(values), count)]


def measure_tolerances(reference: Reference, outputs: Sequence[TensorSpec]) -> list[Tolerance]:
    """The tolerance of each output of a reference."""
    eager = reference.eager or [None] * len(outputs)
    found = [
        measure_tolerance(exact, own, spec.dtype, reference.terms, reference.eps)
        for exact, own, spec in zip(reference.exact, eager, outputs, strict=True)
    ]
    ranges = reference.ranges or [None] * len(found)
    return [
        one if ends is None else replace(one, least=as_matrix(ends[0]), most=as_matrix(ends[1]))
        for one, ends in zip(found, ranges, strict=True)
    ]


def measure_tolerance(exact: torch.Tensor, eager: torch.Tensor | None, dtype: str, terms: int, eps: float) -> Tolerance:
    """The tolerance of an output of `dtype` with the reference `exact` and torch eager's result `eager`.

    `terms` and `eps` are those of `problems.reference.Reference`.
    """
    is_narrow = dtype in FORMATS
    flat, own = as_matrix(exact), min(eps, EPS["float16"]) if is_narrow else EPS.get(dtype, 0.0)
    if not own or not flat.numel():
        none = on_device(torch.zeros(1, 1, device=flat.device))
        return Tolerance(0.0, 0.0, 0.0, none, none, none, none, none)
    rows, columns = _scales(flat)
    found = Tolerance(
        rounding=ROUNDING * own,
        accumulation=ACCUMULATION * min(own, EPS["float32"]) * math.sqrt(min(max(terms, LEAST_TERMS), MOST_TERMS)),
        floor=2 * own * torch.finfo(torch.float32 if is_narrow else getattr(torch, dtype)).tiny
        + torch.finfo(torch.float32).tiny,
        rows=rows,
        columns=columns,
        noise=rows.new_zeros(BINADES),
        outlier_rows=torch.zeros_like(rows),
        outlier_columns=rows.new_zeros(1, flat.shape[1]),
        eight_bits=dtype if is_narrow else "",
    )
    found = replace(found, outlier_rows=found.outlier_rows + found.accumulation * _mean_magnitude(flat))
    if eager is None:
        return found
    found = replace(found, noise=_measure_noise(flat, eager.reshape(flat.shape), found))
    return _rate_eager(flat, eager.reshape(flat.shape), found, max(eps, own))


def as_matrix(value: Any) -> Any:
    """The tensor as [R, C]: C is the product of as few trailing extents as make SHORTEST_ROW elements, or of all."""
    columns, axes = 1, list(value.shape)
    while axes and columns < SHORTEST_ROW:
        columns *= axes.pop()
    return value.reshape(math.prod(axes), columns)


def blocks(flat: torch.Tensor) -> Iterator[Block]:
    """Blocks of at most BLOCK elements that cover a matrix."""
    rows, columns = flat.shape
    wide = max(min(columns, BLOCK), 1)
    high = max(BLOCK // wide, 1)
    for row in range(0, rows, high):
        for column in range(0, columns, wide):
            yield slice(row, row + high), slice(column, column + wide)


def on_device(part: torch.Tensor) -> torch.Tensor:
    """A block on the device that computes: results that the GPU's memory has no room for are in host memory."""
    return part.cuda() if torch.cuda.is_initialized() else part


def differences(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|got - expected|, computed in float64, as float32.

    It is 0 where both are NaN or the same infinity, and NaN or infinite where only one of the two is finite.
    """
    gap = got.to(torch.float64, copy=True).sub_(expected).abs_().float()
    if not bool(gap.isfinite().all()):
        got = as_computable(got)
        gap[(got == expected) | (got.isnan() & expected.isnan())] = 0.0
    return gap


def _magnitudes(values: torch.Tensor) -> torch.Tensor:
    """|values| as finite float32."""
    return values.abs().clamp_(max=LARGEST).float().nan_to_num_(0.0)


def _mean_magnitude(flat: torch.Tensor) -> float:
    """The mean |e| of the finite elements, of a sample of rows and columns."""
    sample = on_device(flat[:: max(len(flat) // SAMPLED, 1), :: max(flat.shape[1] // SAMPLED, 1)])
    finite = sample[sample.isfinite()]
    return float(_magnitudes(finite).mean()) if finite.numel() else 0.0


def _scales(flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The factors [R, 1] and [1, C] of the scale. Columns shorter than SHORTEST_ROW have the factor 1."""
    rows = _median_magnitudes(flat)
    typical = _median_magnitudes(rows.reshape(1, -1))
    rows = rows.where(rows > 0, typical)
    if len(flat) < SHORTEST_ROW:
        return rows, rows.new_ones(1, flat.shape[1])
    columns = _median_magnitudes(flat.T).T
    return rows, (columns / typical).where((columns > 0) & (typical > 0), 1.0)


def _median_magnitudes(flat: torch.Tensor) -> torch.Tensor:
    """The median of the nonzero finite magnitudes of each row, as [R, 1]; 0 if there are none.

    A row with zeros counts as larger if it is small among the rows (see CLIPPED).
    """
    sample = flat[:, :: max(flat.shape[1] // SAMPLED, 1)]
    medians, clipped = [], []
    for part in map(on_device, sample.split(max(BLOCK // sample.shape[1], 1))):
        magnitude = _magnitudes(part)
        medians.append(magnitude.where(part.isfinite() & (magnitude > 0), math.nan).nanmedian(1).values)
        clipped.append((part == 0).any(1))
    own, typical = torch.cat(medians), torch.cat(medians).nanmedian()
    lifted = torch.maximum(own, torch.minimum(CLIPPED * own, typical))
    return own.where(~torch.cat(clipped), lifted).nan_to_num_(0.0).reshape(-1, 1)


def _binade(magnitude: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Indices below BINADES of the elements' binades relative to the scale."""
    return (magnitude / scale).log2_().floor_().clamp_(-MIDDLE, MIDDLE - 1).add_(MIDDLE).int()


def _measure_noise(flat: torch.Tensor, eager: torch.Tensor, found: Tolerance) -> torch.Tensor:
    """Torch eager's largest errors in scales, by binade and widened to elements of alike magnitude."""
    noise, counts = found.noise, torch.zeros_like(found.noise, dtype=torch.int64)
    for at in blocks(flat):
        scale, exact = found.scale(at), on_device(flat[at])
        index = _binade(_magnitudes(exact), scale).reshape(-1)
        error = _unexplained_errors(exact, on_device(eager[at]), found).div_(scale).reshape(-1)
        here = torch.bincount(index, minlength=BINADES)
        noise = torch.maximum(noise, _largest_by_binade(index, error, here))
        counts += here
    return noise.new_tensor(_widen(noise.tolist(), counts.tolist()))


def _largest_by_binade(index: torch.Tensor, error: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The largest error of each binade, [BINADES]; `counts` of elements are in each.

    On a GPU it is a reduction for each binade in use: in a scatter to so few places nearly all atomic operations
    collide.
    """
    if not error.is_cuda:
        return error.new_zeros(BINADES).scatter_reduce(0, index.long(), error, "amax")
    zero = error.new_zeros(())
    found = [error.where(index == n, 0.0).amax() if count else zero for n, count in enumerate(counts.tolist())]
    return torch.stack(found)


def _finite_errors(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Torch eager's errors. An element where torch is not finite, or overflows, has none."""
    return differences(eager, exact).nan_to_num_(0.0, 0.0)


def _unexplained_errors(exact: torch.Tensor, eager: torch.Tensor, found: Tolerance) -> torch.Tensor:
    """Torch eager's errors without what the rounding to 8 bits explains."""
    return _finite_errors(exact, eager).sub_(found.rounding_of(exact)).clamp_(min=0.0)


def _widen(noise: list[float], counts: list[int]) -> list[float]:
    """The noise of each binade and of ALIKE elements above it; if all these are under FEW, of some below it too.

    The noise of a lower binade counts in proportion to the magnitude.
    """
    used = [binade for binade in range(BINADES) if counts[binade]]
    widened = list(noise)
    for place, binade in enumerate(used):
        seen = 0
        for other in used[place + 1 :]:
            if seen >= ALIKE:
                break
            widened[binade] = max(widened[binade], noise[other])
            seen += counts[other]
        seen += counts[binade]
        for other in reversed(used[:place]):
            if seen >= FEW or not other:
                break
            widened[binade] = max(widened[binade], noise[other] * 2.0 ** (binade - other))
            seen += counts[other]
    return widened


def _in_larger_scales(noise: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The noise by binade for scales that are larger by the factors of some rows: at least the same error for each
    element, which lies in a lower binade then.
    """
    found, binades = noise.clone(), torch.arange(BINADES)
    for steps in factors[factors.isfinite()].log2().floor().unique().int().tolist():
        for place in (binades - steps - 1, binades - steps):
            found.scatter_reduce_(0, place.clamp(0, BINADES - 1).to(noise.device), noise * 2.0**-steps, "amax")
    return found


def _rate_eager(flat: torch.Tensor, eager: torch.Tensor, found: Tolerance, eps: float) -> Tolerance:
    """The tolerance with torch eager's largest errors; `eps` is that of its arithmetic."""
    relative, absolute, largest, bad = 0.0, 0.0, 0.0, 0
    for at in blocks(flat):
        exact = on_device(flat[at])
        error = _unexplained_errors(exact, on_device(eager[at]), found)
        absolute, largest = max(absolute, float(error.max())), max(largest, float(_magnitudes(exact).max()))
        most = _magnitudes(exact).mul_(OUTLIER * found.accumulation)
        for known, axis, part in ((found.outlier_rows, 1, at[0]), (found.outlier_columns.T, 0, at[1])):
            typical = torch.minimum(EAGER * error.amax(axis), most.amax(axis)).reshape(-1, 1)
            known[part] = torch.maximum(known[part], typical)
    if absolute >= largest and largest < NEGLIGIBLE:
        found = replace(found, floor=max(found.floor, CANCELLED * absolute))
    if found.rounding <= ROUNDING * EPS["float32"]:
        found = replace(found, rare=EAGER * absolute)
    if ILL_CONDITIONED * eps * largest < absolute < DISCONTINUOUS * largest:
        found = replace(found, uniform=CANCELLED * absolute)
    for at in blocks(flat):
        exact = on_device(flat[at])
        error = _finite_errors(exact, on_device(eager[at]))
        error.div_(found.allowed(exact, at))
        relative = max(relative, float(error.max()))
        bad += int((error > 1).sum())
    return replace(found, eager_error=relative, eager_absolute=absolute, eager_bad=bad)
