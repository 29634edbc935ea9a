"""Numbers of a graph that are others at full size than at the shrunk case: what is written into a kernel from the one is wrong at the other."""

from __future__ import annotations

from workbench.records import Operation

ARITHMETIC = (
    "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "pow", "remainder", "fmod", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "addmm", "baddbmm", "addcmul", "addcdiv", "lerp",
    "ge", "gt", "le", "lt", "eq", "ne", "where", "masked_fill", "leaky_relu", "elu", "softplus", "hardtanh", "threshold", "scalar_tensor", "full_like", "var", "var_mean", "std", "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
GROUPS = {"native_group_norm": 6, "convolution": 8}  # the operand that says how many groups there are


def varying(shrunk: tuple[Operation, ...], full: tuple[Operation, ...]) -> tuple[str, ...]:
    """One sentence for each such number of two graphs of the same calls."""
    return tuple(dict.fromkeys(said for one, other in zip(shrunk, full, strict=True) for said in _of_call(one, other)))


def _of_call(one: Operation, other: Operation) -> list[str]:
    name = one.target.removeprefix("aten.").split(".")[0].rstrip("_")
    pairs = list(zip((*one.operands, *(value for _, value in one.keywords)), (*other.operands, *(value for _, value in other.keywords)), strict=False))
    if name in GROUPS:
        pairs = pairs[GROUPS[name] : GROUPS[name] + 1] if not _depthwise(one, other) else []
    elif name not in ARITHMETIC:
        return []
    return [f"{name} takes {a} at the sizes that are emulated and {b} at full size" for a, b in pairs if a != b and _is_number(a) and _is_number(b)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _depthwise(one: Operation, other: Operation) -> bool:
    """Whether each channel of a convolution is a group of its own, at both sizes."""
    return one.target.startswith("aten.convolution") and all(op.result and op.operands[8] == str(op.result[0].shape[1]) for op in (one, other))
