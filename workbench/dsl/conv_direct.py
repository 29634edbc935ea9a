"""conv(x, w) and convtranspose(x, w) without mma -> sums in float32, tap by tap: any type, any architecture.

Without rows: one result a thread. With rows(r): each thread computes r results below each other (and filters(f) of them), so that a value that it loads serves every tap that it lies
under; neighbouring threads own neighbouring columns. That is what depthwise convolutions, which are bound by memory, need.
"""

from __future__ import annotations

import textwrap

from workbench.dsl import conv_epilogue, epilogue
from workbench.dsl.conv_around import THREE
from workbench.dsl.conv_hopper import arguments_of, settings_line
from workbench.dsl.ir import Binding, Stage, setting
from workbench.dsl.pieces import Parts

IMPORTS = "from typing import Any"
HEAD = '''
{settings}
{constants}

{functions}
@cute.jit
def divide(a: cutlass.Int32, b: cutlass.Int32):
    """Quotient and remainder of numbers that are not negative."""
    quotient = (cutlass.Uint32(a) // cutlass.Uint32(b)).to(cutlass.Int32)
    return quotient, a - quotient * b


'''
SIMPLE = '''@cute.kernel
def conv_kernel(x: cute.Tensor, w: cute.Tensor, {parameter}d: cute.Tensor, stride: Any, padding: Any, dilation: Any, groups: cutlass.Int32):
    """One result a thread; neighbouring threads own neighbouring places."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, first_image = cute.arch.block_idx()
    _, _, grid_z = cute.arch.grid_dim()
    filter, block = divide(cta, (d.shape[2] * d.shape[3] * d.shape[4] + THREADS - 1) // THREADS)  # along one axis of the grid: the others end at 65535
    place = block * THREADS + thread
    line, o2 = divide(place, d.shape[4])
    o0, o1 = divide(line, d.shape[3])
    if o0 < d.shape[2]:
        for image in cutlass.range(first_image, d.shape[0], grid_z, unroll=1):
            total = cutlass.Float32(0.0)
{sum}
{epilogue}
            d[image, filter, o0, o1, o2] = total.to(d.element_type)


@cute.jit
def conv(x: cute.Tensor, w: cute.Tensor, {parameter}d: cute.Tensor, stride: Any, padding: Any, dilation: Any, groups: cutlass.Int32, stream: cuda.CUstream):
    """x (images, channels, three extents), w as torch has it, d (images, filters, three extents)."""
    places = d.shape[2] * d.shape[3] * d.shape[4]
    conv_kernel(x, w, {argument}d, stride, padding, dilation, groups).launch(grid=[((places + THREADS - 1) // THREADS) * d.shape[1], 1, cutlass.min(d.shape[0], 65535)], block=[THREADS, 1, 1], stream=stream)


'''
SUM = '''
first = filter // (d.shape[1] // groups) * w.shape[1]
for channel in range(w.shape[1]):
    for r0 in range(w.shape[2]):
        for r1 in range(w.shape[3]):
            for r2 in range(w.shape[4]):
                i0, i1, i2 = o0 * stride[0] - padding[0] + r0 * dilation[0], o1 * stride[1] - padding[1] + r1 * dilation[1], o2 * stride[2] - padding[2] + r2 * dilation[2]
                if (i0 >= 0) & (i0 < x.shape[2]) & (i1 >= 0) & (i1 < x.shape[3]) & (i2 >= 0) & (i2 < x.shape[4]):
                    total += x[image, first + channel, i0, i1, i2].to(cutlass.Float32) * w[filter, channel, r0, r1, r2].to(cutlass.Float32)
'''
SUM_TRANSPOSED = '''
channels = x.shape[1] // groups
own = filter % w.shape[1]
first = filter // w.shape[1] * channels
for r0 in range(w.shape[2]):
    for r1 in range(w.shape[3]):
        for r2 in range(w.shape[4]):
            # an input reaches this result by this tap if it lies a whole number of strides away
            a0, a1, a2 = o0 + padding[0] - r0 * dilation[0], o1 + padding[1] - r1 * dilation[1], o2 + padding[2] - r2 * dilation[2]
            if (a0 >= 0) & (a1 >= 0) & (a2 >= 0):
                i0, i1, i2 = a0 // stride[0], a1 // stride[1], a2 // stride[2]
                whole = (i0 * stride[0] == a0) & (i1 * stride[1] == a1) & (i2 * stride[2] == a2)
                if whole & (i0 < x.shape[2]) & (i1 < x.shape[3]) & (i2 < x.shape[4]):
                    for channel in range(channels):
                        total += x[image, first + channel, i0, i1, i2].to(cutlass.Float32) * w[first + channel, own, r0, r1, r2].to(cutlass.Float32)
'''
SLIDING = '''@cute.kernel
def conv_kernel(
    x: cute.Tensor, w: cute.Tensor, {parameter}d: cute.Tensor, groups: cutlass.Int32, stride: cutlass.Constexpr, padding: cutlass.Constexpr, dilation: cutlass.Constexpr, taps: cutlass.Constexpr
):
    """ROWS results below each other, of FILTERS filters, a thread: each input row is read once for all of them."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, first_slab = cute.arch.block_idx()
    _, _, grid_z = cute.arch.grid_dim()
    runs = (d.shape[3] + ROWS - 1) // ROWS * d.shape[4]
    set_of, block = divide(cta, (runs + THREADS - 1) // THREADS)  # along one axis of the grid: the others end at 65535
    run, o2 = divide(block * THREADS + thread, d.shape[4])
    o1 = run * ROWS
    of_group = d.shape[1] // groups
    group, own = divide(set_of, (of_group + FILTERS - 1) // FILTERS)
    filter0, last = group * of_group + own * FILTERS, (group + 1) * of_group
    first = group * w.shape[1]
    totals = cute.make_rmem_tensor(cute.make_layout((FILTERS, ROWS)), cutlass.Float32)
    factors = cute.make_rmem_tensor(cute.make_layout((FILTERS, taps[1], taps[2])), cutlass.Float32)
    loaded = cute.make_rmem_tensor(cute.make_layout(((ROWS - 1) * stride[1] + (taps[1] - 1) * dilation[1] + 1, taps[2])), x.element_type)
    if o1 < d.shape[3]:
        for slab in cutlass.range(first_slab, d.shape[0] * d.shape[2], grid_z, unroll=1):
            image, o0 = divide(slab, d.shape[2])
            totals.fill(0.0)
            for channel in cutlass.range(w.shape[1], unroll=1):
                for r0 in cutlass.range(taps[0], unroll=1):
                    i0 = o0 * stride[0] - padding[0] + r0 * dilation[0]
                    if (i0 >= 0) & (i0 < x.shape[2]):
                        for f in cutlass.range_constexpr(FILTERS):
                            for r1 in cutlass.range_constexpr(taps[1]):
                                for r2 in cutlass.range_constexpr(taps[2]):
                                    factors[f, r1, r2] = w[cutlass.min(filter0 + f, last - 1), channel, r0, r1, r2].to(cutlass.Float32)
                        at = cutlass.Int64(image) * x.stride[0] + cutlass.Int64(first + channel) * x.stride[1] + cutlass.Int64(i0) * x.stride[2]
                        at += (o1 * stride[1] - padding[1]) * x.stride[3] + (o2 * stride[2] - padding[2]) * x.stride[4]
                        for down in cutlass.range_constexpr(cute.size(loaded, mode=[0])):
                            if cutlass.const_expr(any((down - r1 * dilation[1]) % stride[1] == 0 and 0 <= down - r1 * dilation[1] < ROWS * stride[1] for r1 in range(taps[1]))):
                                i1 = o1 * stride[1] - padding[1] + down
                                line = cute.make_tensor(x.iterator + at, cute.make_layout(taps[2], stride=dilation[2] * x.stride[4]))
                                for r2 in cutlass.range_constexpr(taps[2]):
                                    i2 = o2 * stride[2] - padding[2] + r2 * dilation[2]
                                    value = x.element_type(0.0)
                                    if cutlass.const_expr(padding[2] > 0):
                                        if (i1 >= 0) & (i1 < x.shape[3]) & (i2 >= 0) & (i2 < x.shape[4]):
                                            value = line[r2]
                                    else:
                                        if (i1 >= 0) & (i1 < x.shape[3]):
                                            value = line[r2]
                                    loaded[down, r2] = value
                            at += x.stride[3]
                        for down in cutlass.range_constexpr(cute.size(loaded, mode=[0])):
                            for r2 in cutlass.range_constexpr(taps[2]):
                                value = loaded[down, r2].to(cutlass.Float32)
                                for r1 in cutlass.range_constexpr(taps[1]):
                                    if cutlass.const_expr((down - r1 * dilation[1]) % stride[1] == 0 and 0 <= down - r1 * dilation[1] < ROWS * stride[1]):
                                        for f in cutlass.range_constexpr(FILTERS):
                                            totals[f, (down - r1 * dilation[1]) // stride[1]] += value * factors[f, r1, r2]
            for f in cutlass.range_constexpr(FILTERS):
                filter = filter0 + f
                if filter < last:
                    to = cutlass.Int64(image) * d.stride[0] + cutlass.Int64(filter) * d.stride[1] + (o0 * d.shape[3] + o1) * d.shape[4] + o2
                    for t in cutlass.range_constexpr(ROWS):
                        total = totals[f, t]
{reads}{epilogue}
                        if o1 + t < d.shape[3]:
                            result = cute.make_tensor(d.iterator + to, cute.make_layout(1))
                            result[0] = total.to(d.element_type)
                        to += d.shape[4]


@cute.jit
def conv(
    x: cute.Tensor, w: cute.Tensor, {parameter}d: cute.Tensor, groups: cutlass.Int32, stream: cuda.CUstream, stride: cutlass.Constexpr, padding: cutlass.Constexpr, dilation: cutlass.Constexpr, taps: cutlass.Constexpr
):
    """x (images, channels, three extents), w (filters, channels of a group, three extents), d (images, filters, three extents)."""
    runs = (d.shape[3] + ROWS - 1) // ROWS * d.shape[4]
    conv_kernel(x, w, {argument}d, groups, stride, padding, dilation, taps).launch(
        grid=[((runs + THREADS - 1) // THREADS) * ((d.shape[1] // groups + FILTERS - 1) // FILTERS) * groups, 1, cutlass.min(d.shape[0] * d.shape[2], 65535)], block=[THREADS, 1, 1], stream=stream
    )


'''
HOST = THREE + '''\
def convolve(x, w{parameters}):
    """x (images, channels, 1 to 3 extents), w as torch has it -> the convolution, as torch gives it."""
    expect_axes("x", x, 3, 5)
    expect_axes("w", w, x.dim(), x.dim())
    expect("x", x, x.shape)
    if x.dtype != w.dtype:
        raise TypeError(f"this kernel multiplies one type, not {{x.dtype}} by {{w.dtype}}")
    space, groups = x.dim() - 2, {groups}
    stride, padding, dilation{more} = {threes}
    if {mismatch}:
        raise ValueError(f"filters of shape {{tuple(w.shape)}} for an input of shape {{tuple(x.shape)}} in {{groups}} groups")
    x5, w5 = (tensor.detach().unflatten(2, (1,) * (3 - space) + (tensor.shape[2],)) for tensor in (x, w))
    out = [{extent} for size, taps, step, pad, gap{more_names} in zip(x5.shape[2:], w5.shape[2:], stride, padding, dilation{more})]
    if min(out) < 1:
        raise ValueError(f"filters of {{tuple(w.shape[2:])}} do not fit into an input of {{tuple(x.shape[2:])}}")
    d = torch.empty(x.shape[0], {filters}, *out, dtype={dtype}, device=x.device)
    if x.shape[1] == 0:
        raise ValueError(f"x has the shape {{tuple(x.shape)}}; this kernel wants a channel or more")
{expected}    if d.numel():
        views, units = [], []
        for tensor in (x5, w5, d):
            units.append(next((i for i in (4, 3, 2, 1, 0) if tensor.stride(i) == 1), None))
            views.append(from_dlpack(tensor).mark_layout_dynamic(**({{}} if units[-1] is None else {{"leading_dim": units[-1]}})))
        {call}
    return d.reshape(*d.shape[:2], *out[3 - space:])
'''
CALL_SIMPLE = """settings = [tuple(cutlass.Int32(value) for value in values) for values in (stride, padding, dilation)]
        call(conv, (x.dtype, {keys}*units), (*views[:2], {views}views[2], *settings, cutlass.Int32(groups)))"""
