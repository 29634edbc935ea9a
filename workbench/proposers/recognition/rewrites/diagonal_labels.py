"""Writes cross entropies whose labels are positions, `cross_entropy(logits, arange(n))`, without labels in memory.

The loss of row i is log(sum(exp(x[i] - m))) - (x[i, label(i)] - m) with its largest logit m, and the label is one of
the columns: of a contrastive loss (CLIP, InfoNCE) the one on the diagonal. Where the logits are transposed, the loss of
each column is taken of the logits as they are.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import TRANSPOSES
from workbench.proposers.recognition.patterns.positions import find_positions
from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.records import Facts, Operation

LOSS, SHARES = "nll_loss_forward", "_log_softmax"
REDUCTIONS = {"1": "mean", "2": "sum"}  # ATen's numbers; 0 is none
Shape = tuple[int, ...]


def write_labels(facts: Facts) -> Facts:
    """The same facts with element-wise calls and reductions for each such loss."""
    return rewrite(facts, _write)


def _write(op: Operation, graph: Graph) -> list[Operation] | None:
    """The loss in place of the item of `nll_loss_forward` that is it."""
    loss = graph.producer_of_item(op, LOSS)
    if loss is None or loss.operands[2] != "None":
        return None
    shares, label = graph.producer(loss.operands[0], SHARES), graph.by_name.get(loss.operands[1])
    if shares is None or label is None or shares.operands[1] not in ("1", "-1"):
        return None
    arange = find_positions(label, graph.by_name)
    rows = graph.shape(shares.operands[0])
    if arange is None or rows is None or len(rows) != 2 or graph.shape(label.name) != rows[:1]:
        return None
    return _write_loss(op, loss.operands[3], shares.operands[0], label.name, graph)


def _write_loss(op: Operation, reduction: str, logits: str, label: str, graph: Graph) -> list[Operation]:
    turned = graph.producer(logits, *TRANSPOSES)
    x = logits if turned is None else turned.operands[0]
    axis = 1 if turned is None else 0  # of the classes in x
    spec, made = graph.specs[x], []
    rows, classes = spec.shape[1 - axis], spec.shape[axis]
    integers = dataclasses.replace(graph.specs[label], strides=(1,))

    def add(part: str, kind: str, operands: tuple[str, ...], shape: Shape, like: str = "") -> str:
        result = reshape_spec(integers if like == "int64" else spec, shape)
        result = dataclasses.replace(result, dtype=like or spec.dtype)
        made.append(make_operation(f"{op.name}_{part}", kind, operands, result))
        return made[-1].name

    def align(part: str, value: str, extent: int, along: int) -> str:
        shape = (1, extent) if along == 1 else (extent, 1)
        return add(part, "unsqueeze", (value, str(1 - along)), shape, "int64")

    numbers = add("numbers", "arange", (str(classes),), (classes,), "int64")
    wanted = align("labels", label, rows, 1 - axis)
    own = add("is_own", "eq.Tensor", (align("classes", numbers, classes, axis), wanted), spec.shape, "bool")
    zeros = add("zeros", "zeros_like", (x,), spec.shape)
    largest = add("largest", "amax", (x, f"[{axis}]", "True"), (rows, 1) if axis == 1 else (1, rows))
    below = add("below", "sub.Tensor", (x, largest), spec.shape)  # as log_softmax does: small losses keep their digits
    picked = add("picked", "where.self", (own, below, zeros), spec.shape)
    picked = add("logit", "sum.dim_IntList", (picked, f"[{axis}]"), (rows,))
    total = add("total", "sum.dim_IntList", (add("exp", "exp", (below,), spec.shape), f"[{axis}]"), (rows,))
    logarithm = add("log", "log", (total,), (rows,))
    if reduction not in REDUCTIONS:
        return [*made, dataclasses.replace(op, target="aten.sub.Tensor", operands=(logarithm, picked))]
    each = add("each", "sub.Tensor", (logarithm, picked), (rows,))
    return [*made, dataclasses.replace(op, target=f"aten.{REDUCTIONS[reduction]}.default", operands=(each,))]
