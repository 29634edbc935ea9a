"""Lines of forward that refuse operands which its kernels are not written for or cut those that are too long for one launch, and the functions that these lines call; each operation emits them in this one way."""

from __future__ import annotations

import re

PIECES = {
    "FLOATS": "FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # the kernels calculate in float32\n",
    "EXACT": "EXACT = (*FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 has every value of these\n",
    "INDICES": "INDICES = (torch.int64, torch.int32)\n",
    "MOST": "MOST = (1 << 31) - (1 << 20)  # elements of one launch, whose places and a little beyond are 32-bit numbers\n",
    "in_pieces": '''

def in_pieces(*tensors):
    """The tensors, of which the last has every extent, cut along its first axes into pieces of at most MOST elements; nearly always one piece."""
    shape = tensors[-1].shape
    if shape.numel() <= MOST:
        return [tensors]
    axis = next(number for number, size in enumerate(shape) if size > 1)
    pieces = []
    for start, end in ((0, shape[axis] // 2), (shape[axis] // 2, shape[axis])):
        own = [(tensor, tensor.dim() - len(shape) + axis) for tensor in tensors]  # extents of 1, and those missing in front, are repeated
        pieces += in_pieces(*(tensor.narrow(at, start, end - start) if at >= 0 and tensor.shape[at] > 1 else tensor for tensor, at in own))
    return pieces
''',
    "by_rows": '''

def by_rows(*tensors):
    """Tensors of as many rows, the first with columns, in pieces of at most MOST elements; nearly always one piece, and none without rows."""
    rows, columns = tensors[0].shape
    if rows * columns <= MOST:
        return [tensors] if rows else []
    if columns > MOST:
        raise ValueError(f"rows of {columns} elements; this kernel counts up to {MOST} in a row")
    return zip(*(tensor.split(MOST // columns) for tensor in tensors))
''',
    "expect": '''

def expect(name, tensor, shape, kinds=FLOATS, spread=False):
    """Refuse, in one line, an operand that would be read beyond its end, or lose digits; `spread`: extents of 1, and those missing in front, are repeated."""
    own = tensor.shape
    if own != shape and not (spread and len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in zip(reversed(own), reversed(shape)))):
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {tuple(shape)}{' or what repeats to it' if spread else ''}")
    if tensor.dtype not in kinds:
        raise TypeError(f"{name} is {tensor.dtype}; {'kernels that calculate in float32 take' if torch.float32 in kinds else 'this kernel takes'} {', '.join(map(str, kinds))}")
''',
    "promoted": '''

def promoted(*tensors):
    """The type that torch gives to a result of these, of which one is a float: tensors without axes count only if no float has axes."""
    floats = [tensor.dtype for tensor in tensors if tensor.dim() and tensor.is_floating_point()]
    result, *others = floats or [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    for other in others:
        result = torch.promote_types(result, other)
    return result
''',
    "expect_ends": '''

def expect_ends(name, ends, rows):
    """Refuse, in one line, ends of groups of rows that are out of order, where they are in the host's memory: reading a GPU's would wait for it."""
    if not ends.is_cuda and ends.numel() and (ends[0] < 0 or ends[-1] > rows or (ends[1:] < ends[:-1]).any()):
        raise ValueError(f"{name} is {ends.tolist()}; this kernel wants ends of groups from 0 to {rows}, none before the last")
''',
    "expect_axes": '''

def expect_axes(name, tensor, least, most=None):
    """Refuse, in one line, an operand with other axes than the kernel counts on."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        wanted = f"{least} axes or more" if most is None else f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")
''',
}
NAMES = tuple(PIECES)  # what the emitted text may define


def expect_ends(name: str, tensor: str, rows: str) -> str:
    """One line: where groups of rows end."""
    return f'expect_ends("{name}", {tensor}, {rows})'


def empty(result: str, returned: str = "") -> list[str]:
    """Lines that return a result without elements, for which no kernel can be launched."""
    return [f"if {result}.numel() == 0:", f"    return {returned or result}"]


def some_k(k: str, a_along: int, b_along: int) -> list[str]:
    """Lines of a product: where there is no k, one of zeros takes its place; `a_along`, `b_along`: which axis it is, -1 or -2."""
    pads = {-1: "(0, 1)", -2: "(0, 0, 0, 1)"}
    return [f"if {k} == 0:  # nothing is added up: as if it were one product of zeros", f"    a, b = nn.functional.pad(a, {pads[a_along]}), nn.functional.pad(b, {pads[b_along]})"]


def expect_some(name: str, tensor: str, count: str, what: str) -> list[str]:
    """Lines that refuse an operand of which nothing is left to be taken: `count` is Python of forward, `what` says what has no value then."""
    return [f"if {count} == 0:", f'    raise ValueError(f"{name} has the shape {{tuple({tensor}.shape)}}; there is nothing to take the {what} of")']


def expect_few(*tensors: tuple[str, str]) -> list[str]:
    """Lines that refuse, by name, tensors with more elements than a launch takes, where a kernel is not launched for pieces of them."""
    return [line for name, tensor in tensors for line in (f"if {tensor}.numel() > MOST:", f'    raise ValueError(f"{name} has {{{tensor}.numel()}} elements; this kernel counts up to {{MOST}}")')]


def definitions(text: str) -> str:
    """What the emitted text calls of it."""
    wanted = {name for name in PIECES if name in text and re.search(rf"\b{name}\b", text)}  # a word's bounds alone are sought for long
    wanted |= {"MOST"} if {"in_pieces", "by_rows"} & wanted else set()
    wanted |= {"FLOATS"} if {"expect", "EXACT"} & wanted else set()
    return "".join(piece for name, piece in PIECES.items() if name in wanted) + "\n\n" if wanted else ""


def called(role: str, bound: dict[str, str]) -> str:
    """What a message calls an operand: its name in forward where it has one, else what the emitter calls it."""
    said = bound.get(role, role)
    return said if re.fullmatch(r"[\w.]+", said) else role


def expect(name: str, tensor: str, shape: str, kinds: str = "", *, spread: bool = False) -> str:
    """One line: `shape` and `kinds` are Python of forward; without kinds, floats."""
    return f'expect("{name}", {tensor}, {shape}{f", {kinds}" if kinds else ""}{", spread=True" if spread else ""})'


def expect_axes(name: str, tensor: str, least: int, most: int | None = None) -> str:
    """One line: how many axes there are."""
    return f'expect_axes("{name}", {tensor}, {least}{f", {most}" if most is not None else ""})'
