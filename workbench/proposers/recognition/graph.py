"""Types and helpers for traced references (ATen calls) that all matchers share.

Values have their names in `Facts.graph`: forward's arguments their own, parameters `param:<name>`, intermediates those
of their nodes.
"""

from __future__ import annotations

import itertools

from workbench.language import Call, Stage
from workbench.records import Facts, Operation, record
from workbench.records import aten_name as aten_name
from workbench.records import plain_name as plain_name

BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min"}
DISTANCES = "distances"  # of the rows of a tensor and the columns of another; the keyword metric says which
MASK = "attn_mask"  # keyword of an attention whose value is a tensor
YOURSELF = "write one yourself: %%cutegen edit in a notebook, or a file and cutegen test"
TRANSPOSES = ("t", "permute", "transpose", "numpy_T")
TORCH_FUNCTIONS = {  # ATen's names that nobody writes -> torch's function of the same arguments
    "_unsafe_view": "view",
    "_to_copy": "to",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_dropout": "dropout",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math": "scaled_dot_product_attention",
}
TORCH_NAMES = TORCH_FUNCTIONS | {  # and what is written with other arguments, or as syntax
    "clone": "contiguous",
    "t": "transpose",
    "numpy_T": "transpose",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "addmm": "linear",
    "convolution": "conv",
    "slice": "slice [a:b]",
    "select": "index [i]",
    "index": "index [tensor]",
    "index_put": "assignment [tensor] =",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "nll_loss_forward": "nll_loss",
    "constant_pad_nd": "pad",
    **{f"{kind}_pad{rank}d": "pad" for kind in ("reflection", "replication") for rank in (1, 2, 3)},
    "_pad_circular": "pad",
    **{
        f"{name}{rank}d": f"interpolate ({name.removeprefix('_').removeprefix('upsample_')})"
        for name in ("upsample_nearest", "_upsample_nearest_exact", "upsample_linear", "upsample_bilinear")
        for rank in (1, 2, 3)
    },
    "upsample_trilinear3d": "interpolate (trilinear)",
    "col2im": "fold",
    "im2col": "unfold",
    "grid_sampler_2d": "grid_sample",
    "grid_sampler_3d": "grid_sample",
    "lift_fresh_copy": "tensor",
    "_pdist_forward": "pdist",
    "_linalg_svd": "svd",
    "linalg_inv_ex": "inv",
    **{f"_fft_{kind}": "fft" for kind in ("r2c", "c2r", "c2c")},
    "upsample_bicubic2d": "interpolate (bicubic)",
    **{f"_upsample_{kind}2d_aa": f"interpolate ({kind}, antialias)" for kind in ("bilinear", "bicubic")},
}
LEADING = "|"  # `buffer:mask|2|q|1`: of axis 2 of the buffer, as many rows as axis 1 of q has (see `leading`)


@record
class Computation:
    """The main stage and its operands, name -> Python expression in forward; `kind` names its ladder."""

    kind: str
    operation: Call
    operands: tuple[tuple[str, str], ...]
    epilogues: tuple[Call, ...] = ()
    layout: tuple[tuple[str, str], ...] = ()  # gemm: which operand is stored by columns
    middle: bool = False
    before: tuple[Stage, ...] = ()  # stages before the main one
    result: str | None = None  # name of the main stage's result for the stages after it
    after: tuple[Stage, ...] = ()
    values: tuple[tuple[str, str], ...] = ()  # results of the stages before -> the graph's values that they hold
    dtype: str = ""  # of the first operand; empty if it is not known
    # the same computation with stages for the end of `epilogues`, for kernels that cannot fuse it
    unfused: Computation | None = None
    # the parts of a pipeline in order; of the other fields only `operands` then has a meaning
    pieces: tuple[Piece, ...] = ()


@record
class Piece:
    """A part of a pipeline: recognised by itself, with its names in the pipeline, and its own facts."""

    alone: Computation
    named: Computation
    facts: Facts
    work: int  # FLOPs of products and moved elements, to order pieces by importance; the weights are inferred


class Unrecognised(Exception):
    """The graph has something that the planner cannot write. The message names it."""


class UnknownCalls(Unrecognised):
    """No kernel takes these calls, by their names in torch. `kind`: of what numbers. `advice`: what to do."""

    def __init__(self, calls: str, kind: str, advice: str, place: str = "") -> None:
        super().__init__(f"the planner has no kernel for {calls}{kind}{f' in {place}' if place else ''}; {advice}")
        self.kind, self.advice = kind, advice


def list_torch_names(graph: tuple[Operation, ...]) -> list[str]:
    """The operations of a graph by the names that a person knows, in order; equal neighbours once."""
    found = [TORCH_NAMES.get(plain_name(op), plain_name(op)) for op in graph if op.target.startswith("aten.")]
    return [name for name, _ in itertools.groupby(found)]


def python_expression(value: str) -> str:
    """The Python expression of a value in forward."""
    if ":" not in value:
        return value
    if LEADING in value:
        return _leading_expression(value)
    first, *rest = value.removeprefix("param:").removeprefix("buffer:").split(".")
    # nn.Sequential and nn.ModuleList number their modules
    return f"self.{first}" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in rest)


def _leading_expression(value: str) -> str:
    """The Python expression of leading rows of a parameter or a buffer."""
    of, *parts = value.split(LEADING)
    rows = {int(parts[n]): f":{parts[n + 1]}.shape[{parts[n + 2]}]" for n in range(0, len(parts), 3)}
    return f"{python_expression(of)}[{', '.join(rows.get(axis, ':') for axis in range(max(rows) + 1))}].contiguous()"


def find_producer(by_name: dict[str, Operation], value: str) -> Operation | None:
    """The operation behind a value, or behind the first item of its result."""
    op = by_name.get(value)
    if op is not None and "getitem" in op.target:
        op = by_name.get(op.operands[0]) if op.operands[1] == "0" else None
    return op


def is_last(axis: str, op: Operation) -> bool:
    """Whether an axis is the last of the operation's result."""
    rank = len(op.result[0].shape)
    return axis in ("-1", str(rank - 1))


def parse_number(text: str) -> float | None:
    """The number in a text; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def operand(by_name: dict[str, Operation], value: str) -> tuple[str, bool] | None:
    """(Python expression, whether it is stored by columns) of a matrix operand, behind at most one transposition."""
    op = by_name.get(value)
    if op is None:
        return python_expression(value), False
    if aten_name(op) in TRANSPOSES and op.operands[0] not in by_name:
        if aten_name(op) == "permute" and op.operands[1].replace(" ", "") not in ("[1,0]", "[0,2,1]"):
            return None
        return f"{python_expression(op.operands[0])}.transpose(-2, -1)", True
    if aten_name(op) in ("detach", "alias"):
        return operand(by_name, op.operands[0])
    return None


def names(text: str, *, numbers: bool = False) -> list[str]:
    """The values in an operand's text, which may be a list. With `numbers`, numbers are included."""
    parts = [part.strip() for part in text.strip("[]").split(",")]
    return parts if numbers else [part for part in parts if parse_number(part) is None]


def list_read(op: Operation) -> list[str]:
    """The values that an operation reads."""
    texts = (*op.operands, *(text for key, text in op.keywords if key == MASK))
    return [part for text in texts for part in names(text)]
