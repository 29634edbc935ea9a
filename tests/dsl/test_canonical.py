"""Programs with the same code have the same canonical text."""

from __future__ import annotations

import dataclasses
import random

import pytest

from workbench.codegen import emit
from workbench.codegen.canonical import canonical
from workbench.codegen.canonical import code as canonical_code
from workbench.errors import ProgramError
from workbench.language import Binding, Program, configurations, format_program, parse
from workbench.language.ir import Stage
from workbench.language.memoise import memoise

NOWHERE = Binding(init_source="", forward_arguments=())


def code(text: str) -> str:
    return emit(parse(text), NOWHERE).split('"""', 2)[2]


def test_code_tells_programs_apart_by_what_they_are_compiled_for() -> None:
    relu = "elementwise(relu(x)) .arch({}) .threads(64)"
    assert (
        canonical_code(relu.format("sm_80"))
        != canonical_code(relu.format("sm_90a"))
        == canonical_code("elementwise(relu(x)) .threads(64) .arch(sm_90a)")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("softmax(x) .arch(sm_90a)", ("threads_per_row", "vector", "passes", "kept")),
        ("reduce(x, op=sum, axis=middle) .arch(sm_90a)", ("threads", "split")),
        ("elementwise(relu(x)) .arch(sm_90a)", None),
        ("matvec(x, vector, keepdim=1) .arch(sm_90a)", None),
    ],
)
def test_equal_texts_have_equal_code_and_a_short_text_is_its_own(text: str, only: tuple[str, ...] | None) -> None:
    programs = [format_program(Program(stages=(stage,))) for stage in configurations(parse(text).stages[0], only)]
    picked = random.Random(0).sample(programs, min(len(programs), 80))
    by_text: dict[str, set[str]] = {}
    for program in picked:
        by_text.setdefault(canonical(program), set()).add(code(program))
    assert all(len(codes) == 1 for codes in by_text.values())
    assert len(by_text) <= 3 * len({next(iter(codes)) for codes in by_text.values()})
    assert all(canonical(one) == one and code(one) in codes for one, codes in by_text.items())


def test_order_and_defaults_do_not_matter_and_the_architecture_stays() -> None:
    long = (
        "gemm(a, b) .schedule(cooperative) .tile(128, 256, 64) .cluster(1, 1) .mma(bf16) .arch(sm_90a) "
        ".stages(4) .raster(along_m, 8) .store(tma)"
    )
    assert canonical(long) == "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative)"
    assert (
        canonical("gemm(a, b) .arch(sm_90a) .mma(bf16) .stages(3) .schedule(cooperative)")
        == "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative) .stages(3)"
    )


def test_each_stage_of_a_pipeline_is_put_in_order() -> None:
    text = (
        "h = gemm(x, w) .tile(64, 64, 16) .thread_tile(4, 4) .arch(sm_80) |> softmax(h) .vector(1) .threads_per_row(32)"
    )
    assert (
        canonical(text)
        == "h = gemm(x, w) .arch(sm_80) .thread_tile(4, 4) .tile(64, 64, 16) |> softmax(h) .threads_per_row(32)"
    )


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ProgramError, match="threads=100"):
        canonical("elementwise(relu(x)) .threads(100)")


def test_a_memoised_function_runs_once_for_a_stage_and_tells_equal_numbers_apart() -> None:
    asked: list[object] = []

    def note(stage: Stage) -> object:
        asked.append(stage.settings[0].positional[0])
        return asked[-1]

    known = memoise(note)
    [stage] = parse("softmax(x) .vector(4)").stages
    for value in (1, 1.0, True, 1):
        setting = dataclasses.replace(stage.settings[0], positional=(value,))
        assert repr(known(dataclasses.replace(stage, settings=(setting,)))) == repr(value)
    assert list(map(repr, asked)) == ["1", "1.0", "True"]
