"""What kind of problem a graph is."""

from __future__ import annotations

from workbench.records import Operation, aten_name

# kind -> starts of names of ATen operations; the first kind with an operation in the graph is the problem's
KINDS = (
    ("loss", ("nll_loss", "mse_loss", "binary_cross_entropy", "smooth_l1_loss", "huber_loss")),
    ("convolution", ("convolution",)),
    ("attention", ("_scaled_dot_product",)),
    ("matmul", ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm")),
    ("softmax", ("_softmax", "_log_softmax")),
    ("norm", ("native_", "rsqrt", "var_mean", "linalg_vector_norm")),
    ("reduction", ("sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin", "cumsum", "var", "std")),
)


def operation_names(graph: tuple[Operation, ...]) -> list[str]:
    """Names of the ATen calls of a graph, without their overloads."""
    return [aten_name(op) for op in graph if op.target.startswith("aten.")]


def find_kind(graph: tuple[Operation, ...]) -> str:
    """The kind of the problem: that of the first row of `KINDS` with an operation in the graph."""
    names = operation_names(graph)
    short = ("mm", "bmm", "mv", "dot", "max", "min", "sum", "mean", "var", "std")  # also the start of other names
    for kind, starts in KINDS:
        if any(name == start or (start not in short and name.startswith(start)) for name in names for start in starts):
            return kind
    return "elementwise" if names else "other"
