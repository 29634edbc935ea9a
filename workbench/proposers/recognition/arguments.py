"""Gives tensors inside of forward's arguments names of their own: `maps[0]` is `maps_0`, `cache.keys` is `cache_keys`.

Programs and matchers know plain names only; forward unpacks its arguments first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from workbench.records import Facts, Operation, TensorSpec


def list_unpacked(facts: Facts) -> tuple[tuple[str, str], ...]:
    """(plain name, expression in forward) of each tensor inside of an argument."""
    nested = dict.fromkeys(spec.name for case in facts.cases for spec in case.inputs if not spec.name.isidentifier())
    taken = {*facts.forward_arguments, *(op.name for op in (*facts.graph, *facts.full_graph))}
    found: dict[str, str] = {}
    for expression in nested:
        name = re.sub(r"\W+", "_", expression).strip("_")
        while name in taken:
            name += "_"
        taken.add(name)
        found[name] = expression
    return tuple(found.items())


def name_inputs(facts: Facts) -> Facts:
    """The same facts, in which forward takes each such tensor by its plain name."""
    names = {expression: name for name, expression in list_unpacked(facts)}
    if not names:
        return facts
    longest = sorted(map(re.escape, names), key=len, reverse=True)
    whole = re.compile(rf"(?<![\w.\]'\"])(?:{'|'.join(longest)})(?![\w.\[])")

    def rename(text: str) -> str:
        return whole.sub(lambda match: names[match[0]], text)

    arguments = {re.split(r"\W", expression, maxsplit=1)[0] for expression in names}
    return dataclasses.replace(
        facts,
        forward_arguments=(*(name for name in facts.forward_arguments if name not in arguments), *names.values()),
        graph=_rename_graph(facts.graph, rename),
        full_graph=_rename_graph(facts.full_graph, rename),
        full=_rename_specs(facts.full, rename),
        cases=tuple(dataclasses.replace(case, inputs=_rename_specs(case.inputs, rename)) for case in facts.cases),
    )


def _rename_graph(graph: tuple[Operation, ...], rename: Callable[[str], str]) -> tuple[Operation, ...]:
    return tuple(
        dataclasses.replace(
            op,
            operands=tuple(map(rename, op.operands)),
            keywords=tuple((key, rename(text)) for key, text in op.keywords),
        )
        for op in graph
    )


def _rename_specs(specs: tuple[TensorSpec, ...], rename: Callable[[str], str]) -> tuple[TensorSpec, ...]:
    return tuple(dataclasses.replace(spec, name=rename(spec.name)) for spec in specs)
