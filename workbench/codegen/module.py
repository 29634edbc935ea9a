"""Checked program -> the text of a KernelBench-form candidate in CuTe DSL. Same program, same text, byte for byte.

The files written here never say `from __future__ import annotations`: CuTe DSL reads annotations as values.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import textwrap
from collections.abc import Mapping, Set

from workbench.codegen.emitters import LOWERINGS
from workbench.codegen.guards import check_value
from workbench.codegen.launch import Launch
from workbench.errors import ProgramError
from workbench.language.checks import check, check_bound
from workbench.language.ir import Binding, Operand, Program, Stage
from workbench.language.limits import check_limits
from workbench.language.operation import operands
from workbench.language.operations.outputs import STORE
from workbench.language.parser import format_program, parse
from workbench.language.ranks import check_ranks
from workbench.language.registry import OPERATIONS
from workbench.records import NOTHING

WRITTEN_IN = "has to be {}, which these kernels have written in"
IMPORTS = ("import torch", "import torch.nn as nn")


@functools.lru_cache(maxsize=256)
def compile_program(text: str, binding: Binding) -> str:
    """Program text -> candidate file; raises `ProgramError` listing every rejection."""
    return emit(check_program(text, binding), binding)


def check_program(text: str, binding: Binding) -> Program:
    """The checked program of a text; raises `ProgramError` listing every rejection."""
    program = parse(text)
    rejections = check(program)
    rejections = (
        rejections or check_bound(program, binding) or check_ranks(program, binding) or check_limits(program, binding)
    )
    if rejections:
        raise ProgramError("the program is rejected: " + " | ".join(map(str, rejections)), rejections)
    return program


def emit(program: Program, binding: Binding) -> str:
    """The whole file: kernels, launch functions, `ModelNew`. forward launches the stages in order."""
    from workbench.codegen.specialise.builder import Builder  # late: libcst takes as long as the rest of a session
    from workbench.codegen.specialise.file import write_module

    extra = [line for line in binding.module_names.splitlines() if line]
    imports = [line for line in extra if line.startswith(("import ", "from "))]
    classes = ["import dataclasses", "from typing import NamedTuple"] if binding.classes else []
    constants = "\n".join(line for line in extra if line not in imports)
    results = [stage.result for stage in program.stages if stage.result]
    builder = Builder(frozenset([*binding.forward_arguments, *results, *_defined_names(constants)]))
    forward, written = [], set[str]()
    for stage in program.stages:
        bound = bound_operands(stage, binding, written)
        binding = _note_dtype(stage, binding)
        launch = LOWERINGS[stage.operation.name](stage, dataclasses.replace(binding, operands=tuple(bound.items())))
        arguments = arguments_of(launch, bound)
        values = [f"{builder.add_launch(launch)}({', '.join(arguments)})"] if launch.entry else arguments
        forward.append(_statement(stage, binding, values))
        written |= {stage.result} if stage.result else set()
    return write_module(
        builder,
        title=format_program(program),
        imports=[*imports, *classes, *IMPORTS],
        constants=constants,
        model=_model_text(binding, "\n".join(forward)),
    )


def _statement(stage: Stage, binding: Binding, values: list[str]) -> str:
    """The statement of forward that a stage is; nothing reads what a store returns."""
    if stage.operation.name == STORE:
        return values[0]
    return f"{stage.result} = {values[0]}" if stage.result else f"return {fill_form(binding.form, values)}"


def _note_dtype(stage: Stage, binding: Binding) -> Binding:
    """The binding with the dtype of a view's result, which is that of the viewed tensor; no lowering asks its shape."""
    of = dict(binding.tensors).get(str(stage.operation.positional[0])) if stage.operation.name == "view" else None
    if of is None or stage.result is None:
        return binding
    return dataclasses.replace(binding, tensors=(*binding.tensors, (stage.result, Operand(shape=(), dtype=of.dtype))))


def fill_form(form: str, values: list[str]) -> str:
    """A form such as "{'y': *, 'n': None}" with the text of each tensor; several without a form are a tuple."""
    if form == NOTHING:
        return form
    if form.count("*") != len(values):
        return f"({', '.join(values)})"
    parts = form.split("*")
    return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))


def bound_operands(stage: Stage, binding: Binding, written: Set[str]) -> dict[str, str]:
    """What the stage's lowering calls each operand -> the Python expression of it in forward.

    `written` holds the results of earlier stages.
    """
    given = dict(binding.operands)
    return {
        role: name if name in written else given.get(name, name)
        for role, name in operands(OPERATIONS[stage.operation.name], stage).items()
    }


def arguments_of(launch: Launch, bound: Mapping[str, str]) -> list[str]:
    """What forward passes to a launch's host function."""
    texts = {**bound, **dict(launch.bound)}
    return [texts.get(role, role) for role in launch.operands]


def _defined_names(constants: str) -> list[str]:
    """Names that the reference's own lines define."""
    return [node.id for node in ast.walk(ast.parse(constants)) if isinstance(node, ast.Name)]


def _model_text(binding: Binding, forward: str) -> str:
    init = textwrap.indent(_with_super(binding.init_source).rstrip() + "\n", "    ")
    arguments = ", ".join(filter(None, ("self", binding.signature or ", ".join(binding.forward_arguments))))
    unpacking = "".join(f"{name} = {expression}\n" for name, expression in binding.unpacked)
    checks = "".join(check_value(name, value, WRITTEN_IN) for name, value in binding.fixed)
    body = textwrap.indent(checks + unpacking + forward.rstrip(), " " * 8)
    classes = f"{binding.classes}\n\n\n" if binding.classes else ""
    return f"{classes}class ModelNew(nn.Module):\n{init}\n    def forward({arguments}):\n{body}\n"


def _with_super(source: str) -> str:
    """`super(Model, self)` would name a class that this file does not have, or of which ModelNew is none."""
    return re.sub(r"\bsuper\(\w+, self\)", "super()", source)
