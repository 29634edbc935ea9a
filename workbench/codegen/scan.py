"""scan -> a launch of the kernels in `workbench.kernels.scan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from workbench.codegen.expression_writer import expression, function_text
from workbench.codegen.guards import called
from workbench.codegen.launch import Hook, Launch
from workbench.kernels.scan.config import ScanConfig
from workbench.language.expressions.scalars import FUNCTIONS
from workbench.language.ir import Binding, Stage, names_in, number, setting


def lower_scan(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a scan: its configuration and its tensors in order."""
    value, named = stage.operation.positional[0], dict(stage.operation.named)
    names, bound = names_in(value), dict(binding.operands)
    axis = named.get("axis", "last")
    config = ScanConfig(
        op=str(named.get("op", "sum")),
        value=None if isinstance(value, str) else cast("Callable[..., object]", write_value(value)),
        exclusive=named.get("exclusive", 0) != 0,
        append_total=named.get("exclusive", 0) == 2,
        reverse=bool(named.get("reverse", 0)),
        axis=None if axis == "last" else int(str(axis)),
        lookback=setting(stage, "schedule") == "lookback",
        threads=number(stage, "threads", 256 if axis == "last" else 128),
        per_thread=number(stage, "per_thread", 16),
    )
    function = "scan_last_axis" if axis == "last" else "scan_other_axis"
    return Launch(
        entry=f"workbench.kernels.scan.host:{function}",
        static=(("cfg", config), ("names", tuple(called(name, bound) for name in names))),
        operands=names,
        many=(("inputs", names),),
    )


def write_value(value: object) -> Hook:
    """Return the hook that computes the scanned value from the operands' elements."""
    names = names_in(value)
    parameters = {name: f"{name}_element" if name in FUNCTIONS else name for name in names}
    body = [f"return {expression(value, parameters)}"]
    return Hook(name="scanned_value", source=function_text("scanned_value", tuple(parameters.values()), body))
