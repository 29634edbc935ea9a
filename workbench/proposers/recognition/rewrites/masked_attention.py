"""Takes attention with a mask apart: scores, their softmax with the mask added, and a product with the values.

A row whose mask hides everything gives zeros, as torch does: its largest score is no less than the least finite number,
and its sum of exponentials, 0, counts as 1.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition.graph import aten_name
from workbench.proposers.recognition.operands import LIMIT
from workbench.proposers.recognition.patterns.attention import FUSED
from workbench.proposers.recognition.simplify import drop_unread
from workbench.records import Facts, Operation, TensorSpec, scale_name

Shape = tuple[int, ...]


def split_masked(facts: Facts) -> Facts:
    """The same facts with the calls of such an attention in its place, where it has no dropout and no causal mask.

    One whose scores are scaled by a dimension that varies stays, unless forward can compute the scale.
    """
    specs = {spec.name: spec for spec in facts.cases[0].inputs}
    graph = _split(facts.graph, specs, facts)
    if graph == facts.graph:
        return facts
    full = {spec.name: spec for spec in (*facts.full, *facts.cases[-1].inputs)}
    at_full = _split(facts.full_graph or facts.graph, full, facts, keep=not facts.full_graph) if full else ()
    return dataclasses.replace(
        facts,
        graph=graph,
        full_graph=at_full if facts.full_graph else (),
        full=tuple(full.values()) if facts.full else (),
    )


def _split(
    graph: tuple[Operation, ...], specs: dict[str, TensorSpec], facts: Facts, *, keep: bool = False
) -> tuple[Operation, ...]:
    """The graph with the calls; their results are added to `specs`, which has those of the others if `keep`."""
    specs |= {spec.name: spec for spec in _results(graph) if not (keep and spec.name in specs)}
    made: list[Operation] = []
    apart: dict[str, str] = {}  # an attention -> the value that it gives
    for op in graph:
        scale = scale_name(op.name) if scale_name(op.name) in facts.forward_arguments else ""
        if aten_name(op) in FUSED and _may_split(op, specs) and (scale or not _has_varying_scale(op.name, facts)):
            writer = _Writer(op, specs)
            apart[op.name] = writer.write(scale)
            made += writer.calls
        elif "getitem" in op.target and op.operands[0] in apart and op.operands[1] == "0":
            op = dataclasses.replace(op, target="aten.alias.default", operands=(apart[op.operands[0]],))
        made.append(op)
    return drop_unread(made, {*apart})


def _has_varying_scale(name: str, facts: Facts) -> bool:
    """Whether an attention scales its scores by a dimension that is another one at full size."""
    op = next(op for op in facts.graph if op.name == name)
    small, full = (*facts.cases[0].inputs, *_results(facts.graph)), (*facts.full, *_results(facts.full_graph))
    dims = {spec.shape[-1] for spec in (*small, *full) if spec.name == op.operands[0]}
    return len(dims) > 1 and "scale" not in dict(op.keywords)


def _results(graph: tuple[Operation, ...]) -> list[TensorSpec]:
    """The first result of each call, under the call's name."""
    return [dataclasses.replace(op.result[0], name=op.name) for op in graph if op.result]


def _may_split(op: Operation, specs: dict[str, TensorSpec]) -> bool:
    more, (q, k, v) = dict(op.keywords), (specs.get(name) for name in op.operands[:3])
    mask = specs.get(more.get("attn_mask", "None"))
    if mask is None or q is None or k is None or v is None or more.keys() - {"attn_mask", "scale"}:
        return False
    if any(text not in ("0.0", "False") for text in op.operands[3:]):
        return False
    return len(q.shape) == 4 and q.shape[:2] == k.shape[:2] and k.shape[2] == v.shape[2]


class _Writer:
    """Writes the calls of one attention."""

    def __init__(self, op: Operation, specs: dict[str, TensorSpec]) -> None:
        self.op, self.specs, self.calls = op, specs, list[Operation]()

    def add(
        self, name: str, target: str, operands: tuple[str, ...], shape: Shape, dtype: str = "", strides: Shape = ()
    ) -> str:
        """Add a call; returns the name of its result, which is contiguous if no strides are given."""
        strides = strides or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        kind, own = dtype or self.op.result[0].dtype, f"{scale_name(self.op.name)}_{name}".replace("_scale", "", 1)
        spec = TensorSpec(name=own, shape=shape, dtype=kind, strides=strides)
        self.calls.append(Operation(name=own, target=f"aten.{target}", operands=operands, result=(spec,)))
        self.specs[own] = spec
        return own

    def multiply(self, name: str, first: str, second: str, shape: Shape) -> str:
        """The product of two values with heads, as one of all heads of all samples."""
        count = shape[0] * shape[1]
        flat = []
        for side, value, own in (("a", first, self.shape(first)), ("b", second, self.shape(second))):
            wanted = (count, *own[2:])
            if not self._has_one_stride(value):  # as of q, k and v that one product made, or with swapped axes
                value = self.add(f"{name}_{side}_own", "clone.default", (value,), own)
            flat.append(self.add(f"{name}_{side}", "view.default", (value, str([*wanted])), wanted))
        made = self.add(f"{name}_bmm", "bmm.default", tuple(flat), (count, *shape[2:]))
        return self.add(name, "view.default", (made, str([*shape])), shape)

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
        steps = self.specs[k].strides
        turned = self.add(
            "turned",
            "transpose.int",
            (k, "-2", "-1"),
            (*order[:2], order[3], order[2]),
            strides=(*steps[:2], *steps[:1:-1]),
        )
        scores = self.multiply("scores", q, turned, shape)
        factor = scale or more.get("scale") or repr(self.shape(q)[3] ** -0.5)
        scaled = self.add("scaled", "mul.Tensor", (scores, factor), shape)
        masked = self.add("masked", "add.Tensor", (scaled, more["attn_mask"]), shape)
        most = self.add("most", "amax.default", (masked, "[-1]", "True"), row)
        finite = self.add("finite", "clamp.default", (most, repr(-LIMIT)), row)
        below = self.add("below", "sub.Tensor", (masked, finite), shape)
        powers = self.add("powers", "exp.default", (below,), shape)
        total = self.add("total", "sum.dim_IntList", (powers, "[-1]", "True"), row)
        nothing = self.add("nothing", "eq.Scalar", (total, "0"), row, "bool")
        safe = self.add("safe", "add.Tensor", (total, nothing), row)
        shares = self.add("shares", "div.Tensor", (powers, safe), shape)
        return self.multiply("result", shares, v, (*shape[:3], self.shape(v)[3]))
