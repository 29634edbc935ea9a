"""Modules of several layers: the planner's programs agree with torch at tiny sizes.

Every step of a pipeline's ladder compiles, and tensors that are written in place are left to torch.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache

import level2
import pytest
from test_row_recognition import computes
from test_row_recognition import problem as of_rows

from workbench import problems
from workbench.codegen import compile_program
from workbench.language import Binding, Call, check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, Rung, ladder, list_legal
from workbench.proposers.ladders.pipelines import group_pieces, list_steps
from workbench.proposers.planner import Planner
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask, Facts, Failure, Outcome, Problem, Proposal, Trial, Verdict, Version

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


LAYERS = """import torch
import torch.nn as nn

batch = 256
wide = 512
narrow = 384


class Model(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        layers = [nn.Linear(wide, narrow), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Linear(narrow, narrow), {between}]
        self.layers = nn.Sequential(*layers, nn.Linear(narrow, wide))

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.rand(batch, wide)]


def get_init_inputs():
    return [wide, narrow]
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("between", "sizes"), [("nn.ReLU()", [1, 4, 1]), ("(nn.ReLU() if _ % 2 else nn.Tanh())", [1, 2, 2, 1])]
)
def test_layers_that_repeat_change_together(arch: str, between: str, sizes: list[int]) -> None:
    made = problems.load(LAYERS.format(between=between))
    seen = inspect(made)
    found = recognise(seen)
    context = Context(found=found, precision="bf16", arch=arch, device="H200", facts=seen)
    groups = group_pieces(found.pieces, list_legal(context))
    assert sorted(map(len, groups)) == sorted(sizes)
    rungs, legal = ladder(context), list_legal(context)
    main = max(groups, key=len)
    # what the largest group takes the others take with it; steps of their own are few or none
    assert len(legal[main[0]]) <= len(rungs) < 1 + sum(len(legal[places[0]]) - 1 for places in groups)
    assert {rung.parts[main[0]] for rung in rungs} == {*legal[main[0]]}
    assert any({*rung.changes} > {*main} for rung in rungs)
    said = [f" and {len(places) - 1} like it: " for places in groups if len(places) > 1]
    first = rungs[0].title
    assert first.count("; ") == len(groups) - 1 and [first.count(one) for one in said] == [
        said.count(one) for one in said
    ]
    for rung in rungs:
        for places in groups:
            assert len({rung.parts[place] for place in places}) == 1
        assert not check(parse(write_program(found, rung, arch)))
    assert any(f"and {max(sizes) - 1} like it and " in rung.title and " of its kind: " in rung.title for rung in rungs)


def test_a_groups_own_steps_are_left_out_where_the_model_says_that_they_save_little() -> None:
    put_in = [Call(name="tile", positional=(size,)) for size in (1, 2, 3, 4)]

    def rung(at: int, seconds: float) -> Rung:
        return Rung(settings=(put_in[at],), title=str(at), reason="", seconds=seconds)

    leaders = [rung(0, 10.0), rung(1, 9.0)]
    for further, steps in ((0.5, [(0, 1), (2,)]), (0.95, [(0, 1)])):
        others = [rung(0, 1.1), rung(1, 1.0), rung(3, further)]
        made = list_steps(
            [(0, 1), (2,)], [leaders, leaders, others], [leaders, leaders, others], lambda place, one: True
        )
        assert [step.alike for step in made] == [(0, 1), (2,)][: len(steps)]
        assert {**made[0].parts} == {0: leaders[1], 1: leaders[1], 2: others[1]}
    refused = list_steps(
        [(0, 1), (2,)], [leaders, leaders, others], [leaders, leaders, others], lambda place, one: False
    )
    assert [{*step.parts} for step in refused] == [{0, 1}]  # 0.05 of 21.1 is no step


def version_of(proposal: Proposal, number: int) -> Version:
    return Version(number=number, parent=None, proposal=proposal, source_hash="h", path="")


