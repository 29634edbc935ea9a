"""Makes the further cases of a problem: with larger sizes where the shrunk ones say nothing, odd, tiny, one over a
power of two, long, and empty. Used in workers only: it imports torch.

The reference runs on real tensors at each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from workbench.errors import ProblemError
from workbench.problems.cases import (
    ELEMENT_BUDGET,
    FLOP_BUDGET,
    TOLERATED,
    Measured,
    Search,
    budget_ratio,
    measure,
    real_case,
    run_real,
    sizes,
)
from workbench.problems.reference.probe import can_expect
from workbench.problems.results import NEGLIGIBLE
from workbench.records import Case, Problem, Settings

ODD_OFFSET = (37, 51, 67, 83)  # odd sizes, no multiples of 2, 4, 8, 16
LEAST_ODD, ODD_TIMES = 3, 10  # times the emulator's budget that the odd case may take, with sizes of 3 and more
# 3 comes before 2, because the variance of two values is often close to 0
TINY, TINY_SEEDS = (1, 3, 2), (0, 1, 2)
OVER = (64, 32)  # powers of two that sizes are one over, at most; the first that the budget allows
LONG = ("long", "long2", "long3")
# a CTA covers less: 256 threads with 16 elements each of a row; of a matrix product, a tile as large as the shrunk case
ROW, TILES = 4096, 2
# times as long, less one: what is left for the last pass is most of a block, so that it shows if it is dropped
BEYOND = 1.25
# the sizes beside long ones; of 3 values that a batch norm normalises, some are so close by chance in a few hundred
# channels that rounding decides the result
BESIDE = (5, 2)


def grow(problem: Problem, shrunk: Settings) -> tuple[Settings, Case]:
    """(settings, the case) of the reference on real tensors, at the shrunk sizes or with one of them larger.

    Fake tensors have no values: only real ones show that an index is outside of an axis that was shrunk, or that no
    result is a number (the mean over no rows).
    """
    for settings in (shrunk, *_list_grown(problem, shrunk)):
        case = _try_real(problem, settings) if settings == shrunk or _is_tolerated(problem, settings) else None
        if case is not None:
            return settings, case
    return shrunk, real_case(problem, "shrunk", shrunk)


def _try_real(problem: Problem, settings: Settings) -> Case | None:
    """The case at these settings; None if the reference fails there, or has a result without a number.

    Results that may be what is left of terms that cancel (the norm of one element) are none either.
    """
    try:
        case, results = run_real(problem, "shrunk", settings)
    except ProblemError:
        return None
    floats = [result for result in results if result.is_floating_point() and result.numel()]
    says = all(bool(result.isfinite().any()) and bool((result.abs() > NEGLIGIBLE).any()) for result in floats)
    return case if says else None


def _list_grown(problem: Problem, shrunk: Settings) -> Iterator[Settings]:
    """The settings with one size two times, four times, ... as large, those first that were shrunk most."""
    now, whole = {name: int(str(value)) for name, value in shrunk}, sizes(problem, 2)
    for name in sorted(now, key=lambda name: now[name] / whole.get(name, now[name])):
        size = 2 * now[name]
        while size <= whole.get(name, 0):
            yield tuple({**now, name: size}.items())
            size *= 2


def _is_tolerated(problem: Problem, settings: Settings) -> bool:
    """Whether the emulator can take a case at these settings."""
    try:
        return budget_ratio(measure(problem, "shrunk", settings), 2 * ELEMENT_BUDGET, FLOP_BUDGET) <= TOLERATED
    except ProblemError:
        return False


def _odd_sizes(shrunk: Settings) -> dict[str, int]:
    """For each size an odd one near three quarters of it.

    No two are equal, so a kernel that swaps two extents fails. `_lower_odd` may make them equal.
    """
    taken: dict[str, int] = {}
    for position, (name, value) in enumerate(shrunk):
        half = max(3, int(str(value)) // 2)
        size = max(3, half + ODD_OFFSET[position % len(ODD_OFFSET)] % half | 1)
        while size in taken.values():
            size += 2
        taken[name] = size
    return taken


def _odd_multiples(problem: Problem, start: int, near: int) -> tuple[int, ...]:
    """Odd multiples, other than `start`, of the numbers that stay: for channels of which there are so many groups."""
    found: dict[int, None] = {}
    for value in {value for _, value in problem.settings if type(value) is int and 1 < value <= start}:
        times = max(near // value, 1) | 1
        found[times * value if times * value != start else 3 * value] = None
    return tuple(sorted(found))


def _even_others(start: int, full: int) -> tuple[int, ...]:
    """Values for a size that cannot be odd, as channels of which a number in the text makes groups: no power of two.

    The larger ones come first, which a kernel for `start` does not cover; last those that are larger by a factor.
    """
    parts = (start * 5 // 4, start * 3 // 2, start * 3 // 4) if start % 4 == 0 else ()
    return (*parts, *(start * times for times in (3, 2) if start * times <= full))


def odd_case(problem: Problem, shrunk: Settings) -> tuple[Case | None, tuple[str, ...]]:
    """(the reference at odd sizes, notes). Sizes that cannot be odd stay; the case is None if none can be odd."""
    start = {name: int(str(value)) for name, value in shrunk}
    start |= _list_alike(problem, start)
    wanted, full = _odd_sizes(tuple(start.items())), sizes(problem, 2)
    tried = {
        name: (value, *_odd_multiples(problem, start[name], value), *_even_others(start[name], full.get(name, 0)))
        for name, value in wanted.items()
    }
    case, now = _vary(problem, start, tried, lambda at: real_case(problem, "odd", at))
    lower = _lower_odd(problem, now, [name for name in now if now[name] != start[name]])
    if lower != now and (lowered := _run_or_none(lambda at: real_case(problem, "odd", at), lower)) is not None:
        case, now = lowered, lower
    even = [name for name in wanted if now[name] == start[name] != wanted[name]]
    if case is None:
        said = "the reference does not run at odd sizes, so only the shrunk sizes are checked"
        return None, ((said,) if wanted else ())
    if not even:
        return case, ()
    same = ", ".join(f"{name}={now[name]}" for name in even)
    return case, (f"the odd case keeps {same}: the reference does not run at an odd size there",)


def _list_alike(problem: Problem, start: dict[str, int]) -> dict[str, int]:
    """Small extents of inputs that are equal to another size: a kernel may take the one for the other."""
    small = {name: value for name, value in sizes(problem, 2).items() if name not in start}
    every = [*start.values(), *small.values()]
    return {
        name: value
        for name, value in small.items()
        if every.count(value) > 1 and _is_input_extent(problem, name, value)
    }


def _lower_odd(problem: Problem, now: dict[str, int], names: Sequence[str]) -> dict[str, int]:
    """Sizes like `now`, some of the names lowered until the case takes at most ODD_TIMES the emulator's budget.

    The first names go down first: the last are often those of the innermost axes, which tiles cover.
    """
    left = [name for name in names if now[name] > LEAST_ODD]
    if not left:
        return now
    measured = measure(problem, "odd", tuple(now.items()))
    search = Search(measured.calls)
    while left and search.left and budget_ratio(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET) > ODD_TIMES:
        name = left[0]
        tried = {**now, name: max(now[name] // 2, LEAST_ODD) | 1}
        found = search.measure(problem, tried)
        if found is not None:
            now, measured = tried, found
        if found is None or now[name] == LEAST_ODD:
            left.pop(0)
    return now


def _vary(
    problem: Problem,
    start: dict[str, int],
    wanted: Mapping[str, tuple[int, ...]],
    run: Callable[[Settings], Case | None],
) -> tuple[Case | None, dict[str, int]]:
    """(the case with each size at the first of its wanted values, its sizes).

    If that does not run, sizes are changed one by one, and those that no wanted value suits stay as they start.
    """
    if not wanted:
        return None, start
    first = {**start, **{name: values[0] for name, values in wanted.items()}}
    if (case := _run_or_none(run, first)) is not None:
        return case, first
    now, found = dict(start), None
    for name, values in wanted.items() if len(wanted) > 1 or any(len(each) > 1 for each in wanted.values()) else ():
        for value in values:
            if (case := _run_or_none(run, {**now, name: value})) is not None:
                now[name], found = value, case
                break
    return found, now


def _run_or_none(run: Callable[[Settings], Case | None], at: dict[str, int]) -> Case | None:
    try:
        return run(tuple(at.items()))
    except ProblemError:
        return None


def edge_cases(problem: Problem, shrunk: Settings, known: Sequence[Case], full: Measured) -> tuple[Case, ...]:
    """The cases `tiny` (sizes of 1 where the reference allows it), `over` (one over a power of two), `long` (some sizes
    so long that one CTA does not cover them, the others small) and `empty` (a size of 0).

    A number below the shrunk ones is a size here if it is an extent of an input. A case that is one of the known, or
    changes nothing, is left out.
    """
    start = {name: int(str(value)) for name, value in shrunk}
    small = {name: value for name, value in sizes(problem, 2).items() if name not in start}
    small = {name: value for name, value in small.items() if small and _is_input_extent(problem, name, value)}
    every = start = {**start, **small}
    wanted = {name: tuple(value for value in TINY if value < now) for name, now in start.items() if now > 1}
    bound = [name for name in wanted if _is_bound(problem, start, name)]
    usual = measure(problem, "shrunk", shrunk).broadcasts
    tiny, _ = _vary(
        problem,
        start,
        {name: values for name, values in wanted.items() if name not in bound},
        lambda at: _tell_tiny(problem, at, usual),
    )
    start = {name: value for name, value in start.items() if name not in small}
    for most in OVER:
        wanted = {name: (min(1 << (value.bit_length() - 1), most) + 1,) for name, value in start.items() if value > 15}
        over, at = _vary(problem, start, wanted, lambda at: real_case(problem, "over", at))
        if over is None or _is_within(problem, tuple(at.items())):
            break
    else:
        over = None
    found = [case for case in (tiny, over) if case is not None]
    search = Search(full.calls)
    found += _long_cases(problem, every, (*known, *found), full, search)
    found += _empty_case(problem, every, search)
    shapes = [[spec.shape for spec in case.inputs] for case in known]
    return tuple(case for case in found if [spec.shape for spec in case.inputs] not in shapes)


def _long_cases(
    problem: Problem, start: dict[str, int], known: Sequence[Case], full: Measured, search: Search
) -> list[Case]:
    """Cases that are longer than the known ones, in as many sizes together as the budget allows; none is longer than
    at full size.
    """
    most = dict(start)
    for one in known:
        most |= {name: max(now, int(str(dict(one.settings).get(name, now)))) for name, now in most.items()}
    goals = {
        name: _list_long(most[name], full_value, full.products > 0)
        for name, full_value in sizes(problem, 2).items()
        if name in start and full_value > most[name]
    }
    beside = {
        name: (BESIDE[n % len(BESIDE)],) for n, (name, now) in enumerate(start.items()) if now > BESIDE[n % len(BESIDE)]
    }
    _, base = _vary(problem, start, beside, lambda at: _measured_case(search, problem, at))
    found: list[Case] = []
    while goals and len(found) < len(LONG):
        at, grown = dict(base), []
        for name in reversed(goals):  # the last size is often the innermost axis
            value = next((one for one in goals[name] if _is_short(search, problem, {**at, name: one})), None)
            if value is None and len(goals) == 1 and _is_short(search, problem, {**at, name: most[name] + 1}, 1):
                value = most[name] + 1  # all sizes are one
            if value is not None:
                at[name] = value
                grown.append(name)
        case = _run_or_none(lambda sizes: real_case(problem, LONG[len(found)], sizes), at) if grown else None
        if case is None:
            break
        found.append(case)
        goals = {name: values for name, values in goals.items() if name not in grown}
    return found


def _list_long(longest: int, full: int, is_product: bool) -> list[int]:
    """Values of a size to try for a long case, where the longest so far and the one at full size are known."""
    reaches = (TILES,) if is_product else (ROW / longest, 4 * TILES, TILES)
    return [min(full, int(BEYOND * reach * longest) - 1) for reach in reaches if reach >= TILES]


def _measured_case(search: Search, problem: Problem, settings: Settings) -> Case | None:
    """The case at these settings; None if the reference does not run there, or has an empty result."""
    measured = search.measure(problem, {name: int(str(value)) for name, value in settings})
    return measured.case if measured is not None and _has_results(measured) else None


def _has_results(measured: Measured) -> bool:
    """Whether no result is empty; some releases of torch compute no empty result of a convolution."""
    return all(0 not in spec.shape for spec in measured.case.outputs)


def _is_short(search: Search, problem: Problem, at: dict[str, int], part: int = 3) -> bool:
    """Whether the reference runs at these sizes with a result, within a part of the emulator's budget."""
    measured = search.measure(problem, at)
    if measured is None or not _has_results(measured):
        return False
    return budget_ratio(measured, 2 * ELEMENT_BUDGET // part, FLOP_BUDGET // part) <= 1


def _empty_case(problem: Problem, start: dict[str, int], search: Search) -> list[Case]:
    """The case in which the first size that can be 0 is, with results that are empty along the axes that follow it.

    With no input channels torch's convolution has no output channels either, which no kernel has to imitate.
    """
    for name in start:
        measured = search.measure(problem, {**start, name: 0})
        if measured is None or not all(0 in spec.shape for spec in measured.case.outputs):
            continue
        one, usual = (search.measure(problem, {**start, name: value}) for value in (1, start[name]))
        if start[name] > 1 and one is not None and usual is not None and not _follow(measured, one, usual):
            continue
        case = _run_or_none(lambda at: real_case(problem, "empty", at), {**start, name: 0})
        if case is not None and can_expect(problem, case):
            return [case]
    return []


def _follow(empty: Measured, one: Measured, usual: Measured) -> bool:
    """Whether each output's axes that are empty at a size of 0 differ between its size of 1 and the usual one."""
    shapes = zip(*([spec.shape for spec in found.case.outputs] for found in (empty, one, usual)), strict=True)
    return all(
        before != after
        for none, first, last in shapes
        if len(none) == len(first) == len(last)
        for extent, before, after in zip(none, first, last, strict=True)
        if extent == 0
    )


def _is_bound(problem: Problem, start: dict[str, int], name: str) -> bool:
    """Whether the reference runs with no neighbouring value of a size, also with all that are equal to it changed
    alike: it has that size from elsewhere. Where it runs with 1, it does so because that is broadcast.
    """
    now = start[name]
    others = [other for other in dict.fromkeys((now // 2, now * 2, now + 1, now - 1)) if other > 1]
    alike = {one for one, value in start.items() if value == now}
    moved = [dict.fromkeys(names, other) for names in ({name}, alike) for other in others]
    return not any(_runs(problem, {**start, **values}) for values in moved)


def _runs(problem: Problem, settings: dict[str, int]) -> bool:
    """Whether the reference runs on fake tensors at these settings."""
    try:
        measure(problem, "tried", tuple(settings.items()))
    except ProblemError:
        return False
    return True


def _is_within(problem: Problem, settings: Settings) -> bool:
    """Whether a case at these settings takes at most half of the emulator's budget of FLOPs, and its memory."""
    try:
        return budget_ratio(measure(problem, "over", settings), 2 * ELEMENT_BUDGET, FLOP_BUDGET // 2) <= 1
    except ProblemError:
        return False


def _is_input_extent(problem: Problem, name: str, value: int) -> bool:
    """Whether another value of a number gives inputs of other shapes."""
    try:
        shapes = [
            [spec.shape for spec in measure(problem, "tried", ((name, one),)).case.inputs] for one in (value, value + 1)
        ]
    except ProblemError:
        return False
    return shapes[0] != shapes[1]


def _tell_tiny(problem: Problem, settings: Settings, usual: int) -> Case | None:
    """The case at these settings if its results say something: not empty, finite, and not all zeros for all seeds.

    It has as many calls in which an extent of 1 is broadcast as `usual`: the halves of 3 elements are 2 and 1.
    """
    if measure(problem, "tiny", settings).broadcasts > usual:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of one value
        for seed in TINY_SEEDS:
            case, results = run_real(problem, "tiny", settings, seed)
            if not all(result.numel() and bool(result.isfinite().all()) for result in results):
                return None
            if all(bool((result.abs() > NEGLIGIBLE).any()) for result in results if result.is_floating_point()):
                return case
    return None
