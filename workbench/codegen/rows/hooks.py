"""Levels and hooks of a row kernel's configuration, from the planned passes of an expression."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from workbench.codegen.expression_writer import call_text, expression, function_text
from workbench.codegen.launch import Hook
from workbench.kernels.rows.config import Level, Prologue, Result, Slot
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.reduction_passes import Plan, arguments, named_calls, per_row, without_reductions
from workbench.language.expressions.reductions import ARGS, Reduction
from workbench.language.expressions.scalars import FUNCTIONS
from workbench.language.ir import Call

STATES = "workbench.kernels.rows.states"
START = {"sum": "0.0", "prod": "1.0", "var": "0.0", "max": "-inf", "min": "+inf", "argmax": "-inf", "argmin": "+inf"}
LEAST = "-3.4028234663852886e+38"  # of float32's finite numbers: -inf - -inf would be no number


def make_levels(found: Plan, *, by_columns: bool, is_combined: bool) -> tuple[tuple[Level, ...], tuple[Slot, ...]]:
    """Return (levels, slots of shared memory that they combine through), with values per column or per row."""
    memory: dict[Slot, int] = {}
    levels = []
    for depth, level in enumerate(found.levels, 1):
        slots = state_slots(level)
        places = () if not is_combined else slots if by_columns else _memory_slots(level)
        for place in places:
            memory.setdefault(place, len(memory))
        levels.append(_level(found, depth, slots, tuple(memory[place] for place in places)))
    return tuple(levels), tuple(memory)


def state_slots(level: Sequence[Reduction]) -> tuple[Slot, ...]:
    """Return the state slots of the reductions of a level."""
    return tuple(
        Slot(name=name, kind=kind) for item in level for name, kind in zip(item.state, item.kinds, strict=True)
    )


def _memory_slots(level: Sequence[Reduction]) -> tuple[Slot, ...]:
    found: dict[Slot, None] = {}
    for item in level:
        for name, kind in zip(item.parts, item.kinds, strict=True):
            slot, number = Slot(name=name, kind=kind), 2
            while slot in found:
                slot, number = Slot(name=f"{name}_{number}", kind=kind), number + 1
            found[slot] = None
    return tuple(found)


def _level(found: Plan, depth: int, slots: tuple[Slot, ...], places: tuple[int, ...]) -> Level:
    level = found.levels[depth - 1]
    name = "_".join(item.op for item in level)
    values = arguments(level)
    reads = Reads(found, depth - 1, values)
    inputs, repeated = leaves(Call(name="all_of", positional=values))
    state = tuple(slot.name for slot in slots)
    texts = [expression(value, reads.elements, reads.names) for value in values]
    counted = any(item.op in ("mean", "var", "var1") for item in level)
    numbered = any(item.base in ARGS for item in level)
    return Level(
        name=name,
        inputs=tuple(found.plain.index(item) for item in inputs),
        repeated=tuple(found.spread.index(item) for item in repeated),
        reads=reads.used(texts),
        scalars=reads.scalars(name),
        scalar_reads=reads.scalar_reads,
        scalar_slots=reads.scalar_slots,
        state=slots,
        values=tuple(Slot(name=item.name, kind="i32" if item.base in ARGS else "f32") for item in level),
        start=_hook(f"start_{name}", (), [], [start for item in level for start in _starts(item)], state),
        absorb=_absorb_hook(level, name, state, reads, texts, (*inputs, *repeated)),
        # a compensated variance is of one thread, so it is never merged
        merge=_merge_hook([dataclasses.replace(item, compensated=False) for item in level]),
        finish=_finish_hook(level, name, state, counted)
        if any(item.value("n") != item.name for item in level)
        else None,
        is_counted=counted,
        is_numbered=numbered,
        slots=places,
    )


def make_online_level(found: Plan, *, is_combined: bool) -> Level:
    """Return one online level in place of softmax's two, the maximum and the sum of exponentials."""
    (largest,), (total,) = found.levels
    state = (largest.name, total.name)
    slots = tuple(Slot(name=name) for name in state)
    (text,) = (expression(value, Reads(found, 0, (value,)).elements) for value in arguments((largest,)))
    absorb = [f"return exponential_absorb({state[0]}, {state[1]}, {text})"]
    inputs, repeated = leaves(arguments((largest,))[0])
    parameters = (*state, *(parameter(name) for name in (*inputs, *repeated)))
    return Level(
        name="online",
        inputs=tuple(found.plain.index(item) for item in inputs),
        repeated=tuple(found.spread.index(item) for item in repeated),
        state=slots,
        values=slots,
        start=_hook("start_online", (), [], [f"cutlass.Float32({LEAST})", "cutlass.Float32(0.0)"], state),
        absorb=Hook(
            name="absorb_online",
            source=_imports(absorb) + function_text("absorb_online", parameters, absorb),
            returns=state,
        ),
        merge=_merge_hook((largest,)),
        merge_total=_merge_hook((total,)),
        is_online=True,
        slots=(0,) if is_combined else (),
    )


