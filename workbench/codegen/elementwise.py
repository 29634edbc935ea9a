"""elementwise(expression) -> a launch of the elementwise kernel: its configuration, with the expression as a hook."""

from __future__ import annotations

from workbench.codegen.expression_writer import expression, function_text
from workbench.codegen.guards import called, reads_integers
from workbench.codegen.launch import Hook, Launch
from workbench.kernels.elementwise.config import ElementwiseConfig
from workbench.language.expressions.expressions import leaves
from workbench.language.expressions.scalars import FUNCTIONS
from workbench.language.ir import Binding, Stage, number, setting
from workbench.language.operations.epilogue import chain_of


def lower_elementwise(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of an elementwise stage."""
    value = stage.operation.positional[0]
    inputs, repeated = leaves(value)
    bound = dict(binding.operands)
    is_unrolled = bool(repeated) or setting(stage, "unroll") is not None
    names = tuple(called(name, bound) for name in (*inputs, *repeated))
    cfg = ElementwiseConfig(
        expression=expression_hook(value, (*inputs, *repeated)),
        threads=number(stage, "threads", 256),
        vector=number(stage, "vector", 1),
        unroll=number(stage, "unroll", 1),
        reads_integers=reads_integers((*inputs, *repeated), binding),
        out=chain_of(stage).cast or "",
    )
    return Launch(
        entry=f"workbench.kernels.elementwise.kernel:{'unrolled_elementwise' if is_unrolled else 'elementwise'}",
        static=(("cfg", cfg), ("names", names)),
        operands=(*inputs, *repeated),
        many=(("inputs", inputs), ("repeated", repeated)) if is_unrolled else (("inputs", inputs),),
    )


def expression_hook(value: object, names: tuple[str, ...]) -> Hook:
    """Return the expression as a function of its tensors' elements, in that order."""
    parameters = {name: f"{name}_in" if name in (*FUNCTIONS, "e") else name for name in names}
    body = [f"return {expression(value, parameters)}"]
    return Hook(name="expression", source=function_text("expression", tuple(parameters.values()), body))
