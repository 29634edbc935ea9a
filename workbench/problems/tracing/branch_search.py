"""Chooses a case whose sizes go beyond the numbers with which forward compares positions: a window of 128 is none for
64 columns. Used in workers only: it imports torch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from workbench.errors import ProblemError
from workbench.problems.cases import ELEMENT_BUDGET, FLOP_BUDGET, Search, budget_ratio, real_case, sizes
from workbench.problems.tracing.positions import CUT, Branch
from workbench.records import Case, Problem, Settings

NAME = "beyond"
TIMES = 10  # times the emulator's budget that the case may take
BESIDE = (2, 1)  # the sizes beside those that go beyond, the first with which they fit
MARGIN = 16  # a size goes beyond by this part of it, so that more than one element shows what is there

# the ways that forward takes at these sizes; none if it does not run
ListBranches = Callable[[Settings], frozenset[Branch]]
Least = dict[tuple[Branch, str], int]  # a way, and a size -> the least value of the size with which it is taken


class BranchSearch:
    """Looks for sizes at which forward takes a way that it takes at full size, and at no size that was tried."""

    def __init__(self, problem: Problem, list_branches: ListBranches, search: Search) -> None:
        self.problem, self.list_branches, self.search = problem, list_branches, search

    def _list_tried(self, at: Mapping[str, int]) -> frozenset[Branch]:
        """The ways at these sizes; none if no run is left."""
        self.search.left -= 1
        return self.list_branches(tuple(at.items())) if self.search.left > 0 else frozenset()

    def find_case(
        self, missing: frozenset[Branch], shrunk: Settings, known: Sequence[Case]
    ) -> tuple[Case | None, tuple[str, ...]]:
        """(the case that takes as many of the missing ways as the budget allows, a sentence for each number left)."""
        full = sizes(self.problem, 2)
        now = {**full, **{name: value for name, value in shrunk if type(value) is int}}
        least = self._list_least(missing, self._list_small(now, BESIDE[0]), full)
        left = every = {branch for branch, _ in least}
        at = base = now
        for small in BESIDE if least else ():
            base = self._list_small(now, small)
            at, left = self._grow(base, least, full)
            if not left:
                break
        case = self._run(at) if at != base else None
        left = left if case is not None else every
        return case, self._describe(left, least, (*known, *([case] if case is not None else [])))

    def _list_least(self, missing: frozenset[Branch], base: dict[str, int], full: dict[str, int]) -> Least:
        """For each way that a larger size alone leads to, and that size, the least value that does."""
        least: Least = {}
        for name in reversed([name for name, value in full.items() if value > base[name]]):
            gained = missing & self._list_tried({**base, name: full[name]})
            if any(branch.way == CUT for branch in gained):  # where it is the half of a size, it is none of a number
                near = self._list_tried({**base, name: full[name] - 1})
                gained = frozenset(branch for branch in gained if branch.way != CUT or branch in near)
            least |= {(branch, name): self._find_least(branch, base, name, full[name]) for branch in gained}
        return least

    def _grow(self, base: dict[str, int], least: Least, full: dict[str, int]) -> tuple[dict[str, int], set[Branch]]:
        """(sizes that take as many ways as the budget allows, the ways that are left)."""
        at, left = base, {branch for branch, _ in least}
        for (branch, name), value in sorted(least.items(), key=lambda item: -item[1]):
            wanted = {**at, name: max(at[name], min((value + value // MARGIN) | 1, full[name]))}
            if branch in left and self._fits(wanted):
                at = wanted
                left -= {one for one, other in least if at[other] >= least[one, other]}
        return at, left

    def _list_small(self, now: dict[str, int], least: int) -> dict[str, int]:
        """The sizes, each the least if the reference runs with it."""
        small = {name: min(value, least) for name, value in now.items()}
        if self.search.measure(self.problem, small) is not None:
            return small
        for name, value in small.items():
            tried = {**now, name: value}
            if value < now[name] and self.search.measure(self.problem, tried) is not None:
                now = tried
        return now

    def _find_least(self, branch: Branch, at: Mapping[str, int], name: str, full: int) -> int:
        """The least value of a size at which a way is taken, as it is at full size."""
        low, high = at[name], full
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if branch in self._list_tried({**at, name: middle}) else (middle, high)
        return high

    def _fits(self, at: Mapping[str, int]) -> bool:
        measured = self.search.measure(self.problem, dict(at))
        return measured is not None and budget_ratio(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET) <= TIMES

    def _run(self, at: Mapping[str, int]) -> Case | None:
        try:
            return real_case(self.problem, NAME, tuple(at.items()))
        except ProblemError:
            return None

    def _describe(self, left: set[Branch], least: Least, known: Sequence[Case]) -> tuple[str, ...]:
        """A sentence for each number that no case reaches, with its line and the sizes that would have to be larger."""
        lines = _list_lines(self.problem.source)
        found: dict[str, None] = {}
        for branch in sorted(left, key=lambda branch: (branch.call, branch.way)):
            number = next((number for number in branch.numbers if number > 1 and number in lines), None)
            what = (
                f"the constant {number:g} in line {lines[number]}"
                if number is not None
                else f"a limit of {branch.call}"
            )
            ranges = []
            for name in (name for one, name in least if one == branch):
                values = [int(str(dict(case.settings).get(name, 0))) for case in known if name in dict(case.settings)]
                ranges += [f"{name} is {min(values)} to {max(values)}"] if values else []
            found[f"{what} was never reached: {', '.join(ranges)}"] = None
        return tuple(found)


def _list_lines(source: str) -> dict[float, int]:
    """Numbers of the text, aside from what makes inputs -> the first line that has them."""
    found: dict[float, int] = {}
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            found[float(node.value)] = min(node.lineno, found.get(float(node.value), node.lineno))
        waiting += ast.iter_child_nodes(node)
    return found
