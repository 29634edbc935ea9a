"""Takes an embedding bag of bags of one length apart: rows of the table, and their sum or mean in each bag.

`nn.EmbeddingBag` of indices (bags, length) flattens them and makes the offsets by arange; bags with offsets of their
own are rows of a graph, see `patterns.graphs`.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name
from workbench.proposers.recognition.simplify import drop_unread
from workbench.records import Facts, Operation, TensorSpec

BAGS = ("_embedding_bag", "_embedding_bag_forward_only")
REDUCTIONS = {"0": "sum.dim_IntList", "1": "mean.dim"}  # by embedding_bag's numbers of its modes


def split_bags(facts: Facts) -> Facts:
    """The same facts with a gather and a reduction in place of such a bag."""
    specs = {spec.name: spec for spec in facts.cases[0].inputs}
    graph = _split(facts.graph, specs)
    if graph == facts.graph:
        return facts
    full = {spec.name: spec for spec in (*facts.full, *facts.cases[-1].inputs)}
    at_full = _split(facts.full_graph or facts.graph, full, keep=not facts.full_graph)
    return dataclasses.replace(
        facts,
        graph=graph,
        full_graph=at_full if facts.full_graph else (),
        full=tuple(full.values()) if facts.full else (),
    )


def _split(graph: tuple[Operation, ...], specs: dict[str, TensorSpec], *, keep: bool = False) -> tuple[Operation, ...]:
    """The graph with the two calls; specs of their results go to `specs`, which has those of the others if `keep`."""
    specs |= {op.name: op.result[0] for op in graph if op.result and not (keep and op.name in specs)}
    by_name = {op.name: op for op in graph}
    made: list[Operation] = []
    apart: dict[str, str] = {}  # a bag -> the value that it gives
    dropped: set[str] = set()
    for op in graph:
        indices = _find_indices(op, by_name, specs, keep)
        if indices:
            table, flat, offsets, _, mode = op.operands[:5]
            bags, width = specs[op.name].shape
            shape = (bags, specs[indices].shape[1], width)
            rows = TensorSpec(
                name=f"{op.name}_rows", shape=shape, dtype=specs[op.name].dtype, strides=(shape[1] * width, width, 1)
            )
            total = dataclasses.replace(specs[op.name], name=f"{op.name}_total")
            specs |= {rows.name: rows, total.name: total}
            made.append(_call(rows, "embedding.default", (table, indices)))
            made.append(_call(total, REDUCTIONS[mode], (rows.name, "[1]")))
            apart[op.name] = total.name
            dropped |= {op.name, flat, offsets, by_name[flat].operands[0]}
        elif "getitem" in op.target and op.operands[0] in apart and op.operands[1] == "0":
            op = dataclasses.replace(op, target="aten.alias.default", operands=(apart[op.operands[0]],))
        made.append(op)
    return drop_unread(made, dropped)


def _call(spec: TensorSpec, target: str, operands: tuple[str, ...]) -> Operation:
    return Operation(name=spec.name, target=f"aten.{target}", operands=operands, result=(spec,))


def _find_indices(op: Operation, by_name: dict[str, Operation], specs: dict[str, TensorSpec], keep: bool) -> str:
    """The indices (bags, length) of a bag whose offsets count the lengths; "" for any other call.

    With `keep` the specs are those at another size than the calls, where the offsets have been looked at.
    """
    if aten_name(op) not in BAGS or op.keywords or op.operands[4] not in REDUCTIONS:
        return ""
    if any(text not in ("False", "None") for text in op.operands[5:]):  # gradients' form, weights
        return ""
    flat, offsets = by_name.get(op.operands[1]), by_name.get(op.operands[2])
    if flat is None or offsets is None or aten_name(flat) not in ("view", "reshape", "_unsafe_view"):
        return ""
    of = specs.get(flat.operands[0])
    if of is None or len(of.shape) != 2 or aten_name(offsets) != "arange":
        return ""
    bags, length = of.shape
    counts = ("0", str(bags * length), str(length))
    return flat.operands[0] if keep or offsets.operands == counts else ""
