"""The planner on convolutions: recognised modules, arguments that must stay unrecognised, the first proposal."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.codegen import compile_program
from workbench.executors.inspector import WorkerInspector
from workbench.language import Binding, Call, Program, Stage, check, format_program, parse
from workbench.language.ir import Operand
from workbench.language.limits import check_limits
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.ladders.base import put
from workbench.proposers.ladders.convolutions import Size, correct_whole, list_choices
from workbench.proposers.ladders.convolutions.halos import list_halo_choices
from workbench.proposers.ladders.convolutions.patches import list_patch_choices
from workbench.proposers.planner import Planner
from workbench.proposers.recognition import Computation, recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask, Proposal
from workbench.session import Session

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, channels, filters):
        super(Model, self).__init__()
{init}
    def forward(self, x):
        return {forward}

batch, channels, filters, size = {sizes}

def get_inputs():
    return [torch.rand(batch, channels, {extents})]

def get_init_inputs():
    return [channels, filters]
"""


@cache
def asked(
    init: str,
    forward: str,
    extents: str = "size, size",
    sizes: str = "4, 32, 64, 32",
    precision: Any = "tf32",
    arch: str = "sm_90a",
) -> Ask:
    lines = "".join(f"        self.{line}\n" for line in init.split("; "))
    problem = problems.load(
        PROBLEM.format(init=lines, forward=forward, extents=extents, sizes=sizes), precision=precision
    )
    return Ask(problem=problem, facts=WorkerInspector().inspect(problem), arch=arch, device="H200")


def found(*parts: str) -> Computation:
    return recognise(asked(*parts).facts)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("init", "forward", "extents", "operation", "epilogues"),
    [
        ("c = nn.Conv2d(channels, filters, 3)", "self.c(x)", "size, size", "conv(x, w)", "bias()"),
        (
            "c = nn.Conv1d(channels, filters, 3, stride=2, padding=1, dilation=2, bias=False)",
            "torch.relu(self.c(x))",
            "size",
            "conv(x, w, stride=2, padding=1, dilation=2)",
            "relu()",
        ),
        (
            "c = nn.Conv3d(channels, filters, (3, 1, 2), padding=(1, 0, 1), groups=2, bias=False)",
            "self.c(x)",
            "8, 8, 8",
            "conv(x, w, padding=(1, 0, 1), groups=2)",
            "",
        ),
        (
            "c = nn.Conv2d(channels, filters, 3); b = nn.Parameter(torch.randn(filters, 1, 1)); s = "
            "nn.Parameter(torch.randn(1))",
            "torch.clamp(F.hardswish(self.c(x)) - self.b, 0.0, 2.0) * self.s",
            "size, size",
            "conv(x, w)",
            "bias() hardswish() sub(t2) clamp(0.0, 2.0) mul(t1)",
        ),
        (
            "c = nn.Conv2d(channels, channels, 3, groups=channels, bias=False)",
            "torch.sigmoid(self.c(x) * 2.0)",
            "size, size",
            "conv(x, w, groups=channels)",
            "scale(2.0) sigmoid()",
        ),
        (
            "c = nn.ConvTranspose2d(channels, filters, (3, 5), stride=(2, 3), output_padding=(1, 0), groups=2)",
            "self.c(x)",
            "size, size",
            "convtranspose(x, w, stride=(2, 3), output_padding=(1, 0), groups=2)",
            "bias()",
        ),
    ],
)
def test_recognised(init: str, forward: str, extents: str, operation: str, epilogues: str) -> None:
    computation = found(init, forward, extents)
    assert format_program(Program(stages=(Stage(operation=computation.operation),))) == operation
    assert (
        " ".join(f"{call.name}({', '.join(map(str, call.positional))})" for call in computation.epilogues) == epilogues
    )
    assert dict(computation.operands)["w"] == "self.c.weight"


