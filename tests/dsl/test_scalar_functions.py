"""The table of scalar functions against torch's own declarations, the kernels' functions and the planner."""

from __future__ import annotations

import pytest
import torch

from workbench.kernels import scalars as kernels
from workbench.language.expressions.scalars import ATEN, FUNCTIONS, AtenCall, emitted_name
from workbench.problems.numbers import differs
from workbench.records import Operation, TensorSpec

VALUE = TensorSpec(name="x", shape=(4,), dtype="float32", strides=(1,))


def schema_of(call: AtenCall) -> torch.FunctionSchema:
    """The overload of an ATen operation that has the call's arguments."""
    packet = getattr(torch.ops.aten, call.name)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    wanted = {name for name, _ in call.numbers}
    return next(one for one in schemas if wanted <= {argument.name for argument in one.arguments})


@pytest.mark.parametrize("name", ATEN)
def test_arguments_stand_where_torch_has_them_with_its_defaults(name: str) -> None:
    function, call = ATEN[name]
    arguments = schema_of(call).arguments
    for place, (argument, default) in enumerate(call.numbers, start=function.values):
        own = arguments[place]
        assert own.name == argument
        if default not in ("", "None", "none", "False"):
            assert float(own.default_value) == float(default)
        elif own.has_default_value():
            assert str(own.default_value) == default
        else:
            assert default == ("None" if "Optional" in str(own.type) else "")


def test_every_function_of_the_language_is_one_of_the_kernels() -> None:
    assert [name for name in FUNCTIONS if not callable(getattr(kernels, emitted_name(name), None))] == []


@pytest.mark.parametrize("name", [name for name, (_, call) in ATEN.items() if call.numbers and name != "gelu"])
def test_a_number_that_differs_at_full_size_is_noticed(name: str) -> None:
    function, call = ATEN[name]
    for place in range(len(call.numbers)):
        graphs = []
        for value in ("0.25", "0.5"):
            numbers = ["1.0"] * len(call.numbers)
            numbers[place] = value
            operands = (*("x" for _ in range(function.values)), *numbers)
            graphs.append((Operation(name=name, target=f"aten.{name}.default", operands=operands, result=(VALUE,)),))
        assert differs(*graphs) and not differs(graphs[0], graphs[0])
