"""Finds reductions over compressed rows of indices (CSR) in the forms that people write, and matches them.

`segment_reduce(x[indices], offsets=indptr)`, `embedding_bag`, `index_add` and `scatter_add` by rows that are made of
the same offsets, and a sum divided by the number of neighbours become one call `aggregate` of the graph. Its operands
are x, indptr, indices and perhaps a weight of each index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.language import Call
from workbench.proposers.recognition.forms.filled import ONES, ZEROS, describe_filled
from workbench.proposers.recognition.graph import (
    Computation,
    aten_name,
    find_producer,
    names,
    parse_number,
    plain_name,
    python_expression,
)
from workbench.proposers.recognition.operands import find_argument
from workbench.records import Facts, Operation, TensorSpec

AGGREGATE, SCATTER = "aggregate", "scatter_rows"
ROLES = {  # calls over compressed rows of indices, as a fold writes them -> the roles of their operands
    AGGREGATE: ("x", "indptr", "indices", "weight"),
    "sddmm": ("q", "k", "indptr", "indices"),
    "segment_softmax": ("scores", "indptr"),
}
DEFAULTS = (("op", "sum"), ("op", "dot"), ("empty", "zero"))  # of their arguments
INTEGERS, FLOATS = ("int64", "int32"), ("float32", "float16", "bfloat16")
MODES = ("sum", "mean", "max")  # embedding_bag's numbers of its modes
SCATTER_MODES = {"sum": "sum", "mean": "mean", "amax": "max"}
INSERTED = ("unsqueeze", "view", "reshape", "_unsafe_view")  # calls that may only add axes of 1
SCATTERS = ("scatter_reduce", "scatter", "index_reduce", "index_put", "index_add", "scatter_add", "segment_reduce")

Rule = Callable[[Operation], Operation | None]


class Idioms:
    """The forms of one graph."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.by_name = {op.name: op for op in facts.graph}
        state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
        self.specs: dict[str, TensorSpec] = {
            **{spec.name: spec for spec in facts.cases[0].inputs},
            **state,
            **{op.name: op.result[0] for op in facts.graph if op.result},
        }
        self.rules: dict[str, tuple[Rule, ...]] = {
            "segment_reduce": (self.fold_segments,),
            "getitem": (self.fold_bags,),
            "div": (self.fold_mean,),
            "index_add": (self.fold_scatter,),
            "scatter_add": (self.fold_scatter,),
            "scatter_reduce": (self.fold_scatter,),
            "index_reduce": (self.fold_scatter,),
        }

    def fold(self, op: Operation) -> Operation | None:
        """The call that stands for an operation and what it reads; None if it has none of the forms."""
        rules = self.rules.get("getitem" if "getitem" in op.target else plain_name(op), ()) if op.result else ()
        return next((made for rule in rules if (made := rule(op)) is not None), None)

    def fold_segments(self, op: Operation) -> Operation | None:
        """`segment_reduce(x[indices], reduce, offsets=indptr)`, or with `lengths=indptr.diff()`."""
        named = dict(op.keywords)
        indptr, reduce = self.find_segment_offsets(named), op.operands[1].strip("'")
        initial = parse_number(named.get("initial", "None"))
        taken = self.find_taken(op.operands[0])
        if taken is None or reduce not in MODES or not self.is_vector(indptr) or named.get("axis", "0") != "0":
            return None
        if initial not in (None, 0.0) or (initial is not None and reduce == "max"):  # a maximum with 0 otherwise
            return None
        return self.make(op, (taken[0], indptr, *taken[1:]), reduce, "zero" if initial == 0 else "identity")

    def find_segment_offsets(self, named: dict[str, str]) -> str:
        """The offsets of a segment_reduce, given as they are or by what lies between them; "" if there are none."""
        if "offsets" in named:
            return self.strip_widening(named["offsets"])
        found = self.find_counts(named.get("lengths", "None"))
        return found[0] if found is not None and not found[1] else ""

    def fold_bags(self, op: Operation) -> Operation | None:
        """`embedding_bag(indices, x, indptr, mode)`; offsets without the last get it."""
        bag = find_producer(self.by_name, op.name)
        if bag is None or aten_name(bag) not in ("_embedding_bag", "_embedding_bag_forward_only"):
            return None
        x, indices, offsets = bag.operands[0], *map(self.strip_widening, bag.operands[1:3])
        mode, weight, closed = (
            find_argument(bag, place, name, default)
            for place, name, default in (
                (4, "mode", "0"),
                (6, "per_sample_weights", "None"),
                (7, "include_last_offset", "False"),
            )
        )
        if find_argument(bag, 8, "padding_idx", "-1") != "-1" or not self.is_vector(indices):
            return None
        if closed != "True":
            offsets = self.close_offsets(offsets, indices)
        elif not self.is_vector(offsets):
            return None
        weights = () if weight == "None" else (weight,)
        return self.make(op, (x, offsets, indices, *weights), MODES[int(mode)], "zero") if offsets else None

    def close_offsets(self, offsets: str, indices: str) -> str:
        """The expression of offsets with the number of indices after the last; "" if there is none."""
        op = self.by_name.get(offsets)
        if op is not None and aten_name(op) in ("slice", "part") and self.drops_last(op):
            return op.operands[0]  # of indptr[:-1]
        if op is not None or indices in self.by_name or not self.is_vector(offsets):
            return ""
        given, count = python_expression(offsets), python_expression(indices)
        return f"torch.nn.functional.pad({given}, (0, 1), value={count}.shape[0])"

    def drops_last(self, op: Operation) -> bool:
        """Whether a slice is all of a vector but its last element."""
        return self.slice_of(op) == (op.operands[0], "first") and self.is_vector(op.operands[0])

    def slice_of(self, op: Operation | None) -> tuple[str, str] | None:
        """(the vector, "first" or "rest") of all of it but its last or its first element; None for anything else."""
        if op is None:
            return None
        if aten_name(op) == "part":
            words = {("slice", "0", "0", "-1"): "first", ("slice", "0", "1"): "rest"}.get(op.operands[1:])
            return (op.operands[0], words) if words else None
        spec = self.specs.get(op.operands[0]) if aten_name(op) == "slice" else None
        if spec is None or len(spec.shape) != 1 or op.keywords or len(op.operands) < 3:
            return None
        start, end = int(op.operands[2]), int(op.operands[3]) if len(op.operands) > 3 else spec.shape[0]
        size = spec.shape[0]
        bounds = (start, min(end if end >= 0 else end + size, size))
        words = {(0, size - 1): "first", (1, size): "rest"}.get(bounds)
        return (op.operands[0], words) if words and op.operands[4:] in ((), ("1",)) else None

    def fold_mean(self, op: Operation) -> Operation | None:
        """A sum divided by the number of neighbours: `(indptr[1:] - indptr[:-1]).clamp(min=1)`, or `indptr.diff()`."""
        total = self.by_name.get(op.operands[0])
        if total is None or op.keywords or dict(total.keywords).get("op") != "sum" or len(total.operands) != 3:
            return None
        found = self.find_counts(self.strip_axes(op.operands[1]))
        if found is None or found[0] != total.operands[1] or not self.spreads(op.operands[1], total.name):
            return None
        return self.make(op, total.operands, "mean", "zero" if found[1] else "identity")

    def find_counts(self, value: str) -> tuple[str, bool] | None:
        """(offsets, whether at least 1) of the numbers of neighbours."""
        op = self.by_name.get(value)
        if op is None:
            return None
        name = plain_name(op)
        if name == "_to_copy":
            return self.find_counts(op.operands[0])
        if op.target == SCATTER and not op.keywords:
            indptr = self.find_offsets(op.operands[1])
            return (indptr, False) if indptr and op.operands[2].startswith("torch.ones(") else None
        if name in ("clamp", "clamp_min") and find_argument(op, 1, "min", "None") == "1":
            found = self.find_counts(op.operands[0]) if find_argument(op, 2, "max", "None") == "None" else None
            return None if found is None else (found[0], True)
        if name != "sub" or op.keywords:
            return None
        rest, first = (self.slice_of(self.by_name.get(text)) for text in op.operands[:2])
        if rest is None or first is None or rest[0] != first[0] or (rest[1], first[1]) != ("rest", "first"):
            return None
        return rest[0], False

    def fold_scatter(self, op: Operation) -> Operation | None:
        """`zeros.index_add(0, rows, src)`, or `scatter_add` with the rows expanded, `index_reduce`, `scatter_reduce`.

        Where the rows are made of offsets, it is a reduction over them; in any order, sums and maxima are known.
        """
        zeros, axis, rows, src = op.operands[:4]
        reduce = self.find_reduce(op)
        if axis != "0" or not reduce or not self.is_table(src):
            return None
        if plain_name(op).startswith("scatter"):
            rows = self.find_expanded(rows, src)
        made, rows = self.by_name.get(zeros), self.strip_widening(rows)
        out = describe_filled(self.facts, made, self.specs) if made and plain_name(made) in ZEROS else ""
        is_whole = self.specs[zeros].shape[1:] == self.specs[src].shape[1:]
        if not (out and is_whole and self.is_vector(rows)) or self.specs[rows].shape != self.specs[src].shape[:1]:
            return None
        indptr, taken = self.find_offsets(rows), self.find_taken(src)
        if indptr and taken is not None:
            return self.make(op, (taken[0], indptr, *taken[1:]), reduce, "zero")
        if reduce == "mean":
            return None
        values = describe_filled(self.facts, self.by_name[src], self.specs) if self.is_ones(src) else src
        operands, more = (out, rows, values), (("op", "max"),) if reduce == "max" else ()
        return dataclasses.replace(op, target=SCATTER, operands=operands, keywords=more) if values else None

    def find_expanded(self, index: str, over: str) -> str:
        """The vector whose element stands in all of a row of an index that has another's shape; "" if there is none."""
        if self.specs[index].shape != self.specs[over].shape:
            return ""
        vector = self.strip_axes(index)
        return vector if self.is_vector(vector) and self.specs[vector].shape == self.specs[over].shape[:1] else ""

    @staticmethod
    def find_reduce(op: Operation) -> str:
        """What a scatter into zeros reduces by; "" if the zeros count too, or if it is none that is known."""
        if plain_name(op) in ("index_add", "scatter_add"):
            return "sum" if not op.keywords and len(op.operands) == 4 else ""
        reduce = SCATTER_MODES.get(find_argument(op, 4, "reduce", "None").strip("'"), "")
        counts_zeros = find_argument(op, 5, "include_self", "True") == "True"
        return "" if counts_zeros and reduce != "sum" else reduce

    def find_offsets(self, rows: str) -> str:
        """The offsets of which a vector has the row of each index: `repeat_interleave(indptr.diff())`; "" if none."""
        op = self.by_name.get(rows)
        if op is not None and (taken := self.find_numbered(op)):
            op = self.by_name.get(taken)
        if op is None or aten_name(op) != "repeat_interleave" or op.target != "aten.repeat_interleave.Tensor":
            return ""
        found = self.find_counts(op.operands[0])
        return found[0] if found is not None and not found[1] else ""

    def find_numbered(self, op: Operation) -> str:
        """The vector that numbers 0, 1, 2, ... are taken by; "" if it is another call."""
        if aten_name(op) not in ("index", "index_select"):
            return ""
        numbers, index = self.by_name.get(op.operands[0]), names(op.operands[-1])
        return index[0] if numbers is not None and aten_name(numbers) == "arange" and len(index) == 1 else ""

    def find_taken(self, value: str) -> tuple[str, ...] | None:
        """(x, indices), or (x, indices, weight), of rows that are taken from x and perhaps multiplied."""
        op = self.by_name.get(value)
        if op is None or not op.result:
            return None
        if plain_name(op) == "mul" and not op.keywords:
            for one, other in (op.operands[:2], op.operands[1::-1]):
                taken, weight = self.find_taken(one), self.strip_axes(other)
                if taken is not None and len(taken) == 2 and self.is_weight(weight, other, one, taken[1]):
                    return taken if self.is_ones(weight) else (*taken, weight)
            return None
        if aten_name(op) == "index":
            x, indices = op.operands[0], ",".join(names(op.operands[1]))
        elif aten_name(op) == "index_select" and op.operands[1] in ("0", str(-len(op.result[0].shape))):
            x, _, indices = op.operands
        elif aten_name(op) == "embedding":
            x, indices = op.operands[:2]
        elif aten_name(op) == "gather" and op.operands[1] == "0" and not op.keywords:
            x, indices = op.operands[0], self.find_expanded(op.operands[2], value)
        else:
            return None
        indices = self.strip_widening(indices)
        return (x, indices) if self.is_vector(indices) and self.is_table(x) else None

    def is_weight(self, weight: str, spread: str, taken: str, indices: str) -> bool:
        """Whether a factor is a number for each index, or one for each of the parts of its row (x has three axes)."""
        own, product = self.specs.get(weight), self.specs.get(taken)
        if own is None or product is None or own.dtype not in FLOATS or not self.spreads(spread, taken):
            return False
        return own.shape == product.shape[:1] or (len(product.shape) == 3 and own.shape == product.shape[:2])

    def is_ones(self, value: str) -> bool:
        """Whether a value is made of ones."""
        op = self.by_name.get(value)
        return op is not None and plain_name(op) in ONES

    def spreads(self, value: str, over: str) -> bool:
        """Whether a value has the axes of another, with its last ones 1."""
        own, other = self.specs.get(value), self.specs.get(over)
        if own is None or other is None or len(own.shape) != len(other.shape) or own.shape[:1] != other.shape[:1]:
            return False
        return all(extent in (1, wanted) for extent, wanted in zip(own.shape, other.shape, strict=True))

    def strip_axes(self, value: str) -> str:
        """The value behind calls that only add axes at its end, of 1 or along which it stays the same."""
        op = self.by_name.get(value)
        while op is not None and op.result and aten_name(op) in (*INSERTED, "expand"):
            before = self.specs.get(op.operands[0])
            own, shape = before.shape if before is not None else (), op.result[0].shape
            if aten_name(op) == "expand" and len(own) == len(shape):
                while own and own[-1] == 1 != shape[len(own) - 1]:
                    own = own[:-1]
            elif aten_name(op) == "expand" or {*shape[len(own) :]} - {1}:
                break
            if before is None or shape[: len(own)] != own:
                break
            value = op.operands[0]
            op = self.by_name.get(value)
        return value

    def strip_widening(self, value: str) -> str:
        """The vector of integers that a value is as int64: of `indices.long()` the indices."""
        op = self.by_name.get(value)
        while op is not None and aten_name(op) == "_to_copy" and op.result and op.result[0].dtype == "int64":
            if not self.is_vector(op.operands[0]):
                break
            value = op.operands[0]
            op = self.by_name.get(value)
        return value

    def is_vector(self, value: str) -> bool:
        """Whether a value is a vector of integers."""
        spec = self.specs.get(value)
        return spec is not None and len(spec.shape) == 1 and spec.dtype in INTEGERS

    def is_table(self, value: str) -> bool:
        """Whether a value is a floating-point tensor of rows."""
        spec = self.specs.get(value)
        return spec is not None and len(spec.shape) > 0 and spec.dtype in FLOATS

    def make(self, op: Operation, operands: tuple[str, ...], reduce: str, empty: str) -> Operation:
        """The call in place of an operation."""
        more = (("op", reduce), ("empty", "zero" if reduce == "sum" else empty))
        return dataclasses.replace(op, target=AGGREGATE, operands=operands, keywords=more)


