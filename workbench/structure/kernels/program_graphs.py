"""The graph of a muCUTLASS program: its stages with their settings, what they read, and what is fused into them.

Nodes are tensors (`kind` "tensor"), stages (`kind` is the operation, such as "gemm") and epilogues. Edges go where the
data go. A stage's settings are attributes of its node, named as people read them: "tile m", "stages", "schedule".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from workbench.landscapes.keys import all_settings
from workbench.language import parse
from workbench.language.ir import Call, Stage
from workbench.structure.graph import Graph, collect_columns

Attributes = dict[str, float | str]

PARTS = {  # names of the numbers of a setting that has several
    "tile": ("tile m", "tile n", "tile k"),
    "thread_tile": ("thread tile m", "thread tile n"),
    "cluster": ("cluster m", "cluster n"),
}
WORDS = {"raster": "raster", "store": "store", "splitk": "splitk"}  # settings of a word and a number
NUMBER = {"raster": "raster band", "store": "store buffers", "splitk": "split k"}
CHOICES = ("schedule", "mma")  # a stage without them is as good a choice: "none"


def stage_attributes(settings: Mapping[str, tuple[object, ...]]) -> Attributes:
    """What a person reads of a stage's settings; numbers where a setting has numbers, "yes" where it has no value."""
    found: Attributes = dict.fromkeys(CHOICES, "none")
    for name, values in settings.items():
        if name == "arch":
            continue
        if not values:
            found[name] = "yes"
        for place, value in enumerate(values):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                parts = PARTS.get(name, (NUMBER.get(name, name.replace("_", " ")),))
                found[parts[min(place, len(parts) - 1)]] = float(value)
            else:
                found[name.replace("_", " ")] = str(value)
    tile = [found.get(part) for part in PARTS["tile"][:2]]
    if all(isinstance(part, float) for part in tile):
        found["tile area"] = float(numpy.prod(numpy.array(tile, dtype=numpy.float64)))
    if "cluster m" in found:
        found["cluster CTAs"] = float(found["cluster m"]) * float(found.get("cluster n", 1.0))
    return found


def attributes_of_program(text: str) -> list[Attributes]:
    """The attributes of each stage of a program, with the defaults that a Hopper gemm leaves out."""
    stages = parse(text).stages
    known = all_settings(text)
    found = []
    for number in range(1, len(stages) + 1):
        mark = f" {number}"
        own = {
            name.removesuffix(mark) if number > 1 else name: values
            for name, values in known.items()
            if (name.endswith(mark) if number > 1 else " " not in name)
        }
        found.append({"operation": stages[number - 1].operation.name, **stage_attributes(own)})
    return found


def program_graph(text: str, with_settings: bool = True) -> Graph:
    """The graph of a program, directed. Without settings it holds what is computed and nothing of how."""
    program = parse(text)
    builder = _Builder()
    attributes = attributes_of_program(text) if with_settings else [{} for _ in program.stages]
    for stage, own in zip(program.stages, attributes, strict=True):
        builder.add_stage(stage, own)
    return builder.graph()


class _Builder:
    """Collects nodes and edges, stage by stage."""

    def __init__(self) -> None:
        self._nodes: list[Attributes] = []
        self._names: list[str] = []
        self._edges: list[tuple[int, int]] = []
        self._operand: list[str] = []
        self._made: dict[str, int] = {}

    def add_stage(self, stage: Stage, attributes: Attributes) -> None:
        """The stage with its operands before it, and its epilogues in a chain behind it."""
        last = self._add({"kind": stage.operation.name, "call": describe_call(stage.operation), **attributes}, "stage")
        self._join_operands(stage.operation, last)
        for call in stage.epilogues:
            node = self._add({"kind": f"epilogue {call.name}", "call": describe_call(call)}, call.name)
            self._edges.append((last, node))
            self._operand.append("result")
            self._join_operands(call, node)
            last = node
        if stage.result is not None:
            self._made[stage.result] = last

    def _join_operands(self, call: Call, node: int) -> None:
        """Edges from what a call reads; its place among the operands is an attribute of the edge."""
        for place, name in enumerate(names_of(call)):
            if name not in self._made:
                self._made[name] = self._add({"kind": "tensor"}, name)
            self._edges.append((self._made[name], node))
            self._operand.append(str(place))

    def _add(self, attributes: Attributes, name: str) -> int:
        self._nodes.append(attributes)
        self._names.append(name)
        return len(self._nodes) - 1

    def graph(self) -> Graph:
        return Graph.of(
            self._edges,
            size=len(self._nodes),
            directed=True,
            node_columns=collect_columns(self._nodes),
            edge_columns={"operand": numpy.array(self._operand, dtype=numpy.str_)},
            names=self._names,
        )


def names_of(call: Call) -> tuple[str, ...]:
    """Names that a call reads, in the order of their numbers: tensors, and words such as `last`."""
    values = [*call.positional, *(value for _, value in sorted(call.named))]
    return tuple(dict.fromkeys(name for value in values for name in _names(value)))


def _names(value: object) -> tuple[str, ...]:
    """Names in a value, in order of first use."""
    if isinstance(value, Call):
        parts = (*value.positional, *(part for _, part in sorted(value.named)))
        return tuple(name for part in parts for name in _names(part))
    if isinstance(value, tuple):
        return tuple(name for part in value for name in _names(part))
    return (value,) if isinstance(value, str) else ()


def describe_call(call: Call) -> str:
    """A call as a text with its names numbered by first use."""
    numbers: dict[str, int] = {}
    shape = ", ".join(_shape(value, numbers) for value in call.positional)
    named = ", ".join(f"{name}={_shape(value, numbers)}" for name, value in sorted(call.named))
    return f"{call.name}({shape}; {named})"


def _shape(value: object, numbers: dict[str, int]) -> str:
    """An expression with numbers for the names in it."""
    if isinstance(value, Call):
        named = [f"{name}={_shape(part, numbers)}" for name, part in sorted(value.named)]
        return f"{value.name}({', '.join([*(_shape(part, numbers) for part in value.positional), *named])})"
    if isinstance(value, tuple):
        return f"({', '.join(_shape(part, numbers) for part in value)})"
    if isinstance(value, str):
        return f"_{numbers.setdefault(value, len(numbers))}"
    return repr(value)
