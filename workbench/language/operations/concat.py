"""concat(a, b, ..., axis=0): tensors side by side along an axis."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, THREADS, Argument, Operation


def check(stage: Stage) -> list[Rejection]:
    """Rejections of fewer than two tensors."""
    if len(stage.operation.positional) > 1:
        return []
    return [Rejection(field="operands", value="", reason="it names several tensors", legal="concat(a, b, axis=1)")]


OPERATIONS = (
    Operation(
        name="concat",
        about="concat(a, b, ..., axis=0): tensors of one dtype side by side along an axis (torch.cat)",
        settings=(ARCH, THREADS),
        check=check,
        arguments=(
            Argument(
                name="axis",
                legal="0 and more",
                reason="along which axis the tensors lie side by side",
                holds=lambda value: isinstance(value, int) and value >= 0,
            ),
        ),
        several=True,
    ),
)
