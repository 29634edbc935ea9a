"""elementwise(expression) -> one kernel over flattened tensors: one element, one vector, or several vectors per thread; some may be broadcast."""

from __future__ import annotations

import dataclasses

from workbench.dsl.expecting import called, empty, expect
from workbench.dsl.expressions import SPREAD_TEXT, Spread, check_expression, leaves, renamed, spread_fields, spread_lines
from workbench.dsl.ir import Binding, Rejection, Stage, names_in, number, setting
from workbench.dsl.operation import ARCH, THREADS, UNROLL, VECTOR, Operation
from workbench.dsl.pieces import Parts, definitions, expression, functions_used
from workbench.dsl.scalars import KNOWN

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
def elementwise({inputs}, out: cute.Tensor, count: cutlass.Int32, stream: cuda.CUstream):
    blocks = (count + {threads} - 1) // {threads}
    elementwise_kernel({names}, out, count).launch(grid=[blocks, 1, 1], block=[{threads}, 1, 1], stream=stream)
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
def elementwise({inputs}, out: cute.Tensor, count: cutlass.Int32, stream: cuda.CUstream, width: cutlass.Constexpr):
    blocks = (count // width + {threads} - 1) // {threads}
    elementwise_kernel({names}, out, count, width).launch(grid=[blocks, 1, 1], block=[{threads}, 1, 1], stream=stream)
'''
FRAGMENT = """        {name}_part = cute.make_rmem_tensor(cute.make_layout(width), {name}.element_type)
        cute.autovec_copy(cute.zipped_divide({name}, (width,))[None, i], {name}_part)"""
UNROLLED = '''{functions}
@cute.kernel
def elementwise_kernel({inputs}, out: cute.Tensor, count: cutlass.Int32{declared}, width: cutlass.Constexpr{ways}):
    """{unroll} vectors of `width` elements per thread, {threads} vectors apart: all are loaded before the first is used."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    first = block * {span} + thread
    vectors = count // width
{made}
    for turn in cutlass.range_constexpr({unroll}):
        i = first + turn * {threads}
        if i < vectors:
{loads}
    for turn in cutlass.range_constexpr({unroll}):
        i = first + turn * {threads}
        if i < vectors:
            result = cute.make_rmem_tensor(cute.make_layout(width), out.element_type)
            for e in cutlass.range_constexpr(width):
                result[e] = ({vector}).to(out.element_type)
            cute.autovec_copy(result, cute.zipped_divide(out, (width,))[None, i])
    if block == 0:  # what is left after the last whole vector
        i = vectors * width + thread
        if i < count:
            out[i] = ({scalar}).to(out.element_type)


@cute.jit
def elementwise({inputs}, out: cute.Tensor, count: cutlass.Int32{declared}, stream: cuda.CUstream, width: cutlass.Constexpr{ways}):
    blocks = (count // width + {span} - 1) // {span}
    elementwise_kernel({names}, out, count{passed}, width{ways_passed}).launch(grid=[cutlass.max(blocks, 1), 1, 1], block=[{threads}, 1, 1], stream=stream)
'''


def emit(stage: Stage, binding: Binding) -> Parts:
    """Text for any expression over tensors of one shape, and tensors that are spread over it."""
    value, binding = renamed(stage.operation.positional[0], binding)
    stage = dataclasses.replace(stage, operation=dataclasses.replace(stage.operation, positional=(value,)))
    plain, spread = leaves(value)
    if spread or setting(stage, "unroll") is not None:
        return _unrolled(stage, binding, plain, spread)
    return _plain(stage, binding)


def _unrolled(stage: Stage, binding: Binding, plain: tuple[str, ...], spread: tuple[str, ...]) -> Parts:
    value = stage.operation.positional[0]
    bound = dict(binding.operands)
    threads, vector, unroll = (number(stage, name, default) for name, default in (("threads", 256), ("vector", 1), ("unroll", 1)))
    names = names_in(value)
    extra = Spread(names=spread)
    loads = [f"cute.autovec_copy(cute.zipped_divide({name}, (width,))[None, i], {name}_part[None, turn])" for name in plain]
    loads += [f"load_spread({name}, {name}_part[None, turn], i, {name}_inner, {name}_size, width, {name}_way)" for name in spread]
    fields = {
        "functions": definitions(functions_used(value)) + (SPREAD_TEXT if spread else ""), "inputs": ", ".join(f"{name}: cute.Tensor" for name in names), "names": ", ".join(names),
        "threads": threads, "unroll": unroll, "span": threads * unroll, **spread_fields(extra),
        "made": "\n".join(f"    {name}_part = cute.make_rmem_tensor(cute.make_layout((width, {unroll})), {name}.element_type)" for name in names),
        "loads": "\n".join(f"            {line}" for line in loads),
        "vector": expression(value, {name: f"{name}_part[e, turn].to(cutlass.Float32)" for name in names}),
        "scalar": expression(value, {name: f"{name}[i].to(cutlass.Float32)" for name in plain} | {name: f"{name}[i // {name}_inner % {name}_size].to(cutlass.Float32)" for name in spread}),
    }  # fmt: skip
    given = [f"{bound.get(name, name)}.detach()" for name in names]
    lines = [f"{', '.join(names)} = {', '.join(given)}"]
    lines += [f"shape = {plain[0]}.shape" if plain else f"shape = torch.broadcast_shapes({', '.join(f'{name}.shape' for name in names)})"]
    first = (plain or names)[0]
    lines += [expect(called(name, bound), name, "shape", "" if name == first else "EXACT", spread=name in spread) for name in (first, *(name for name in names if name != first))]
    lines += [f"{name} = {name}.contiguous()" for name in plain]
    lines += [f"out = torch.empty(shape, dtype={_dtype(names)}, device={first}.device)", *empty("out")]
    body = ["shape = part.shape"] if spread else []
    body += [f"width = {vector} if {' == '.join(f'{name}.data_ptr() % 16' for name in (*plain, 'part'))} == 0 else 1" if vector > 1 else "width = 1"]
    body += spread_lines(extra)
    align = "16 if width > 1 else None"
    ordered = [f"from_dlpack({name}.view(-1), assumed_align={align}).mark_layout_dynamic()" if name in plain else extra.tensor(name) for name in names]
    ordered.append(f"from_dlpack(part.view(-1), assumed_align={align}).mark_layout_dynamic()")
    constants = ", ".join(("width", *extra.ways))
    key = ", ".join((*(f"{name}.dtype" for name in names), *(["out.dtype"] if spread else []), constants))
    body += [f"call(elementwise, ({key}), (", *[f"    {item}," for item in ordered], f"    {', '.join(('cutlass.Int32(part.numel())', *extra.sizes))},", f"), ({constants},))"]
    lines += [f"for {', '.join(names)}, part in in_pieces({', '.join(names)}, out):", *(f"    {line}" for line in body)]
    return Parts(kernels=UNROLLED.format(**fields), forward="\n".join([*lines, "return out"]), imports="import math" if spread else "")


def _dtype(names: tuple[str, ...]) -> str:
    return f"{names[0]}.dtype" if len(names) == 1 else f"promoted({', '.join(names)})"


def _plain(stage: Stage, binding: Binding) -> Parts:
    value = stage.operation.positional[0]
    names = names_in(value)
    bound = dict(binding.operands)
    threads, vector = number(stage, "threads", 256), number(stage, "vector", 1)
    fields = {
        "functions": definitions(functions_used(value)), "inputs": ", ".join(f"{name}: cute.Tensor" for name in names), "names": ", ".join(names), "threads": threads,
        "scalar": expression(value, {name: f"{name}[i].to(cutlass.Float32)" for name in names}),
        "vector": expression(value, {name: f"{name}_part[e].to(cutlass.Float32)" for name in names}),
        "fragments": "\n".join(FRAGMENT.format(name=name) for name in names),
    }  # fmt: skip
    first, dtypes = names[0], ", ".join(f"{name}.dtype" for name in names)
    lines = [f"{name} = {bound.get(name, name)}" for name in names if bound.get(name, name) != name]
    lines += [expect(called(name, bound), name, f"{first}.shape", "" if name == first else "EXACT") for name in names]
    lines += [f"{name} = {name}.contiguous()" for name in names]
    lines += [f"out = torch.empty_like({first}{f', dtype={_dtype(names)}' if len(names) > 1 else ''})", *empty("out")]
    lines += [f"for {', '.join(names)}, part in in_pieces({', '.join(names)}, out):"]
    if vector > 1:
        starts = " | ".join(f"{name}.data_ptr()" for name in (*names, "part"))
        lines += [f"    width = {vector} if part.numel() % {vector} == 0 and ({starts}) % 16 == 0 else 1"]
        align = "16 if width > 1 else None"
        flat = [f"from_dlpack({name}.view(-1), assumed_align={align}).mark_layout_dynamic()" for name in (*names, "part")]
        lines += [f"    call(elementwise, ({dtypes}, width), (", *[f"        {item}," for item in flat], "        cutlass.Int32(part.numel()),", "    ), (width,))"]
    else:
        flat = [f"from_dlpack({name}.view(-1)).mark_layout_dynamic()" for name in (*names, "part")]
        lines += [f"    call(elementwise, {dtypes if len(names) == 1 else f'({dtypes})'}, (", *[f"        {item}," for item in flat], "        cutlass.Int32(part.numel()),", "    ))"]
    return Parts(kernels=(VECTORISED if vector > 1 else SCALAR).format(**fields), forward="\n".join([*lines, "return out"]))


def check(stage: Stage) -> list[Rejection]:
    """Rejections of the expression."""
    if not stage.operation.positional:
        return [Rejection(field="elementwise", value="", reason="needs an expression", legal="for example relu(x)")]
    value = stage.operation.positional[0]
    if not names_in(value):
        return [Rejection(field="elementwise", value=str(value), reason="names no tensor", legal="for example relu(x)")]
    return check_expression(value)


OPERATIONS = (
    Operation(
        name="elementwise", about="elementwise(expression) of tensors of one shape; spread(b): b is broadcast to that shape; functions: " + ", ".join(KNOWN),
        settings=(ARCH, THREADS, VECTOR, UNROLL), emit=emit, check=check,
    ),
)  # fmt: skip