CALL_SLIDING = """constants = (stride, padding, dilation, tuple(w5.shape[2:]))
        call(conv, (x.dtype, {keys}*units, constants), (*views[:2], {views}views[2], cutlass.Int32(groups)), constants)"""


READ = """{role}_here = {role}.element_type(0.0)
if o1 + t < d.shape[3]:
    {role}_here = cute.make_tensor({role}.iterator + to, cute.make_layout(1))[0]
"""


def emit(stage: Stage, binding: Binding, functions: str) -> Parts:
    """The kernel and the body of forward; `functions` defines the scalar functions of the epilogue."""
    transposed, given, chain = stage.operation.name == "convtranspose", arguments_of(stage), epilogue.chain_of(stage)
    rows, threads = setting(stage, "rows"), setting(stage, "threads", 128)
    constants = f"THREADS = {threads}" + (f"\nROWS, FILTERS = {rows}, {setting(stage, 'filters', 1)}  # results below each other, and filters, of a thread" if rows is not None else "")
    head = HEAD.format(settings=settings_line(stage), constants=constants, functions=functions)
    common = {"parameter": chain.parameters, "argument": chain.arguments}
    if rows is None:
        kernel = SIMPLE.format(sum=textwrap.indent((SUM_TRANSPOSED if transposed else SUM).strip("\n"), " " * 12), epilogue=_epilogue(chain, 12, "{role}[image, filter, o0, o1, o2]"), **common)
    else:
        reads = textwrap.indent("".join(READ.format(role=read.role) for read in conv_epilogue.whole(chain)), " " * 24)
        kernel = SLIDING.format(reads=reads, epilogue=_epilogue(chain, 24, "{role}_here"), **common)
    text = (head + kernel).replace("\n\n            d[image", "\n            d[image").replace("\n\n                        if o1", "\n                        if o1")
    spread = conv_epilogue.SPREAD.lstrip("\n") if conv_epilogue.whole(chain) else ""
    return Parts(kernels=text + spread + _host(chain, transposed, rows is not None, given["groups"]), forward=conv_epilogue.forward_text(binding, chain), imports=IMPORTS)


