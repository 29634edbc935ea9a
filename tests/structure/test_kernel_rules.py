"""Rules on recorded times: what they say, the pairs that show it, what is shown under a heat map and a diagnosis."""

from __future__ import annotations

import dataclasses

import pytest

from workbench import landscapes
from workbench.landscapes.keys import settings_of
from workbench.records import Candidate, Proposal, Version
from workbench.structure.kernels.kernel_rules import (
    Condition,
    KernelRule,
    explain_program,
    kernel_rules,
    measure_rule,
    rules_of_kind,
    rules_of_landscape,
    write_rules,
)
from workbench.structure.kernels.landscape_rows import context_attributes, problem_attributes, rank_rows
from workbench.structure.kernels.ranking import ProgramRanker
from workbench.structure.kernels.rule_learning import learn_rules
from workbench.views.text.mime_bundle import MimeBundle
from workbench.views.text.rules_page import landscape_rules, program_rules, rules_block, with_rules

FEW = ("softmax", "softmax_bf16", "layer_norm_bf16")


@pytest.fixture(scope="module")
def places() -> dict[str, landscapes.Landscape]:
    return landscapes.landscapes()


def test_at_least_eight_rules_have_support_and_a_pair_that_shows_them(places) -> None:
    rules = kernel_rules()
    assert len(rules) >= 8
    for rule in rules:
        assert rule.support >= 20 and rule.effect >= 1.1 and rule.held >= 0.75
        pair = rule.pair
        rows = places[pair.landscape].rows
        assert rows[pair.slow].median_s == pair.slow_s > pair.fast_s == rows[pair.fast].median_s
        slow, fast = settings_of(pair.slow), settings_of(pair.fast)
        differ = {name for name in {*slow, *fast} if slow.get(name) != fast.get(name)}
        assert differ == {rule.slow.setting}


def test_rules_of_a_kind_hold_on_its_landscapes_alone(places) -> None:
    norms = rank_rows((name, place) for name, place in places.items() if place.facts["kind"] == "norm")
    rules = rules_of_kind("norm")
    assert rules and not rules_of_kind("nonsense")
    assert all(measure_rule(rule.slow, rule.context, norms) == rule for rule in rules)


def test_sentences_for_a_model_begin_with_what_its_program_does_wrong() -> None:
    context = problem_attributes(1e9, 1e8, "fp32", "norm")
    text = "rmsnorm(x) .arch(sm_90a) .threads_per_row(1024) .vector(4) .unroll(4)"
    lines = write_rules("norm", text, context)
    assert lines[0].startswith("threads per row > 768: ") and lines[0].endswith("the kernel above is such a one")
    assert "rows in" in lines[0] and 1 < len(lines) <= 5
    assert not any("the kernel above" in line for line in lines[1:])
    assert not any("the kernel above" in line for line in write_rules("norm", None, context))
    assert write_rules("loss", text, context) == ()


@pytest.mark.slow
def test_the_shipped_rules_hold_on_the_shipped_landscapes(places) -> None:
    rows = rank_rows(places.items())
    for rule in kernel_rules()[:3]:
        again = measure_rule(rule.slow, rule.context, rows)
        assert again == rule


def test_rules_are_learnt_from_rows(places) -> None:
    rules = learn_rules(rank_rows((name, places[name]) for name in FEW))
    assert rules and all(rule.support >= 20 for rule in rules)
    assert any(rule.slow.attribute in ("threads per row", "parts", "cluster m", "vector") for rule in rules)


def test_ranks_of_a_problem_that_was_not_seen_are_predicted(places) -> None:
    from scipy.stats import spearmanr

    rows = rank_rows((name, places[name]) for name in FEW)
    seen = [one for one in rows if one.landscape != "softmax_bf16"]
    left = [one for one in rows if one.landscape == "softmax_bf16"]
    predicted = ProgramRanker().fit(seen).predict(left)
    assert spearmanr(predicted, [one.rank for one in left]).statistic > 0.5


RULE = KernelRule(
    slow=Condition(attribute="tile n", bound=80.0),
    context=(Condition(attribute="schedule", value="pingpong"),),
    support=30,
    landscapes=2,
    effect=1.5,
    held=0.9,
    pair=kernel_rules()[0].pair,
)
SLOW = "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(pingpong) .tile(128, 64, 64)"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (SLOW, True),
        (SLOW.replace("64, 64", "256, 64"), False),
        (SLOW.replace("pingpong", "cooperative"), False),
        ("softmax(x) .arch(sm_90a)", False),
        ("nonsense(", False),
    ],
)
def test_a_rule_is_told_of_programs_on_its_slow_side(program: str, told: bool) -> None:
    assert explain_program(program, {}, [RULE]) == ((RULE,) if told else ())


def test_a_rule_reads_as_a_sentence() -> None:
    assert str(RULE) == (
        "tile n <= 80 where schedule is pingpong: 1.50x the time (30 rows in 2 landscapes, 90% of pairs)"
    )
    assert str(Condition(attribute="swap", value="yes", equal=False)) == "swap is not yes"


def test_rules_are_below_the_heat_map_with_the_landscapes_own_pairs(places) -> None:
    place = places["matmul_bf16_2048"]
    shown = landscape_rules(place)
    assert shown is not None
    for rule in rules_of_landscape(place):
        assert rule.landscapes == 1 and rule.pair.slow in place.rows and rule.support >= 5
    assert "recorded" in shown.text and "gemm(a, b)" in shown.html
    whole = with_rules(MimeBundle("map", svg="<svg/>"), place)
    assert whole.text.startswith("map\n\nWhat makes") and len(whole.parts) == 2 and whole.svg == "<svg/>"


def test_a_landscape_without_rules_is_shown_as_it_was(places) -> None:
    small = dataclasses.replace(places["softmax"], rows={})
    assert with_rules(MimeBundle("map"), small).text == "map"


def test_a_diagnosis_names_the_rules_of_a_programs_slow_side(places) -> None:
    place = places["matmul_bf16_4096"]
    candidate = Candidate(source="", program=SLOW)
    version = Version(
        number=1,
        parent=None,
        proposal=Proposal(candidate=candidate, title="t", reason="", by="test"),
        source_hash="h",
        path="",
    )
    rules = program_rules(version, place.problem())
    assert rules and all(explain_program(SLOW, context_attributes(place), [rule]) for rule in rules)
    block = rules_block(rules)
    assert "recorded" in block.text and "<li>" in block.html
    bare = dataclasses.replace(version.proposal, candidate=Candidate(source="x = 1"))
    assert program_rules(dataclasses.replace(version, proposal=bare), place.problem()) == ()
