"""The extents of one convolution, from the facts of a problem."""

from __future__ import annotations

from workbench.proposers.ladders.base import Context
from workbench.records import record


@record
class Size:
    """One convolution: extents of the input and of the result, taps and stride of the filter along each axis."""

    images: int
    channels: int
    filters: int
    extents: tuple[int, ...]
    out: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    groups: int = 1
    transposed: bool = False


def size_of(context: Context) -> Size | None:
    """The extents at the full case; None if the facts do not tell them."""
    facts, found = context.facts, context.found
    case = next((case for case in facts.cases if case.name == "full"), None) if facts is not None else None
    operands = dict(found.operands)
    x = next((spec for spec in case.inputs if spec.name == operands.get("x")), None) if case is not None else None
    w = (
        next((spec for spec in facts.parameters if f"self.{spec.name}" == operands.get("w")), None)
        if facts is not None
        else None
    )
    if (
        case is None
        or x is None
        or w is None
        or not case.outputs
        or len(case.outputs[0].shape) != len(x.shape)
        or found.after
    ):
        return None
    out, named = case.outputs[0].shape, dict(found.operation.named)
    stride, groups = named.get("stride", 1), named.get("groups", 1)
    return Size(
        images=x.shape[0],
        channels=x.shape[1],
        filters=out[1],
        extents=x.shape[2:],
        out=out[2:],
        taps=w.shape[2:],
        stride=stride if isinstance(stride, tuple) else (int(str(stride)),) * len(out[2:]),
        groups=x.shape[1] if groups == "channels" else int(str(groups)),
        transposed=found.operation.name == "convtranspose",
    )
