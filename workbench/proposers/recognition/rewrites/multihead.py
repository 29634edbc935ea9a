"""Writes nn.MultiheadAttention as attention with the batch first, which needs no copies.

torch's module (torch/nn/functional.py, multi_head_attention_forward) has the sequence first, (T, B, E): it swaps the
axes of what has the batch first, so that a projection becomes a batched product with one matrix for all; it cuts one
projection into q, k and v by a copy; and it joins samples and heads to one axis. Where the weights of attention are
asked for and not read, as by default, it writes attention out.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import MASK, aten_name
from workbench.proposers.recognition.patterns.attention import FUSED
from workbench.proposers.recognition.rewrites.multihead_calls import (
    HEADS,
    SWAPPED,
    find_joined,
    find_packed,
    find_product,
    find_projection,
    find_swapped,
    find_thirds,
    find_view_of_joined,
    find_written_out,
    skip_repeat,
    swaps_first,
)
from workbench.proposers.recognition.rewrites.rewriting import GETITEM, Graph, make_operation, reshape_spec, rewrite
from workbench.proposers.recognition.views import MOVES, RESHAPES
from workbench.records import Facts, Operation, TensorSpec

Shape = tuple[int, ...]


def write_multihead(facts: Facts) -> Facts:
    """The same facts with these modules' calls written so, in both graphs."""
    unread = set[str]()

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        made = _Writer(op, graph).write()
        if made is not None:
            unread.update(item.name for item in (*made, *_behind(op, graph)))
        return made

    return rewrite(facts, write, unread)


def _behind(op: Operation, graph: Graph) -> list[Operation]:
    """Calls behind an operation, from one to the next, which go if nothing else reads them."""
    found, left = dict[str, Operation](), [op]
    while left:
        call = left.pop()
        reads = [graph.by_name.get(value) for value in (*call.operands, dict(call.keywords).get(MASK, ""))]
        new = [one for one in reads if one is not None and one.name not in found and aten_name(one) in DROPPABLE]
        found.update({one.name: one for one in new})
        left += new
    return [*found.values()]


DROPPABLE = (
    *RESHAPES,
    *MOVES,
    *("expand", "bmm", "mm", "addmm", "add", "mul", "clone", "select", "squeeze", "unsqueeze", "_softmax"),
    *("masked_fill", "masked_fill_", "zeros_like"),
)


