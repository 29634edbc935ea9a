"""Gradients by kernels of their own in an exported operator, for what has them: aggregate with op=sum or mean."""

from __future__ import annotations

import importlib.resources

from workbench.codegen.exports.merge import join_modules, rename
from workbench.codegen.exports.rows import RowsGradient
from workbench.codegen.module import compile_program
from workbench.language.ir import Binding

INIT = "def __init__(self):\n    super().__init__()\n"
GIVEN = ("gradient", "offsets", "rows")
FACTORS = (*GIVEN, "factors")
PRODUCTS = (*FACTORS, "flat_gradient", "flat_x", "indptr", "indices")
PLAIN = "aggregate(gradient, offsets, rows)"
WEIGHTED = "aggregate(gradient, offsets, rows, weighted=1, weight=factors)"
BOTH = f"h1 = {WEIGHTED} |> h2 = sddmm(flat_gradient, flat_x, indptr, indices) |> outputs(h1, h2)"
DEFINITION = '\nGRADIENT = define_gradient("{operator}_gradient", "{reduce}", GradientKernel())\n'


def write_gradient(gradient: RowsGradient, operator: str, text: str, label: str, reserved: tuple[str, ...]) -> str:
    """The text with the operator GRADIENT and its kernels behind it."""
    is_mean = gradient.reduce == "mean"
    plain: tuple[str, tuple[str, ...]] = (WEIGHTED, FACTORS) if is_mean else (PLAIN, GIVEN)
    program, arguments = (BOTH, PRODUCTS) if "weight" in dict(gradient.operands) else plain
    library = importlib.resources.files("workbench.kernels.aggregate").joinpath("gradient.py").read_text("utf-8")
    kernel = compile_program(program, Binding(init_source=INIT, forward_arguments=arguments))
    text = join_modules(label, text, library, "_of_gradient", reserved)
    text = join_modules(label, text, rename(kernel, {"ModelNew": "GradientKernel"}), "_of_gradient", reserved)
    return text + DEFINITION.format(operator=operator, reduce=gradient.reduce)
