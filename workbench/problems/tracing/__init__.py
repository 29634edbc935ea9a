"""Traces a module on a call's inputs: its ATen calls. Used in workers only: it imports torch."""

from __future__ import annotations

import dataclasses
import re

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from workbench.problems import numbers
from workbench.problems.results import spec_of, specs_of_call, tensors_of
from workbench.problems.tracing.fakes import without_values
from workbench.records import Operation, TensorSpec
from workbench.wire import content_hash

MOST_LISTED = 16  # numbers of a constant that a graph lists
FRAME = re.compile(r'File "<(problem|module) ([^"]*)>", line (\d+)')  # of a problem, or of a module that it comes with


@dataclasses.dataclass(frozen=True)
class Trace:
    """A module as ATen calls, specs of its parameters and buffers, and where its calls are (`Facts.places`)."""

    graph: tuple[Operation, ...]
    parameters: tuple[TensorSpec, ...]
    places: tuple[tuple[str, str], ...]


def trace_graph(model: torch.nn.Module, inputs: list[object], arguments: tuple[str, ...]) -> Trace:
    """Trace a module on inputs, whose names are `arguments`."""
    state = {
        **{f"param:{n}": p for n, p in model.named_parameters()},
        **{f"buffer:{n}": p for n, p in model.named_buffers()},
    }

    def call(values: list[torch.Tensor], *args: object) -> object:
        named = {key.split(":", 1)[1]: value for key, value in zip(state, values, strict=True)}
        return tensors_of(torch.func.functional_call(model, named, args))

    with without_values():
        traced = make_fx(call, record_stack_traces=True)([value.detach() for value in state.values()], *inputs)
    labels = [*state, *arguments]
    names: dict[torch.fx.Node, str] = {}
    operations = []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            names[node] = labels[len(names)]
        elif node.op == "call_function":
            names[node] = _name_call(node.name, arguments)
            operations.append(
                Operation(
                    name=names[node],
                    target=str(node.target),
                    operands=tuple(_format_operand(a, names) for a in node.args),
                    keywords=tuple((k, _format_operand(v, names)) for k, v in node.kwargs.items()),
                    result=specs_of_call(node.meta.get("val")),
                )
            )
        elif node.op == "get_attr":  # a tensor that forward makes from numbers
            names[node] = _name_call(node.name, arguments)
            made = getattr(traced, node.target)
            value = (("value", _describe_constant(made)),)
            operations.append(
                Operation(
                    name=names[node], target=numbers.CONSTANT, operands=(), keywords=value, result=specs_of_call(made)
                )
            )
        elif node.op == "output":
            values = node.args[0]
            operations.append(
                Operation(name="output", target="output", operands=tuple(_format_operand(a, names) for a in values))
            )
    return Trace(
        graph=tuple(operations),
        parameters=tuple(spec_of(key.split(":", 1)[1], value) for key, value in state.items()),
        places=tuple((name, place) for node, name in names.items() if (place := _find_place(node))),
    )


def _find_place(node: torch.fx.Node) -> str:
    """The innermost line of the problem's own text that makes a call; "" if it is not known."""
    frames = FRAME.findall(node.stack_trace or "")
    if not frames:
        return ""
    kind, name, line = frames[-1]
    return f"line {line} of {name}" if kind == "module" else f"line {line}"


def _name_call(name: str, arguments: tuple[str, ...]) -> str:
    """The name of a call's result: torch.fx's, unless an argument of forward has it (`x[index]` is called "index")."""
    while name in arguments:
        name += "_result"
    return name


def _describe_constant(made: torch.Tensor) -> str:
    """The numbers of a tensor that forward makes, or their hash if they are many; "unknown" without numbers."""
    value = made.constant if isinstance(made, FakeTensor) else made
    if value is None:
        return "unknown"
    listed = str(value.tolist())
    return listed if value.numel() <= MOST_LISTED else content_hash(listed)


def _format_operand(value: object, names: dict[torch.fx.Node, str]) -> str:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_format_operand(item, names) for item in value) + "]"
    return repr(value)
