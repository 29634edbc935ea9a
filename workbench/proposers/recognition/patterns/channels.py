"""Norms by channel: batch norm (of the batch, with its running statistics, or by them), group norm, instance norm."""

from __future__ import annotations

import dataclasses

from workbench.language import Call, Stage
from workbench.language.operations.channel_norms import GROUP_MEANS, STATS
from workbench.proposers.recognition.epilogue_chain import EpilogueChain, find_chain
from workbench.proposers.recognition.graph import Computation, aten_name, find_producer, parse_number, python_expression
from workbench.proposers.recognition.patterns import convolutions, products
from workbench.proposers.recognition.patterns.reductions import axes_of
from workbench.records import Facts, Operation

VIEWS = ("view", "reshape", "_unsafe_view")


def match_batchnorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A batch norm; in evaluation mode an element-wise expression of the running statistics."""
    op = find_producer(by_name, output)
    if op is None or not is_batchnorm(op, by_name) or op.operands[0] in by_name:
        return None
    x, weight, bias, mean, variance, training = op.operands[:6]
    if training != "True":
        return _running_batchnorm(op, mean, variance)
    found = _find_statistics(facts, op)
    if found is None:
        return None
    affine = () if weight == "None" else (("weight", python_expression(weight)), ("bias", python_expression(bias)))
    named, running = found
    return Computation(
        kind="batchnorm",
        operation=Call(
            name="batchnorm", positional=("x",), named=(*named[:1], *(() if affine else (("affine", 0),)), *named[1:])
        ),
        operands=(("x", python_expression(x)), *affine, *running),
    )


def match_statistics(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """The statistics of a batch norm, which `split_norms` has made of it: a pair, of which a pipeline takes both."""
    op = by_name.get(output)
    if op is None or op.target != STATS or op.operands[0] in by_name:
        return None
    found = _find_statistics(facts, op)
    if found is None:
        return None
    named, running = found
    return Computation(
        kind=STATS,
        operation=Call(name=STATS, positional=("x",), named=named),
        operands=(("x", python_expression(op.operands[0])), *running),
    )


def is_batchnorm(op: Operation, by_name: dict[str, Operation]) -> bool:
    """Whether an operation is a batch norm that the language has, with all but x from the module."""
    if aten_name(op) not in ("native_batch_norm", "_native_batch_norm_legit") or len(op.operands) != 8:
        return False
    _, weight, bias, mean, variance, _, momentum, _ = op.operands
    return (
        not any(item in by_name for item in (weight, bias, mean, variance))
        and (weight == "None") == (bias == "None")
        and parse_number(momentum) is not None
    )


def _find_statistics(
    facts: Facts, op: Operation
) -> tuple[tuple[tuple[str, object], ...], tuple[tuple[str, str], ...]] | None:
    """(named arguments, operands) of what a batch norm computes of x by channel and keeps; None if it is unknown."""
    mean, variance, _, momentum, eps = op.operands[3:]
    counted = _batch_counter(facts, mean)
    if mean != "None" and counted is None:
        return None
    running = (("running", 1), ("momentum", float(momentum))) if mean != "None" else ()
    of_matrix = 1 if op.target == STATS else 2  # axes of what a norm of a matrix makes
    axis = (("axis", "first"),) if op.result and len(op.result[0].shape) == of_matrix else ()
    values = (("running_mean", mean), ("running_var", variance), ("batches", counted or "")) if running else ()
    return (
        (("eps", float(eps)), *running, *axis),
        tuple((name, python_expression(value)) for name, value in values),
    )


def _batch_counter(facts: Facts, mean: str) -> str | None:
    """The buffer in which a batch norm counts batches, if forward adds 1 to it."""
    name = mean.removesuffix("running_mean") + "num_batches_tracked"
    adds = (item.operands for item in facts.graph if item.target == "aten.add_.Tensor")
    return next((operands[0] for operands in adds if operands[0] == name and operands[1] == "1"), None)


def _running_batchnorm(op: Operation, mean: str, variance: str) -> Computation | None:
    """Batch norm in evaluation mode: element-wise, with the running statistics."""
    if mean == "None" or not op.result:
        return None
    x, weight, bias = op.operands[:3]
    shape = f".view(-1{', 1' * (len(op.result[0].shape) - 2)})"

    def spread(name: str) -> Call:
        return Call(name="spread", positional=(name,))

    scale: object = Call(
        name="rsqrt", positional=(Call(name="add", positional=(spread("variance"), float(op.operands[7]))),)
    )
    scale = Call(name="mul", positional=(scale, spread("weight"))) if weight != "None" else scale
    made = Call(name="mul", positional=(Call(name="sub", positional=("x", spread("mean_by"))), scale))
    made = Call(name="add", positional=(made, spread("bias"))) if bias != "None" else made
    given = {"mean_by": mean, "variance": variance, "weight": weight, "bias": bias}
    operands = [
        ("x", python_expression(x)),
        *((name, python_expression(value) + shape) for name, value in given.items() if value != "None"),
    ]
    return Computation(
        kind="elementwise", operation=Call(name="elementwise", positional=(made,)), operands=tuple(operands)
    )


def match_groupnorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """A group norm with what follows it element by element."""
    chain = _find_chain(facts, by_name, output)
    op = find_producer(by_name, chain.source.name) if chain is not None else None
    if (
        chain is None
        or op is None
        or aten_name(op) != "native_group_norm"
        or any(item in by_name for item in op.operands[:3])
        or (op.operands[1] == "None") != (op.operands[2] == "None")
    ):
        return None
    affine = op.operands[1] != "None"
    operands = [
        ("x", python_expression(op.operands[0])),
        *(
            (("weight", python_expression(op.operands[1])), ("bias", python_expression(op.operands[2])))
            if affine
            else ()
        ),
    ]
    named = (("groups", int(op.operands[6])), ("eps", float(op.operands[7])), *(() if affine else (("affine", 0),)))
    return Computation(
        kind="groupnorm",
        operation=Call(name="groupnorm", positional=("x",), named=named),
        operands=(*operands, *chain.tensors),
        epilogues=chain.calls,
    )


def _find_chain(facts: Facts, by_name: dict[str, Operation], output: str) -> EpilogueChain | None:
    """What follows a norm element by element, with tensors that have a value for each channel."""

    def read(facts: Facts, op: Operation, value: str) -> tuple[str, str] | None:
        rank = len(op.result[0].shape) if op.result else 0
        found = products.read_operand(facts, op, value) if rank == 2 else convolutions.read_operand(facts, op, value)
        return found if found is not None and found[1] == "n" else None

    return find_chain(facts, by_name, output, read, reserved=("weight", "bias", "residual"))


def match_groupnorm_means(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """The means of a group norm's channels over their positions, or of its samples over all but the batch."""
    mean = by_name.get(output)
    if mean is None or mean.keywords or not mean.operands:
        return None
    norm = match_groupnorm(facts, by_name, mean.operands[0])
    rank = len(by_name[mean.operands[0]].result[0].shape) if norm is not None else 0
    found = _find_mean(mean, rank)
    if norm is None or found is None or norm.epilogues:
        return None
    first, keep = found
    named = (*norm.operation.named, *((("keepdim", 1),) if keep and first == 2 else ()))
    made = Computation(
        kind=GROUP_MEANS, operation=Call(name=GROUP_MEANS, positional=("x",), named=named), operands=norm.operands
    )
    if first == 2:
        return made
    if keep:
        return None
    whole = Call(name="reduce", positional=("means",), named=(("op", "mean"), ("axis", "last")))
    return dataclasses.replace(made, result="means", after=(Stage(operation=whole),))