def test_two_in_a_row_become_two_stages() -> None:
    ask = asked(
        "a = nn.Conv2d(channels, channels, 3, padding=1, groups=channels); b = nn.Conv2d(channels, filters, 1)",
        "self.b(self.a(x))",
    )
    proposal = next(item for item in Planner().propose(ask) if isinstance(item, Proposal))
    assert proposal.candidate.program is not None and proposal.candidate.program.startswith(
        "h1 = conv(x, w, padding=1, groups=channels) .arch(sm_90a) .threads(32) .rows(8) >> bias() |> "
        "conv(h1, w_2) .arch(sm_90a) .product()"
    )


def test_circular_padding_is_a_stage_of_its_own() -> None:
    ask = asked("c = nn.Conv2d(channels, filters, 3, padding_mode='circular', padding=1)", "self.c(x)")
    proposal = next(item for item in Planner().propose(ask) if isinstance(item, Proposal))
    program = proposal.candidate.program or ""
    assert program.startswith("h1 = pad(x, axes=(-2, -1), before=(1, 1), after=(1, 1), mode=circular) .arch(sm_90a)")
    assert "|> conv(h1, w) .arch" in program


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("init", "forward", "operations"),
    [
        ("c = nn.Conv2d(channels, filters, 3)", "self.c(x) + self.c(x)", "conv conv"),
        (
            "c = nn.Conv2d(channels, channels, 1)",
            "torch.nn.functional.conv2d(x, torch.relu(self.c.weight))",
            "elementwise conv",
        ),
        ("c = nn.Conv2d(channels, channels, 3, padding=1)", "self.c(self.c(self.c(x)))", "conv conv conv"),
        ("a = nn.Conv2d(channels, channels, 3, padding=1)", "self.a(torch.relu(self.a(x)))", "conv conv"),
    ],
)
def test_what_is_not_one_convolution_of_the_input_is_a_pipeline(init: str, forward: str, operations: str) -> None:
    assert " ".join(piece.named.operation.name for piece in found(init, forward).pieces) == operations


def test_the_first_rung_fits_the_size() -> None:
    def first(kind: str = "tf32", **sizes: Any) -> Any:
        return list_choices(Call(name="conv", positional=("x", "w")), kind, Size(**sizes), "H200")[0].plan

    large = first(images=8, channels=64, filters=128, extents=(512, 1024), out=(510, 1022), taps=(3, 3), stride=(1, 1))
    assert large.tile[1] == 128 and large.tile[2] == 32 and not large.unfold
    assert (
        first(
            "bf16", images=8, channels=64, filters=128, extents=(512, 1024), out=(510, 1022), taps=(3, 3), stride=(1, 1)
        ).tile[2]
        == 64
    )
    pointwise = list_choices(
        Call(name="conv", positional=("x", "w")),
        "tf32",
        Size(images=16, channels=64, filters=128, extents=(1024, 1024), out=(1024, 1024), taps=(1, 1), stride=(1, 1)),
        "H200",
    )
    assert pointwise[0].product is not None and pointwise[0].settings[0].name == "product"
    assert first(
        images=256, channels=3, filters=96, extents=(224, 224), out=(55, 55), taps=(11, 11), stride=(4, 4)
    ).unfold


@pytest.mark.parametrize(
    ("operation", "size", "first"),
    [
        ("conv", {"images": 128, "channels": 3, "filters": 16, "extents": (16, 64, 64), "out": (14, 62, 62)}, True),
        ("conv", {"images": 128, "channels": 8, "filters": 64, "extents": (256, 256), "out": (254, 254)}, True),
        ("convtranspose", {"images": 128, "channels": 64, "filters": 64, "extents": (32, 32), "out": (63, 63)}, True),
        ("conv", {"images": 128, "channels": 64, "filters": 64, "extents": (256, 256), "out": (254, 254)}, False),
    ],
)
def test_patches_come_first_for_few_channels_and_for_transposed_ones_with_a_stride(
    operation: str, size: dict[str, Any], first: bool
) -> None:
    transposed = operation == "convtranspose"
    axes = len(size["extents"])
    whole = Size(**size, taps=(3,) * axes, stride=(2 if transposed else 1,) * axes, transposed=transposed)
    named = (("stride", 2), ("padding", 1)) if transposed else ()
    call = Call(name=operation, positional=("x", "w"), named=named)
    patches = list_patch_choices(call, "sm_90a", whole, "H200")
    implicit = list_choices(call, "tf32", whole, "H200")[0]
    assert (patches[0].seconds < implicit.seconds * correct_whole(implicit, whole)) == first
    assert [choice.seconds for choice in patches] == sorted(choice.seconds for choice in patches)
    for choice in patches:
        program = Program(stages=(Stage(operation=call, settings=(put("arch", "sm_90a"), *choice.settings)),))
        binding = Binding(
            init_source="",
            forward_arguments=("x", "w"),
            tensors=(
                ("x", Operand(shape=(whole.images, whole.channels, *whole.extents), dtype="float32")),
                ("w", Operand(shape=(whole.filters, whole.channels, *whole.taps), dtype="float32")),
            ),
        )
        assert not check(program) and not check_limits(program, binding)


