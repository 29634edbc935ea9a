"""Finds attention over compressed rows of indices (CSR) in the forms that people write: scores, and their softmax.

`(q[rows] * k[indices]).sum(-1)` and `q[rows] + k[indices]` become `sddmm`, where rows has the row of each index and is
made of the same offsets: `repeat_interleave(indptr.diff())`. `exp(s - m[rows]) / t[rows]` becomes `segment_softmax`,
where m and t are `segment_reduce` of s and of the exponentials.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name, names, parse_number, plain_name
from workbench.proposers.recognition.operands import find_argument
from workbench.proposers.recognition.patterns.graphs import Idioms
from workbench.records import Facts, Operation

LARGEST_EPS = 1e-7  # a sum of exponentials is at least 1, so that float32 drops what is smaller


class AttentionIdioms(Idioms):
    """The forms of one graph, those of attention included."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.rules |= {
            "add": (self.fold_sums,),
            "sum": (self.fold_products,),
            "div": (*self.rules["div"], self.fold_softmax),
        }

    def fold_sums(self, op: Operation) -> Operation | None:
        """`q[rows] + k[indices]`."""
        found = self.find_pair(op)
        return None if found is None else self.make_scores(op, found, "add")

    def fold_products(self, op: Operation) -> Operation | None:
        """`(q[rows] * k[indices]).sum(-1)`."""
        product = self.by_name.get(op.operands[0])
        if product is None or plain_name(product) != "mul" or not product.result or op.keywords:
            return None
        rank, axes = len(product.result[0].shape), names(find_argument(op, 1, "dim", ""), numbers=True)
        is_last = axes in (["-1"], [str(rank - 1)])
        if not is_last or rank not in (2, 3) or find_argument(op, 2, "keepdim", "False") != "False":
            return None
        found = self.find_pair(product)
        return None if found is None else self.make_scores(op, found, "dot")

    def find_pair(self, op: Operation) -> tuple[str, str, str, str] | None:
        """(q, k, indptr, indices) of two operands, one of which is taken by the rows of the indices."""
        if len(op.operands) != 2 or op.keywords:
            return None
        for one, other in (op.operands, op.operands[::-1]):
            own, neighbours = self.find_taken(one), self.find_taken(other)
            if own is None or neighbours is None or len(own) + len(neighbours) != 4:
                continue
            indptr = self.find_offsets(own[1])
            if indptr and self.specs[one].shape == self.specs[other].shape and not self.find_offsets(neighbours[1]):
                return own[0], neighbours[0], indptr, neighbours[1]
        return None

    def make_scores(self, op: Operation, operands: tuple[str, ...], kind: str) -> Operation:
        """The call in place of an operation."""
        return dataclasses.replace(op, target="sddmm", operands=operands, keywords=(("op", kind),))

    def fold_softmax(self, op: Operation) -> Operation | None:
        """`e / t[rows]` with e = exp(s - m[rows]) and t its sums; a tiny number may be added to the sums."""
        if op.keywords:
            return None
        exponential, total = self.by_name.get(op.operands[0]), self.find_row_values(op.operands[1])
        if exponential is None or plain_name(exponential) != "exp" or total is None:
            return None
        indptr, scores = total[1], self.find_shifted(exponential.operands[0], total[1])
        if self.strip_eps(total[0]) != self.find_segments(exponential.name, "sum", indptr) or not scores:
            return None
        spec = self.specs.get(scores)
        if spec is None or len(spec.shape) not in (1, 2):
            return None
        return dataclasses.replace(op, target="segment_softmax", operands=(scores, indptr), keywords=())

    def find_shifted(self, value: str, indptr: str) -> str:
        """s of `s - m[rows]`, where m has the largest of each row; another value itself."""
        op = self.by_name.get(value)
        if op is None or plain_name(op) != "sub" or op.keywords:
            return value
        most = self.find_row_values(op.operands[1])
        is_largest = most is not None and most == (self.find_segments(op.operands[0], "max", indptr), indptr)
        return op.operands[0] if is_largest else value

    def find_row_values(self, value: str) -> tuple[str, str] | None:
        """(values by row, offsets) of a value that has its row's value for each index; a tiny number may be added."""
        op = self.by_name.get(self.strip_eps(value))
        if op is None or aten_name(op) not in ("index", "index_select") or op.keywords:
            return None
        if aten_name(op) == "index_select" and op.operands[1] != "0":
            return None
        rows = names(op.operands[-1])
        indptr = self.find_offsets(rows[0]) if len(rows) == 1 else ""
        return (op.operands[0], indptr) if indptr else None

    def strip_eps(self, value: str) -> str:
        """A value without a tiny number that is added to it."""
        op = self.by_name.get(value)
        eps = parse_number(op.operands[1]) if op is not None and plain_name(op) == "add" else None
        return op.operands[0] if op is not None and eps is not None and 0 < eps <= LARGEST_EPS else value

    def find_segments(self, value: str, reduce: str, indptr: str) -> str:
        """The value that is `segment_reduce(value, reduce, offsets=indptr)`; "" if there is none."""
        for op in self.by_name.values():
            named = dict(op.keywords)
            if aten_name(op) != "segment_reduce" or op.operands[:2] != (value, repr(reduce)):
                continue
            if named.get("offsets") == indptr and not {*named} - {"offsets", "axis", "unsafe", "initial"}:
                is_plain = named.get("axis", "0") == "0" and (reduce == "sum" or "initial" not in named)
                if is_plain and parse_number(named.get("initial", "0")) == 0:
                    return op.name
        return ""


def fold_graphs(facts: Facts) -> Facts:
    """The same graph with one call for each form of an operation over compressed rows of indices."""
    idioms, changed = AttentionIdioms(facts), False
    for op in facts.graph:
        if (made := idioms.fold(op)) is not None:
            idioms.by_name[op.name], changed = made, True
    if not changed:
        return facts
    return dataclasses.replace(facts, graph=_keep_needed(tuple(idioms.by_name.values())))


def _keep_needed(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations that the results need."""
    by_name, wanted, stack = {op.name: op for op in graph}, set[str](), [graph[-1].name]
    while stack:
        name = stack.pop()
        if name in by_name and name not in wanted:
            wanted.add(name)
            op = by_name[name]
            stack += [part for text in (*op.operands, *(text for _, text in op.keywords)) for part in names(text)]
    return tuple(op for op in graph if op.name in wanted)
