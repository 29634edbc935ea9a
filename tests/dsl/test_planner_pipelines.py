"""Modules of several layers: the planner's programs agree with torch at tiny sizes.

Every step of a pipeline's ladder compiles, and tensors that are written in place are left to torch.
"""

from __future__ import annotations

import itertools
from functools import cache

import level2
import pytest
from test_row_recognition import computes
from test_row_recognition import problem as of_rows

from workbench.codegen import compile_program
from workbench.language import Binding, check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.planner import write_program
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Facts, Problem

TINY = {"batch": 2, "channels": 8, "filters": 16, "size": 9, "depth": 5, "hidden": 12, "length": 3, "groups": 4}
FAST = ("26", "52", "MLP of b")
GROUPED = {"23", "30"}  # a mean over what is normalised is zero; groups that leave nothing to normalise


def tiny(name: str) -> Problem:
    return level2.problem(name, **TINY)


@cache
def facts(name: str) -> Facts:
    return inspect(level2.problem(name))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith(FAST) else pytest.mark.slow)
        for name in level2.MODULES
        if name[:2] not in GROUPED | {"51"}
    ],
)
def test_modules_of_level_2_are_computed(name: str) -> None:
    computes(tiny(name), "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in level2.MODULES if name[:2] not in GROUPED | {"51"}])
def test_modules_of_level_2_are_computed_on_ampere(name: str) -> None:
    computes(tiny(name), "sm_80")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "start"),
    [
        (
            "MLP",
            "h1 = gemm(x, b) .arch(sm_90a) .layout(b=column) .tile(128, 256, 32) .mma(tf32) .schedule(cooperative)",
        ),
        ("linear of batches", "h1 = view(x, flatten=(0, 1)) .arch(sm_90a) |> h2 = gemm(h1, b)"),
        ("52", "h1 = conv(x, w) .arch(sm_90a) .mma(tf32)"),
    ],
)
def test_settings_of_each_stage_follow_the_full_size(name: str, start: str) -> None:
    name = next(full for full in level2.MODULES if full.startswith(name))
    seen = facts(name)
    found = recognise(seen)
    rungs = ladder(Context(found=found, precision="tf32", arch="sm_90a", device="H200", facts=seen))
    texts = [write_program(found, rung, "sm_90a") for rung in rungs]
    assert texts[0].startswith(start) and len(set(texts)) == len(texts) > 3
    for text in texts:
        assert not check(parse(text))
        compile_program(text, binding_of(level2.problem(name), seen, found))


def test_where_nothing_is_known_of_hopper_a_pipeline_climbs() -> None:
    seen = facts("MLP")
    rungs = ladder(Context(found=recognise(seen), precision="bf16", arch="sm_80", device="A100", facts=seen))
    assert all(not part.settings for part in rungs[0].parts)
    changed = [
        sum(one != other for one, other in zip(before.parts, after.parts, strict=True))
        for before, after in itertools.pairwise(rungs)
    ]
    assert set(changed) <= {1, 2} and rungs[-1].parts[0].settings and rungs[-1].parts[1].settings


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "said"), [("08", "4 stages: conv (h1): "), ("MLP", "2 stages: gemm (h1): ")])
def test_the_title_counts_the_stages_of_the_program(arch: str, name: str, said: str) -> None:
    seen = inspect(tiny(next(full for full in level2.MODULES if full.startswith(name))))
    found = recognise(seen)
    first = ladder(Context(found=found, precision="fp32", arch=arch, device="H200", facts=seen))[0]
    program = parse(write_program(found, first, arch))
    assert first.title.startswith(said) and first.title.startswith(f"{len(program.stages)} stages: ")
    assert (", 2 stages: " in first.title) == (
        len(program.stages) > len(found.pieces)
    )  # a mean over much is two stages


def test_a_value_that_is_written_to_through_a_view_is_left() -> None:
    given = of_rows("PLACE", ("torch.randn(n, d)", "torch.randn(n, d)"))
    forward = "z = F.linear(x, y); z.view(-1).add_(1); return torch.relu(z)"
    given = Problem(name="it", source=given.source.replace("return PLACE", forward))
    with pytest.raises(Unrecognised, match="no kernel"):
        recognise(inspect(given))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("view(x)", "view"),
        ("view(x, flatten=2)", "flatten"),
        ("view(x, flatten=(2, 1))", "flatten"),
        ("view(x, unflatten=0)", "view"),
        ("view(x, order=(1, 1))", "order"),
        ("view(x, squeeze=0, unsqueeze=1)", "view"),
    ],
)
def test_views_that_are_none(text: str, field: str) -> None:
    assert [item.field for item in check(parse(text))] == [field]


def test_a_view_is_no_kernel() -> None:
    source = compile_program(
        "h = softmax(x) |> view(h, unflatten=1, like=y, axes=(0, 2))",
        Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("x", "y")),
    )
    assert "return x.unflatten(1, like.shape[0:3])" in source and source.count("@cute.kernel") == 1