def _epilogue(chain: epilogue.Chain, depth: int, whole: str) -> str:
    lines = epilogue.lines(chain.calls, lambda read: whole.format(role=read.role) if read.along == "both" else f"{read.role}[filter]")
    return textwrap.indent("\n".join(lines), " " * depth)


def _host(chain: epilogue.Chain, transposed: bool, sliding: bool, groups: object) -> str:
    roles = conv_epilogue.roles(chain)
    call = (CALL_SLIDING if sliding else CALL_SIMPLE).format(keys="".join(f"{role}.dtype, " for role in roles), views="".join(f"{view}, " for view in conv_epilogue.views(chain)))
    threes = "three(STRIDE, space, 1), three(PADDING, space, 0), three(DILATION, space, 1)"
    pieces = {"groups": "x.shape[1]" if groups == "channels" else str(groups), "more": "", "more_names": "", "threes": threes, "mismatch": "w.shape[1] * groups != x.shape[1]", "extent": "(size + 2 * pad - gap * (taps - 1) - 1) // step + 1", "filters": "w.shape[0]"}
    if transposed:
        pieces = pieces | {
            "more": ", output_padding", "more_names": ", more", "threes": f"{threes}, three(OUTPUT_PADDING, space, 0)", "mismatch": "w.shape[0] != x.shape[1]",
            "extent": "(size - 1) * step - 2 * pad + gap * (taps - 1) + more + 1", "filters": "w.shape[1] * groups",
        }  # fmt: skip
    return HOST.format(parameters="".join(f", {role}" for role in roles), dtype=chain.dtype("x.dtype"), expected=conv_epilogue.expected(chain, "d.shape[1]", "(*d.shape[:2], *d.shape[5 - space:])"), call=call, **pieces)
