"""sddmm(q, k, indptr, indices) and segment_softmax(scores, indptr): scores of neighbours, and their softmax by row."""

from __future__ import annotations

from workbench.kernels.graph_attention.config import SddmmConfig, SegmentSoftmaxConfig
from workbench.language.ir import Rejection, Stage, number
from workbench.language.operation import ARCH, UNROLL, VECTOR, Operation, Setting, choice_argument
from workbench.language.operations.graphs.aggregate import ROWS, SPLIT, check_threads

LANES = Setting(
    name="threads_per_row",
    values=(1, 2, 4, 8, 16, 32),
    reason="threads of one warp that share a neighbour's columns, or a row's scores",
    meaning="{values} threads share a neighbour's columns (sddmm) or a row's scores (segment_softmax)",
)
SDDMM = {"rows": 8, "threads_per_row": 8, "split": 4, "vector": 4, "unroll": 4}
SOFTMAX = {"rows": 8, "threads_per_row": 32, "split": 1, "unroll": 2}


def sddmm_config(stage: Stage) -> SddmmConfig:
    """The configuration of a checked stage."""
    given = {name: number(stage, name, value) for name, value in SDDMM.items()}
    return SddmmConfig(
        op=str(dict(stage.operation.named).get("op", "dot")),
        rows=given["rows"],
        tile=given["threads_per_row"],
        split=given["split"],
        vector=given["vector"],
        unroll=given["unroll"],
    )


def softmax_config(stage: Stage) -> SegmentSoftmaxConfig:
    """The configuration of a checked stage."""
    given = {name: number(stage, name, value) for name, value in SOFTMAX.items()}
    return SegmentSoftmaxConfig(
        rows=given["rows"], tile=given["threads_per_row"], split=given["split"], unroll=given["unroll"]
    )


def check_sddmm(stage: Stage) -> list[Rejection]:
    """Rejections of CTAs that are too large or no whole warps."""
    return check_threads(stage, SDDMM)


def check_softmax(stage: Stage) -> list[Rejection]:
    """Rejections of CTAs that are too large or no whole warps."""
    return check_threads(stage, SOFTMAX)


OPERATIONS = (
    Operation(
        name="sddmm",
        about="sddmm(q, k, indptr, indices, op=dot|add): for each index e of a row r of compressed rows (CSR) the "
        "product q[r] . k[indices[e]] over the last axis, of q (rows, columns) or (rows, heads, columns); op=add: the "
        "sum q[r] + k[indices[e]]",
        settings=(ARCH, ROWS, LANES, SPLIT, VECTOR, UNROLL),
        check=check_sddmm,
        arguments=(choice_argument("op", ("dot", "add"), "what a score is"),),
        roles=("q", "k", "indptr", "indices"),
    ),
    Operation(
        name="segment_softmax",
        about="segment_softmax(scores, indptr): softmax of scores (indices) or (indices, heads) over "
        "scores[indptr[r]:indptr[r + 1]] of each row r",
        settings=(ARCH, ROWS, LANES, SPLIT, UNROLL),
        check=check_softmax,
        roles=("scores", "indptr"),
    ),
)
