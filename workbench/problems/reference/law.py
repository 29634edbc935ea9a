"""Whether samples of a random result follow the law of others: those of a candidate, those of the reference.

A kernel with a generator of its own draws other numbers than torch, so single values cannot be compared. What can be is
the law, by statistics of several calls with the same inputs:

- elements that are the same in each call of the reference are so in the candidate's, within the tolerance;
- calls: the correlation between any two of them; a mask that stays is one;
- moments: for each element the share of zeros and the means of its value, its square, a sine and a cosine of it;
- values: how far they are from the nearest that the reference gave; a wrong factor gives values that are never there;
- dependence inside of a call: correlations between columns, and between rows.

The reference's samples are parted. The first half give the mean and the deviation of each element, and the values that
are known: a value within the tolerance of one of them counts as that one. The others tell what is usual for each
statistic, in groups of as many samples as the candidate's. A statistic that is outside of their range by more than
MARGIN times its width is unlike; of a largest value, one that is FACTOR times the largest of them. So no law has to be
known, and none is assumed. Where there are few numbers, both are COARSE times as large.

Runs in a worker (imports torch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

SAMPLES, SINGLE_SAMPLES = 192, 96  # calls of the reference, for repeated calls and for a single one of the candidate
GROUPS = 64
MARGIN = 1.0  # inferred: the range of 64 normal numbers is about 4.7 deviations wide, so 7 from the mean are unlike
FACTOR = 3.0
ELEMENT_FACTOR, LINE_FACTOR = 1.3, 1.5  # the same for the mean of an element, of a row or a column
EVIDENCE, COARSE = 4096, 6.0  # elements that vary in all calls of the candidate; below, its factor
RARE = 16.0  # fourth moment of elements that hardly ever vary: each of them alone says nothing
STRANGE = 6  # values unlike all others, in several calls
MOST = 6.0  # standard deviations of a mean; more counts as this
DEVIATIONS = 6.0  # least width of the range of a mean, in its standard deviations
LEAST_WIDTH = 0.02  # of a range, in the unit of each statistic
FARTHEST = 8.0  # standard deviations from the mean; values beyond count as this
NEAREST = 3.0  # the same for products of two, which rare large values would rule
LINES = 96  # rows and columns whose correlations are taken
SEED = "from torch's generator, for example torch.randint(2**31, ())"


@dataclass(frozen=True)
class Comparison:
    """How far a law is from another: above 1 is unlike, for the reason `said`."""

    distance: float
    said: str = ""
    doubt: str = ""  # of laws that are alike as far as can be told


@dataclass(frozen=True)
class _Groups:
    """Groups of `size` of the reference's samples: `chosen` [GROUPS, samples] has ones and zeros."""

    chosen: torch.Tensor
    size: int
    coarse: float  # factor of what is allowed
    shape: tuple[int, int]  # rows and columns of a sample

    def rate(
        self, value: torch.Tensor | float, usual: torch.Tensor, said: str, *, both: bool = False, least: float = 0.0
    ) -> Comparison:
        """How far a statistic is outside of its usual range, which is `least` wide; above it only, unless `both`."""
        low, high, found = float(usual.min()), float(usual.max()), float(value)
        beyond = max(found - high, low - found if both else 0.0, 0.0)
        return Comparison(beyond / (self.coarse * MARGIN * max(high - low, least, LEAST_WIDTH)), said)

    def rate_means(self, usual: torch.Tensor, ours: torch.Tensor, said: str) -> Comparison:
        """How far the mean of a number of each call is above its usual range."""
        means, others = self.means(usual[:, None])
        count = len(usual)
        factor = ((1 / self.size + 1 / count) / (1 / self.size + 1 / (count - self.size))) ** 0.5
        return self.rate(ours.mean() - usual.mean(), (means - others) * factor, said)

    def rate_largest(self, value: torch.Tensor, usual: torch.Tensor, said: str, factor: float = FACTOR) -> Comparison:
        """How far a largest value is above those of groups."""
        return Comparison(float(value) / (self.coarse * factor * max(float(usual.max()), LEAST_WIDTH)), said)

    def means(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(means of the groups, means of the samples that are in none), [GROUPS, n] of values [samples, n]."""
        total, sums = values.sum(0), self.chosen @ values
        return sums / self.size, (total - sums) / (len(values) - self.size)


@dataclass(frozen=True)
class _Samples:
    """Samples of one program [N, n]: the values, and their deviations in standard deviations of the reference."""

    values: torch.Tensor
    units: torch.Tensor
    apart: torch.Tensor  # distance from the nearest known value, in standard deviations


def compare_laws(given: torch.Tensor, known: torch.Tensor, allowed: torch.Tensor) -> Comparison:
    """Compare samples [N, rows, columns] of a candidate with samples [.., rows, columns] of the reference.

    `allowed` [rows, columns] is the tolerance of each element. N is at most a quarter of the reference's.
    """
    rows, columns = known.shape[1:]
    own, held = (value.reshape(len(value), -1).to(torch.float64) for value in (given, known))
    held, room = held.nan_to_num(), allowed.reshape(-1).to(torch.float64)
    if broken := int((~own.isfinite()).sum()):
        return Comparison(math.inf, f"{broken} values are NaN or infinite")
    half = len(held) // 2
    base, all_known = held[:half], held if len(own) == 1 else held[:half]
    mean, deviation = base.mean(0), base.std(0)
    varies = deviation > room
    unit = deviation.where(varies, room).clamp(min=torch.finfo(torch.float32).tiny)
    first, usual, ours = (
        _sample(value, among, room, mean, unit, varies)
        for value, among in ((base, base), (held[half:], base), (own, all_known))
    )
    groups = _choose_groups(len(held) - half, len(own), int(varies.sum()), (rows, columns))
    along = (mean / unit).clamp(-3, 3).where(varies, 0.0).float()
    usual_units, our_units = (one.units.clamp(-NEAREST, NEAREST) for one in (usual, ours))
    lines: list[Comparison] = []  # of single rows, columns and elements
    found = [
        *_rate_repeats(usual.values, ours.values, groups),
        *_rate_zeros((first, usual, ours), along, groups, lines),
        *_rate_moments((first, usual, ours), along, groups, lines),
        *_rate_values(usual, ours, groups, varies),
        *_rate_calls(usual_units, our_units, groups),
        *_rate_dependence(usual_units, our_units, groups),
        *_rate_dependence(usual_units * along.sign(), our_units * along.sign(), groups),
        *lines,
    ]
    unlike = [one for one in found if one.distance > 1]
    if not unlike:
        same = len(own) > 1 and bool(varies.any()) and bool((ours.values == ours.values[0]).all())
        doubt = f"the random numbers are the same in all {len(own)} calls, which may be chance" if same else ""
        return Comparison(max(one.distance for one in found), doubt=doubt)
    reasons = dict.fromkeys(one.said for one in unlike)
    return Comparison(max(one.distance for one in unlike), "; ".join([*reasons][:2]))


def _sample(
    values: torch.Tensor,
    known: torch.Tensor,
    room: torch.Tensor,
    mean: torch.Tensor,
    unit: torch.Tensor,
    varies: torch.Tensor,
) -> _Samples:
    """Samples whose values are moved by at most the tolerance to the nearest known one."""
    ordered, wanted = known.T.contiguous().sort(1).values, values.T.contiguous()
    after = torch.searchsorted(ordered, wanted).clamp_(max=ordered.shape[1] - 1)
    above, below = ordered.gather(1, after), ordered.gather(1, (after - 1).clamp_(min=0))
    nearest = torch.where((above - wanted).abs() < (wanted - below).abs(), above, below).T
    moved = values + (nearest - values).clamp(min=-room, max=room)
    apart = (nearest - moved).abs() / unit
    units = ((moved - mean) / unit).clamp_(-FARTHEST, FARTHEST).where(varies, 0.0)
    return _Samples(
        values=moved,
        units=units.float(),
        apart=apart.clamp(max=FARTHEST).float(),
    )


def _choose_groups(count: int, size: int, varying: int, shape: tuple[int, int]) -> _Groups:
    drawn = torch.Generator().manual_seed(1)
    chosen = torch.rand(GROUPS, count, generator=drawn).argsort(1)[:, :size]
    coarse = 1.0 if size * varying >= EVIDENCE else COARSE
    return _Groups(torch.zeros(GROUPS, count).scatter_(1, chosen, 1.0), size, coarse, shape)


def _rate_values(usual: _Samples, ours: _Samples, groups: _Groups, varies: torch.Tensor) -> Iterator[Comparison]:
    """Whether there are values unlike those that the reference gives."""
    least = 1 if groups.size == 1 else STRANGE
    for among, said in (
        (~varies, "{} elements that no random number changes are wrong"),
        (varies, "{} elements have values that torch never gives"),
    ):
        theirs, own = usual.apart[:, among], ours.apart[:, among]
        if not own.numel():
            continue
        strange = own > FACTOR * float(theirs.max()) + LEAST_WIDTH
        found = said.format(int(strange.any(0).sum()) or "some")
        if int(strange.sum()) >= least:
            yield Comparison(math.inf, found)
        if own.numel() >= EVIDENCE:
            yield groups.rate_means(theirs.mean(1), own.mean(1), found)


def _rate_repeats(usual: torch.Tensor, ours: torch.Tensor, groups: _Groups) -> Iterator[Comparison]:
    """Whether calls have the same results more often than in the reference."""
    if len(ours) < 2:
        return
    usual_same, same = (
        (torch.cdist(value, value, p=torch.inf, compute_mode="donot_use_mm_for_euclid_dist") == 0).double()
        for value in (usual, ours)
    )
    pairs = len(ours) * (len(ours) - 1)
    shares = torch.stack([(usual_same[group > 0][:, group > 0].sum() - len(ours)) / pairs for group in groups.chosen])
    half = len(ours) // 2
    inside = float(same[:half, :half].sum()) > half
    said = (
        f"calls have the same random numbers: take a new seed in each call {SEED}"
        if inside
        else f"calls have the same random numbers with two seeds of torch: take the seed {SEED}"
    )
    yield groups.rate((same.sum() - len(ours)) / pairs, shares, said, least=float(shares.mean()) / MARGIN)


def _rate_calls(usual: torch.Tensor, ours: torch.Tensor, groups: _Groups) -> Iterator[Comparison]:
    """Whether any two calls depend on each other."""
    varying = int((usual != 0).any(0).sum())
    if len(ours) < 2 or varying * len(ours) < EVIDENCE:
        return

    def largest(between: torch.Tensor) -> torch.Tensor:
        return between.abs().fill_diagonal_(0.0).max()

    pairs, own = usual @ usual.T / varying, ours @ ours.T / varying
    usual_largest = torch.stack([largest(pairs[group > 0][:, group > 0]) for group in groups.chosen])
    yield groups.rate_largest(largest(own), usual_largest, "two calls depend on each other")


def _rate_zeros(
    samples: tuple[_Samples, _Samples, _Samples], along: torch.Tensor, groups: _Groups, lines: list[Comparison]
) -> Iterator[Comparison]:
    """Whether zeros are as frequent as in the reference."""
    base, theirs, own = ((one.values == 0).float() for one in samples)
    said = f"{float(own.mean()):.3g} of the values are 0, and {float(theirs.mean()):.3g} of torch's"
    yield from _rate_feature((base, theirs, own), along, groups, lines, said)


def _rate_moments(
    samples: tuple[_Samples, _Samples, _Samples], along: torch.Tensor, groups: _Groups, lines: list[Comparison]
) -> Iterator[Comparison]:
    """Whether the means of some functions of the values are those of the reference."""
    _, usual, ours = samples
    theirs, own = usual.values.mean(0), ours.values.mean(0)
    power = float(theirs.square().sum())
    slope = float((own * theirs).sum()) / power if power else 1.0
    spread = float(ours.units.square().mean() / usual.units.square().mean().clamp(min=1e-12))
    mean = f"the mean is {slope:.3g} times torch's" if abs(slope - 1) > 0.02 else "the mean is another one than torch's"
    other = "the values are distributed otherwise than torch's"
    parts: tuple[tuple[Callable[[torch.Tensor], torch.Tensor], str], ...] = (
        (lambda value: value, mean),
        (torch.square, f"the mean square deviation is {spread:.3g} times torch's" if abs(spread - 1) > 0.02 else other),
        (lambda value: (2 * value).cos(), other),
        (lambda value: (2 * value).sin(), other),
    )
    for function, said in parts:
        base, theirs_of, own_of = (function(one.units) for one in samples)
        yield from _rate_feature((base, theirs_of, own_of), along, groups, lines, said)


def _rate_feature(
    values: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    along: torch.Tensor,
    groups: _Groups,
    lines: list[Comparison],
    said: str,
) -> Iterator[Comparison]:
    """Compare the mean of a function of the values: of all, along the mean, and of each element.

    What is found of single rows, columns and elements is added to `lines`.
    """
    base, usual, ours = values
    count, size = len(usual), len(ours)
    element, line = (ELEMENT_FACTOR, LINE_FACTOR) if size > 1 else (FACTOR, FACTOR)
    means, others = groups.means(usual)
    unit = base.std(0).clamp_(min=count**-0.5)
    single = (((base - base.mean(0)) / unit) ** 4).mean(0) < RARE
    theirs = (means - others) / (unit * (1 / size + 1 / (count - size)) ** 0.5)
    own = (ours.mean(0) - usual.mean(0)) / (unit * (1 / size + 1 / count) ** 0.5)
    root, cut, theirs_cut = own.numel() ** -0.5, own.clamp(-MOST, MOST), theirs.clamp(-MOST, MOST)
    for weights in (torch.ones_like(own), along):
        rated = ((cut * weights).mean(), (theirs_cut * weights).mean(1))
        yield groups.rate(*rated, said, both=True, least=DEVIATIONS * root)
        for axis in (1, 2):  # the mean of each column, of each row
            means, usual_means = (
                (value * weights).reshape(-1, *groups.shape).mean(axis).abs().amax(1)
                for value in (cut[None], theirs_cut)
            )
            floor = NEAREST * (own.numel() / groups.shape[axis - 1]) ** -0.5
            noun = "row" if axis == 2 else "column"
            one = f"a {noun} has another law than torch's"
            lines.append(groups.rate_largest(means, usual_means.clamp(min=floor), one, line))
    if bool(single.any()):
        own, theirs, root = own[single], theirs[:, single], int(single.sum()) ** -0.5
        squares, usual_squares = own.square().clamp(max=MOST**2).mean(), theirs.square().clamp(max=MOST**2).mean(1)
        yield groups.rate(squares, usual_squares, said, both=True, least=2 * DEVIATIONS * root)
        largest = theirs.abs().amax(1).clamp(min=NEAREST)
        lines.append(groups.rate_largest(own.abs().max(), largest, "an element has another law than torch's", element))


def _rate_dependence(usual: torch.Tensor, ours: torch.Tensor, groups: _Groups) -> Iterator[Comparison]:
    """Whether columns, and rows, depend on one another as they do in the reference."""
    shape = groups.shape
    for axis, noun in ((1, "column"), (0, "row")):
        if shape[axis] < 2:
            continue
        theirs, own = _correlate(usual, shape, axis), _correlate(ours, shape, axis).mean(0)
        means, others = groups.means(theirs)
        said = f"elements of one {noun} and of others depend on one another otherwise than torch's"
        yield groups.rate(
            (own - theirs.mean(0)).square().mean().sqrt(),
            (means - others).square().mean(1).sqrt(),
            said,
        )


def _correlate(units: torch.Tensor, shape: tuple[int, int], axis: int) -> torch.Tensor:
    """Mean products of two different columns (axis 1) or rows (axis 0) of each sample, [N, pairs]."""
    lines = units.reshape(-1, *shape).transpose(1, 2) if axis else units.reshape(-1, *shape)
    lines = lines[:, :LINES]
    found = lines @ lines.transpose(1, 2) / lines.shape[2]
    first, second = torch.triu_indices(lines.shape[1], lines.shape[1], 1)
    return found[:, first, second]
