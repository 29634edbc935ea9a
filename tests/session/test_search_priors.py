"""What a search expects of programs: advice on the parent, the ladder's order, recorded times of other problems."""

from __future__ import annotations

import math

import pytest

from workbench.errors import Stopped
from workbench.language import parse
from workbench.policies.search import SearchNode, SearchTree
from workbench.problems import inspection, load
from workbench.records import Advice, Ask, Diagnosis, Move
from workbench.records.search import NodeResult, Prior
from workbench.session.searching.priors import SessionPriors
from workbench.session.searching.programs import ProgramSpace, describe_change

BOUND_S = 1e-3


class Recorded:
    """Expects half as fast as the best of every program."""

    def predict(self, programs: list[str]) -> list[Prior]:
        return [Prior(log_speedup=-0.7, low=-1.0, high=-0.4, source="recorded") for _ in programs]


def diagnosis(gain: float) -> Diagnosis:
    advice = Advice(
        probe="access_width",
        severity="high",
        cause="narrow",
        action="widen",
        moves=(Move(setting="vector", direction="more"),),
        gain=gain,
        mean_gain=gain,
    )
    return Diagnosis(
        device="H200",
        case="full",
        provenance="counted",
        bottleneck="memory",
        analytic="memory",
        measured="memory",
        advice=(advice,),
    )


@pytest.fixture(scope="module")
def ask() -> Ask:
    opened = inspection.open_problem(load("softmax"))
    return Ask(problem=opened.problem, facts=opened.facts, arch="sm_80")


def make_space(ask: Ask, recorded: Recorded | None = None, gain: float = 2.0) -> ProgramSpace:
    priors = SessionPriors(BOUND_S, lambda number: diagnosis(gain), recorded)  # type: ignore[arg-type]
    return ProgramSpace(ask, priors, None, BOUND_S, answers=lambda program: True)


def tried(space: ProgramSpace, at: int, time_s: float) -> SearchNode:
    """A node of a root that took this time."""
    result = NodeResult(outcome="passed", time_s=time_s, version=1)
    return SearchNode(number=1, parent=0, candidate=space.roots()[at], result=result)


def test_listing_changes_stops_in_the_middle_and_goes_on_afterwards(ask: Ask) -> None:
    priors, asked = SessionPriors(BOUND_S, lambda number: diagnosis(2.0), None), list[bool]()

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) == 2

    space = ProgramSpace(ask, priors, None, BOUND_S, lambda program: True, should_stop)
    with pytest.raises(Stopped):
        space.children(tried(space, 0, 4e-3), SearchTree())
    assert len(asked) == 2
    children = space.children(tried(space, 0, 4e-3), SearchTree())
    assert children == make_space(ask).children(tried(space, 0, 4e-3), SearchTree())


def test_a_ladder_that_climbs_expects_the_most_of_its_last_rung(ask: Ask) -> None:
    expected = [root.prior.log_speedup for root in make_space(ask).roots()]
    assert expected == sorted(expected) and len(set(expected)) > 1


def test_advised_changes_come_first_and_are_worth_their_return(ask: Ask) -> None:
    space = make_space(ask)
    node = tried(space, 0, 4e-3)
    children = space.children(node, SearchTree())
    advised = [child for child in children if "advice of access_width" in child.prior.source]
    assert advised and children[: len(advised)] == tuple(advised)
    assert all("vector" in child.title for child in advised)
    for child in advised:
        assert child.prior.log_speedup == pytest.approx(math.log(1 / 4) + math.log(2))
        assert child.prior.low < child.prior.log_speedup < child.prior.high
    rest = children[len(advised) :]
    assert rest and all(child.prior.log_speedup < math.log(1 / 4) for child in rest)
    assert all(child.prior.source == "its parent's time" for child in rest)
    far = tried(space, 0, 500e-3)  # far from the bound a large gain counts for more
    (first, *_) = space.children(far, SearchTree())
    assert first.prior.log_speedup - math.log(1 / 500) == pytest.approx(math.log(2))  # never over what there is to gain


def test_recorded_times_are_the_ground_on_which_advice_builds(ask: Ask) -> None:
    space = make_space(ask, Recorded())
    assert {root.prior.source for root in space.roots()} == {"recorded"}
    children = space.children(tried(space, 0, 4e-3), SearchTree())
    advised = [child.prior for child in children if "advice" in child.prior.source]
    assert advised and all(-0.7 < prior.log_speedup < -0.7 + math.log(2) for prior in advised)
    assert all("recorded; advice of access_width" in prior.source for prior in advised)


def test_children_differ_in_one_setting_and_each_code_is_one_candidate(ask: Ask) -> None:
    from workbench.landscapes.keys import settings_of

    space = make_space(ask)
    for root in space.roots():
        node = SearchNode(number=1, parent=0, candidate=root, result=NodeResult(outcome="passed", time_s=2e-3))
        children = space.children(node, SearchTree())
        keys = [child.key for child in children]
        assert len(set(keys)) == len(keys) > 0 and root.key not in keys
    own = settings_of(root.text)
    near = [sum(own.get(n) != settings_of(c.text).get(n) for n in {*own, *settings_of(c.text)}) for c in children]
    assert min(near) == 1 and space.bound_s(root) == BOUND_S


LAYERS = """
import torch
import torch.nn as nn
WIDTH, LAYERS = 1024, 5
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, WIDTH, bias=False)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.softmax(-1)

def get_inputs():
    return [torch.randn(256, 512)]

def get_init_inputs():
    return []
"""


def test_stages_that_are_alike_change_together() -> None:
    """The first product has another size than the four that follow; the softmax belongs to the last. All six change,
    the four, or one.
    """
    opened = inspection.open_problem(load(LAYERS))
    space = make_space(Ask(problem=opened.problem, facts=opened.facts, arch="sm_80"))
    root = space.roots()[0]
    stages = parse(root.text).stages
    assert [stage.operation.name for stage in stages] == ["gemm"] * 6 + ["softmax"]
    children = space.children(SearchNode(number=1, parent=0, candidate=root), SearchTree())
    changed = {
        tuple(n for n, (one, other) in enumerate(zip(stages, parse(child.text).stages, strict=True)) if one != other)
        for child in children
    }
    assert changed == {(0, 1, 2, 3, 4, 5), (1, 2, 3, 4), (0,), (5,), (6,)}
    assert any(child.title == "tile 64x16x64 in 6 stages" for child in children)


def test_a_change_says_the_value_that_was() -> None:
    assert describe_change("softmax(x) .vector(4)", "softmax(x)") == "without vector"
    assert describe_change("softmax(x) .vector(4)", "softmax(x) .vector(2)") == "vector 2 instead of 4"
    two = "h1 = softmax(x) .vector(4) |> softmax(h1) .vector({})"
    assert describe_change(two.format(4), two.format(2)) == "vector 2 in stage 2 instead of 4"