@pytest.mark.parametrize(
    ("kind", "size", "clear"),
    [
        ("tf32", {"images": 128, "channels": 64, "filters": 64, "extents": (256, 256), "out": (254, 254)}, True),
        ("tf32", {"images": 16, "channels": 32, "filters": 64, "extents": (32, 64, 64), "out": (30, 62, 62)}, True),
        # more results than products pay for, in five strips
        ("tf32", {"images": 128, "channels": 16, "filters": 64, "extents": (256, 256), "out": (254, 254)}, False),
    ],
)
def test_halos_that_fit_are_faster_where_filters_have_many_channels(
    kind: str, size: dict[str, Any], clear: bool
) -> None:
    axes = len(size["extents"])
    whole, call = Size(**size, taps=(3,) * axes, stride=(1,) * axes), Call(name="conv", positional=("x", "w"))
    halos, others = list_halo_choices(call, kind, whole, "H200"), list_choices(call, kind, whole, "H200")
    assert (others[0].seconds >= halos[0].seconds) == clear
    *fastest, deeper = halos
    assert all(2 <= choice.plan.stages <= 8 and choice.plan.taps == 9 for choice in fastest)
    assert deeper.cfg.pingpong and deeper.plan.stages >= 2 and deeper.cfg.tile_k >= 2 * fastest[0].cfg.tile_k


@pytest.mark.parametrize(
    ("kind", "sizes", "place"),
    [("ConvTranspose2d", "128, 64, 64, 256", 0), ("Conv2d", "32, 16, 64, 512", 1)],
)
def test_halos_come_first_where_they_are_faster_else_as_the_first_idea(kind: str, sizes: str, place: int) -> None:
    ask = asked(f"c = nn.{kind}(channels, filters, 3, padding=1)", "self.c(x)", sizes=sizes)
    computation = recognise(ask.facts)
    rungs = ladder(Context(found=computation, precision="tf32", arch="sm_90a", facts=ask.facts))
    ways = [{call.name: call.positional for call in rung.settings}.get("schedule") for rung in rungs]
    assert ways.index(("halo",)) == place
    strided = asked("c = nn.Conv2d(channels, filters, 3, stride=2)", "self.c(x)", sizes=sizes)
    rungs = ladder(Context(found=recognise(strided.facts), precision="tf32", arch="sm_90a", facts=strided.facts))
    assert not any(put("schedule", "halo") in rung.settings for rung in rungs)


def test_halos_that_do_not_fit_are_refused_with_what_would() -> None:
    operands = (
        ("x", Operand(shape=(1, 8, 64, 4096), dtype="float32")),
        ("w", Operand(shape=(64, 8, 3, 999), dtype="float32")),
    )
    binding = Binding(init_source="", forward_arguments=("x", "w"), tensors=operands)
    text = "conv(x, w) .arch(sm_90a) .mma(tf32) .tile(512, 64, 32) .schedule(halo)"
    found = check_limits(parse(text), binding)
    assert [item.field for item in found] == ["tile"] and "two stages" in found[0].reason
    assert "smaller tile" in found[0].legal