def make_result(found: Plan, depth: int) -> Result:
    """Return the result of a plan, which is stored after `depth` levels."""
    reads = Reads(found, depth, (found.value,) if found.whole else ())
    inputs, repeated = leaves(without_reductions(found.value))
    text = expression(found.value, reads.elements, reads.names)
    names = (*(parameter(name) for name in (*inputs, *repeated)), *reads.used_names([text]))
    return Result(
        name="result",
        inputs=tuple(found.plain.index(item) for item in inputs),
        repeated=tuple(found.spread.index(item) for item in repeated),
        reads=reads.used([text]),
        scalars=reads.scalars("result"),
        scalar_reads=reads.scalar_reads,
        scalar_slots=reads.scalar_slots,
        expression=Hook(name="compute_result", source=function_text("compute_result", names, [f"return {text}"])),
        is_whole=found.whole,
    )


def make_prologue(found: Plan, part: object) -> Prologue:
    """Return the prologue of a plan: a part of its expression, which is kept in place of the tensors."""
    tensors = (*found.plain, *found.spread)
    text = expression(part, {name: parameter(name) for name in tensors})
    source = function_text("prologue", tuple(map(parameter, tensors)), [f"return {text}"])
    return Prologue(
        name="prologue",
        inputs=tuple(range(len(found.plain))),
        repeated=tuple(range(len(found.spread))),
        expression=Hook(name="prologue", source=source),
    )


def parameter(name: str) -> str:
    """Return the name of a tensor's element in a hook: the tensor's name, unless a function has that name."""
    return f"{name}_in" if name in (*FUNCTIONS, "abs_", "position", "count") else name


