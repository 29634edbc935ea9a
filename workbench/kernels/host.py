"""Host side of every operation: checks of operands, pieces for one launch, the compile cache.

A host function takes torch tensors, checks them with `expect` and `expect_axes`, allocates its result and launches
with `call`. Errors are ValueError for shapes and TypeError for dtypes, in one line each.
"""

import cuda.bindings.driver as cuda
import cutlass.cute as cute
import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # the kernels calculate in float32
EXACT = (*FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 has every value of these
INDICES = (torch.int64, torch.int32)
MOST = (1 << 31) - (1 << 20)  # elements of one launch, whose places and a little beyond are 32-bit numbers

compiled: dict = {}


def call(function, key, arguments, constants=()):
    """Compile once per key (dtypes, layouts, vector width), then only launch, on torch's current stream.

    Calling a jit function costs milliseconds each time; a compiled one costs microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def in_pieces(*tensors):
    """Cut tensors along their first axes into pieces of at most MOST elements; nearly always one piece.

    The last tensor has every extent.
    """
    shape = tensors[-1].shape
    if shape.numel() <= MOST:
        return [tensors]
    axis = next(number for number, size in enumerate(shape) if size > 1)
    # extents of 1, and those missing in front, are repeated
    own = [(tensor, tensor.dim() - len(shape) + axis) for tensor in tensors]
    pieces = []
    for start, end in ((0, shape[axis] // 2), (shape[axis] // 2, shape[axis])):
        pieces += in_pieces(
            *(
                tensor.narrow(at, start, end - start) if at >= 0 and tensor.shape[at] > 1 else tensor
                for tensor, at in own
            )
        )
    return pieces


def by_rows(*tensors):
    """Cut tensors of as many rows, the first with columns, into pieces of at most MOST elements.

    Nearly always one piece, and none without rows.
    """
    rows, columns = tensors[0].shape
    if rows * columns <= MOST:
        return [tensors] if rows else []
    if columns > MOST:
        raise ValueError(f"rows of {columns} elements; this kernel counts up to {MOST} in a row")
    return zip(*(tensor.split(MOST // columns) for tensor in tensors), strict=True)


def expect(name, tensor, shape, kinds=FLOATS, spread=False):
    """Refuse an operand that would be read beyond its end, or lose digits.

    `spread`: extents of 1, and those missing in front, are repeated.
    """
    own = tensor.shape
    pairs = zip(reversed(own), reversed(shape), strict=False)
    if own != shape and not (spread and len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)):
        wanted = f"{tuple(shape)}{' or what repeats to it' if spread else ''}"
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {wanted}")
    if tensor.dtype not in kinds:
        taker = "kernels that calculate in float32 take" if torch.float32 in kinds else "this kernel takes"
        raise TypeError(f"{name} is {tensor.dtype}; {taker} {', '.join(map(str, kinds))}")


def expect_axes(name, tensor, least, most=None):
    """Refuse an operand with other axes than the kernel counts on."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def expect_some(name, tensor, count, what):
    """Refuse an operand without elements to take a reduction of: `what` names it, as in mean."""
    if count == 0:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; there is nothing to take the {what} of")


def expect_few(name, tensor):
    """Refuse a tensor with more elements than a launch takes, where a kernel is not launched for pieces of it."""
    if tensor.numel() > MOST:
        raise ValueError(f"{name} has {tensor.numel()} elements; this kernel counts up to {MOST}")


def expect_ends(name, ends, rows):
    """Refuse ends of groups of rows that are out of order, where they are in the host's memory.

    Reading a GPU's would wait for it.
    """
    if not ends.is_cuda and ends.numel() and (ends[0] < 0 or ends[-1] > rows or (ends[1:] < ends[:-1]).any()):
        wanted = f"ends of groups from 0 to {rows}, none before the last"
        raise ValueError(f"{name} is {ends.tolist()}; this kernel wants {wanted}")


def promoted(*tensors):
    """The type that torch gives to a result of these, of which one is a float.

    Tensors without axes count only if no float has axes.
    """
    floats = [tensor.dtype for tensor in tensors if tensor.dim() and tensor.is_floating_point()]
    result, *others = floats or [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    for other in others:
        result = torch.promote_types(result, other)
    return result
