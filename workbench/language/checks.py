"""Static checks of a muCUTLASS program: every rejection names field, value, reason and legal values."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterator

from workbench.kernels.names import host_names
from workbench.language.expressions.scalars import FUNCTIONS
from workbench.language.ir import Binding, Call, Program, Rejection, Stage
from workbench.language.memoise import memoise
from workbench.language.operation import Operation, Setting, check_arguments, check_values, close, operands
from workbench.language.operations import outputs
from workbench.language.parser import format_value
from workbench.language.registry import OPERATIONS

RESERVED = ("self", "torch", "nn", "cute", "cutlass", "call", "compiled", "from_dlpack", *host_names())


def check(program: Program) -> tuple[Rejection, ...]:
    """All rejections of a program, () when it can be compiled."""
    found = [*_boundaries(program), *outputs.check_place(program)]
    for stage in program.stages:
        found += check_stage(stage)
    return tuple(found)


@memoise
def check_stage(stage: Stage) -> tuple[Rejection, ...]:
    """All rejections of one stage by itself."""
    return tuple(_check_stage(stage))


def _check_stage(stage: Stage) -> list[Rejection]:
    name = stage.operation.name
    operation = OPERATIONS.get(name)
    if operation is None:
        legal = (
            f"elementwise({name}(...)), or >> {name}() behind an operation"
            if name in FUNCTIONS
            else close(name, tuple(OPERATIONS))
        )
        return [Rejection(field="operation", value=name, reason="no such operation", legal=legal)]
    values = [*check_values(operation, stage), *check_arguments(operation, stage)]
    found = [*values, *_epilogues(operation, stage)]
    try:
        known = {item.field for item in found}
        found += [item for item in operation.check(stage) if item.field not in known]
    except (TypeError, ValueError):  # it counts with a value that is refused already, or is no number
        found += [] if values else _no_numbers(operation, stage)
        if not found:
            raise
    return found or _operands(operation, stage)


def _no_numbers(operation: Operation, stage: Stage) -> list[Rejection]:
    """Settings of any number that were given something else."""
    given = [(operation.setting(call.name), call) for call in stage.settings]
    wrong = [
        (item, call)
        for item, call in given
        if item is not None and not item.closed and any(not isinstance(value, int) for value in call.positional)
    ]
    return [
        Rejection(
            field=call.name,
            value=", ".join(map(format_value, call.positional)),
            reason="it takes a number",
            legal=", ".join(map(str, item.values)) + ", or another",
        )
        for item, call in wrong
    ]


def _operands(operation: Operation, stage: Stage) -> list[Rejection]:
    """Tensors whose number or names cannot be right."""
    given = stage.operation.positional
    legal = f"{operation.name}({', '.join(operation.roles)})" if operation.roles else f"{operation.name}(expression)"
    if not operation.several and len(given) != max(len(operation.roles), 1):
        return [
            Rejection(
                field="operands",
                value=", ".join(map(format_value, given)) or "nothing",
                reason=f"{operation.name} takes {len(operation.roles) or 'one expression'}",
                legal=legal,
            )
        ]
    for number, value in enumerate(given):
        expressions = (not operation.roles and not operation.several) or (operation.expressions and not number)
        if not (isinstance(value, str) or (isinstance(value, Call) and expressions)):
            return [
                Rejection(
                    field="operands",
                    value=format_value(value),
                    reason=f"{operation.name} takes "
                    f"{'a tensor or an expression of tensors' if expressions else 'a tensor'} here",
                    legal=legal,
                )
            ]
    names = [
        name
        for name in (*operands(operation, stage).values(), *([stage.result] if stage.result else []))
        if keyword.iskeyword(name) or name in RESERVED
    ]
    return [
        Rejection(
            field="operands", value=name, reason="the emitted Python needs this word itself", legal="another name"
        )
        for name in dict.fromkeys(names)
    ]


def check_bound(program: Program, binding: Binding) -> tuple[Rejection, ...]:
    """Rejections of operands that no argument of forward, no binding and no earlier stage provides.

    Results of stages that hide an argument of forward are rejected too.
    """
    known = {*binding.forward_arguments, *dict(binding.operands)}
    found: list[Rejection] = []
    for stage in program.stages:
        for name in dict.fromkeys(operands(OPERATIONS[stage.operation.name], stage).values()):
            if name not in known and name.isidentifier():
                found.append(
                    Rejection(
                        field="operands", value=name, reason="no tensor is called so", legal=", ".join(sorted(known))
                    )
                )
        if stage.result in binding.forward_arguments:
            found.append(
                Rejection(
                    field="result",
                    value=str(stage.result),
                    reason="an argument of forward is called so",
                    legal="another name",
                )
            )
        known |= {stage.result} if stage.result else set()
    return tuple(found)


def _epilogues(operation: Operation, stage: Stage) -> list[Rejection]:
    if stage.epilogues and not operation.epilogues:
        reason = f"{operation.name} takes no epilogue"
        return [
            Rejection(
                field="epilogue",
                value=stage.epilogues[0].name,
                reason=reason,
                legal="only "
                + ", ".join(o.name for o in OPERATIONS.values() if o.epilogues)
                + "; write elementwise(...) as a stage after it",
            )
        ]
    return [
        Rejection(
            field="epilogue", value=call.name, reason="no such epilogue", legal=close(call.name, operation.epilogues)
        )
        for call in stage.epilogues
        if call.name not in operation.epilogues
    ]


def _boundaries(program: Program) -> list[Rejection]:
    """Every stage but the last names the tensor that it writes, and a later one reads it."""
    found: list[Rejection] = []
    *before, last = program.stages
    if last.result is not None:
        found.append(
            Rejection(
                field="result", value=last.result, reason="the last stage's result is the module's", legal="no name"
            )
        )
    names: list[str] = []
    for number, stage in enumerate(before):
        if stage.result is None:
            found.append(
                Rejection(
                    field="result",
                    value="",
                    reason=f"stage {number + 1} must name the tensor that the next one reads",
                    legal=f"h{number + 1} = {stage.operation.name}(...)",
                )
            )
            continue
        if stage.result in names:
            found.append(
                Rejection(
                    field="result",
                    value=stage.result,
                    reason="two stages write a tensor of this name",
                    legal="a name of its own",
                )
            )
        if stage.operation.name != outputs.STORE and not any(
            stage.result in _read(later) for later in program.stages[number + 1 :]
        ):
            found.append(
                Rejection(
                    field="result",
                    value=stage.result,
                    reason="no later stage reads it",
                    legal=f"a later stage with the operand {stage.result}",
                )
            )
        names.append(stage.result)
    return found


def _read(stage: Stage) -> tuple[str, ...]:
    operation = OPERATIONS.get(stage.operation.name)
    return tuple(operands(operation, stage).values()) if operation is not None else ()


def configurations(stage: Stage, only: tuple[str, ...] | None = None) -> Iterator[Stage]:
    """Every legal choice of the settings that the stage leaves open; those that it has stay as they are.

    `only` names the settings to vary, all of them where it is None.

    In the order of the operation's settings and their values, a setting left out first.
    """
    operation = OPERATIONS[stage.operation.name]
    given = {call.name for call in stage.settings}
    free = [
        item
        for item in operation.settings
        if item.name not in given and item.values and (only is None or item.name in only)
    ]
    for picked in itertools.product(*(_choices(item) for item in free)):
        calls = tuple(call for call in picked if call is not None)
        tried = Stage(
            operation=stage.operation,
            settings=(*stage.settings, *calls),
            epilogues=stage.epilogues,
            result=stage.result,
        )
        if not check_stage(tried):
            yield tried


def _choices(item: Setting) -> list[Call | None]:
    calls = [Call(name=item.name, positional=value if isinstance(value, tuple) else (value,)) for value in item.values]
    return list(calls) if item.required else [None, *calls]
