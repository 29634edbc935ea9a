"""Finds in-place writes of a module that a kernel, which only computes the result, would not do; drops mere copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.proposers.recognition import views
from workbench.proposers.recognition.graph import YOURSELF, aten_name, names, python_expression
from workbench.records import Facts, Operation

PARTS = ("split", "split_with_sizes", "unbind", "chunk", "unsafe_split")  # return several views, for getitem
ALIASES = (
    *views.NAMES,
    *PARTS,
    "detach",
    "alias",
    "slice",
    "select",
    "narrow",
    "expand",
    "diagonal",
    "as_strided",
    "unfold",
    "_unsafe_view",
    "_reshape_alias",
    "lift_fresh",
    "view_as_real",
    "view_as_complex",
)


KEPT = ("input_modified", "state_assigned")  # degeneracies of modules that leave something for later calls


def why_not(facts: Facts) -> str | None:
    """A line on a write that a kernel must not or would not do; None if there is none.

    Such a write goes to the module's inputs, to its own state, or to a value that is read under another name.
    """
    if (reason := _say_part_write(facts)) is not None:
        return reason
    if changed := [item.message for item in facts.degeneracies if item.kind in KEPT]:
        return f"the planner has no kernel for this module: {changed[0]}"
    if state := list_written_state(facts.graph):
        return f"the planner has no kernel for a module whose forward writes to its own {', '.join(state)}; {YOURSELF}"
    if reads_overwritten(facts.graph):
        return (
            "the planner has no kernel for a module that writes to a view of a value and reads the value after it; "
            f"{YOURSELF}"
        )
    return None


def _say_part_write(facts: Facts) -> str | None:
    """A line on the first write into a part of a tensor, `state[:, 1:] = ...`; None if there is none, or if a kernel
    can leave it out because nothing reads the tensor after it.
    """
    found = _find_part_write(facts)
    if found is None:
        return None
    op, of = found
    is_kept = of in facts.forward_arguments or ":" in of
    if not is_kept and not reads_overwritten(facts.graph):
        return None
    place = dict(facts.places).get(op.name)
    where = f" ({place})" if place else ""
    whole = "let forward make the whole tensor, as by torch.cat or torch.where"
    if is_kept:
        target = python_expression(of)
        whose = f"its {'own ' if ':' in of else 'input '}{target.removeprefix('self.')}"
        whole = f"{whole}, and write all of it: {target}.copy_(...)"
    else:
        whose = "a tensor"
    return f"the planner has no kernel for a module that writes into a part of {whose}{where}; {whole}; {YOURSELF}"


def _find_part_write(facts: Facts) -> tuple[Operation, str] | None:
    """(the first call that writes to a part of a tensor, whose part it is)."""
    given = (
        *facts.cases[0].inputs,
        *(
            dataclasses.replace(one, name=f"{kind}:{one.name}")
            for kind in ("param", "buffer")
            for one in facts.parameters
        ),
    )
    sizes = {spec.name: spec.elements for spec in given} | {
        op.name: op.result[0].elements for op in facts.graph if op.result
    }
    base: dict[str, str] = {}  # name -> whose memory it is
    by_name = {op.name: op for op in facts.graph}
    for op in facts.graph:
        written = list_written(op)
        for name in written:
            of = base.get(name, name)
            if sizes.get(name, 0) < sizes.get(of, 0):
                return op, of
        if written or (op.operands and _is_view(op, by_name)):
            first = written[0] if written else op.operands[0]
            base[op.name] = base.get(first, first)
    return None


def list_written_state(graph: tuple[Operation, ...]) -> list[str]:
    """Names of parameters and buffers that a graph writes, also through views; batch norm's kernels write its own."""
    written = [name for name in find_written(graph) if name.startswith(("param:", "buffer:"))]
    return sorted(_strip_prefix(name) for name in written if not name.endswith("num_batches_tracked"))


