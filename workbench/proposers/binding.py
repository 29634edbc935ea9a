"""Compiles a program of muCUTLASS into a candidate, and binds its tensors to the problem's module."""

from __future__ import annotations

import ast
import dataclasses
import re

from workbench.codegen import compile_program
from workbench.codegen.exports.rows import RowsGradient, gradient_of
from workbench.errors import UserError
from workbench.language import Binding, Call, Program, Stage, format_program, parse
from workbench.language.ir import Operand
from workbench.problems import PROBLEM_NAMES
from workbench.problems.model_class import result_classes, signature_of
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.recognition import Computation, Unrecognised, recognise
from workbench.proposers.recognition.arguments import list_unpacked, name_inputs
from workbench.proposers.recognition.forms.numbers import list_scalars, write_numbers
from workbench.proposers.recognition.forms.shape_derived import name_shape_derived
from workbench.proposers.recognition.graph import python_expression
from workbench.records import LONGEST_VALUE, Candidate, Facts, Problem


def candidate_of(problem: Problem, facts: Facts, arch: str, program: str) -> Candidate:
    """The candidate of a program that a person wrote.

    A stage without an arch gets `arch`. A stage of the problem's own operation gets the layouts of its operands.

    Raises `UserError` if the language has no operation for the problem, `ProgramError` if the program is not legal.
    """
    found = recognise_problem(facts)
    read = parse(program)
    text = format_program(
        dataclasses.replace(read, stages=tuple(_complete_stage(stage, found, arch) for stage in read.stages))
    )
    return Candidate(source=compile_program(text, binding_of(problem, facts, found)), program=text)


def plain_program(found: Computation) -> str:
    """The problem as a program without settings."""
    parts = [piece.named for piece in found.pieces] or [found]
    return format_program(Program(stages=tuple(stage for part in parts for stage in _plain_stages(part))))


def _plain_stages(found: Computation) -> tuple[Stage, ...]:
    main = Stage(operation=found.operation, epilogues=found.epilogues, result=found.result)
    return (*found.before, main, *found.after)


def recognise_problem(facts: Facts) -> Computation:
    """The problem as a computation of the language. Raises `UserError` if the language has no operation for it."""
    try:
        return recognise_whole(facts)
    except Unrecognised as reason:
        raise UserError(
            f"muCUTLASS has no operation for this problem ({reason}); write the kernel itself: %%cutegen edit"
        ) from None


def _complete_stage(stage: Stage, found: Computation, arch: str) -> Stage:
    said = {call.name for call in stage.settings}
    more = [Call(name="arch", positional=(arch,))] if "arch" not in said else []
    if found.layout and "layout" not in said and stage.operation == found.operation:
        more.append(Call(name="layout", named=found.layout))
    return dataclasses.replace(stage, settings=(*more, *stage.settings))


def binding_of(problem: Problem, facts: Facts, found: Computation) -> Binding:
    """The binding of a computation's tensors to the problem's module."""
    unpacked, facts = list_unpacked(facts), write_numbers(name_inputs(facts))
    facts, made = name_shape_derived(facts), tuple((one.name, one.expression) for one in facts.made)
    read = tuple(pair for pair in (*list_scalars(facts), *made) if re.search(rf"\b{pair[0]}\b", repr(found)))
    return Binding(
        init_source=facts.init_source,
        forward_arguments=facts.forward_arguments,
        operands=found.operands,
        module_names=_module_names(problem.source, facts.init_source),
        axes=_count_axes(facts, found),
        tensors=_bind_tensors(facts, found),
        form=facts.form or "*",
        classes=result_classes(facts.form, facts.structure),
        signature=signature_of(problem.source),
        unpacked=(*unpacked, *read),
        fixed=_list_fixed(facts),
    )


