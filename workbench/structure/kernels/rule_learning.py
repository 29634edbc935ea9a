"""Learns rules on times from landscapes: the splits of a master tree, measured on pairs that differ in one setting.

A tree of ranks (ranking.py) proposes: each of its splits is a condition, with the splits above it as its context. Pairs
of rows dispose: a rule is kept if enough rows have a partner that differs in the condition's setting alone, and the
partner is faster in most of the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from workbench.structure.kernels.kernel_rules import PROBLEM, Condition, KernelRule, is_clear, measure_rule
from workbench.structure.kernels.landscape_rows import RankedRow
from workbench.structure.kernels.ranking import ProgramRanker

MOST_CONTEXT = 2  # conditions of a context; a rule with more is not read
COMPILED = ("registers", "spilled bytes", "shared bytes")
NEVER = ("mma",)  # decides how exact the result is


def learn_rules(rows: Sequence[RankedRow], most: int = 40) -> tuple[KernelRule, ...]:
    """The rules of rows of landscapes, those first that explain most: support times the logarithm of the effect."""
    ranker = ProgramRanker().fit(rows)
    found: dict[tuple[Condition, tuple[Condition, ...]], KernelRule] = {}
    for condition, context in propose(ranker):
        for slow in (condition, condition.opposite()):
            rule = measure_rule(slow, context, rows)
            if rule is not None and is_clear(rule):
                found[slow, context] = rule
    ordered = sorted(found.values(), key=lambda rule: (-weigh(rule), len(rule.context), str(rule)))
    return tuple(_without_repeats(ordered))[:most]


def weigh(rule: KernelRule) -> float:
    """How much a rule explains."""
    return rule.support * math.log(rule.effect) * rule.held


def _without_repeats(rules: Sequence[KernelRule]) -> list[KernelRule]:
    """The rules without those that another one makes superfluous.

    A rule is superfluous beside one with fewer conditions in its context that explains as much, but for a tenth, and
    beside one of the same attribute and side that explains more.
    """
    simple = [
        rule
        for rule in rules
        if not any(
            one.slow == rule.slow and set(one.context) < set(rule.context) and weigh(one) >= 0.9 * weigh(rule)
            for one in rules
        )
    ]
    told: dict[tuple[str, bool, str, bool], KernelRule] = {}
    for rule in simple:
        told.setdefault((rule.slow.attribute, rule.slow.over, rule.slow.value, rule.slow.equal), rule)
    return list(told.values())


def propose(ranker: ProgramRanker) -> Iterator[tuple[Condition, tuple[Condition, ...]]]:
    """Splits of a tree of ranks on settings, each with contexts: none, and the first splits above it."""
    tree = ranker.model.tree_
    seen = set()

    def walk(node: int, above: tuple[Condition, ...]) -> Iterator[tuple[Condition, tuple[Condition, ...]]]:
        if tree.children_left[node] < 0:
            return
        condition = read_condition(ranker.encoder.names[tree.feature[node]], float(tree.threshold[node]))
        usable = tuple(one for one in above if one.attribute not in COMPILED)
        if condition.attribute not in (*COMPILED, *PROBLEM, *NEVER):
            for number in range(MOST_CONTEXT + 1):
                context = tuple(one for one in usable if one.attribute != condition.attribute)[:number]
                if (condition, context) not in seen:
                    seen.add((condition, context))
                    yield condition, context
        yield from walk(int(tree.children_left[node]), (*above, condition.opposite()))
        yield from walk(int(tree.children_right[node]), (*above, condition))

    yield from walk(0, ())


def read_condition(column: str, threshold: float) -> Condition:
    """The condition of a split's right side: of a number that it is over the bound, of a category that it is this."""
    name, mark, value = column.partition("=")
    if mark:
        return Condition(attribute=name, value=value)
    return Condition(attribute=name, bound=round(threshold, 4), over=True)
