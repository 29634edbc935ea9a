"""rowwise(mul(spread(weight), to_bf16(mul(hidden_states, rsqrt(add(mean(mul(hidden_states, hidden_states)), 1e-06))))), axis=last) .arch(sm_80) .threads_per_row(32)"""

import math

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn

UNROLL = 1  # vectors that a thread loads before it uses the first one
VECTOR = 1  # neighbouring elements in one access, where addresses allow it
ROWS_PER_CTA = 4  # rows per CTA
STEP = 32  # stride between the vectors of a row, or the rows of a column, that one thread loads
CTA_THREADS = 128  # threads of a CTA
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
EXACT_DTYPES = (*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 represents these exactly
compiled: dict = {}


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def is_broadcastable(own, shape):
    """Return whether a tensor of shape `own` broadcasts to `shape`."""
    pairs = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def check_operand(name, tensor, shape, dtypes=FLOAT_DTYPES, broadcast=False):
    """Check the shape and dtype of an operand.

    `dtypes`: accepted dtypes. `broadcast`: the operand may also have a shape that broadcasts to `shape`.
    """
    own = tensor.shape
    if own != shape and not (broadcast and is_broadcastable(own, shape)):
        wanted = f"{tuple(shape)}{', or a shape that broadcasts to it' if broadcast else ''}"
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {wanted}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} is {tensor.dtype}; this kernel takes {', '.join(map(str, dtypes))}")


def check_operands(hidden_states, weight):
    """Check the shapes and dtypes of the operands."""
    shape = hidden_states.shape
    check_rank("hidden_states", hidden_states, 1)
    check_operand("hidden_states", hidden_states, shape, FLOAT_DTYPES, broadcast=False)
    check_operand("self.weight", weight, shape, EXACT_DTYPES, broadcast=True)


def check_countable(x):
    """Check that element indices fit into 32 bits; an extent counts vectors and must be less than 2**31."""
    most = (1 << 31) - 1
    if x.numel() > most:
        raise ValueError("hidden_states has too many elements for 32-bit places, 2**31 and more")


def row_sizes(shape):
    """Return (rows, columns) of x; columns are reduced."""
    return shape[:-1].numel(), shape[-1]