def _list_fixed(facts: Facts) -> tuple[tuple[str, str], ...]:
    """(argument, value) of what forward is given besides tensors, with one value in all cases: kernels are for that."""
    others = {one.name for one in facts.given if one.others or one.follows}
    kinds = ("bool", "int", "float", "str", "NoneType")
    return tuple(
        (name, text)
        for name, kind, text in facts.plain_arguments
        if name not in others and kind in kinds and len(text) < LONGEST_VALUE and text not in ("inf", "-inf", "nan")
    )


def find_gradient(facts: Facts) -> RowsGradient | None:
    """The gradient for which an export has kernels; None if the problem has no such gradient."""
    try:
        found = recognise(facts)
    except Unrecognised:
        return None
    return None if found.pieces else gradient_of(found.operation, found.operands, facts)


# calls at the end of an operand's expression that keep the number of axes
SAME_RANK = re.compile(r"(?:\.detach\(\)|\.contiguous\(\)|\.transpose\(-2, -1\))*$")


def _count_axes(facts: Facts, found: Computation) -> tuple[tuple[str, int], ...]:
    """The number of axes of each tensor, by its name in a program.

    The tensors are parameters, buffers, and those arguments of forward whose number of axes is the same in all cases.
    """
    counts: dict[str, set[int]] = {}
    for spec in (spec for case in facts.cases for spec in case.inputs):
        counts.setdefault(spec.name, set()).add(len(spec.shape))
    known = {name: next(iter(count)) for name, count in counts.items() if len(count) == 1}
    own = known | {python_expression(f"param:{spec.name}"): len(spec.shape) for spec in facts.parameters}
    bound = {name: own.get(SAME_RANK.sub("", text)) for name, text in found.operands}
    return tuple({name: count for name, count in (known | bound).items() if count is not None}.items())


def _bind_tensors(facts: Facts, found: Computation) -> tuple[tuple[str, Operand], ...]:
    """Shapes and dtypes at full size of each tensor, by its name in a program.

    The tensors are forward's arguments, parameters and buffers, plain or transposed.
    """
    inputs = [spec for case in facts.cases if case.name == "full" for spec in case.inputs]
    state = [spec for spec in facts.full if spec.name.startswith(("param:", "buffer:"))]
    own = {python_expression(spec.name): Operand(shape=spec.shape, dtype=spec.dtype) for spec in (*state, *inputs)}
    known = {name: own[name] for name in facts.forward_arguments if name in own}
    for name, text in found.operands:
        known.pop(name, None)
        seen = SAME_RANK.search(text)
        whole = own.get(SAME_RANK.sub("", text))
        if whole is not None and seen is not None:
            turned = seen[0].count(".transpose(") % 2 and len(whole.shape) > 1
            known[name] = (
                dataclasses.replace(whole, shape=(*whole.shape[:-2], whole.shape[-1], whole.shape[-2]))
                if turned
                else whole
            )
    return tuple(known.items())


def _module_names(source: str, init_source: str) -> str:
    """Text of the problem's imports, and of the classes, functions and constants that `__init__` needs."""
    body = ast.parse(source).body
    needed = _needed_names(body, init_source)
    kept = []
    for node in body:
        imported = isinstance(node, (ast.Import, ast.ImportFrom)) and not (
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
        )
        if imported or needed.intersection(_defined_by(node)):
            kept.append(ast.unparse(node))
    return "\n".join(kept)


def _defined_by(node: ast.stmt) -> set[str]:
    """Names that a class, a function or an assignment of a constant of the problem defines, other than the problem's
    own: those that ModelNew may use.
    """
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name} - {*PROBLEM_NAMES}
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _needed_names(body: list[ast.stmt], init_source: str) -> set[str]:
    """Names that `__init__` reads, or that a class or a function which it needs reads."""
    defined = {name: node for node in body for name in _defined_by(node)}
    needed: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(init_source)]
    while waiting:
        read = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)} - needed
        needed |= read
        waiting += [defined[name] for name in read if name in defined]
    return needed
