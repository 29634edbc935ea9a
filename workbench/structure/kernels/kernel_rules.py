"""Rules that say why a program is slow, each with measured pairs of configurations that differ in one setting.

    kernel_rules()                    the rules that come with the workbench, learnt on its landscapes
    explain_program(text, rules)      those that hold for a program, largest effect first
    rules_of_landscape(place, rules)  those that hold within one landscape, with its own pairs
    rules_of_kind(kind)               those learnt on the landscapes of one kind of problem alone
    write_rules(kind, text, context)  the same in sentences for a language model

Rules are learnt by `learn_rules` (rule_learning.py) and kept in kernel_rules.json; nothing is trained when they are
read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from statistics import fmean

from workbench.errors import ProgramError
from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import settings_of, strip_settings
from workbench.records import record
from workbench.structure.kernels.landscape_rows import RankedRow, rank_rows
from workbench.structure.kernels.program_graphs import Attributes, attributes_of_program
from workbench.wire import Json, from_plain

FILE = "kernel_rules.json"
PROBLEM = ("FLOPs per byte", "log2 of FLOPs", "log2 of bytes", "precision", "problem", "operation")
DIGITS = 9  # decimals of an effect, so that it is the same on every processor
LEAST_SUPPORT = 20  # rows of a rule
LEAST_HERE = 5  # of them in one landscape, for the rule to be told of it
MOST_WRITTEN = 5  # rules in a prompt
SETTING_OF = {  # attribute -> the setting that holds it, where it is not the attribute's own name
    **dict.fromkeys(("tile m", "tile n", "tile k", "tile area"), "tile"),
    **dict.fromkeys(("cluster m", "cluster n", "cluster CTAs", "cluster"), "cluster"),
    **dict.fromkeys(("thread tile m", "thread tile n"), "thread_tile"),
    "raster band": "raster",
    "store buffers": "store",
    "split k": "splitk",
}


@record
class Condition:
    """A test of one attribute of a stage. A number has a bound, which it is at most or over; a text a value."""

    attribute: str
    bound: float | None = None
    over: bool = False
    value: str = ""
    equal: bool = True

    def holds(self, attributes: Mapping[str, float | str]) -> bool | None:
        """Whether it holds; None where a number is not there."""
        found = attributes.get(self.attribute)
        if self.bound is None:
            return (("" if found is None else str(found)) == self.value) == self.equal
        if not isinstance(found, float):
            return None
        return (found > self.bound) == self.over

    def opposite(self) -> Condition:
        """The condition that holds where this one does not."""
        return dataclasses.replace(self, over=not self.over, equal=not self.equal)

    @property
    def setting(self) -> str:
        """The setting that decides it."""
        return SETTING_OF.get(self.attribute, self.attribute.replace(" ", "_"))

    def __str__(self) -> str:
        if self.bound is not None:
            return f"{self.attribute} {'>' if self.over else '<='} {self.bound:g}"
        return f"{self.attribute} is {'' if self.equal else 'not '}{self.value or 'left out'}"


@record
class MeasuredPair:
    """Two programs of one landscape that differ in one setting, with their recorded times in seconds."""

    landscape: str
    slow: str
    slow_s: float
    fast: str
    fast_s: float


@record
class KernelRule:
    """Programs with `slow` are slower than the same programs without it, where the `context` holds.

    `support`: rows with `slow` that have a row to compare with, in `landscapes` landscapes. `effect`: how many times
    slower they are, the geometric mean over them. `held`: the share of all pairs in which the row with `slow` is the
    slower one. `pair`: one whose ratio is typical.
    """

    slow: Condition
    context: tuple[Condition, ...]
    support: int
    landscapes: int
    effect: float
    held: float
    pair: MeasuredPair

    @property
    def text(self) -> str:
        """The rule in words, without its figures."""
        where = f" where {' and '.join(map(str, self.context))}" if self.context else ""
        return f"{self.slow}{where}: {self.effect:.2f}x the time"

    def applies(self, attributes: Mapping[str, float | str]) -> bool:
        """Whether a stage is in the context and on the slow side."""
        return bool(self.slow.holds(attributes)) and all(one.holds(attributes) for one in self.context)

    def __str__(self) -> str:
        places = f" in {self.landscapes} landscapes" if self.landscapes > 1 else ""
        return f"{self.text} ({self.support} rows{places}, {self.held:.0%} of pairs)"


@functools.cache
def _read_file() -> Json:
    found: Json = json.loads(resources.files("workbench.structure.kernels").joinpath(FILE).read_text())
    return found


@functools.cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """The rules that come with the workbench, in the order of what they explain."""
    return tuple(from_plain(one, KernelRule) for one in _read_file()["rules"])


@functools.cache
def rules_of_kind(kind: str) -> tuple[KernelRule, ...]:
    """The rules learnt on the landscapes of one kind of problem (matmul, norm, ...); () for a kind without any."""
    return tuple(from_plain(one, KernelRule) for one in _read_file()["kinds"].get(kind, ()))


def write_rules(kind: str, program: str | None, context: Attributes) -> tuple[str, ...]:
    """Rules of a kind of problem in sentences, those first on whose slow side the program is; () without any.

    `context`: what is known of the problem (`problem_attributes`). Rules whose context it excludes are left out.
    """
    known = [rule for rule in rules_of_kind(kind) if all(one.holds(context) in (None, True) for one in _asked(rule))]
    slow = explain_program(program, context, known) if program else ()
    others = [rule for rule in known if rule not in slow]
    return (
        *(f"{rule}: the kernel above is such a one" for rule in slow[:MOST_WRITTEN]),
        *map(str, others[: max(0, MOST_WRITTEN - len(slow))]),
    )


def _asked(rule: KernelRule) -> tuple[Condition, ...]:
    """The conditions of a rule's context that are about the problem, not about a program."""
    return tuple(one for one in rule.context if one.attribute in PROBLEM)


