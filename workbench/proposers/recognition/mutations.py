"""In-place writes of a module, where a kernel that only computes the result would not do the same."""

from __future__ import annotations

from workbench.proposers.recognition import views
from workbench.proposers.recognition.graph import YOURSELF, names, short
from workbench.records import Facts, Operation

PARTS = (
    "split",
    "split_with_sizes",
    "unbind",
    "chunk",
    "unsafe_split",
)  # give several views, which are taken by getitem
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


def why_not(facts: Facts) -> str | None:
    """One line on a write that no kernel may or would do; None where there is none.

    The writes are to the module's inputs, to its own state, or to a value that is read under another name.
    """
    if changed := [item.message for item in facts.degeneracies if item.kind == "input_modified"]:
        return f"the planner has no kernel for this module: {changed[0]}"
    state = sorted(
        {
            _bare(name)
            for op in facts.graph
            for name in _written(op)
            if ":" in name and not name.endswith("num_batches_tracked")
        }
    )
    if state:
        return f"the planner has no kernel for a module whose forward writes to its own {', '.join(state)}; {YOURSELF}"
    if reads_overwritten(facts.graph):
        return (
            "the planner has no kernel for a module that writes to a view of a value and reads the value after it; "
            f"{YOURSELF}"
        )
    return None


def reads_overwritten(graph: tuple[Operation, ...]) -> bool:
    """Whether a name is used after its memory was written to under another name: it then stands for two values.

    A write gives the tensor it was called on a new name, and only that.
    """
    base: dict[str, str] = {}  # name -> whose memory it is
    gone: set[str] = set()
    by_name = {op.name: op for op in graph}
    for op in graph:
        if gone & {name for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}:
            return True
        written = [base.get(name, name) for name in _written(op)]
        gone |= {*written, *(name for name, of in base.items() if of in written)}
        if written or (op.operands and _is_view(op, by_name)):
            base[op.name] = written[0] if written else base.get(op.operands[0], op.operands[0])
    return False


def _written(op: Operation) -> list[str]:
    """The values that a call writes to: the first operand of `add_`, `out` of `add.out`."""
    if not op.target.startswith("aten."):
        return []
    out = [name for key, text in op.keywords if key == "out" for name in names(text)]
    return out + (names(op.operands[0]) if short(op).endswith("_") and op.operands else [])


def _is_view(op: Operation, by_name: dict[str, Operation]) -> bool:
    of = by_name.get(op.operands[0])
    return short(op) in ALIASES or ("getitem" in op.target and of is not None and short(of) in PARTS)


def _bare(name: str) -> str:
    return name.removeprefix("buffer:").removeprefix("param:")
