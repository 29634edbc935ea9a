"""Host side shared by all operations: operand checks, splitting of large tensors, compile cache and launch.

A host function takes torch tensors, checks them with `check_operand` and `check_rank`, allocates the result and
launches with `call`. Raises ValueError for shapes and TypeError for dtypes, with one-line messages.
"""

import importlib.util

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, make_fake_stream

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
EXACT_DTYPES = (*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 represents these exactly
INDEX_DTYPES = (torch.int64, torch.int32)
# for operands that an expression rounds to float32, as torch does, or compares with small numbers, which is no harm
READ_DTYPES = (*EXACT_DTYPES, torch.int64, torch.int32)
MAX_ELEMENTS = (1 << 31) - (1 << 20)  # elements of one launch: offsets, and a margin, fit into int32

compiled: dict = {}
# TVM FFI takes torch tensors as they are, which saves the host most of the time of a call
with_tvm_ffi = importlib.util.find_spec("tvm_ffi") is not None


class DynamicTensor:
    """A torch tensor as an argument of `call`, with dynamic extents and strides.

    `align`: bytes to which its start is aligned; None means an element. `leading_dim`: the axis of stride 1; None means
    the only one that has it.
    """

    def __init__(self, tensor, align=None, leading_dim=None):
        self.tensor, self.align, self.leading_dim = tensor, align, leading_dim

    def as_cute(self):
        """Return the CuTe tensor; with a stride of 0, that of a small tensor like it, to compile for all strides."""
        tensor, axis, strides = self.tensor, self.leading_dim, self.tensor.stride()
        if with_tvm_ffi and 0 in strides:
            axis = strides.index(1) if axis is None and 1 in strides else axis
            tensor = torch.empty((4,) * tensor.dim(), dtype=tensor.dtype, device=tensor.device)
            tensor = tensor[(slice(None, None, 2),) * tensor.dim()] if axis is None else tensor.movedim(-1, axis)
        return from_dlpack(tensor, assumed_align=self.align).mark_layout_dynamic(leading_dim=axis)


class VectorTensor(DynamicTensor):
    """A contiguous tensor (vectors, elements) with a dynamic number of vectors."""

    def as_cute(self):
        """Return the CuTe tensor."""
        tensor = from_dlpack(self.tensor, assumed_align=self.align)
        return tensor.mark_compact_shape_dynamic(mode=0, stride_order=(0, 1))


def torch_value(value):
    """Return what a function compiled with TVM FFI takes for a value."""
    if isinstance(value, DynamicTensor):
        return value.tensor
    return value.value if isinstance(value, cutlass.Numeric) else value


def cute_value(value):
    """Return what CuTe DSL compiles for a value, and a function compiled without TVM FFI takes for it."""
    return value.as_cute() if isinstance(value, DynamicTensor) else value


def each_value(function, arguments):
    """Return `function` of each argument, and of each item of a tuple."""
    return [
        tuple(map(function, argument)) if isinstance(argument, tuple) else function(argument) for argument in arguments
    ]


def compile_launch(function, arguments, constants=()):
    """Compile what `call` launches."""
    values = each_value(cute_value, arguments)
    if with_tvm_ffi:
        stream = make_fake_stream(use_tvm_ffi_env_stream=True)
        return cute.compile(function, *values, stream, *constants, options="--enable-tvm-ffi")
    return cute.compile(function, *values, cuda.CUstream(torch.cuda.current_stream().cuda_stream), *constants)


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    `arguments`: tensors as `DynamicTensor`, numbers, and tuples of these. Calling a jit function takes milliseconds
    each time, calling a compiled one takes microseconds.
    """
    launch = compiled.get((function, key))
    if launch is None:
        launch = compiled[function, key] = compile_launch(function, arguments, constants)
    if with_tvm_ffi:  # which finds the stream by the tensors
        launch(*each_value(torch_value, arguments))
    else:
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        launch(*each_value(cute_value, arguments), stream)


def split_launches(*tensors):
    """Split tensors along their leading axes into launches of at most MAX_ELEMENTS elements; usually one.

    The last tensor has the full shape; the others broadcast to it.
    """
    shape = tensors[-1].shape
    if shape.numel() <= MAX_ELEMENTS:
        return [tensors]
    axis = next(number for number, size in enumerate(shape) if size > 1)
    # extents of 1 and missing leading extents broadcast
    own = [(tensor, tensor.dim() - len(shape) + axis) for tensor in tensors]
    pieces = []
    for start, end in ((0, shape[axis] // 2), (shape[axis] // 2, shape[axis])):
        pieces += split_launches(
            *(
                tensor.narrow(at, start, end - start) if at >= 0 and tensor.shape[at] > 1 else tensor
                for tensor, at in own
            )
        )
    return pieces


def split_by_rows(*tensors):
    """Split tensors with the same number of rows into launches of at most MAX_ELEMENTS elements; usually one.

    The first tensor is (rows, columns). Without rows there is no launch. Raises ValueError for longer rows.
    """
    rows, columns = tensors[0].shape
    if rows * columns <= MAX_ELEMENTS:
        return [tensors] if rows else []
    if columns > MAX_ELEMENTS:
        raise ValueError(f"rows of {columns} elements; this kernel supports at most {MAX_ELEMENTS} in a row")
    return zip(*(tensor.split(MAX_ELEMENTS // columns) for tensor in tensors), strict=True)


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


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def check_not_empty(name, tensor, count, what):
    """Check that a reduction has elements; `what` names the reduction in the message, such as mean."""
    if count == 0:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; the {what} of no elements is undefined")


def check_element_count(name, tensor):
    """Check that a tensor fits into one launch, for kernels whose tensors cannot be split."""
    if tensor.numel() > MAX_ELEMENTS:
        raise ValueError(f"{name} has {tensor.numel()} elements; this kernel supports at most {MAX_ELEMENTS}")


def check_group_ends(name, ends, rows):
    """Check that end offsets of row groups lie in [0, rows] and do not decrease, if they are in host memory.

    Reading them from a GPU would synchronise.
    """
    if not ends.is_cuda and ends.numel() and (ends[0] < 0 or ends[-1] > rows or (ends[1:] < ends[:-1]).any()):
        wanted = f"non-decreasing group ends from 0 to {rows}"
        raise ValueError(f"{name} is {ends.tolist()}; this kernel wants {wanted}")


def promote_dtypes(*tensors):
    """Return torch's result dtype of these tensors, of which at least one is floating point.

    0-d tensors count only if no other tensor is floating point.
    """
    floats = [tensor.dtype for tensor in tensors if tensor.dim() and tensor.is_floating_point()]
    result, *others = floats or [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    for other in others:
        result = torch.promote_types(result, other)
    return result