def test_a_step_keeps_what_was_accepted_for_other_stages() -> None:
    name = next(full for full in level2.MODULES if full.startswith("21"))
    ask = Ask(problem=tiny(name), facts=inspect(tiny(name)), arch="sm_80", device="H200")
    history = [version_of(proposed(ask), 1)]
    while True:  # the first change of the first stage that changes is accepted, and nothing else
        base = history[min(1, len(history) - 1)]
        asked = dataclasses.replace(ask, baseline=base, history=tuple(history))
        said = list(Planner().propose(asked))
        items = [item for item in said if isinstance(item, Proposal)]
        if not items:
            break
        history.append(version_of(items[0], len(history) + 1))
    assert f"has tried all its {len(history)} ideas" in said[-1].message
    texts = [str(one.proposal.candidate.program).split(" |> ") for one in history]
    changed = [
        {at for at, (one, other) in enumerate(zip(text, texts[1], strict=True)) if one != other} for text in texts
    ]
    assert len(history) > 3 and len({*map(tuple, texts)}) == len(texts)
    assert all(len(places) == 1 for places in changed[2:])  # each differs from the baseline in one stage
    assert len({*itertools.chain(*changed[2:])}) > 1


@pytest.mark.few(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "said"), [("65", "3 stages: conv (h1): "), ("MLP", "2 stages: gemm (h1): ")])
def test_the_title_counts_the_stages_of_the_program(arch: str, name: str, said: str) -> None:
    seen = inspect(tiny(next(full for full in level2.MODULES if full.startswith(name))))
    found = recognise(seen)
    first = ladder(Context(found=found, precision="fp32", arch=arch, device="H200", facts=seen))[0]
    program = parse(write_program(found, first, arch))
    assert first.title.startswith(said) and first.title.startswith(f"{len(program.stages)} stages: ")
    assert (", 2 stages: " in first.title) == (
        len(program.stages) > len(found.pieces)
    )  # a sum over channels and planes is two stages


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
        ("view(x, unflatten=(0, 2, 3), like=y, axes=(0, 1))", "view"),
        ("view(x, unflatten=(0, 2))", "unflatten"),
        ("view(x, unflatten=(0, -1, 2, -1))", "unflatten"),
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


def test_heads_are_split_by_their_literal_sizes() -> None:
    given = of_rows(
        "F.scaled_dot_product_attention(*x.view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4))",
        ("torch.randn(d, n, 96)",),
    )
    program = computes(given, "sm_80")
    assert "view(x, unflatten=(2, 3, 2, 16))" in program and "attention(" in program


def proposed(ask: Ask) -> Proposal:
    return next(item for item in Planner().propose(ask) if isinstance(item, Proposal))


def exceeded(proposal: Proposal, number: int, function: str) -> Version:
    """A version that exceeded the emulator's limits in a function."""
    line = proposal.candidate.source[: proposal.candidate.source.index(f"def {function}(")].count("\n") + 2
    failure = Failure(stage="limits", kind="infinite_loop", message="the kernel did not end", line=line)
    trial = Trial(
        outcome=Outcome(executor="emulator", arch="sm_80", device="H200", failure=failure),
        verdict=Verdict(correct=False, failure=failure),
        at="2026-01-01T00:00:00Z",
    )
    return Version(number=number, parent=None, proposal=proposal, source_hash="h", path="", trials=(trial,))


def test_a_stage_that_exceeded_the_limits_climbs_its_own_ladder() -> None:
    name = next(full for full in level2.MODULES if full.startswith("21"))
    ask = Ask(problem=tiny(name), facts=inspect(tiny(name)), arch="sm_80", device="H200")
    first = proposed(ask)
    assert first.title.endswith("groupnorm: one thread per row")
    asked_again = dataclasses.replace(ask, history=(exceeded(first, 1, "absorb_mean_var"),))
    second = proposed(asked_again)
    assert second.title == "groupnorm: one warp per row" and "exceeded the emulator's limits" in second.reason
    own, before = (str(item.candidate.program).split(" |> ") for item in (second, first))
    assert own[0] == before[0] and own[1] != before[1]
    history = asked_again.history
    for number in range(2, 6):
        version = Version(number=number, parent=None, proposal=proposed(asked_again), source_hash="h", path="")
        history = (*history, version)
        asked_again = dataclasses.replace(ask, history=history)
        assert ".threads_per_row(1)" not in str(version.proposal.candidate.program)
    unknown = dataclasses.replace(ask, history=(exceeded(first, 1, "check_rank"),))
    assert proposed(unknown).title.startswith("conv (h1): ")