def explain_program(
    text: str, context: Attributes, rules: Sequence[KernelRule] | None = None
) -> tuple[KernelRule, ...]:
    """Rules on whose slow side a program is, largest effect first; () for a text that is no program.

    `context`: what is known of the problem (`context_attributes`).
    """
    try:
        stages = attributes_of_program(text)
    except ProgramError:
        return ()
    found = [
        rule
        for rule in (kernel_rules() if rules is None else rules)
        if any(rule.applies({**stage, **context}) for stage in stages)
    ]
    return tuple(sorted(found, key=lambda rule: -rule.effect))


def rules_of_landscape(place: Landscape) -> tuple[KernelRule, ...]:
    """The rules of the workbench with support, effect and pairs of one landscape alone; those without effect left out.

    A rule holds here if five rows or more are slower by a tenth or more and three in four of its pairs agree.
    """
    rows = rank_rows([(place.name, place)])
    found = [measure_rule(rule.slow, rule.context, rows) for rule in kernel_rules()]
    held = [rule for rule in found if rule is not None and is_clear(rule, LEAST_HERE)]
    return tuple(sorted(held, key=lambda rule: -rule.effect))


def is_clear(rule: KernelRule, least: int = LEAST_SUPPORT) -> bool:
    """Whether a rule has the support, the effect and the agreement to be told."""
    return rule.support >= least and rule.effect >= 1.1 and rule.held >= 0.75


def measure_rule(slow: Condition, context: Sequence[Condition], rows: Iterable[RankedRow]) -> KernelRule | None:
    """A rule with what the rows say of it; None where no two rows can be compared."""
    ratios: list[tuple[float, MeasuredPair]] = []
    means: list[float] = []
    places = set()
    for group in _comparable(slow, context, rows).values():
        fast = [one for one, holds in group if not holds]
        for one, holds in group:
            if not holds or not fast:
                continue
            logs = [round(math.log(_time(one.row) / _time(other.row)), DIGITS) for other in fast]
            ratios += [(log, _pair(one, other)) for log, other in zip(logs, fast, strict=True)]
            means.append(fmean(logs))
            places.add(one.landscape)
    if not means:
        return None
    effect = round(fmean(means), DIGITS)
    return KernelRule(
        slow=slow,
        context=tuple(context),
        support=len(means),
        landscapes=len(places),
        effect=round(math.exp(effect), DIGITS),
        held=fmean(log > 0 for log, _ in ratios),
        pair=min(ratios, key=lambda item: (round(abs(item[0] - effect), DIGITS), item[1].slow, item[1].fast))[1],
    )


def _comparable(
    slow: Condition, context: Sequence[Condition], rows: Iterable[RankedRow]
) -> dict[object, list[tuple[RankedRow, bool]]]:
    """Rows in the context in groups that differ in the condition's setting alone, with whether it holds."""
    groups: dict[object, list[tuple[RankedRow, bool]]] = {}
    for one in rows:
        stages = [stage for stage in one.stages if all(condition.holds(stage) for condition in context)]
        holding = [slow.holds(stage) for stage in stages]
        if not stages or None in holding:
            continue
        key = (one.landscape, *_without(one.row.program, slow.setting))
        groups.setdefault(key, []).append((one, any(holding)))
    return groups


@functools.lru_cache(maxsize=1 << 16)
def _without(program: str, setting: str) -> tuple[object, ...]:
    """A program's operations and its settings but one, of all stages."""
    kept = {
        name: values for name, values in settings_of(program).items() if name.split(" ")[0] not in (setting, "arch")
    }
    return (strip_settings(program), tuple(sorted(kept.items(), key=str)))


def _pair(slow: RankedRow, fast: RankedRow) -> MeasuredPair:
    return MeasuredPair(
        landscape=slow.landscape,
        slow=slow.row.program,
        slow_s=_time(slow.row),
        fast=fast.row.program,
        fast_s=_time(fast.row),
    )


def _time(row: Row) -> float:
    """The median time of a correct row, in seconds."""
    assert row.median_s is not None
    return row.median_s