def say_forms(graph: tuple[Operation, ...]) -> str:
    """What is understood, for a graph that reduces rows in another form; "" for any other graph."""
    if not {plain_name(op) for op in graph} & {*SCATTERS}:
        return ""
    return (
        "of rows reduced by an index it knows torch.segment_reduce(x[indices], 'sum', 'mean' or 'max', "
        "offsets=indptr), embedding_bag, sums and maxima (amax, include_self=False) by index_add, scatter_add and "
        "scatter_reduce into zeros, and means by rows that are made of offsets "
        "(torch.repeat_interleave(indptr.diff())); "
    )


def match_scatter(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """Rows reduced at places that an index names, in any order; None for any other operation."""
    op = by_name.get(output)
    if op is None or op.target != SCATTER or any(value in by_name for value in op.operands):
        return None
    roles, name = ("out", "index", "src"), "scatter_max" if op.keywords else "scatter_add"
    return Computation(
        kind=name,
        operation=Call(name=name, positional=roles, named=(("axis", 0), ("layers", 1))),
        operands=tuple((role, python_expression(value)) for role, value in zip(roles, op.operands, strict=True)),
    )


def match_rows(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """An operation over compressed rows of indices; None for any other operation."""
    op = by_name.get(output)
    if op is None or op.target not in ROLES or any(value in by_name for value in op.operands):
        return None
    roles = ROLES[op.target][: len(op.operands)]
    named: list[tuple[str, object]] = [item for item in op.keywords if item not in DEFAULTS]
    named += [("weighted", 1)] if "weight" in roles else []
    return Computation(
        kind=op.target,
        operation=Call(
            name=op.target, positional=tuple(role for role in roles if role != "weight"), named=tuple(named)
        ),
        operands=tuple((role, python_expression(value)) for role, value in zip(roles, op.operands, strict=True)),
    )
