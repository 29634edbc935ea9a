"""Writes KernelBench source text for a one-line expression: `torch.softmax(x, -1)` with `x: f32[4096, 4096]`."""

from __future__ import annotations

import ast
import builtins
import re

from workbench.errors import ProblemError
from workbench.problems.settings import check_sizes, declare_precision
from workbench.records import Mode, Precision, Problem, Settings

DTYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
GIVEN = ("torch", "nn", "F", "math")
_INPUT = re.compile(r"\s*([A-Za-z_]\w*)\s*:\s*(\w+)\s*\[([^\]]*)\]\s*")


def from_expression(
    expression: str,
    inputs: str,
    *,
    name: str = "expression",
    settings: Settings = (),
    precision: Precision = "declared",
    mode: Mode = "train",
    tie: tuple[tuple[str, ...], ...] = (),
    vary: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
) -> Problem:
    """A problem from an expression over declared inputs.

    Dimensions are integers, or names with a value in `settings`. A number is a size called `x_0`, `x_1`, ...
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise ProblemError(f"the expression is not Python at column {error.offset}: {error.msg}") from None
    declared = _parse_inputs(inputs)
    _check_names(tree, [title for title, _, _ in declared], settings)
    names, known = [], dict(settings)
    sizes: dict[str, object] = {}
    lines = []
    for title, dtype, dims in declared:
        names.append(title)
        shape = []
        for axis, dim in enumerate(dims):
            key = dim if dim.isidentifier() else f"{title}_{axis}"
            if not dim.isidentifier() and not dim.isdigit():
                raise ProblemError(f"input {title}: {dim!r} is no dimension; write a number or a name")
            if dim.isidentifier() and dim not in known:
                raise ProblemError(
                    f"input {title}: dimension {dim!r} has no value; "
                    f"give it by --set {dim}=4096 (in Python: settings={{'{dim}': 4096}}), or write a number"
                )
            if dim.isidentifier() and (type(known[dim]) is not int or int(str(known[dim])) < 1):
                raise ProblemError(f"setting {dim}={known[dim]!r}: no size of {title}; legal: whole numbers from 1 on")
            if dim == "0":
                raise ProblemError(
                    f"input {title}: a dimension of 0 has no elements, so there is nothing to compute; "
                    "legal: whole numbers from 1 on"
                )
            sizes.setdefault(key, known.get(dim, int(dim) if dim.isdigit() else None))
            shape.append(key)
        lines.append("        " + _write_maker(dtype, shape) + ",")
    unused = sorted(set(known) - set(sizes))
    if unused:
        raise ProblemError(f"no input has a dimension {unused[0]!r}; there are: {', '.join(sizes) or 'none'}")
    text = "\n".join(f"{key} = {value}" for key, value in sizes.items())
    source = _TEMPLATE.format(
        title=ascii(expression.strip())[1:-1].replace('"', "'"),
        expression=expression.strip(),
        sizes=text,
        arguments=", ".join(names),
        makers="\n".join(lines),
    )
    check_sizes(source, (), tie=tie, vary=vary, keep=keep)
    return Problem(
        name=name,
        source=source,
        origin="expression",
        precision=declare_precision(precision, (source,)),
        mode=mode,
        tie=tie,
        vary=vary,
        keep=keep,
    )


def _check_names(tree: ast.Expression, inputs: list[str], settings: Settings) -> None:
    """Raise `ProblemError` for unknown names and for inputs whose names clash.

    A name is known if it is an input, a module of the template, a dimension, a builtin, or bound in the expression.
    """
    twice = next(
        (title for n, title in enumerate(inputs) if title in inputs[:n] or title in GIVEN or title in dict(settings)),
        None,
    )
    if twice is not None:
        raise ProblemError(
            f"input {twice!r} is declared twice, or is also the name of a module or a dimension; rename it"
        )
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {
        node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)
    }
    for node in names:
        if node.id not in (*inputs, *GIVEN, *bound, *dict(settings)) and not hasattr(builtins, node.id):
            raise ProblemError(
                f"the expression uses {node.id!r}, which is no declared input; "
                f"declare it, for example {node.id}: f32[1024]"
            )


def _parse_inputs(text: str) -> list[tuple[str, str, list[str]]]:
    declared, at = [], 0
    while at < len(text):
        match = _INPUT.match(text, at)
        if not match:
            raise ProblemError(
                f"inputs cannot be read at {text[at : at + 20]!r}; write for example: x: f32[4096, 4096], w: f32[4096]"
            )
        if match[2] not in DTYPES:
            raise ProblemError(f"input {match[1]}: no dtype {match[2]!r}; there are {', '.join(DTYPES)}")
        declared.append((match[1], DTYPES[match[2]], [part.strip() for part in match[3].split(",") if part.strip()]))
        at = match.end()
        if at < len(text) and text[at] == ",":
            at += 1
    return declared


def _write_maker(dtype: str, shape: list[str]) -> str:
    size = ", ".join(shape) + ("," if len(shape) == 1 else "")
    if dtype in ("int8", "uint8", "int16", "int32", "int64"):
        return f"torch.randint(0, 128, ({size}), dtype=torch.{dtype})"
    if dtype == "bool":
        return f"torch.rand({size.rstrip(',')}) > 0.5"
    return f"torch.randn({size.rstrip(',')})" + (f".to(torch.{dtype})" if dtype != "float32" else "")


_TEMPLATE = '''"""{title}"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, {arguments}):
        return ({expression})


def get_inputs():
    return [
{makers}
    ]


def get_init_inputs():
    return []
'''
