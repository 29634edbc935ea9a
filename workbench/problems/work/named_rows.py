"""Counts the rows of tensors that a graph reads by integer inputs: each row that an index names, once.

Used in workers only: it imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.records import Operation, aten_name, record

# calls that take whole rows of their first operand -> the position of the operand that names them
NAMING = {"index": 1, "index_select": 2, "embedding": 1, "_embedding_bag": 1, "_embedding_bag_forward_only": 1}
SEEN_THROUGH = ("alias", "detach")


@record
class Named:
    """A tensor of which only `rows` of its `of` rows are read, by these calls of the graph."""

    tensor: str
    rows: int
    of: int
    calls: tuple[str, ...]


def find_named_rows(
    graph: tuple[Operation, ...], shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, torch.Tensor]
) -> tuple[Named, ...]:
    """The inputs, parameters (`state:name`) and buffers that are read by rows only, where all indices are known."""
    readers: dict[str, list[Operation]] = {}
    for op in graph:
        for text in (*op.operands, *(text for _, text in op.keywords)):
            for name in _names(text):
                readers.setdefault(name, []).append(op)
    found = []
    for name in list(readers):
        key = name if name in shapes else f"state:{name.split(':', 1)[-1]}"
        indices = [_index_of(op, name, shapes.get(key, ()), values) for op in readers[name]]
        if key in shapes and indices and all(index is not None for index in indices):
            rows = torch.cat([index.reshape(-1).long() for index in indices if index is not None]).unique().numel()
            calls = tuple(op.name for op in readers[name])
            found.append(Named(tensor=key, rows=rows, of=shapes[key][0], calls=calls))
    return tuple(found)


def _index_of(
    op: Operation, name: str, shape: tuple[int, ...], values: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """The numbers of the rows that a call reads of a tensor; None if they are not known, or it reads something else."""
    kind = aten_name(op)
    if kind not in NAMING or op.operands[0] != name or not shape or len(op.operands) <= NAMING[kind]:
        return None
    if kind == "index_select" and op.operands[1] != "0":
        return None
    text = op.operands[NAMING[kind]]
    given = _names(text)
    value = values.get(given[0]) if len(given) == 1 else None
    if value is None or value.dtype in (torch.bool, torch.uint8) or (kind == "index" and not text.startswith("[")):
        return None
    others = [part for place, part in enumerate(op.operands) if place not in (0, NAMING[kind])]
    return None if name in others else value % max(shape[0], 1)  # a negative index counts from the end


def _names(text: str) -> list[str]:
    inner = text[1:-1] if text.startswith("[") else text
    return [part.strip() for part in inner.split(",")]