def _find_mean(op: Operation, rank: int) -> tuple[int, bool] | None:
    """(first axis, whether the axes stay) of a mean over the axes from the first, 1 or 2, to the last of `rank`."""
    if rank < 3:
        return None
    if aten_name(op).startswith("_adaptive_avg_pool") and aten_name(op).endswith(f"{rank - 2}d"):
        return (2, True) if set(op.operands[1].strip("[]").split(", ")) == {"1"} else None
    if aten_name(op) != "mean" or not 2 <= len(op.operands) <= 3:
        return None
    over = sorted(axis % rank for axis in axes_of(op.operands[1]) or ())
    keep = len(op.operands) > 2 and op.operands[2] == "True"
    return (over[0], keep) if over and over[0] in (1, 2) and over == [*range(over[0], rank)] else None


def match_instancenorm(facts: Facts, by_name: dict[str, Operation], output: str) -> Computation | None:
    """An instance norm with what follows it element by element.

    torch's is a batch norm of (1, batch * channels, ...) with weights repeated for each sample.
    """
    chain = _find_chain(facts, by_name, output)
    back = chain.source if chain is not None else None
    op = find_producer(by_name, back.operands[0]) if back is not None and aten_name(back) in VIEWS else None
    view = by_name.get(op.operands[0]) if op is not None and aten_name(op) == "native_batch_norm" else None
    if (
        chain is None
        or back is None
        or op is None
        or view is None
        or aten_name(view) not in VIEWS
        or view.operands[0] in by_name
    ):
        return None
    x = next((spec for spec in facts.cases[0].inputs if spec.name == view.operands[0]), None)
    _, weight, bias, mean, variance, training, _, eps = op.operands
    if x is None or not _joins_batch(x.shape, view, back) or (mean, variance, training) != ("None", "None", "True"):
        return None
    named: tuple[tuple[str, object], ...] = (("eps", float(eps)),)
    operands = [("x", python_expression(x.name))]
    if (weight, bias) == ("None", "None"):
        named = (*named, ("affine", 0))
    else:
        for name, value in (("weight", weight), ("bias", bias)):
            source = _repeated(by_name, value, x.shape[0])
            if source is None:
                return None
            operands.append((name, python_expression(source)))
    return Computation(
        kind="instancenorm",
        operation=Call(name="instancenorm", positional=("x",), named=named),
        operands=(*operands, *chain.tensors),
        epilogues=chain.calls,
    )


def _joins_batch(shape: tuple[int, ...], view: Operation, back: Operation) -> bool:
    """Whether one view makes (1, batch * channels, ...) of (batch, channels, ...), and another undoes it."""
    return (
        len(shape) >= 3
        and view.result[0].shape == (1, shape[0] * shape[1], *shape[2:])
        and back.result[0].shape == shape
    )


def _repeated(by_name: dict[str, Operation], value: str, times: int) -> str | None:
    """The tensor of forward or of the module that a value repeats so many times."""
    op = by_name.get(value)
    if op is None or aten_name(op) != "repeat" or op.operands[0] in by_name or op.operands[1] != f"[{times}]":
        return None
    return op.operands[0]
