"""ATen's reductions, norms and losses -> reductions of the language, over axes of the shape that they reduce."""

from __future__ import annotations

from collections.abc import Callable

from workbench.language import Call
from workbench.language.expressions.lowering import call, log_sum
from workbench.proposers.recognition.graph import Unrecognised, aten_name, parse_number
from workbench.proposers.recognition.operands import find_argument, parse_constant
from workbench.records import Operation, record

SIMPLE = {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "prod": "prod",
    "argmax": "argmax",
    "argmin": "argmin",
    "max": "max",
    "min": "min",
}


@record
class Reduced:
    """A reduction: its operands, its axes, keepdim, and a function from the operands' expressions to its own."""

    of: tuple[str, ...]
    axes: tuple[int, ...] | None  # None: all
    keep: bool
    make: Callable[..., object]


def axes_of(text: str) -> tuple[int, ...] | None:
    """The axes in text such as `[1, 2]` or `1`. `None` and `[]` mean all axes."""
    found = tuple(int(part) for part in text.strip("[]").split(",") if part.strip() and part.strip() != "None")
    return found or None


def find_reduction(op: Operation) -> Reduced | None:
    """The reduction of a call; None if it is none."""
    name = aten_name(op)
    if dict(op.keywords).get("dtype", "None") not in ("None", "torch.float32"):
        return None
    if name in SIMPLE:
        return _simple_reduction(op, name)
    if name in ("linalg_vector_norm", "norm"):
        return _vector_norm(op, name)
    if name in ("var", "std"):
        return _spread(op, name)
    if name == "logsumexp":
        return Reduced(
            of=op.operands[:1],
            axes=axes_of(op.operands[1]),
            keep=find_argument(op, 2, "keepdim", "False") == "True",
            make=log_sum,
        )
    return _loss(op, name)


def _simple_reduction(op: Operation, name: str) -> Reduced | None:
    if name in ("max", "min") and op.target.endswith((".other", ".dim_max")):
        return None
    if op.target.endswith(".default") and name in ("sum", "mean", "prod", "max", "min"):
        return Reduced(of=op.operands[:1], axes=None, keep=False, make=lambda x: call(SIMPLE[name], x))
    keep = find_argument(op, 2, "keepdim", "False") == "True"
    return Reduced(
        of=op.operands[:1],
        axes=axes_of(find_argument(op, 1, "dim", "None")),
        keep=keep,
        make=lambda x: call(SIMPLE[name], x),
    )


def _vector_norm(op: Operation, name: str) -> Reduced:
    order = find_argument(op, 1, "ord" if name != "norm" else "p", "2")
    p = 2.0 if order == "None" else parse_number(order)
    makes: dict[float, Callable[[object], object]] = {
        2.0: lambda x: call("sqrt", call("sum", call("mul", x, x))),
        1.0: lambda x: call("sum", call("abs", x)),
        float("inf"): lambda x: call("max", call("abs", x)),
        float("-inf"): lambda x: call("min", call("abs", x)),
    }
    if p not in makes:
        raise Unrecognised(name)
    return Reduced(
        of=op.operands[:1],
        axes=axes_of(find_argument(op, 2, "dim", "None")),
        keep=find_argument(op, 3, "keepdim", "False") == "True",
        make=makes[p],
    )


def _spread(op: Operation, name: str) -> Reduced:
    correction = dict(op.keywords).get("correction", "1")
    if correction not in ("0", "1", "0.0", "1.0", "None") or not op.target.endswith("correction"):
        raise Unrecognised(name)
    kind = "var" if float(correction if correction != "None" else 1) == 0 else "var1"
    return Reduced(
        of=op.operands[:1],
        axes=axes_of(find_argument(op, 1, "dim", "None")),
        keep=dict(op.keywords).get("keepdim", "False") == "True",
        make=lambda x: call(kind, x) if name == "var" else call("sqrt", call(kind, x)),
    )


def _loss(op: Operation, name: str) -> Reduced | None:
    made = LOSSES.get(name)
    if made is None:
        return None
    if _weighted(op):
        raise Unrecognised(name)
    place, element = made
    kind = {"1": "mean", "2": "sum"}.get(find_argument(op, place, "reduction", "1"))
    return (
        None
        if kind is None
        else Reduced(of=op.operands[:2], axes=None, keep=False, make=lambda x, y: call(kind, element(op, x, y)))
    )


def unreduced_loss(op: Operation, build: Callable[[str], object]) -> object | None:
    """The expression of a loss with reduction none; None for any other call."""
    made = LOSSES.get(aten_name(op))
    if made is None or find_argument(op, made[0], "reduction", "1") != "0" or _weighted(op):
        return None
    return made[1](op, build(op.operands[0]), build(op.operands[1]))


def _weighted(op: Operation) -> bool:
    """Whether a loss has weights, which its expression here lacks."""
    if aten_name(op) == "binary_cross_entropy_with_logits":
        return {find_argument(op, 2, "weight", "None"), find_argument(op, 3, "pos_weight", "None")} != {"None"}
    return aten_name(op) == "binary_cross_entropy" and find_argument(op, 2, "weight", "None") != "None"


def _square(op: Operation, x: object, y: object) -> object:
    away = call("sub", x, y)
    return call("mul", away, away)


def _huber(op: Operation, x: object, y: object) -> object:
    """Quadratic near 0, linear beyond delta. smooth_l1 also divides by delta."""
    smooth = aten_name(op) == "smooth_l1_loss"
    delta = parse_constant(find_argument(op, 3, "beta" if smooth else "delta", "1.0"))
    if delta == 0:
        raise Unrecognised(aten_name(op))
    away: Call = call("abs", call("sub", x, y))
    if smooth:
        return call(
            "where",
            call("lt", away, delta),
            call("mul", call("mul", away, away), 0.5 / float(str(delta))),
            call("sub", away, 0.5 * float(str(delta))),
        )
    return call(
        "where",
        call("le", away, delta),
        call("mul", call("mul", away, away), 0.5),
        call("mul", call("sub", away, 0.5 * float(str(delta))), delta),
    )


def _logits(op: Operation, x: object, y: object) -> object:
    """(1 - y) x - log sigmoid(x)."""
    return call("sub", call("mul", call("sub", 1, y), x), call("logsigmoid", x))


def _entropy(op: Operation, x: object, y: object) -> object:
    """-(y log x + (1 - y) log(1 - x)), with logarithms of at least -100 as in torch."""
    first = call("mul", y, call("max", call("log", x), -100))
    second = call("mul", call("sub", 1, y), call("max", call("log1p", call("neg", x)), -100))
    return call("neg", call("add", first, second))


def _soft_margin(op: Operation, x: object, y: object) -> object:
    return call("softplus", call("neg", call("mul", x, y)))


LOSSES: dict[str, tuple[int, Callable[[Operation, object, object], object]]] = {
    "mse_loss": (2, _square),
    "smooth_l1_loss": (2, _huber),
    "huber_loss": (2, _huber),
    "binary_cross_entropy_with_logits": (4, _logits),
    "binary_cross_entropy": (3, _entropy),
    "soft_margin_loss": (2, _soft_margin),
}
