"""Cuts graphs that no single matcher recognises into a pipeline of pieces that are recognised by themselves.

The tensors between the pieces get names. A piece has at most one anchor: a product, a convolution, a pool, a norm,
attention. Its matcher takes as much of what follows the anchor as it can, provided that nothing outside reads the
values in between. The rest, without an anchor, is element-wise work and reductions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.language import Call
from workbench.language.operations.channel_norms import STATS
from workbench.proposers.recognition import renaming, views
from workbench.proposers.recognition.forms.anchors import PRODUCTS, count_work, find_vector_beside
from workbench.proposers.recognition.forms.attention_masks import list_sources
from workbench.proposers.recognition.forms.state import STORE
from workbench.proposers.recognition.graph import (
    MASK,
    TRANSPOSES,
    Computation,
    Piece,
    Unrecognised,
    aten_name,
    list_read,
    names,
    python_expression,
)
from workbench.proposers.recognition.patterns.losses import skip_widening
from workbench.proposers.recognition.patterns.moves import REMAPS
from workbench.proposers.recognition.rewrites.norms import split_norms
from workbench.records import Case, Facts, Operation, TensorSpec

Single = Callable[[Facts], Computation]
LOSS = "nll_loss_forward"
ANCHORS = (
    *PRODUCTS,
    "convolution",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "native_group_norm",
    STATS,
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "logcumsumexp",
    "embedding",
    "gather",
    "aggregate",
    "sddmm",
    "segment_softmax",
    "index",
    "scatter_rows",
    "index_select",
    "cat",
    "topk",
    *REMAPS,
    LOSS,
    *(
        f"{kind}_pool{dims}d{how}"
        for kind in ("max", "avg", "adaptive_max", "_adaptive_avg")
        for dims in (1, 2, 3)
        for how in ("", "_with_indices")
    ),
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math",
    "scaled_dot_product_attention",
)
PAIRS = ("topk", STATS)  # their kernels write a pair, of which a view takes one
MOST = 400  # a graph with more operations is not cut
AS_VECTOR = ".reshape(-1)"  # what `read_operand` of products writes
VIEWS = ("view", "reshape", "_unsafe_view", *TRANSPOSES)


def match_pipeline(facts: Facts, single: Single) -> Computation | None:
    """The pieces of a graph; None if one of them is not recognised, or if there is only one.

    Values that several results need are written once if that is recognised, else each result computes them.
    """
    by_name = {op.name: op for op in facts.graph}
    results = facts.graph[-1].operands
    if len(facts.graph) > MOST or not any(name in by_name for name in results):
        return None
    if len(results) == 1 and len(by_name[results[0]].result) != 1:
        return None
    facts = views.sink_views(facts)
    split = split_norms(facts)
    for form in (split, facts) if split != facts else (facts,):
        for share in (True, False) if len(results) > 1 else (False,):
            pieces = _cut_results(_Cutter(form, single), share)
            if len(pieces) > 1:
                operands = tuple(dict(item for piece in pieces for item in piece.named.operands).items())
                last = pieces[-1].named.operation
                return Computation(kind="pipeline", operation=last, operands=operands, pieces=pieces)
    return None


def isolate_after(facts: Facts, value: str, output: str, name: str) -> Facts:
    """The facts of a module that computes `output` from `value`, which it takes as an argument of that name."""
    cutter = _Cutter(facts, _recognise_nothing)
    cutter.made[value] = name
    return cutter.isolate(output)


def _recognise_nothing(facts: Facts) -> Computation:
    raise Unrecognised("no piece is wanted")


def _cut_results(cutter: _Cutter, share: bool) -> tuple[Piece, ...]:
    """The pieces that make every result of the graph; () if something is not recognised."""
    facts, results = cutter.facts, cutter.results
    try:
        for op in facts.graph:
            if views.BESIDE in op.name and op.operands[0] in facts.forward_arguments:
                cutter.cut_view(op)
        for value in cutter.find_shared() if share else ():
            cutter.cut(value)
        for op in facts.graph:
            if op.name in results and op.target != STORE:
                cutter.cut(op.name)
        for op in facts.graph:
            if op.target == STORE:
                cutter.add_store(op)
        if len(results) > 1:
            cutter.add_outputs()
        return renaming.rename_pieces(cutter.pieces, facts.forward_arguments)
    except Unrecognised:
        return ()


class _Cutter:
    """Cuts pieces off a graph, from its inputs on."""

    def __init__(self, facts: Facts, single: Single) -> None:
        self.facts, self.single = facts, single
        self.by_name = {op.name: op for op in facts.graph}
        self.results = facts.graph[-1].operands
        self.made: dict[str, str] = {}  # value of the graph -> name of the tensor between pieces
        self.pieces: list[tuple[str, Computation, Facts, int]] = []
        self.full = {spec.name: spec for spec in facts.full}
        # operations that the output needs; a norm's statistics may have no reader
        live = {op.name for value in self.results for op in self.cone(value)}
        self.readers: dict[str, list[Operation]] = {}  # value -> the operations that read it, in order
        for op in (op for op in facts.graph if op.name in live):
            texts = (*op.operands, *(text for _, text in op.keywords))
            for name in dict.fromkeys(name for text in texts for name in names(text)):
                self.readers.setdefault(name, []).append(op)

    def cut(self, value: str) -> None:
        """Cut pieces until the value is made. Raises `Unrecognised`."""
        known = -1
        while value not in self.made:
            if known == len(self.made):
                raise Unrecognised("no piece could be cut")
            known, cone = len(self.made), self.cone(value)
            anchor = next((op for op in cone if aten_name(op) in ANCHORS), None)
            if self.try_piece(value):
                return
            if anchor is None:
                self.cut_view(next((op for op in cone if aten_name(op) in views.NAMES), None))
                continue
            before = next(
                (
                    name
                    for text in self.list_inputs(anchor)
                    for name in names(text)
                    if name in self.by_name
                    and name not in self.made
                    and (aten_name(anchor) == "cat" or not self.is_plain_view(name))
                ),
                None,
            )
            beside = find_vector_beside(anchor, self.by_name, self.readers, self.cone)
            residual = views.find_beside(cone, self.made)
            if before is not None:
                self.cut_operand(self.by_name[before])
            elif beside is not None:
                self.cut(beside.name)
            elif residual is not None:
                self.cut_view(residual)
            elif not any(self.try_piece(op.name) for op in self.piece_ends(anchor, cone)):
                read = self.list_inputs(anchor)
                seen = [op for op in cone if op.name in read and aten_name(op) in views.NAMES]
                # a product reads a transposed matrix as it is
                self.cut_view(min(seen, key=lambda op: aten_name(op) in TRANSPOSES, default=None))

    def cut_operand(self, op: Operation) -> None:
        """Cut pieces until an operand of a piece is made, or until it is a view of something made."""
        if aten_name(op) not in VIEWS:
            self.cut(op.name)
        elif op.operands[0] in self.by_name and op.operands[0] not in self.made:
            self.cut(op.operands[0])
        else:
            self.cut_view(op)

    def list_inputs(self, anchor: Operation) -> tuple[str, ...]:
        """What a piece with this anchor reads: a loss makes the logarithms of shares itself, attention its mask."""
        first, *others = anchor.operands
        if (mask := dict(anchor.keywords).get(MASK)) is not None:
            return (*anchor.operands, *list_sources(self.by_name, mask))
        shares = self.by_name.get(first)
        if aten_name(anchor) != LOSS or shares is None or aten_name(shares) != "_log_softmax":
            return anchor.operands
        return (skip_widening(self.by_name, shares.operands[0]), *others)

    def find_shared(self) -> list[str]:
        """Values computed here that several results need, each with a reader that only some of these need."""
        cones = [{op.name for op in self.cone(value)} for value in self.results]
        need = {op.name: [op.name in cone for cone in cones] for op in self.facts.graph}
        return [
            op.name
            for op in self.facts.graph
            if sum(need[op.name]) > 1
            and op.name not in self.results
            and len(op.result) == 1
            and aten_name(op) not in (*views.NAMES, "getitem")
            and any(need[user.name] != need[op.name] for user in self.users(op.name))
        ]

    def add_store(self, op: Operation) -> None:
        """Add a piece without a kernel that writes a buffer of the module."""
        buffer, *value = op.operands
        if len(value) == 2:
            call = Call(name=STORE, positional=("into",), named=(("add", int(value[1])),))
        else:
            self.cut(value[0])
            call = Call(name=STORE, positional=("into",), named=(("x", "x"),))
        operands = [("into", python_expression(buffer))]
        operands += [("x", self.expression_of(value[0]))] if len(value) == 1 else []
        self.add(op.name, Computation(kind=STORE, operation=call, operands=tuple(operands)), self.facts)

    def add_outputs(self) -> None:
        """Add the last piece, which names the results; stores are none."""
        results = [value for value in self.results if value not in self.by_name or self.by_name[value].target != STORE]
        names = tuple(f"y{n}" for n in range(1, len(results) + 1))
        call = Call(name="outputs", positional=names)
        operands = tuple((name, self.expression_of(value)) for name, value in zip(names, results, strict=True))
        if not all(value in self.made or value in self.facts.forward_arguments for value in results):
            raise Unrecognised("a result that is no tensor of forward")
        self.pieces.append(("outputs", Computation(kind="outputs", operation=call, operands=operands), self.facts, 0))

    def cut_view(self, op: Operation | None) -> None:
        """Cut a view as a stage without a kernel, after the value that it views."""
        if op is None:
            raise Unrecognised("no matcher knows what is left")
        of = op.operands[0]
        if of in self.by_name and of not in self.made:
            self.cut(of)
            return
        shapes: views.Shapes = {
            name: (spec.shape, self.full[name].shape) if self.full else (spec.shape,)
            for name, spec in self.specs().items()
            if not self.full or name in self.full
        }
        available = (*reversed(self.made), *self.facts.forward_arguments)
        found = views.find_view_call(op, shapes, available, self.facts)
        if found is None:
            raise Unrecognised(aten_name(op))
        call, like = found
        operands = (("x", self.expression_of(of)), *((("like", self.expression_of(like)),) if like is not None else ()))
        self.add(op.name, Computation(kind="view", operation=call, operands=operands), self.isolate(op.name))

    def expression_of(self, value: str) -> str:
        """A value's name between pieces, else its Python expression in forward."""
        return self.made.get(value, python_expression(value))

    def specs(self) -> dict[str, TensorSpec]:
        """Specs of every value at the shrunk case."""
        state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in self.facts.parameters}
        return (
            {spec.name: spec for spec in self.facts.cases[0].inputs}
            | state
            | {op.name: dataclasses.replace(op.result[0], name=op.name) for op in self.facts.graph if op.result}
        )

    def is_plain_view(self, value: str) -> bool:
        """Whether a value is a view, or a flip, of something that exists already. Matchers look through such views."""
        op = self.by_name[value]
        if not op.operands:  # a constant
            return False
        if aten_name(op) == "flip":
            return op.operands[0] not in self.by_name or op.operands[0] in self.made
        is_made = op.operands[0] in self.made and aten_name(op) not in TRANSPOSES
        return aten_name(op) in VIEWS and (op.operands[0] not in self.by_name or is_made)

    def cone(self, value: str) -> list[Operation]:
        """The operations that a value still needs, in order."""
        wanted, stack = set(), [value]
        while stack:
            name = stack.pop()
            if name in self.by_name and name not in self.made and name not in wanted:
                wanted.add(name)
                stack += list_read(self.by_name[name])
        return [op for op in self.facts.graph if op.name in wanted]

    def piece_ends(self, anchor: Operation, cone: list[Operation]) -> list[Operation]:
        """Operations at which a piece with this anchor may end, the farthest first."""
        found = []
        for op in cone:
            if any("getitem" in user.target for user in self.users(op.name)):
                continue
            if len(op.result) != 1 and aten_name(op) not in PAIRS:
                continue
            inside = self.cone(op.name)
            names = {item.name for item in inside}
            closed = not names & ({*self.results} - {op.name}) and all(
                user.name in names for item in inside if item is not op for user in self.users(item.name)
            )
            if anchor.name in names and closed and sum(aten_name(item) in ANCHORS for item in inside) == 1:
                found.append(op)
        return found[::-1]

    def users(self, value: str) -> list[Operation]:
        """The operations that read a value."""
        return self.readers.get(value, [])

    def try_piece(self, value: str) -> bool:
        """Cut one piece that makes the value, if it is recognised."""
        facts = self.isolate(value)
        try:
            found = self.single(facts)
        except Unrecognised:
            return False
        found = self.flatten_vectors(found)
        if any(text.startswith(f"{name}.") for _, text in found.operands for name in self.made.values()):
            return False  # a program names tensors between pieces; a view of one is a stage
        self.add(value, found, facts)
        return True

    def flatten_vectors(self, found: Computation) -> Computation:
        """The same piece with a stage for each (rows, 1) or (1, columns) between pieces that it reads as a vector."""
        specs = self.specs()
        operands = []
        for role, text in found.operands:
            value = next((of for of, name in self.made.items() if text == f"{name}{AS_VECTOR}"), None)
            if value in specs:
                call = Call(name="view", positional=("x",), named=(("flatten", (0, len(specs[value].shape) - 1)),))
                view = Computation(kind="view", operation=call, operands=(("x", self.made[value]),))
                self.add(f"{value}{AS_VECTOR}", view, self.facts)
                text = self.made[f"{value}{AS_VECTOR}"]
            operands.append((role, text))
        return dataclasses.replace(found, operands=tuple(operands))

    def add(self, value: str, found: Computation, facts: Facts) -> None:
        """Add a piece, whose result is the value."""
        name = next(
            name
            for n in range(len(self.made) + 1, 1000)
            if (name := f"h{n}") not in (*self.facts.forward_arguments, *self.made.values())
        )
        self.pieces.append((name, found, facts, count_work(self.cone(value), self.by_name, self.full)))
        self.made[value] = name

    def isolate(self, value: str) -> Facts:
        """The facts of a module that only computes the value; its arguments are the tensors that the value needs."""
        cone = self.cone(value)
        graph = [
            dataclasses.replace(
                op,
                operands=tuple(self.rename_operand(text) for text in op.operands),
                keywords=tuple((key, self.rename_operand(text)) for key, text in op.keywords),
            )
            for op in cone
        ]
        graph += [
            op for op in self.facts.graph if op.target.startswith("aten.add_") and op.operands[0].startswith("buffer:")
        ]  # counters of batches
        graph.append(Operation(name="output", target="output", operands=(value,)))
        read = {part for op in cone for part in list_read(op)}
        shrunk, *others, full = self.facts.cases[0], *self.facts.cases[1:-1], self.facts.cases[-1]
        cases = [self.piece_case(shrunk, read, self.specs(), value)]
        if self.full:  # between the two only the shapes of forward's tensors are known
            given = [tuple(spec for spec in case.inputs if spec.name in read) for case in others]
            cases += [
                dataclasses.replace(case, inputs=inputs, outputs=()) for case, inputs in zip(others, given, strict=True)
            ]
            cases.append(self.piece_case(full, read, self.full, value))
        named = tuple(dataclasses.replace(spec, name=self.made.get(spec.name, spec.name)) for spec in self.facts.full)
        return dataclasses.replace(self.facts, graph=tuple(graph), cases=tuple(cases), full=named)

    def piece_case(self, piece_case: Case, read: set[str], specs: dict[str, TensorSpec], value: str) -> Case:
        """A case with the inputs and the output of one piece."""
        inputs = [specs[name] for name in self.facts.forward_arguments if name in read and name in specs]
        inputs += [
            dataclasses.replace(specs[of], name=name) for of, name in self.made.items() if of in read and of in specs
        ]
        return dataclasses.replace(
            piece_case,
            inputs=tuple(inputs),
            outputs=(dataclasses.replace(specs[value], name="output0"),) if value in specs else (),
        )

    def rename_operand(self, text: str) -> str:
        """An operand's text with the names of tensors between pieces."""
        if text.startswith("["):
            return "[" + ", ".join(self.made.get(part, part) for part in names(text, numbers=True)) + "]"
        return self.made.get(text, text)
