"""aggregate(x, indptr, indices): rows of a table reduced over compressed rows of indices (CSR)."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.kernels.aggregate.config import AggregateConfig
from workbench.language.ir import Rejection, Stage, number, setting
from workbench.language.operation import (
    ARCH,
    MOST_THREADS,
    UNROLL,
    VECTOR,
    Operation,
    Setting,
    choice_argument,
    flag,
    reject_settings,
)

OPS = ("sum", "mean", "max")
ROWS = Setting(
    name="rows",
    values=(1, 2, 4, 8, 16, 32),
    reason="rows of the result that a CTA has at a time",
    meaning="a CTA has {values} rows of the result at a time",
)
THREADS_PER_ROW = Setting(
    name="threads_per_row",
    values=(4, 8, 16, 32, 64, 128, 256),
    reason="threads that have a vector of columns each; longer rows have further CTAs",
    meaning="{values} threads have a vector of the columns of a row each; longer rows have further CTAs",
)
SPLIT = Setting(
    name="split",
    values=(1, 2, 4, 8, 16, 32),
    reason="groups of threads that share the neighbours of a row",
    meaning="{values} groups of threads share the neighbours of a row, and add their parts in a fixed order",
)
MERGE_PATH = Setting(
    name="merge_path",
    values=(32, 64, 128, 256),
    reason="neighbours and ends of rows that a group of threads takes, whatever rows they belong to",
    meaning="each group of threads takes {values} neighbours and ends of rows, whatever rows they belong to, so that "
    "long rows are shared; a second kernel adds up the parts of rows that several CTAs have",
)
SETTINGS = (ARCH, ROWS, THREADS_PER_ROW, SPLIT, VECTOR, UNROLL, MERGE_PATH)
DEFAULTS = {"rows": 8, "threads_per_row": 32, "split": 1, "vector": 4, "unroll": 4}


def check(stage: Stage) -> list[Rejection]:
    """Rejections of CTAs that are too large or no whole warps, and of weights where there is no sum."""
    named = dict(stage.operation.named)
    if named.get("weighted") and named.get("op", "sum") != "sum":
        return [
            Rejection(
                field="weighted", value="1", reason=f"op={named['op']} takes no weights", legal="with op=sum, or 0"
            )
        ]
    if setting(stage, "merge_path") is not None:
        more = reject_settings(stage, ("split",), "the merge path shares rows by itself")
        return [*more, *check_threads(stage, DEFAULTS)]
    return check_threads(stage, DEFAULTS)


def check_threads(stage: Stage, defaults: Mapping[str, int]) -> list[Rejection]:
    """Rejections of settings that give more threads than a CTA may have, or parts of a warp."""
    given = {name: number(stage, name, defaults[name]) for name in ("rows", "threads_per_row", "split")}
    threads = given["rows"] * given["threads_per_row"] * given["split"]
    if 0 < threads <= MOST_THREADS and threads % 32 == 0:
        return []
    text = " times ".join(f"{name}({value})" for name, value in given.items())
    return [
        Rejection(
            field="rows",
            value=str(given["rows"]),
            reason=f"{text} is {threads} threads, and a CTA is made of whole warps and has at most {MOST_THREADS}",
            legal=f"a product that is a multiple of 32 up to {MOST_THREADS}",
        )
    ]


def config_of(stage: Stage) -> AggregateConfig:
    """The configuration of a checked stage."""
    named, given = dict(stage.operation.named), {name: number(stage, name, value) for name, value in DEFAULTS.items()}
    return AggregateConfig(
        op=str(named.get("op", "sum")),
        empty=str(named.get("empty", "zero")),
        rows=given["rows"],
        tile=given["threads_per_row"],
        split=given["split"],
        vector=given["vector"],
        unroll=given["unroll"],
        items=number(stage, "merge_path", 0),
    )


OPERATIONS = (
    Operation(
        name="aggregate",
        about="aggregate(x, indptr, indices, op=sum|mean|max, weighted=0|1, empty=zero|identity): for each row r of "
        "compressed rows (CSR) the sum, mean or max of x[indices[indptr[r]:indptr[r + 1]]]; rows without indices "
        "are 0, with empty=identity -inf (max) or nan (mean); weighted=1: operand weight (indices), or (indices, "
        "heads) with x (rows, heads, columns), multiplies what is added",
        settings=SETTINGS,
        check=check,
        arguments=(
            choice_argument("op", OPS, "no such reduction"),
            flag("weighted", "whether each index has a weight"),
            choice_argument("empty", ("zero", "identity"), "what a row without indices is"),
        ),
        roles=("x", "indptr", "indices"),
        implied=lambda stage: ("weight",) if dict(stage.operation.named).get("weighted") else (),
    ),
)