def drop_copies(facts: Facts) -> Facts:
    """The same facts without copies that change the layout only; those that forward returns, or writes to, stay."""
    return _drop(facts, lambda op, _: aten_name(op) == "clone")


def remove_noop_expands(facts: Facts) -> Facts:
    """The same facts without expansions to the shape that a value has already."""
    return _drop(facts, lambda op, shape: aten_name(op) == "expand" and shape == op.result[0].shape)


def _drop(facts: Facts, is_same: Callable[[Operation, tuple[int, ...] | None], bool]) -> Facts:
    """The same facts without operations, told by them and their operand's shape, whose results are their operands."""
    found = []
    for graph, case in ((facts.graph, facts.cases[0]), (facts.full_graph, facts.cases[-1])):
        shapes = {spec.name: spec.shape for spec in case.inputs} | {
            op.name: op.result[0].shape for op in graph if op.result
        }
        results = graph[-1].operands if graph else ()
        same: dict[str, str] = {}
        kept = []
        written = find_written(graph)
        for given in graph:
            op = dataclasses.replace(given, operands=tuple(_renamed(text, same) for text in given.operands))
            fixed = op.name in results or not written.isdisjoint((op.name, *op.operands[:1]))
            if not fixed and op.operands and op.result and is_same(op, shapes.get(op.operands[0])):
                same[op.name] = op.operands[0]
            else:
                kept.append(op)
        found.append(tuple(kept))
    return dataclasses.replace(facts, graph=found[0], full_graph=found[1])


def _renamed(text: str, same: dict[str, str]) -> str:
    """An operand's text with other names of values."""
    if text.startswith("["):
        return f"[{', '.join(same.get(part, part) for part in names(text, numbers=True))}]"
    return same.get(text, text)


def reads_overwritten(graph: tuple[Operation, ...]) -> bool:
    """Whether a name is used after its memory was written under another name, so that it stands for two values.

    A write gives a new name to the tensor on which it was called, and to no other.
    """
    base: dict[str, str] = {}  # name -> whose memory it is
    gone: set[str] = set()
    by_name = {op.name: op for op in graph}
    for op in graph:
        if gone & {name for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}:
            return True
        written = [base.get(name, name) for name in list_written(op)]
        gone |= {*written, *(name for name, of in base.items() if of in written)}
        if written or (op.operands and _is_view(op, by_name)):
            base[op.name] = written[0] if written else base.get(op.operands[0], op.operands[0])
    return False


def find_written(graph: tuple[Operation, ...]) -> set[str]:
    """Names of values whose memory some call writes, also those of views of it and of what it is a view of."""
    base: dict[str, str] = {}  # name -> whose memory it is
    by_name = {op.name: op for op in graph}
    written: set[str] = set()
    for op in graph:
        changed = [base.get(name, name) for name in list_written(op)]
        written |= {*changed}
        if changed or (op.operands and _is_view(op, by_name)):
            base[op.name] = changed[0] if changed else base.get(op.operands[0], op.operands[0])
    return written | {name for name, of in base.items() if of in written}


def list_written(op: Operation) -> list[str]:
    """The values that a call writes to: the first operand of `add_`, `out` of `add.out`."""
    if not op.target.startswith("aten."):
        return []
    out = [name for key, text in op.keywords if key == "out" for name in names(text)]
    name = aten_name(op)
    in_place = name.startswith("__i") if name.startswith("__") else name.endswith("_")  # __ixor__, add_; not __rshift__
    return out + (names(op.operands[0]) if in_place and op.operands else [])


def _is_view(op: Operation, by_name: dict[str, Operation]) -> bool:
    of = by_name.get(op.operands[0])
    return aten_name(op) in ALIASES or ("getitem" in op.target and of is not None and aten_name(of) in PARTS)


def _strip_prefix(name: str) -> str:
    return name.removeprefix("buffer:").removeprefix("param:")
