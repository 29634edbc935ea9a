"""elementwise(expression) -> one kernel over flattened tensors, one element or one vector per thread."""

from __future__ import annotations

from workbench.dsl.ir import Binding, Call, Rejection, Stage, names_in, setting
from workbench.dsl.operation import ARCH, THREADS, VECTOR, Operation, close
from workbench.dsl.pieces import BINARY, UNARY, Parts, definitions, expression, functions_used

SCALAR = '''{functions}
@cute.kernel
def elementwise_kernel({inputs}, out: cute.Tensor, count: cutlass.Int32):
    """One element per thread."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * {threads} + thread
    if i < count:
        out[i] = ({scalar}).to(out.element_type)


@cute.jit
def elementwise({inputs}, out: cute.Tensor, count: cutlass.Int32):
    blocks = (count + {threads} - 1) // {threads}
    elementwise_kernel({names}, out, count).launch(grid=[blocks, 1, 1], block=[{threads}, 1, 1])
'''
VECTORISED = '''{functions}
@cute.kernel
def elementwise_kernel({inputs}, out: cute.Tensor, count: cutlass.Int32, width: cutlass.Constexpr):
    """`width` neighbouring elements per thread, moved in one access."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * {threads} + thread
    if i < count // width:
{fragments}
        result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
        for e in cutlass.range_constexpr(width):
            result[e] = ({vector}).to(out.element_type)
        cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, i])


@cute.jit
def elementwise({inputs}, out: cute.Tensor, count: cutlass.Int32, width: cutlass.Constexpr):
    blocks = (count // width + {threads} - 1) // {threads}
    elementwise_kernel({names}, out, count, width).launch(grid=[blocks, 1, 1], block=[{threads}, 1, 1])
'''
FRAGMENT = """        {name}_part = cute.make_rmem_tensor(cute.make_layout(width), {name}.element_type)
        cute.autovec_copy(cute.zipped_divide({name}, (width,))[None, i], {name}_part)"""


def emit(stage: Stage, binding: Binding) -> Parts:
    """Text for any expression over tensors of one shape."""
    value = stage.operation.positional[0]
    names = names_in(value)
    bound = dict(binding.operands)
    threads, vector = int(str(setting(stage, "threads", 256))), int(str(setting(stage, "vector", 1)))
    fields = {
        "functions": definitions(functions_used(value)), "inputs": ", ".join(f"{name}: cute.Tensor" for name in names), "names": ", ".join(names), "threads": threads,
        "scalar": expression(value, {name: f"{name}[i].to(cutlass.Float32)" for name in names}),
        "vector": expression(value, {name: f"{name}_part[e].to(cutlass.Float32)" for name in names}),
        "fragments": "\n".join(FRAGMENT.format(name=name) for name in names),
    }  # fmt: skip
    first = names[0]
    lines = [f"{name} = {bound.get(name, name)}" for name in names if bound.get(name, name) != name]
    lines += [f"{name} = {name}.contiguous()" for name in names]
    lines += [f"out = torch.empty_like({first})"]
    if vector > 1:
        lines += [f"width = {vector} if out.numel() % {vector} == 0 else 1"]
        align = "16 if width > 1 else None"
        flat = [f"from_dlpack({name}.view(-1), assumed_align={align}).mark_layout_dynamic()" for name in (*names, "out")]
        lines += ["call(elementwise, (x_dtype, width), (", *[f"    {item}," for item in flat], "    cutlass.Int32(out.numel()),", "), (width,))"]
    else:
        flat = [f"from_dlpack({name}.view(-1)).mark_layout_dynamic()" for name in (*names, "out")]
        lines += ["call(elementwise, x_dtype, (", *[f"    {item}," for item in flat], "    cutlass.Int32(out.numel()),", "))"]
    lines = [line.replace("x_dtype", f"{first}.dtype") for line in lines]
    return Parts(kernels=(VECTORISED if vector > 1 else SCALAR).format(**fields), forward="\n".join([*lines, "return out"]))


def check(stage: Stage) -> list[Rejection]:
    """Rejections of the expression."""
    if not stage.operation.positional:
        return [Rejection(field="elementwise", value="", reason="needs an expression", legal="for example relu(x)")]
    return check_expression(stage.operation.positional[0])


def check_expression(value: object) -> list[Rejection]:
    """Unknown functions, and wrong numbers of arguments."""
    if not isinstance(value, Call):
        return []
    arity = 1 if value.name in UNARY else 2 if value.name in BINARY else 0
    if not arity:
        return [Rejection(field="function", value=value.name, reason="no such function", legal=close(value.name, UNARY + BINARY))]
    if len(value.positional) != arity:
        return [Rejection(field=value.name, value=str(len(value.positional)), reason=f"takes {arity} argument{'s' if arity > 1 else ''}", legal=str(arity))]
    return [item for part in value.positional for item in check_expression(part)]


OPERATIONS = (
    Operation(name="elementwise", about="elementwise(expression) of tensors of one shape; functions: " + ", ".join(UNARY + BINARY), settings=(ARCH, THREADS, VECTOR), emit=emit, check=check),
)
