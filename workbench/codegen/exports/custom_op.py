"""A version as an operator of `torch.library`: one file with the kernel, the reference and the operator."""

from __future__ import annotations

import ast
import hashlib
import importlib.resources
import re

from workbench.codegen.exports.gradients import write_gradient
from workbench.codegen.exports.merge import join_modules, keep_needed, rename
from workbench.codegen.exports.rows import RowsGradient
from workbench.codegen.specialise.file import format_source
from workbench.errors import UserError
from workbench.problems import with_settings
from workbench.problems.model_class import signature_of
from workbench.records import NOTHING, Facts, Operation, Problem

NAMESPACE = "cutegen"
RESERVED = ("OPERATOR", "ModelNew", "GRADIENT")
MODEL = """
OPERATOR = define_operator("{operator}", "{schema}")


class ModelNew(OperatorModule, KernelModule):
    operator = OPERATOR
    model = {model}
{attributes}
    def forward(self, {inputs}):
        {results} = self.apply_operator({operands})
        return {returned}
"""


ATTRIBUTES = """    gradient = GRADIENT
    rows = {rows}
    arguments = {arguments}
"""


def write_custom_op(source: str, problem: Problem, facts: Facts, gradient: RowsGradient | None = None) -> str:
    """The file of a version with the text `source`; with `gradient` the backward pass has kernels of its own.

    Raises `UserError` where no operator can be made, with why not.
    """
    refuse(problem, facts)
    library = importlib.resources.files("workbench.kernels").joinpath("custom_op.py").read_text(encoding="utf-8")
    reference = keep_needed(with_settings(problem.source, problem.settings), {"Model"})
    kernel = rename(source, {"ModelNew": "KernelModule"})
    text = join_modules(problem.name, library, kernel, "_of_kernel", RESERVED)
    text = join_modules(problem.name, text, reference, "_of_reference", RESERVED)
    title = ast.get_docstring(ast.parse(source)) or problem.name
    operator = name_operator(problem, source)
    arguments = facts.forward_arguments
    attributes = ""
    if gradient is not None:
        text = write_gradient(gradient, operator, text, problem.name, RESERVED)
        attributes = ATTRIBUTES.format(rows=dict(gradient.operands), arguments=arguments)
    results = [f"y{number}" for number in range(len(facts.cases[0].outputs))]
    model = MODEL.format(
        operator=operator,
        attributes=attributes,
        schema=make_schema(facts),
        model="Model_of_reference" if "class Model_of_reference" in text else "Model",
        inputs=", ".join(argument + default_of(reference, argument) for argument in arguments),
        operands=", ".join(arguments),
        results=", ".join(results) if len(results) > 1 else "(y0,)",
        returned=", ".join(results),
    )
    head = f'"""{title}\n\nAs the operator torch.ops.{operator.replace("::", ".")}; `ModelNew` uses it.\n"""'
    return format_source(f"{head}\n\n{text}{model}")


def name_operator(problem: Problem, source: str) -> str:
    """`cutegen::relu_1a2b3c4d`: one name for one text."""
    label = re.sub(r"\W+", "_", problem.name).strip("_").lower()
    label = label if label[:1].isalpha() else f"problem_{label}"
    return f"{NAMESPACE}::{label}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def make_schema(facts: Facts) -> str:
    """The operator's schema: forward's arguments, the parameters and buffers, the handle of the module."""
    tensors = {spec.name for spec in facts.cases[0].inputs}
    kinds = [f"{'Tensor' if name in tensors else 'Scalar?'} {name}" for name in facts.forward_arguments]
    return f"({', '.join([*kinds, 'Tensor[] state', 'str handle'])}) -> Tensor[]"


def refuse(problem: Problem, facts: Facts, form: str = "as a custom op") -> None:
    """Raise `UserError` for a reference that no function of tensors without effects can stand for."""
    why = ""
    tensors = [spec.name for spec in facts.cases[0].inputs]
    if nested := [name for name in tensors if name not in facts.forward_arguments]:
        why = f"forward takes {nested[0]}, a tensor inside of another object"
    elif "*" in signature_of(problem.source):
        why = f"forward takes ({signature_of(problem.source)}), and an operator its operands by position"
    elif facts.form == NOTHING:
        why = "forward returns nothing and changes its inputs or buffers"
    elif facts.form:
        why = f"forward returns {facts.form}; that form has a tensor or a tuple of tensors"
    elif any(found.kind == "random" for found in facts.degeneracies):
        why = "forward draws random numbers, and the backward pass would draw others"
    elif changed := [name for item in facts.graph for name in changed_operands(item, tensors)]:
        why = f"forward changes {changed[0].removeprefix('buffer:')} in place, as batch norm in training does"
    if why:
        raise UserError(f"{problem.name} cannot be exported {form}: {why}; export it as a file for KernelBench")


def changed_operands(operation: Operation, inputs: list[str]) -> list[str]:
    """Inputs, parameters and buffers that an operation of the reference writes to."""
    name = operation.target.split(".")[1] if operation.target.count(".") > 1 else operation.target
    held = [item for item in operation.operands if item in inputs or item.startswith(("buffer:", "param:"))]
    if name.endswith("batch_norm") and "True" in operation.operands:
        return [item for item in held if item.startswith("buffer:")]
    return held[:1] if name.endswith("_") and operation.operands[:1] == tuple(held[:1]) else []


def default_of(reference: str, argument: str) -> str:
    """`=0.5` of an argument of the reference's forward that has a constant as default, else nothing."""
    functions = [node for node in ast.walk(ast.parse(reference)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        own = function.args.args
        pairs = zip(reversed(own), reversed(function.args.defaults), strict=False)
        for name, default in pairs:
            if function.name == "forward" and name.arg == argument and isinstance(default, ast.Constant):
                return f"={ast.unparse(default)}"
    return ""
