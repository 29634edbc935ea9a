"""gather(x, index) and scatter_add(out, index, src): elements or whole layers by number along an axis, one vector or element per thread.

Everything is (outer, extent, inner): what is before the axis, the axis, what is after it. An index out of range is turned into an address
where there is no memory, so that it is an error on a GPU and on the emulator, never a wrong result.
"""

from __future__ import annotations

from workbench.dsl.expecting import called, empty, expect, expect_axes, expect_few
from workbench.dsl.ir import Binding, Rejection, Stage, setting
from workbench.dsl.operation import ARCH, THREADS, Argument, Operation, Setting, flag
from workbench.dsl.pieces import Parts

SHARED = '''
THREADS, UNROLL = {threads}, {unroll}  # of a CTA; pieces that a thread has on the way at once
NOWHERE = 1 << 44  # pieces away there is no memory


@cute.jit
def checked(place, number, extent):
    """The place, or one that no memory answers to if the number is out of range: that ends in an error."""
    return place if number >= 0 and number < extent else cutlass.Int64(NOWHERE)

'''
LAYERS = '''
@cute.kernel
def gather_kernel(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, width: cutlass.Constexpr, count_type: cutlass.Constexpr):
    """y (outer, layers, inner) = x (outer, extent, inner) by the numbers in index (layers), `width` elements in one access; inner counts accesses."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    from_x, into_y = cute.zipped_divide(x, (width,)), cute.zipped_divide(y, (width,))
    total = count_type(cute.size(y) // width)
    kept = cute.make_rmem_tensor(cute.make_layout((width, UNROLL)), x.element_type)
    for u in cutlass.range_constexpr(UNROLL):
        at = (count_type(block) * UNROLL + u) * THREADS + thread
        if at < total:
            row = at // inner
            layer = cutlass.Int64(index[row % layers])
            cute.autovec_copy(from_x[None, checked((cutlass.Int64(row // layers) * extent + layer) * inner + at % inner, layer, extent)], kept[None, u])
    for u in cutlass.range_constexpr(UNROLL):
        at = (count_type(block) * UNROLL + u) * THREADS + thread
        if at < total:
            cute.autovec_copy(kept[None, u], into_y[None, at])


@cute.jit
def gather(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, stream: cuda.CUstream, width: cutlass.Constexpr, count_type: cutlass.Constexpr):
    blocks = (cute.size(y) // width + THREADS * UNROLL - 1) // (THREADS * UNROLL)
    gather_kernel(x, index, y, extent, layers, inner, width, count_type).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
ELEMENTS = '''
@cute.kernel
def gather_kernel(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, count_type: cutlass.Constexpr):
    """y[o, j, i] = x[o, index[o, j, i], i]; y and index (outer, layers, inner), x (outer, extent, inner)."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    total = count_type(cute.size(y))
    kept = cute.make_rmem_tensor(UNROLL, x.element_type)
    for u in cutlass.range_constexpr(UNROLL):
        at = (count_type(block) * UNROLL + u) * THREADS + thread
        if at < total:
            row = cutlass.Int64(index[at])
            kept[u] = x[checked((cutlass.Int64(at // inner // layers) * extent + row) * inner + at % inner, row, extent)]
    for u in cutlass.range_constexpr(UNROLL):
        at = (count_type(block) * UNROLL + u) * THREADS + thread
        if at < total:
            y[at] = kept[u]


@cute.jit
def gather(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, stream: cuda.CUstream, count_type: cutlass.Constexpr):
    blocks = (cute.size(y) + THREADS * UNROLL - 1) // (THREADS * UNROLL)
    gather_kernel(x, index, y, extent, layers, inner, count_type).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
SCATTER = '''
@cute.kernel
def scatter_kernel(y: cute.Tensor, index: cute.Tensor, src: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, count_type: cutlass.Constexpr):
    """{doc}"""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    total = count_type(cute.size(src))
    for u in cutlass.range_constexpr(UNROLL):
        at = (count_type(block) * UNROLL + u) * THREADS + thread
        if at < total:
            row = cutlass.Int64(index[{number}])
            place = checked((cutlass.Int64(at // inner // layers) * extent + row) * inner + at % inner, row, extent)
            cute.arch.atomic_add(y.iterator + place, src[at].to(cutlass.Float32), sem="relaxed", scope="gpu")


@cute.kernel
def copy_kernel(source: cute.Tensor, target: cute.Tensor):
    """One element per thread, converted."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = cutlass.Int64(block) * THREADS + thread
    if at < cute.size(source):
        target[at] = source[at].to(cutlass.Float32).to(target.element_type)


