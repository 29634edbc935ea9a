"""Takes an embedding bag of bags of one length apart: rows of the table, and their sum or mean in each bag.

`nn.EmbeddingBag` of indices (bags, length) flattens them and makes the offsets by arange; bags with offsets of their
own are rows of a graph, see `patterns.graphs`.
"""

from __future__ import annotations

from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.records import Facts, Operation

BAGS = ("_embedding_bag", "_embedding_bag_forward_only")
REDUCTIONS = {"0": "aten.sum.dim_IntList", "1": "aten.mean.dim"}  # by embedding_bag's numbers of its modes


def split_bags(facts: Facts) -> Facts:
    """The same facts with a gather and a reduction in place of such a bag."""
    unread = set[str]()

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        bag = graph.producer_of_item(op, *BAGS)
        indices = "" if bag is None else _find_indices(bag, graph)
        if bag is None or not indices:
            return None
        table, flat, offsets, _, mode = bag.operands[:5]
        unread.update((bag.name, flat, offsets, graph.by_name[flat].operands[0]))
        total = graph.specs[bag.name]
        bags, width = total.shape
        rows = f"{bag.name}_rows"
        gathered = reshape_spec(total, (bags, graph.specs[indices].shape[1], width), rows)
        return [
            make_operation(rows, "embedding", (table, indices), gathered),
            make_operation(op.name, REDUCTIONS[mode], (rows, "[1]"), op.result[0]),
        ]

    return rewrite(facts, write, unread)


def _find_indices(op: Operation, graph: Graph) -> str:
    """The indices (bags, length) of a bag whose offsets count the lengths; "" for any other call."""
    if op.keywords or op.operands[4] not in REDUCTIONS:
        return ""
    if any(text not in ("False", "None") for text in op.operands[5:]):  # gradients' form, weights
        return ""
    flat = graph.producer(op.operands[1], "view", "reshape", "_unsafe_view")
    offsets = graph.producer(op.operands[2], "arange")
    shape = None if flat is None else graph.shape(flat.operands[0])
    if flat is None or offsets is None or shape is None or len(shape) != 2:
        return ""
    bags, length = shape
    counts = ("0", str(bags * length), str(length))
    return flat.operands[0] if graph.is_resized or offsets.operands == counts else ""