def test_patches_come_first_in_the_ladder_of_a_transposed_convolution_with_a_stride() -> None:
    for arch in ("sm_90a", "sm_80"):
        ask = asked("c = nn.ConvTranspose2d(channels, filters, 3, stride=2)", "self.c(x)", arch=arch)
        proposal = next(item for item in Planner().propose(ask) if isinstance(item, Proposal))
        assert proposal.candidate.program is not None and ".schedule(patch)" in proposal.candidate.program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        (("c = nn.Conv2d(channels, filters, 3)", "self.c(x)"), ["tf32x3"] * 6 + [None] * 5),
        (("c = nn.ConvTranspose2d(channels, filters, 3, stride=2)", "self.c(x)"), ["tf32x3"] * 6 + [None]),
        (("c = nn.Conv2d(channels, channels, 3, groups=channels)", "self.c(x)"), [None] * 5),
        (
            ("c = nn.Conv2d(channels, filters, 3)", "self.c(x)", "size, size", "4, 3, 64, 32"),
            [None] * 2 + ["tf32x3"] * 6 + [None] * 5,
        ),
    ],
)
def test_strict_float32_goes_by_three_products_before_direct_sums(
    parts: tuple[str, ...], kinds: list[str | None]
) -> None:
    ask = asked(*parts, precision="fp32")
    computation = recognise(ask.facts)
    rungs = ladder(Context(found=computation, precision="fp32", arch="sm_90a", facts=ask.facts))
    assert [next((call.positional[0] for call in rung.settings if call.name == "mma"), None) for rung in rungs] == kinds
    for rung, kind in zip(rungs, kinds, strict=True):
        assert (
            rung.title.startswith("float32 by three products of TF32, ")
            == ("nearly as accurate as one of float32" in rung.reason)
            == (kind is not None)
        )
        compile_program(write_program(computation, rung, "sm_90a"), binding_of(ask.problem, ask.facts, computation))


def test_the_model_counts_three_times_the_channels() -> None:
    size = Size(images=8, channels=64, filters=128, extents=(512, 1024), out=(510, 1022), taps=(3, 3), stride=(1, 1))
    strict, rounded = (
        list_choices(Call(name="conv", positional=("x", "w")), kind, size, "H200")[0].seconds
        for kind in ("tf32x3", "tf32")
    )
    assert 2.5 * rounded < strict < 3.5 * rounded
    pointwise = list_choices(
        Call(name="conv", positional=("x", "w")),
        "tf32x3",
        Size(images=16, channels=64, filters=128, extents=(64, 64), out=(64, 64), taps=(1, 1), stride=(1, 1)),
        "H200",
    )
    assert [choice.product is not None for choice in pointwise[:3]] == [True, True, False] and pointwise[
        0
    ].title.startswith("a product: float32 by three products of TF32")


@pytest.mark.slow
def test_every_rung_compiles() -> None:
    for arch, precision in (("sm_90a", "tf32"), ("sm_80", "fp32"), ("sm_80", "bf16")):
        ask = asked("c = nn.Conv2d(channels, filters, 3)", "self.c(x)", precision=precision, arch=arch)
        computation = recognise(ask.facts)
        rungs = ladder(Context(found=computation, precision=precision, arch=arch, facts=ask.facts))
        assert bool(rungs[0].seconds) == (arch == "sm_90a") and any(
            call.name == "mma" for rung in rungs for call in rung.settings
        ) == (precision != "fp32")
        for rung in rungs:
            compile_program(write_program(computation, rung, arch), binding_of(ask.problem, ask.facts, computation))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "init", "extents"),
    [
        ("tf32", "c = nn.Conv2d(channels, filters, 3, padding=1)", "size, size"),
        ("fp32", "c = nn.ConvTranspose1d(channels, filters, 3, stride=2)", "size"),
        ("fp32", "c = nn.Conv1d(channels, filters, 1)", "size"),
    ],
)
def test_the_loop_ends_correct(tmp_path: Path, precision: Any, init: str, extents: str) -> None:
    problem = problems.load(
        PROBLEM.format(
            init=f"        self.{init}\n", forward="torch.relu(self.c(x))", extents=extents, sizes="2, 16, 32, 16"
        ),
        precision=precision,
    )
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_90a") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].verdict.correct, (
            version.trials[-1].verdict if version else None
        )
