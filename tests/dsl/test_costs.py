"""Explained programs: costs agree with the emulator's launches, formatting is idempotent.

Every enumerated program is legal, and its text parses back to it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_epilogues import launched, tensors_of, wanted, whole

from workbench.cli import main
from workbench.language import OPERATIONS, Call, Program, Stage, check, configurations, format_program, parse
from workbench.language.explain import cost_of, explain
from workbench.language.operation import MEANINGS
from workbench.views.commands.explanation import explain_program

GEMM = "gemm(a, b) .arch(sm_90a) .mma(f16) "


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        (GEMM + ".tile(128, 64, 64) .schedule(cooperative) .stages(3)", 2),
        (GEMM + ".tile(64, 64, 64) .schedule(pingpong)", 2),
        (GEMM + ".tile(64, 16, 64) .schedule(cooperative) .swap() .splitk(2, cluster)", 2),
        ("gemm(a, b) .tile(64, 64, 16) .thread_tile(4, 4)", 2),
        ("gemm(a, b) .tile(64, 64, 32) .mma(f16)", 2),
        ("gemm(a, b) .tile(64, 64, 32) .mma(f16) .stages(3)", 2),
        ("softmax(a) .threads_per_row(256) .vector(4)", 1),
        ("elementwise(relu(a)) .threads(128)", 1),
    ],
)
def test_threads_and_shared_memory_are_those_of_the_launch(text: str, tensors: int) -> None:
    cost = cost_of(parse(text).stages[0])
    _, emulation = launched(text, {name: whole(64, 64, torch.float16, 1) for name in "ab"[:tensors]})
    launch = emulation.launches[0]
    assert launch.block[0] * launch.block[1] == cost.threads
    if cost.shared_bytes:
        assert (
            abs(launch.dynamic_shared_bytes - cost.shared_bytes) <= 1024
        )  # a Hopper kernel's barriers are counted as one KB


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [".mma(f16) .tile(64, 32, 32)", ".arch(sm_90a) .mma(f16) .schedule(cooperative) .tile(64, 32, 32) .stages(2)"],
)
def test_threads_and_shared_memory_of_convolutions(how: str) -> None:
    text = f"conv(a, b) {how}"
    cost = cost_of(parse(text).stages[0])
    _, emulation = launched(
        text, {"a": whole(8, 20, torch.float16, 1).view(1, 8, 20), "b": whole(8, 24, torch.float16, 2).view(8, 8, 3)}
    )
    launch = next(item for item in emulation.launches if "conv_sm" in item.kernel)
    assert (
        cost.shared_bytes is not None
        and launch.block[0] == cost.threads
        and abs(launch.dynamic_shared_bytes - cost.shared_bytes) <= 1024
    )
    assert f"{cost.stage_bytes} bytes of shared memory" in str(explain_program(text))


def test_explained_names_costs_waves_and_what_is_counted() -> None:
    text = str(
        explain_program(
            GEMM + ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) >> bias() >> rowsum()",
            size=(4096, 4096, 4096),
        )
    )
    for part in (
        "128 rows and 256 columns",
        "49152 bytes",
        "128 accumulators (counted)",
        "(inferred)",
        "1 CTA per SM",
        "512 tiles, 3.88 waves of 132",
        "sum of each row",
    ):
        assert part in text
    assert "goes through memory" in str(explain_program("h = gemm(a, b) |> softmax(h)"))


def test_every_setting_of_every_operation_has_words() -> None:
    for operation in OPERATIONS.values():
        for setting in operation.settings:
            assert setting.meaning or setting.name in MEANINGS, (
                f"{operation.name} .{setting.name}() has no meaning in words"
            )
            for value in setting.values or (1,):
                stage = Stage(
                    operation=Call(name=operation.name, positional=("x",)),
                    settings=(Call(name=setting.name, positional=value if isinstance(value, tuple) else (value,)),),
                )
                assert explain(stage)[1].meaning and "{" not in explain(stage)[1].meaning


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "gemm(a,b).tile(64,64,16)>>bias( c ,along=m )"]) == 0
    assert capsys.readouterr().out == "gemm(a, b) .tile(64, 64, 16) >> bias(c, along=m)\n"
    assert (
        main(["explain", "softmax(x) .threads_per_row(32)"]) == 0
        and "32 threads share a row" in capsys.readouterr().out
    )
    assert main(["explain", "softmax(x) .threads_per_row(7)"]) == 2 and "threads_per_row" in capsys.readouterr().err


LEGAL = {
    name: list(
        configurations(
            Stage(
                operation=Call(name="gemm", positional=("a", "b")),
                settings=(
                    Call(name="arch", positional=("sm_90a",)),
                    Call(name="mma", positional=("bf16",)),
                    Call(name="schedule", positional=(name,)),
                ),
            ),
            only=("tile", "cluster", "splitk", "swap"),
        )
    )
    for name in ("cooperative", "pingpong")
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(LEGAL)).flatmap(lambda name: st.sampled_from(LEGAL[name])),
    st.lists(st.sampled_from(["bias()", "residual(r)", "relu()", "scale(0.5)", "clamp(-1, 1)"]), max_size=3),
)
def test_what_is_enumerated_is_legal_fits_and_is_read_back(stage: Stage, calls: list[str]) -> None:
    chain = parse("gemm(a, b) " + " ".join(f">> {call}" for call in calls)).stages[0].epilogues
    program = Program(stages=(Stage(operation=stage.operation, settings=stage.settings, epilogues=chain),))
    text = format_program(program)
    assert parse(text) == program and format_program(parse(text)) == text and not check(program)
    cost = cost_of(program.stages[0])
    assert (
        cost.shared_bytes is not None
        and cost.shared_bytes <= 232_448
        and cost.accumulators is not None
        and cost.accumulators <= 128
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", ["gemm(a, b)", "gemm(a, b) .mma(f16)", "gemm(a, b) .mma(tf32)"])
def test_what_is_enumerated_without_a_schedule_computes_the_product(start: str) -> None:
    found = list(
        configurations(
            parse(f"{start} >> bias() >> relu()").stages[0],
            only=("tile", "thread_tile" if start.endswith("b)") else "stages"),
        )
    )
    assert len(found) > 20
    for stage in found[:: len(found) // 12]:
        text = format_program(Program(stages=(stage,)))
        tensors = tensors_of(text, "f16" if "f16" in text else "tf32", (72, 136, 72))
        got, _ = launched(text, tensors)
        assert torch.equal(got, wanted(text, tensors).to(got.dtype)), text