def empty_result(x):
    """Allocate the result. Raises ValueError if x is empty and the reduction has no value for that."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def turns_of(width):
    """Return how many vectors a thread loads before it uses the first one."""
    return UNROLL * VECTOR // width


class BroadcastOperand:
    """An operand that is broadcast to `shape`; its element for flat index `at` is (at // inner) % size.

    It is expanded and copied if no such (inner, size) exists. `way` says how a vector of `width` elements reads it:
    one, run or each.
    """

    def __init__(self, tensor, shape, width):
        sizes = [1] * (len(shape) - tensor.dim()) + list(tensor.shape)
        own = [n for n, size in enumerate(sizes) if size != 1] or [len(shape)]
        if any(sizes[n] != shape[n] for n in range(own[0], own[-1] + 1) if n < len(shape)):
            tensor, own = tensor.expand(shape), [len(shape) - 1]
        tensor, inner = tensor.contiguous().view(-1), math.prod(shape[own[-1] + 1 :])
        one = inner % width == 0 or tensor.numel() == 1
        run = inner == 1 and tensor.numel() % width == 0 and tensor.data_ptr() % 16 == 0
        self.way = "one" if one else "run" if run else "each"
        self.tensor, self.inner, self.size = tensor, inner, tensor.numel()


def vector_tensor(tensor, width):
    """Return the CuTe tensor (vectors, width) of a contiguous tensor of up to 2**31 elements.

    An extent is less than 2**31, so a flat tensor has less.
    """
    align = 16 if width > 1 else None
    return from_dlpack(tensor.view(-1, width), assumed_align=align).mark_compact_shape_dynamic(
        mode=0, stride_order=(0, 1)
    )


def broadcast_tensor(place):
    """Return the CuTe tensor of a broadcast operand."""
    return from_dlpack(place.tensor, assumed_align=16 if place.way == "run" else None).mark_layout_dynamic()


def locate_row(tidx, bidx):
    """Return (row of this thread, its index among the threads that share the row)."""
    return bidx * ROWS_PER_CTA + tidx // 32, tidx % 32


def start_mean():
    return cutlass.Float32(0.0)


def find_vector(part, origin):
    """Return the index in the tensor of vector `part` of a row."""
    return origin + part


@cute.jit
def load_vectors(hidden_states: cute.Tensor, first, end, origin, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """Load a thread's next `turns` vectors of each tensor into registers."""
    hidden_states_fragment = cute.make_rmem_tensor(cute.make_layout((width, turns)), hidden_states.element_type)
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * STEP
        is_mine = part < end
        if is_mine:
            i = find_vector(part, origin)
            cute.autovec_copy(hidden_states[i, None], hidden_states_fragment[None, turn])
    return hidden_states_fragment


def absorb_mean(mean_1_part, hidden_states):
    return mean_1_part + (hidden_states * hidden_states)


@cute.jit
def absorb_vectors_mean(
    mean_1_part, hidden_states_fragment, first, end, width: cutlass.Constexpr, turns: cutlass.Constexpr
):
    """Accumulate the loaded vectors of a row into the thread's state."""
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * STEP
        if part < end:
            for e in cutlass.range_constexpr(width):
                hidden_states_fragment_element = hidden_states_fragment[e, turn].to(cutlass.Float32)
                mean_1_part = absorb_mean(mean_1_part, hidden_states_fragment_element)
    return mean_1_part


@cute.jit
def reduce_pass_mean(
    hidden_states: cute.Tensor, begin, end, origin, width: cutlass.Constexpr, turns: cutlass.Constexpr
):
    """Return the state of a thread after it has read its vectors; those in `kept` are already in registers."""
    mean_1_part = start_mean()
    for first in range(begin, end, STEP * turns):
        hidden_states_fragment = load_vectors(hidden_states, first, end, origin, width, turns)
        mean_1_part = absorb_vectors_mean(mean_1_part, hidden_states_fragment, first, end, width, turns)
    return mean_1_part


def merge_sum(a, b):
    return a + b


@cute.jit
def all_reduce_merge_sum(mean_1_part):
    """Combine `state` over the threads of a row; return the result in every thread."""
    for step in cutlass.range_constexpr(5):
        mean_1_part_other = cute.arch.shuffle_sync_bfly(mean_1_part, offset=16 >> step)
        mean_1_part = merge_sum(mean_1_part, mean_1_part_other)
    return mean_1_part


def finish_mean(mean_1_part, count):
    return mean_1_part / count


@cute.jit
def combine_row_mean(mean_1_part, columns):
    """Combine the states of the threads of a row; return the results of its reductions."""
    mean_1_part = all_reduce_merge_sum(mean_1_part)
    mean_1 = finish_mean(mean_1_part, columns)
    return mean_1


@cute.jit
def reduce_row(
    hidden_states: cute.Tensor, start, lane, columns, vectors, width: cutlass.Constexpr, turns: cutlass.Constexpr
):
    """Return the results of a row's reductions, one pass after another."""
    mean_1_part = reduce_pass_mean(hidden_states, lane, vectors, start, width, turns)
    mean_1 = combine_row_mean(mean_1_part, columns)
    return mean_1


def rsqrt(v):
    return cute.math.rsqrt(v)


def scalars_result(mean_1):
    return rsqrt(mean_1 + cutlass.Float32(1e-06))


@cute.jit
def load_broadcast(tensor, fragment, i, extent, width: cutlass.Constexpr, way: cutlass.Constexpr):
    """Load the elements of a broadcast operand for vector `i` of the result.

    Element e of the result reads element (e // inner) % size of the operand; `extent` is (inner, size).
    """
    inner, size = extent
    if cutlass.const_expr(way == "one"):  # one element for the whole vector
        value = tensor[i * width // inner % size]
        for e in cutlass.range_constexpr(width):
            fragment[e] = value
    elif cutlass.const_expr(way == "run"):  # consecutive elements
        cute.autovec_copy(cute.zipped_divide(tensor, (width,))[None, i % (size // width)], fragment)
    else:
        for e in cutlass.range_constexpr(width):
            fragment[e] = tensor[(i * width + e) // inner % size]


@cute.jit
def load_vectors_2(
    hidden_states: cute.Tensor,
    weight_place: cute.Tensor,
    weight_extent,
    first,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Load a thread's next `turns` vectors of each tensor into registers."""
    hidden_states_fragment = cute.make_rmem_tensor(cute.make_layout((width, turns)), hidden_states.element_type)
    weight_fragment = cute.make_rmem_tensor(cute.make_layout((width, turns)), weight_place.element_type)
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * STEP
        is_mine = part < end
        if is_mine:
            i = find_vector(part, origin)
            cute.autovec_copy(hidden_states[i, None], hidden_states_fragment[None, turn])
            load_broadcast(weight_place, weight_fragment[None, turn], i, weight_extent, width, ways[0])
    return hidden_states_fragment, weight_fragment


def to_bf16(v):
    return v.to(cutlass.BFloat16).to(cutlass.Float32)


def compute_result(hidden_states, weight, row_1_1):
    return weight * to_bf16(hidden_states * row_1_1)


@cute.jit
def write_vectors(
    y: cute.Tensor,
    hidden_states_fragment,
    weight_fragment,
    row_1_1,
    first,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute the elements of the result from the loaded vectors and the row's values, and store them."""
    for turn in cutlass.range_constexpr(turns):
        part = first + turn * STEP
        is_mine = part < end
        if is_mine:
            result = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
            for e in cutlass.range_constexpr(width):
                hidden_states_fragment_element = hidden_states_fragment[e, turn].to(cutlass.Float32)
                weight_fragment_element = weight_fragment[e, turn].to(cutlass.Float32)
                result[e] = compute_result(hidden_states_fragment_element, weight_fragment_element, row_1_1).to(
                    y.element_type
                )
            cute.autovec_copy(result, y[find_vector(part, origin), None])


@cute.jit
def write_pass(
    hidden_states: cute.Tensor,
    weight_place: cute.Tensor,
    y: cute.Tensor,
    weight_extent,
    row_1_1,
    begin,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Write a result that has one value per element."""
    for first in range(begin, end, STEP * turns):
        hidden_states_fragment, weight_fragment = load_vectors_2(
            hidden_states, weight_place, weight_extent, first, end, origin, width, turns, ways
        )
        write_vectors(y, hidden_states_fragment, weight_fragment, row_1_1, first, end, origin, width, turns)


@cute.jit
def write_result(
    hidden_states: cute.Tensor,
    weight_place: cute.Tensor,
    y: cute.Tensor,
    weight_extent,
    mean_1,
    begin,
    end,
    origin,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Select the tensors and known values that the result reads, and write it."""
    row_1_1 = scalars_result(mean_1)
    write_pass(hidden_states, weight_place, y, weight_extent, row_1_1, begin, end, origin, width, turns, ways)


@cute.kernel
def row_kernel(
    hidden_states: cute.Tensor,
    weight_place: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    weight_extent,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    """Reduce each row and write its result; tensors are (vectors, width)."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    row, lane = locate_row(tidx, bidx)
    if row < rows:
        vectors = columns // width
        start = row * vectors
        mean_1 = reduce_row(hidden_states, start, lane, columns, vectors, width, turns)
        write_result(hidden_states, weight_place, y, weight_extent, mean_1, lane, vectors, start, width, turns, ways)


@cute.jit
def launch_rows(
    hidden_states: cute.Tensor,
    weight_place: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    weight_inner: cutlass.Int32,
    weight_size: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    ways: cutlass.Constexpr,
):
    ctas = (rows + (ROWS_PER_CTA - 1)) // ROWS_PER_CTA
    weight_extent = (weight_inner, weight_size)
    row_kernel(hidden_states, weight_place, y, rows, columns, weight_extent, width, turns, ways).launch(
        grid=[ctas, 1, 1], block=[CTA_THREADS, 1, 1], stream=stream
    )


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    Calling a jit function takes milliseconds each time, calling a compiled one takes microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def row_reduction(hidden_states, weight):
    """Reduce along the last axes, or all."""
    check_operands(hidden_states, weight)
    hidden_states = hidden_states.detach().contiguous()
    check_countable(hidden_states)
    shape = hidden_states.shape
    rows, columns = row_sizes(shape)
    y = empty_result(hidden_states)
    if y.numel() == 0:
        return y
    width = 1
    turns = turns_of(width)
    weight_place = BroadcastOperand(weight.detach(), shape, width)
    weight_inner = weight_place.inner
    weight_size = weight_place.size
    weight_way = weight_place.way
    call(
        launch_rows,
        (hidden_states.dtype, weight.dtype, width, turns, weight_way),
        (
            vector_tensor(hidden_states, width),
            broadcast_tensor(weight_place),
            vector_tensor(y, width),
            cutlass.Int32(rows),
            cutlass.Int32(columns),
            cutlass.Int32(weight_inner),
            cutlass.Int32(weight_size),
        ),
        (width, turns, (weight_way,)),
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=torch.bfloat16))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        return row_reduction(hidden_states, self.weight)
