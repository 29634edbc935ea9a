"""Takes attention with a mask apart: scores, their softmax with the mask added, and a product with the values.

A row whose mask hides everything gives zeros, as torch does: its largest score is no less than the least finite number,
and its sum of exponentials, 0, counts as 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from workbench.proposers.recognition.operands import LIMIT
from workbench.proposers.recognition.patterns.attention import FUSED
from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.records import Facts, Operation, TensorSpec, scale_name

Shape = tuple[int, ...]


def split_masked(facts: Facts) -> Facts:
    """The same facts with the calls of such an attention in its place, where it has no dropout and no causal mask.

    One whose scores are scaled by a dimension that varies stays, unless forward can compute the scale.
    """
    unread = set[str]()

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        attention = graph.producer_of_item(op, *FUSED)
        if attention is None or not _may_split(attention, graph.specs):
            return None
        scale = scale_name(attention.name) if scale_name(attention.name) in facts.forward_arguments else ""
        if not scale and _has_varying_scale(attention.name, facts):
            return None
        unread.add(attention.name)
        writer = _Writer(attention, graph)
        result = writer.write(scale)
        return [*writer.calls, make_operation(op.name, "alias", (result,), op.result[0])]

    return rewrite(facts, write, unread)


def _has_varying_scale(name: str, facts: Facts) -> bool:
    """Whether an attention scales its scores by a dimension that is another one at full size."""
    op = next(op for op in facts.graph if op.name == name)
    small, full = (*facts.cases[0].inputs, *_results(facts.graph)), (*facts.full, *_results(facts.full_graph))
    dims = {spec.shape[-1] for spec in (*small, *full) if spec.name == op.operands[0]}
    return len(dims) > 1 and "scale" not in dict(op.keywords)


def _results(graph: tuple[Operation, ...]) -> list[TensorSpec]:
    """The first result of each call, under the call's name."""
    return [dataclasses.replace(op.result[0], name=op.name) for op in graph if op.result]


def _may_split(op: Operation, specs: Mapping[str, TensorSpec]) -> bool:
    more, (q, k, v) = dict(op.keywords), (specs.get(name) for name in op.operands[:3])
    mask = specs.get(more.get("attn_mask", "None"))
    if mask is None or q is None or k is None or v is None or more.keys() - {"attn_mask", "scale"}:
        return False
    if any(text not in ("0.0", "False") for text in op.operands[3:]):
        return False
    return len(q.shape) == 4 and q.shape[:2] == k.shape[:2] and k.shape[2] == v.shape[2]


class _Writer:
    """Writes the calls of one attention."""

    def __init__(self, op: Operation, graph: Graph) -> None:
        self.op, self.specs, self.calls = op, dict(graph.specs), list[Operation]()

    def add(
        self, name: str, kind: str, operands: tuple[str, ...], shape: Shape, dtype: str = "", strides: Shape = ()
    ) -> str:
        """Add a call; returns the name of its result, which is contiguous if no strides are given."""
        own, like = f"{scale_name(self.op.name)}_{name}".replace("_scale", "", 1), self.op.result[0]
        spec = reshape_spec(dataclasses.replace(like, dtype=dtype or like.dtype), shape, own)
        spec = dataclasses.replace(spec, strides=strides or spec.strides)
        self.calls.append(make_operation(own, kind, operands, spec))
        self.specs[own] = spec
        return own

    def multiply(self, name: str, first: str, second: str, shape: Shape) -> str:
        """The product of two values with heads, as one of all heads of all samples."""
        count = shape[0] * shape[1]
        flat = []
        for side, value, own in (("a", first, self.shape(first)), ("b", second, self.shape(second))):
            wanted = (count, *own[2:])
            if not self._has_one_stride(value):  # as of q, k and v that one product made, or with swapped axes
                value = self.add(f"{name}_{side}_own", "clone", (value,), own)
            flat.append(self.add(f"{name}_{side}", "view", (value, str([*wanted])), wanted))
        made = self.add(f"{name}_bmm", "bmm", tuple(flat), (count, *shape[2:]))
        return self.add(name, "view", (made, str([*shape])), shape)

    def _has_one_stride(self, value: str) -> bool:
        """Whether samples and heads are one axis of memory."""
        spec = self.specs[value]
        return spec.shape[0] == 1 or spec.strides[0] == spec.shape[1] * spec.strides[1]

    def shape(self, value: str) -> Shape:
        return self.specs[value].shape

    def write(self, scale: str) -> str:
        """Write the calls; returns the name of the result. `scale` is a tensor without axes, or ""."""
        q, k, v = self.op.operands[:3]
        more = dict(self.op.keywords)
        shape = (*self.shape(q)[:3], self.shape(k)[2])
        row = (*shape[:3], 1)
        order = self.shape(k)
        steps, kind = self.specs[k].strides, "aten.transpose.int"
        swapped = (*order[:2], order[3], order[2])
        turned = self.add("turned", kind, (k, "-2", "-1"), swapped, strides=(*steps[:2], *steps[:1:-1]))
        scores = self.multiply("scores", q, turned, shape)
        factor = scale or more.get("scale") or repr(self.shape(q)[3] ** -0.5)
        scaled = self.add("scaled", "aten.mul.Tensor", (scores, factor), shape)
        masked = self.add("masked", "aten.add.Tensor", (scaled, more["attn_mask"]), shape)
        most = self.add("most", "amax", (masked, "[-1]", "True"), row)
        finite = self.add("finite", "clamp", (most, repr(-LIMIT)), row)
        below = self.add("below", "aten.sub.Tensor", (masked, finite), shape)
        powers = self.add("powers", "exp", (below,), shape)
        total = self.add("total", "aten.sum.dim_IntList", (powers, "[-1]", "True"), row)
        nothing = self.add("nothing", "aten.eq.Scalar", (total, "0"), row, "bool")
        safe = self.add("safe", "aten.add.Tensor", (total, nothing), row)
        shares = self.add("shares", "aten.div.Tensor", (powers, safe), shape)
        return self.multiply("result", shares, v, (*shape[:3], self.shape(v)[3]))