class Reads:
    """What a pass reads of the row: results of earlier levels, and scalars that are computed from them once."""

    def __init__(self, found: Plan, depth: int, values: Sequence[object]) -> None:
        self.elements = {name: parameter(name) for name in (*found.plain, *found.spread)}
        names: dict[Call, str] = dict(named_calls(found, depth))
        self.known = list(names.values())
        self._lines: list[tuple[str, str]] = []
        for number, call in enumerate(dict.fromkeys(item for value in values for item in per_row(value)), 1):
            name = f"row_{depth}_{number}"
            self._lines.append((name, expression(call, {}, names)))
            names[call] = name
        self.names: Mapping[Call, str] = names
        self.all = [*self.known, *(name for name, _ in self._lines)]
        self.scalar_slots = tuple(Slot(name=name) for name, _ in self._lines)
        self.scalar_reads = tuple(self.known.index(name) for name in self._scalar_names())

    def _scalar_names(self) -> tuple[str, ...]:
        return _mentioned(self.known, [text for _, text in self._lines])

    def scalars(self, name: str) -> Hook | None:
        """The hook that computes the scalars."""
        if not self._lines:
            return None
        made = tuple(name for name, _ in self._lines)
        body = [f"{name} = {text}" for name, text in self._lines[:-1]]
        last = self._lines[-1][1]
        body += [f"return {', '.join((*made[:-1], last))}"]
        return Hook(
            name=f"scalars_{name}",
            source=function_text(f"scalars_{name}", self._scalar_names(), body),
            returns=made,
        )

    def used_names(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the row values that the texts mention."""
        return _mentioned(self.all, texts)

    def used(self, texts: Sequence[str]) -> tuple[int, ...]:
        """Return their numbers."""
        return tuple(self.all.index(name) for name in self.used_names(texts))


def _mentioned(names: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
    return tuple(name for name in names if name in words)


def _hook(name: str, parameters: Sequence[str], body: list[str], results: list[str], returns: tuple[str, ...]) -> Hook:
    lines = [*body, f"return {', '.join(results)}"]
    return Hook(name=name, source=_imports(lines) + function_text(name, tuple(parameters), lines), returns=returns)


def _imports(lines: list[str]) -> str:
    """Return the imports of the state functions that the lines call."""
    called = dict.fromkeys(re.findall(r"\b(\w+_(?:absorb|merge))\(", "\n".join(lines)))
    return "".join(f"from {STATES} import {name}\n" for name in called)


def _starts(item: Reduction) -> list[str]:
    start = START[item.base]
    first = f"{start[0]}cutlass.Float32.inf" if "inf" in start else f"cutlass.Float32({start})"
    return {"var": [first] * len(item.state)}.get(
        item.base, [first, "cutlass.Int32(0)"] if item.base in ARGS else [first]
    )


def _absorb_hook(
    level: Sequence[Reduction],
    name: str,
    state: tuple[str, ...],
    reads: Reads,
    texts: list[str],
    tensors: tuple[str, ...],
) -> Hook:
    body = []
    for item, text in zip(level, texts, strict=True):
        own = ", ".join(item.state)
        if item.base == "var":
            function = "compensated_variance_absorb" if item.compensated else "variance_absorb"
            body.append(f"{own} = {function}({own}, {text})")
        elif item.base in ARGS:
            body.append(f"{own} = {item.base}_absorb({own}, {text}, position)")
        else:
            body.append(f"{own} = {combined(item.base, own, _truth(text) if item.op in ('any', 'all') else text)}")
    parameters = (
        *state,
        *(parameter(tensor) for tensor in tensors),
        *reads.used_names(texts),
        *(("position",) if any(item.base in ARGS for item in level) else ()),
    )
    if len(level) == 1:
        body, results = [], [body[0].partition(" = ")[2]]
    else:
        results = list(state)
    return _hook(f"absorb_{name}", parameters, body, results, state)


def _truth(text: str) -> str:
    return f"choose({text} != 0.0, cutlass.Float32(1.0), cutlass.Float32(0.0))"


def combined(base: str, a: str, b: str) -> str:
    """Return the text that merges two values, for reductions with one value of state."""
    if base in ("max", "min"):
        return call_text(base, [a, b])
    return f"{a} {'*' if base == 'prod' else '+'} {b}"


def _merge_hook(level: Sequence[Reduction]) -> Hook:
    if len(level) == 1 and len(level[0].state) == 1:
        base = level[0].base
        returns = level[0].parts
        return _hook(f"merge_{base}", ("a", "b"), [], [combined(base, "a", "b")], returns)
    names = [part for item in level for part in (item.state if len(level) > 1 else item.parts)]
    others = {name: f"other_{name}" for name in names}
    body, at = [], 0
    for item in level:
        own = names[at : at + len(item.state)]
        at += len(item.state)
        theirs = [others[name] for name in own]
        if len(own) > 1:
            kind = "variance" if item.base == "var" else item.base
            body.append(f"{', '.join(own)} = {kind}_merge({', '.join([*own, *theirs])})")
        else:
            body.append(f"{own[0]} = {combined(item.base, own[0], theirs[0])}")
    name = "merge_" + "_".join(item.base if len(item.state) == 1 else f"{item.base}_parts" for item in level)
    if len(level) == 1:
        body, results = [], [body[0].partition(" = ")[2]]
    else:
        results = names
    return _hook(name, (*names, *others.values()), body, results, tuple(names))


def _finish_hook(level: Sequence[Reduction], name: str, state: tuple[str, ...], counted: bool) -> Hook:
    parameters = (*state, *(("count",) if counted else ()))
    results = [item.value("count") for item in level]
    return _hook(f"finish_{name}", parameters, [], results, tuple(item.name for item in level))
