"""Scalar functions of the kernel library: the language's tables name them, and the writer calls them."""

import ast
from pathlib import Path

import workbench.kernels
from workbench.codegen.expression_writer import expression, function_text
from workbench.language.expressions.expressions import functions_used
from workbench.language.expressions.scalars import ARITY, FUNCTIONS, MATH, arity, emitted_name
from workbench.language.ir import Call

SOURCE = Path(workbench.kernels.__file__).with_name("scalars.py").read_text()
DEFINED = {node.name: node for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)}


def test_the_tables_name_every_function():
    assert set(DEFINED) == {emitted_name(name) for name in FUNCTIONS}
    assert {name for name in FUNCTIONS if "cute.math" in ast.unparse(DEFINED[emitted_name(name)])} == MATH


def test_the_table_of_arguments():
    for name in set(FUNCTIONS) & set(ARITY):
        arguments = DEFINED[emitted_name(name)].args
        assert arity(name) == (len(arguments.args) - len(arguments.defaults), len(arguments.args))


def test_an_expression_as_a_hook():
    value = Call(name="add", positional=(Call(name="abs", positional=("x",)), Call(name="spread", positional=("b",))))
    body = expression(Call(name="max", positional=(value, 0.5)), {"x": "x", "b": "bias"})
    assert body == "cute.arch.fmax((abs_(x) + bias), cutlass.Float32(0.5), nan=True)"
    assert functions_used(value) == ("abs",)
    assert function_text("f", ("x", "bias"), [f"return {body}"]).splitlines()[0] == "def f(x, bias):"
