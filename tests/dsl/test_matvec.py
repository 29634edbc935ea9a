"""matvec with several rows per CTA: results on the emulator, golden text, rejections, the planner's first choice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from running import INIT, launched, run

from workbench.codegen import compile_program
from workbench.language import Binding, Call, check, configurations, parse
from workbench.language.explain import explain
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.ladders.base import put
from workbench.proposers.recognition import Computation
from workbench.records import Case, Facts, TensorSpec

GOLDEN = Path(__file__).parent / "golden"
FOUR = "matvec(x, vector, keepdim=1) .arch(sm_90a) .threads_per_row(256) .vector(4) .rows(4)"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("how", "dtype", "shapes"),
    [
        (".threads_per_row(64) .vector(4) .rows(4)", torch.float32, ((9, 1031), (9, 1036), (3, 4), (1, 1), (8, 512))),
        (".threads_per_row(64) .vector(8) .unroll(2) .rows(2)", torch.bfloat16, ((5, 1001), (5, 1048), (2, 3, 2056))),
        (".threads_per_row(128) .unroll(2) .rows(8)", torch.float32, ((7, 77), (17, 600))),
    ],
)
def test_rows_and_columns_of_any_number(how: str, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...]) -> None:
    for shape in shapes:
        x, vector = torch.randn(shape).to(dtype), torch.randn(shape[-1], 1).to(dtype)
        wanted = x.double() @ vector.double()
        for text, result in (
            (f"matvec(x, vector, keepdim=1) {how}", wanted),
            (f"matvec(x, vector) {how}", wanted.squeeze(-1)),
        ):
            got = run(text, (x, vector), ("x", "vector"))
            assert got.dtype == dtype and got.shape == result.shape
            error = float((got.double() - result).norm() / result.norm())
            assert error < (1e-6 if dtype == torch.float32 else 8e-3)


@pytest.mark.parametrize("kind", [torch.bool, torch.int8, torch.bfloat16])
def test_operands_that_are_not_contiguous_and_vectors_of_other_types(kind: torch.dtype) -> None:
    x, vector = torch.randn(264, 6).t(), (3 * torch.randn(264, 2)).to(kind)[:, 1]
    got = run(
        "matvec(a, b) .threads_per_row(64) .vector(4) .rows(4)", (x, vector), ("a", "b"), (("x", "a"), ("vector", "b"))
    )
    torch.testing.assert_close(got, (x.double() @ vector.double()).float(), rtol=1e-5, atol=1e-4)


def test_nothing_is_added_up_or_nothing_is_wanted() -> None:
    for rows, columns in ((4, 0), (0, 4)):
        got, emulation = launched(
            "matvec(x, vector) .threads_per_row(64) .vector(4) .rows(4)",
            (torch.ones(rows, columns), torch.ones(columns)),
            ("x", "vector"),
        )
        assert torch.equal(got, torch.zeros(rows)) and not emulation.findings


def test_the_vector_is_loaded_once_for_all_rows() -> None:
    """Counts sectors: 8 rows of 1024 bytes, and the vector's 1024 bytes once per CTA."""
    x, vector = torch.randn(8, 256), torch.randn(256)
    for rows, ctas in ((2, 4), (4, 2), (8, 1)):
        _, emulation = launched(
            f"matvec(x, vector) .threads_per_row(64) .vector(4) .rows({rows})", (x, vector), ("x", "vector")
        )
        (launch,) = emulation.launches
        assert (launch.grid, launch.total.global_read_bytes, launch.total.global_write_bytes) == (
            (ctas, 1, 1),
            (8 + ctas) * 1024,
            8 * 4,
        )
        assert launch.total.global_sectors == launch.total.global_ideal_sectors