class _Writer:
    """What is written in place of one operation."""

    def __init__(self, op: Operation, graph: Graph) -> None:
        self.op, self.graph, self.specs, self.made = op, graph, dict(graph.specs), list[Operation]()

    def write(self) -> list[Operation] | None:
        """The calls in place of the operation; None to keep it."""
        ways = (self.write_product, self.write_part, self.write_heads, self.write_attention, self.move_result)
        return self.made if any(way() for way in (*ways, self.write_result, self.write_swap)) else None

    def add(self, name: str, kind: str, operands: tuple[str, ...], shape: Shape, strides: Shape = ()) -> str:
        """Add a call; its result is contiguous if no strides are given."""
        spec = reshape_spec(self.op.result[0], shape, name)
        self.specs[name] = spec = dataclasses.replace(spec, strides=strides or spec.strides)
        self.made.append(make_operation(name, kind, operands, spec))
        return name

    def view(self, name: str, value: str, shape: Shape) -> str:
        return self.add(name, "view", (value, str([*shape])), shape)

    def swap(self, name: str, value: str, axis: int = 0) -> str:
        """Swap an axis and the next one."""
        spec, order = self.specs[value], [*range(len(self.specs[value].shape))]
        order[axis : axis + 2] = axis + 1, axis
        shape, strides = (tuple(of[n] for n in order) for of in (spec.shape, spec.strides))
        return self.add(name, "aten.transpose.int", (value, str(axis), str(axis + 1)), shape, strides)

    def write_product(self) -> bool:
        """A projection of what has the batch first."""
        found = find_product(self.op, self.graph)
        x = None if found is None else find_swapped(found.x, self.graph)
        if found is None or x is None or not _is_contiguous(self.specs[x]):
            return False
        name, (batch, length, k) = self.op.name, self.specs[x].shape
        n = self.op.result[0].shape[-1]
        rows = self.view(f"{name}_rows", x, (batch * length, k))
        operands = (found.bias, rows, found.matrix) if found.bias else (rows, found.matrix)
        made = self.add(f"{name}_product", "addmm" if found.bias else "mm", operands, (batch * length, n))
        self.swap(name, self.view(name + SWAPPED, made, (batch, length, n)))
        return True

    def write_part(self) -> bool:
        """One of q, k and v of one projection."""
        packed = find_packed(self.op, self.graph)
        if packed is None:
            return False
        thirds = find_thirds(packed, self.graph)
        if thirds is not None:
            self.project_part(*thirds)
            return True
        name, swapped = self.op.name, find_swapped(packed, self.graph)
        base, size, number = swapped or packed, self.op.result[0].shape[-1], self.op.operands[2]
        spec = self.spec_of(base)
        part = dataclasses.replace(spec, shape=(*spec.shape[:-1], size))
        split = Operation(
            name=f"{name}_split",
            target="aten.split.Tensor",
            operands=(base, str(size), "-1"),
            result=(part,) * (spec.shape[-1] // size),
        )
        self.made.append(split)
        own = name + SWAPPED if swapped else name
        self.add(own, GETITEM, (split.name, number), part.shape, part.strides)
        if swapped:
            self.swap(name, own)
        return True

    def project_part(self, x: str, matrix: str, bias: str) -> None:
        """k or v of memory, by its own third of the module's matrix (3 E, k): a kernel reads a third, but not two."""
        name, size = self.op.name, self.op.result[0].shape[-1]
        base = find_swapped(x, self.graph) or x
        first, second, k = self.spec_of(base).shape
        rows, parts = self.view(f"{name}_rows", base, (first * second, k)), list[str]()
        for value in (bias, matrix) if bias else (matrix,):
            spec = self.specs[value]
            third, own = (size, *spec.shape[1:]), f"{name}_{'matrix' if value == matrix else 'bias'}"
            split = Operation(
                name=f"{own}_split",
                target="aten.split.Tensor",
                operands=(value, str(size)),
                result=(dataclasses.replace(spec, shape=third),) * 3,
            )
            self.made.append(split)
            parts.append(self.add(own, GETITEM, (split.name, str(int(self.op.operands[2]) + 1)), third, spec.strides))
        turned = self.add(f"{name}_turned", "t", (parts.pop(),), (k, size), (1, k))
        made = self.add(f"{name}_product", "addmm" if bias else "mm", (*parts, rows, turned), (first * second, size))
        shape = (first, second, size)
        if base == x:
            self.view(name, made, shape)
        else:
            self.swap(name, self.view(name + SWAPPED, made, shape))

    def spec_of(self, value: str) -> TensorSpec:
        """The spec of a value, also of one that is written with the batch first, and then of a part of it."""
        plain = value.removesuffix(SWAPPED)
        packed = find_packed(self.graph.by_name[plain], self.graph) if plain in self.graph.by_name else None
        if packed is not None and find_thirds(packed, self.graph) is None:
            of = self.spec_of(find_swapped(packed, self.graph) or packed)
            return dataclasses.replace(of, name=value, shape=(*of.shape[:-1], self.specs[plain].shape[-1]))
        if value in self.specs:
            return self.specs[value]
        shape = self.specs[plain].shape
        return reshape_spec(self.specs[plain], (shape[1], shape[0], *shape[2:]), value)

    def write_heads(self) -> bool:
        """One of q, k and v with an axis for the heads."""
        joined = find_view_of_joined(self.op.name, self.graph)
        if joined is not None:
            self.split_heads(self.op.name, joined, self.op.result[0].shape[1])
        return joined is not None

    def split_heads(self, name: str, value: str, heads: int) -> str:
        """The view (B, heads, T, dim) of a value (T, B, heads * dim)."""
        swapped = find_swapped(value, self.graph)
        spec = self.spec_of(swapped or value)
        size, step = spec.shape[-1], spec.strides[-1]
        dim = size // heads
        shape, strides = (*spec.shape[:2], heads, dim), (*spec.strides[:2], step * dim, step)
        apart = self.add(f"{name}_heads", "view", (swapped or value, str([*shape])), shape, strides)
        if swapped:
            return self.swap(name, apart, 1)
        order = (1, 2, 0, 3)
        shape, strides = (tuple(of[n] for n in order) for of in (shape, strides))
        return self.add(name, "permute", (apart, str([*order])), shape, strides)

    def write_attention(self) -> bool:
        """Attention that is written out, as a call of it beside its last product."""
        found = find_written_out(self.op, self.graph)
        if found is None:
            return False
        name, joined = self.op.name, [find_joined(value, self.graph) for value in found]
        if any(value is None for value in joined):
            return False
        samples = self.specs[str(joined[0])].shape[1]
        heads = self.op.result[0].shape[0] // samples
        q, k, v = (self.split_heads(f"{name}_{n}", str(value), heads) for n, value in enumerate(joined))
        shape = self.specs[q].shape
        call = "_scaled_dot_product_flash_attention_for_cpu"
        result = self.add(f"{name}_attention", call, (q, k, v), shape, _rows_first(shape))
        self.add(name + HEADS, GETITEM, (result, "0"), shape, _rows_first(shape))
        self.made.append(self.op)
        return True

    def move_result(self) -> bool:
        """Attention whose q is written so: its result lies as that does."""
        source = self.graph.producer_of_item(self.op, *FUSED)
        attention = self.op if source is None else source
        if aten_name(attention) not in FUSED or find_view_of_joined(attention.operands[0], self.graph) is None:
            return False
        result = self.op.result[0]
        moved = dataclasses.replace(result, strides=_rows_first(result.shape))
        keywords = dict(self.op.keywords)
        if MASK in keywords:
            keywords[MASK] = self.write_mask(skip_repeat(keywords[MASK], self.graph))
        self.made.append(
            dataclasses.replace(self.op, keywords=tuple(keywords.items()), result=(moved, *self.op.result[1:]))
        )
        return True

    def write_mask(self, mask: str) -> str:
        """The mask (B, 1, 1, keys) of padding (B, keys), with its axes added to what it is made of; else the mask."""
        call, shape = self.graph.producer(mask, *RESHAPES), self.specs[mask].shape
        if call is None or len(shape) != 4 or self.specs[call.operands[0]].shape != (shape[0], shape[3]):
            return mask
        filled = self.graph.producer(call.operands[0], "masked_fill", "masked_fill_")
        zeros = None if filled is None else self.graph.producer(filled.operands[0], "zeros_like")
        if filled is None or zeros is None or self.specs[filled.operands[1]].shape != (shape[0], shape[3]):
            return self.add_axes(f"{mask}_mask", call.operands[0])
        padding = self.add_axes(f"{mask}_padding", filled.operands[1])
        made = [
            make_operation(f"{mask}_zeros", "zeros_like", (padding,), self.specs[mask]),
            make_operation(
                f"{mask}_filled",
                "aten.masked_fill.Scalar",
                (f"{mask}_zeros", padding, filled.operands[2]),
                self.specs[mask],
            ),
        ]
        self.made += made
        return made[-1].name

    def add_axes(self, name: str, value: str) -> str:
        """Add two axes of 1 behind the first of two."""
        spec = self.specs[value]
        for count in (1, 2):
            own = reshape_spec(spec, (spec.shape[0], *(1,) * count, spec.shape[1]), f"{name}_{count}")
            self.made.append(make_operation(own.name, "unsqueeze", (value, "1"), own))
            self.specs[own.name], value = own, own.name
        return value

    def write_result(self) -> bool:
        """The projection of attention's result."""
        found = find_projection(self.op, self.graph)
        if found is None:
            return False
        product, attention = found
        name, (batch, heads, length, dim) = self.op.name, self.shape_by_heads(attention)
        self.specs[attention] = dataclasses.replace(
            reshape_spec(self.op.result[0], (batch, heads, length, dim), attention),
            strides=_rows_first((batch, heads, length, dim)),
        )
        rows = self.swap(f"{name}_tokens", attention, 1)
        rows = self.view(f"{name}_joined", rows, (batch, length, heads * dim))
        rows = self.view(f"{name}_rows", rows, (batch * length, heads * dim))
        *bias, _, matrix = product.operands
        n = self.op.result[0].shape[-1]
        made = self.add(f"{name}_product", aten_name(product), (*bias, rows, matrix), (batch * length, n))
        self.swap(name, self.view(name + SWAPPED, made, (batch, length, n)))
        return True

    def shape_by_heads(self, attention: str) -> Shape:
        """(batch, heads, rows, dim) of attention's result."""
        if attention in self.specs:
            return self.specs[attention].shape
        op = self.graph.by_name[attention.removesuffix(HEADS)]
        q, _, _ = find_written_out(op, self.graph) or ("", "", "")
        samples = self.specs[str(find_joined(q, self.graph))].shape[1]
        count, length, dim = op.result[0].shape
        return samples, count // samples, length, dim

    def write_swap(self) -> bool:
        """The result with the batch first, which is made so."""
        value = self.op.operands[0] if self.op.operands else ""
        source = self.graph.by_name.get(value)
        if source is None or not swaps_first(self.op, self.graph) or find_projection(source, self.graph) is None:
            return False
        self.view(self.op.name, f"{value}_product", self.op.result[0].shape)
        return True


def _is_contiguous(spec: TensorSpec) -> bool:
    return spec.strides == reshape_spec(spec, spec.shape).strides


def _rows_first(shape: Shape) -> Shape:
    """Strides of attention's result (batch, heads, rows, dim), which lies as (batch, rows, heads, dim)."""
    _, heads, length, dim = shape
    return length * heads * dim, dim, heads * dim, 1