@cute.jit
def copy(source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream):
    copy_kernel(source, target).launch(grid=[(cute.size(source) + THREADS - 1) // THREADS, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.jit
def scatter_add(y: cute.Tensor, index: cute.Tensor, src: cute.Tensor, extent: cutlass.Int32, layers: cutlass.Int32, inner: cutlass.Int32, stream: cuda.CUstream, count_type: cutlass.Constexpr):
    blocks = (cute.size(src) + THREADS * UNROLL - 1) // (THREADS * UNROLL)
    scatter_kernel(y, index, src, extent, layers, inner, count_type).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
FLAT = "from_dlpack({name}.view(-1)).mark_layout_dynamic()"
CALL = ["count_type = cutlass.Int32 if {counted}.numel() < 1 << 30 else cutlass.Int64"]


def emit_gather(stage: Stage, binding: Binding) -> Parts:
    """The kernel and the body of forward."""
    bound, named = dict(binding.operands), dict(stage.operation.named)
    axis, layers = int(str(named.get("axis", 0))), bool(named.get("layers", 0))
    head = SHARED.format(threads=setting(stage, "threads", 256), unroll=setting(stage, "unroll", 4))
    lines = [f"x, index = {bound.get('x', 'x')}.detach().contiguous(), {bound.get('index', 'index')}.contiguous()", expect_axes(called("x", bound), "x", axis + 1), _index(bound), *_axis(axis, "x")]
    if layers:
        lines += [
            f"y = torch.empty(*x.shape[:{axis}], *index.shape, *x.shape[{axis} + 1:], dtype=x.dtype, device=x.device)", *EMPTY, *expect_few((called("x", bound), "x"), ("the result", "y")),
            "width = math.gcd(inner, 16 // x.element_size(), x.data_ptr() // x.element_size())",
            *(line.format(counted="y") for line in CALL),
            "call(gather, (x.dtype, index.dtype, width, count_type), (",
            "    from_dlpack(x.view(-1), assumed_align=width * x.element_size()).mark_layout_dynamic(), " + FLAT.format(name="index") + ",",
            "    from_dlpack(y.view(-1), assumed_align=width * y.element_size()).mark_layout_dynamic(),",
            "    cutlass.Int32(extent), cutlass.Int32(index.numel()), cutlass.Int32(inner // width),",
            "), (width, count_type))", "return y",
        ]
        return Parts(kernels=head + LAYERS, forward="\n".join(lines), imports="import math")
    lines += [
        *_same_around(axis, "index", "x"), "y = torch.empty(index.shape, dtype=x.dtype, device=x.device)", *EMPTY, *expect_few((called("x", bound), "x"), ("the result", "y")), *(line.format(counted="y") for line in CALL),
        "call(gather, (x.dtype, index.dtype, count_type), (", *(f"    {FLAT.format(name=name)}," for name in ("x", "index", "y")),
        f"    cutlass.Int32(extent), cutlass.Int32(index.shape[{axis}]), cutlass.Int32(inner),", "), (count_type,))", "return y",
    ]
    return Parts(kernels=head + ELEMENTS, forward="\n".join(lines), imports="import math")


EMPTY = empty("y")


def _axis(axis: int, of: str) -> list[str]:
    return [f"extent, inner = {of}.shape[{axis}], math.prod({of}.shape[{axis} + 1:])"]


def _index(bound: dict[str, str]) -> str:
    return expect(called("index", bound), "index", "index.shape", "INDICES")


def _same_around(axis: int, part: str, of: str) -> list[str]:
    return [
        f"if {part}.shape[:{axis}] != {of}.shape[:{axis}] or {part}.shape[{axis} + 1:] != {of}.shape[{axis} + 1:]:",
        f'    raise ValueError(f"{part} {{tuple({part}.shape)}} and {of} {{tuple({of}.shape)}}: this kernel wants the same extents on all axes but {axis}")',
    ]


def emit_scatter_add(stage: Stage, binding: Binding) -> Parts:
    """The kernels (a copy of `out`, then atomic additions in float32) and the body of forward."""
    bound, named = dict(binding.operands), dict(stage.operation.named)
    axis, layers = int(str(named.get("axis", 0))), bool(named.get("layers", 0))
    head = SHARED.format(threads=setting(stage, "threads", 256), unroll=setting(stage, "unroll", 4))
    doc = "y[o, index[j], i] += src[o, j, i]; src (outer, layers, inner), index (layers)" if layers else "y[o, index[o, j, i], i] += src[o, j, i]; src and index (outer, layers, inner)"
    text = SCATTER.format(doc=doc + ", y (outer, extent, inner) in float32.", number="at // inner % layers" if layers else "at")
    wanted = [*_same_around(axis, "src", "out"), expect(called("index", bound), "index.view(-1)", f"(src.shape[{axis}],)", "INDICES")] if layers else [*_same_around(axis, "src", "out"), "if index.shape != src.shape:", '    raise ValueError(f"index {tuple(index.shape)} and src {tuple(src.shape)}: this kernel wants one shape")']
    lines = [
        f"out, index, src = {bound.get('out', 'out')}.detach().contiguous(), {bound.get('index', 'index')}.contiguous(), {bound.get('src', 'src')}.detach().contiguous()",
        expect_axes(called("out", bound), "out", axis + 1), *(expect(called(name, bound), name, f"{name}.shape") for name in ("out", "src")), _index(bound), *_axis(axis, "out"), *wanted,
        "y = torch.empty(out.shape, dtype=torch.float32, device=out.device)  # sums are in float32",
        *empty("y", "out"), *expect_few((called("out", bound), "out"), (called("src", bound), "src")),
        f"call(copy, (out.dtype, y.dtype), ({FLAT.format(name='out')}, {FLAT.format(name='y')}))",
        "if src.numel():", *("    " + line.format(counted="src") for line in CALL),
        "    call(scatter_add, (index.dtype, src.dtype, count_type), (", *(f"        {FLAT.format(name=name)}," for name in ("y", "index", "src")),
        f"        cutlass.Int32(extent), cutlass.Int32(src.shape[{axis}]), cutlass.Int32(inner),", "    ), (count_type,))",
        "if out.dtype == y.dtype:", "    return y",
        "result = torch.empty_like(out)",
        f"call(copy, (y.dtype, out.dtype), ({FLAT.format(name='y')}, {FLAT.format(name='result')}))",
        "return result",
    ]  # fmt: skip
    return Parts(kernels=head + text, forward="\n".join(lines), imports="import math")


def check(stage: Stage) -> list[Rejection]:
    """Rejections of both."""
    name = stage.operation.name
    wanted = 2 if name == "gather" else 3
    found: list[Rejection] = []
    if len(stage.operation.positional) != wanted:
        found.append(Rejection(field=name, value=str(len(stage.operation.positional)), reason=f"takes {wanted} operands", legal="gather(x, index)" if wanted == 2 else "scatter_add(out, index, src)"))
    return found


SETTINGS = (ARCH, THREADS, Setting(name="unroll", values=(1, 2, 4, 8), reason="pieces that a thread has on the way at once", meaning="{values} pieces of each thread are on the way at once"))
ARGUMENTS = (
    Argument(name="axis", legal="0 and more", reason="along which axis the index counts", holds=lambda value: isinstance(value, int) and value >= 0),
    flag("layers", "whether an index stands for all that lies at its place of the axis"),
)  # fmt: skip
OPERATIONS = (
    Operation(name="gather", about="gather(x, index, axis=0, layers=0|1): torch.gather; layers=1: index_select along the axis with an index of any shape (embedding: axis 0)", settings=SETTINGS, emit=emit_gather, check=check, arguments=ARGUMENTS, roles=("x", "index")),
    Operation(name="scatter_add", about="scatter_add(out, index, src, axis=0, layers=0|1): a copy of out with src added at index; layers=1: index_add", settings=SETTINGS, emit=emit_scatter_add, check=check, arguments=ARGUMENTS, roles=("out", "index", "src")),
)