@pytest.mark.parametrize(
    ("settings", "field", "value", "legal"),
    [
        (".threads_per_row(64) .rows(3)", "rows", "3", "2, 4, 8"),
        (".threads_per_row(64) .rows(many)", "rows", "many", "2, 4, 8"),
        (".threads_per_row(64) .rows()", "rows", "", "2, 4, 8"),
        (".rows(4)", "rows", "4", "threads_per_row 64 or more, as in .rows(4) .threads_per_row(128)"),
        (
            ".threads_per_row(1) .rows(4)",
            "rows",
            "4",
            "threads_per_row 64 or more, as in .rows(4) .threads_per_row(128)",
        ),
        (
            ".threads_per_row(32) .rows(4)",
            "rows",
            "4",
            "threads_per_row 64 or more, as in .rows(4) .threads_per_row(128)",
        ),
        (".threads_per_row(64) .rows(4) .parts(8)", "parts", "8", "leave it out"),
        (".arch(sm_90a) .threads_per_row(64) .rows(4) .cluster(2)", "cluster", "2", "leave it out"),
        (".threads_per_row(256) .vector(8) .unroll(8) .rows(4)", "rows", "4", "up to 128"),
        (".threads_per_row(1024) .vector(4) .unroll(4) .rows(4)", "rows", "4", "up to 32"),
    ],
)
def test_what_does_not_go_with_rows(settings: str, field: str, value: str, legal: str) -> None:
    (found,) = check(parse(f"matvec(x, vector) {settings}"))
    assert (found.field, found.value) == (field, value) and legal in found.legal and found.reason


def test_rows_alone_are_refused_with_what_they_want() -> None:
    (alone,), (said,) = (
        check(parse(f"matvec(x, vector) {settings}")) for settings in (".rows(8)", ".rows(8) .threads_per_row(1)")
    )
    assert "without threads_per_row, which is 32 then" in alone.reason and alone.legal.endswith(
        ".rows(8) .threads_per_row(128)"
    )
    assert "with threads_per_row(1)" in said.reason


def test_rows_are_of_matvec_alone() -> None:
    (found,) = check(parse("reduce(x) .rows(4)"))
    assert found.field == "rows" and "no such setting" in found.reason


def test_text_is_as_written_down() -> None:
    text, path = (
        compile_program(FOUR, Binding(init_source=INIT, forward_arguments=("x", "vector"))),
        GOLDEN / "matvec_rows.txt",
    )
    if os.environ.get("CUTEGEN_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_words_and_configurations() -> None:
    stage = parse(FOUR).stages[0]
    assert (
        explain(stage)[-1].meaning
        == "a CTA has 4 rows at once, for which it loads the vector once; with threads_per_row 64 or more"
    )
    open_ = parse("matvec(x, vector) .arch(sm_90a) .threads_per_row(256) .vector(4)").stages[0]
    tried = [
        {call.name: call.positional for call in item.settings}
        for item in configurations(open_, ("rows", "parts", "unroll"))
    ]
    assert {"rows": (4,), "unroll": (2,)} in [
        {name: item[name] for name in ("rows", "unroll") if name in item} for item in tried
    ]
    assert not [item for item in tried if "rows" in item and "parts" in item] and [
        item for item in tried if "parts" in item
    ]


def rungs(rows: int, columns: int, arch: str = "sm_90a", precision: str = "fp32") -> list[tuple[Call, ...]]:
    """Return the settings of the ladder for a problem of that size."""
    shapes = {"a": (rows, columns), "b": (columns, 1)}
    inputs = tuple(
        TensorSpec(name=name, shape=shape, dtype="float32", strides=(shape[1], 1)) for name, shape in shapes.items()
    )
    facts = Facts(
        problem_hash="",
        kind="matmul",
        init_source="",
        forward_arguments=("a", "b"),
        graph=(),
        parameters=(),
        work=(),
        cases=(
            Case(
                name="full",
                settings=(),
                inputs=inputs,
                outputs=(TensorSpec(name="out", shape=(rows, 1), dtype="float32", strides=(1, 1)),),
            ),
        ),
    )
    found = Computation(
        kind="matvec",
        operation=parse("matvec(x, vector, keepdim=1)").stages[0].operation,
        operands=(("x", "a"), ("vector", "b")),
    )
    return [rung.settings for rung in ladder(Context(found=found, precision=precision, arch=arch, facts=facts))]


def test_the_planner_begins_with_four_rows_where_the_vector_is_long() -> None:
    plain = (put("threads_per_row", 256), put("vector", 4), put("unroll", 4))
    found = rungs(2048, 1 << 20)
    assert found[:2] == [(put("threads_per_row", 256), put("vector", 4), put("rows", 4)), plain]
    assert rungs(2048, 1 << 20, precision="bf16")[0] == (put("threads_per_row", 256), put("vector", 8), put("rows", 4))
    few, short, ampere = rungs(512, 1 << 20), rungs(2048, 1 << 15), rungs(2048, 1 << 20, "sm_80")
    assert not [call for settings in (*few, *short, *ampere) for call in settings if call.name == "rows"]
    assert short[0] == plain
