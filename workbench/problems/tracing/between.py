"""Finds the shapes of a graph's values at sizes between the two at which graphs are known.

A number of a reshape may be a size that is the same at both, or a constant that only equals it: 4 heads, 4 samples.
"""

from __future__ import annotations

from workbench.problems.tracing.whole import trace_at
from workbench.records import Between, Case, Facts, Problem

RESHAPES = ("aten.view.", "aten.reshape.", "aten._unsafe_view.")


def find_between(problem: Problem, facts: Facts) -> tuple[Between, ...]:
    """The shapes at as few cases as it takes for each size that is the same in the first and the last case, and another
    one somewhere; () if there is no such size or nothing is reshaped. Cases where other calls are made are left out.
    """
    if not any(op.target.startswith(RESHAPES) for op in facts.graph):
        return ()
    first, *others, last = facts.cases
    values = {case.name: facts.size_values(case.name) for case in facts.cases}
    wanted = {name for name, size in values[first.name].items() if values[last.name][name] == size}

    def list_others(case: Case) -> set[str]:
        return {name for name in wanted if values[case.name][name] != values[last.name][name]}

    found = []
    left = [case for case in others if all(extent for spec in case.inputs for extent in spec.shape)]
    while left:
        case = max(left, key=lambda one: (_is_plain(one), len(list_others(one))) if list_others(one) else (False, 0))
        left.remove(case)
        if covered := list_others(case):
            specs = trace_at(problem, case.settings).specs(facts.graph)
            found += [Between(case=case.name, values=specs)] if specs else []
            wanted -= covered if specs else set()
    return tuple(found)


def _is_plain(case: Case) -> bool:
    """Whether no axis of an input has one element, with which reshapes may be read in several ways."""
    return all(extent > 1 for spec in case.inputs for extent in spec.shape)
