"""A version as operators of nvidia-cutlass-operators: one file, which registers the kernel when it is imported.

`library.py` beside this file is what every such file begins with; it is not imported here.
"""

from __future__ import annotations

import ast
from importlib import resources

from workbench.codegen.exports.benchmarks import find_interface, problem_text, run_text
from workbench.codegen.exports.custom_op import name_operator, refuse
from workbench.codegen.exports.merge import join_modules, rename
from workbench.codegen.specialise.file import format_source
from workbench.errors import UserError
from workbench.records import Facts, Problem, TensorSpec

FORM = "operators"
RESERVED = ("Arguments", "KernelOperator", "KernelProduct", "MODULE", "make_module", "run")
PRODUCTS = ("aten.mm.default", "aten.bmm.default")
PRODUCT_DTYPES = ("float32", "float16", "bfloat16")
OPERATOR = '''
@dataclasses.dataclass
class Arguments(ops.RuntimeArguments):
    """The operands by name. A result may be left out: the operator then sets it; into a given one it copies."""

{fields}


@ops.CuTeDSLProvider.register
class KernelOperator(ModuleOperator):
    """The kernel as an operator: `ops.get_operators(Arguments(...))` finds it."""

    supported_args_type = Arguments
    designed_for_min_cc = {least}
    operator_name = "{name}"
    function = staticmethod(run)
    target = "{target}"
    inputs = {inputs}
    results = {results}
'''
PRODUCT = '''

@ops.CuTeDSLProvider.register
class KernelProduct(ProductOperator):
    """The kernel beside those of the registry: `ops.get_operators(ops.GemmArguments(...))` finds it too."""

    supported_args_type = ops.GemmArguments
    designed_for_min_cc = {least}
    operator_name = "{name}_gemm"
    function = staticmethod({function})
    target = "{target}"
    element = torch.{dtype}
    axes = {axes}
'''


def write_operators(source: str, problem: Problem, facts: Facts, arch: str) -> str:
    """The file of a version with the text `source`, for GPUs of `arch`. Raises `UserError` where there can be none."""
    refuse(problem, facts, f"for {FORM}")
    interface = find_interface(FORM, problem, facts, dtypes=())
    if "performance" in interface.arguments:
        raise UserError(f"{problem.name} cannot be exported for {FORM}: the registry has a field `performance` itself")
    library = resources.files(__name__).joinpath("library.py").read_text(encoding="utf-8")
    kernel = rename(source, {"ModelNew": "KernelModule"})
    text = join_modules(problem.name, library, kernel, "_of_kernel", RESERVED)
    init = problem_text(problem, ["get_init_inputs"])
    text = join_modules(problem.name, text, init, "_of_reference", RESERVED) + run_text("KernelModule", interface)
    name = name_operator(problem, source).replace("::", ".")
    target = arch.removeprefix("sm_")
    least = int("".join(filter(str.isdigit, target)))
    outputs = _list_shapes(facts, "outputs")
    own: dict[str, tuple[int | None, ...]] = {name: spec.shape for name, spec in interface.state.items()}
    shapes = _list_shapes(facts, "inputs") | own  # parameters as the module has them
    text += OPERATOR.format(
        fields=_write_fields([*interface.arguments], [*interface.outputs]),
        least=least,
        name=name,
        target=target,
        inputs=_write_specs(interface.arguments, [shapes[name] for name in interface.arguments]),
        results=_write_specs(interface.outputs, [*outputs.values()]),
    )
    if is_plain_product(facts):
        spec = facts.cases[0].inputs[0]
        first = next(node for node in facts.graph if node.target in PRODUCTS).operands[0]
        text += PRODUCT.format(
            least=least,
            name=name,
            target=target,
            dtype=spec.dtype,
            axes=len(spec.shape),
            function="run" if first == spec.name else "lambda a, b: run(b, a)",
        )
    title = ast.get_docstring(ast.parse(source)) or problem.name
    head = f'"""{title}\n\nAs operators of nvidia-cutlass-operators, in its registry once this file is imported.\n"""'
    return format_source(f"{head}\n\n{text}")


def is_plain_product(facts: Facts) -> bool:
    """Whether the module is the product of its two inputs and nothing else, as the registry knows it."""
    operations = [node for node in facts.graph if node.target != "output"]
    inputs, outputs = facts.cases[0].inputs, facts.cases[0].outputs
    return (
        len(operations) == 1
        and operations[0].target in PRODUCTS
        and sorted(operations[0].operands) == sorted(spec.name for spec in inputs)
        and len(inputs) == 2
        and {spec.dtype for spec in (*inputs, *outputs)} <= {inputs[0].dtype}
        and inputs[0].dtype in PRODUCT_DTYPES
    )


def _list_shapes(facts: Facts, part: str) -> dict[str, tuple[int | None, ...]]:
    """The shape of each tensor, with None for an extent that differs between cases."""
    found: dict[str, tuple[int | None, ...]] = {}
    for case in facts.cases:
        for spec in getattr(case, part):
            before = found.get(spec.name, spec.shape)
            found[spec.name] = tuple(old if old == new else None for old, new in zip(before, spec.shape, strict=True))
    return found


def _write_fields(inputs: list[str], results: list[str]) -> str:
    lines = [f"{name}: torch.Tensor" for name in inputs]
    lines += [f"{name}: torch.Tensor | None = None" for name in results]
    return "\n".join(f"    {line}" for line in lines)


def _write_specs(specs: dict[str, TensorSpec], shapes: list[tuple[int | None, ...]]) -> str:
    pairs = zip(specs.items(), shapes, strict=True)
    return "{" + ", ".join(f'"{name}": (torch.{spec.dtype}, {shape!r})' for (name, spec), shape in pairs) + "}"
