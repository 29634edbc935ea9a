"""elementwise(expression) -> one kernel over flattened tensors, one element or one vector per thread."""

from __future__ import annotations

from workbench.dsl.ir import Binding, Stage, setting
from workbench.dsl.pieces import Parts, definitions, expression, functions_used, names_in

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
VECTOR = '''{functions}
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
    return Parts(kernels=(VECTOR if vector > 1 else SCALAR).format(**fields), forward="\n".join([*lines, "return out"]))
