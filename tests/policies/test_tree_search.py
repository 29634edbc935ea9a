"""The tree search's own rules: repairs, dead ends, bounds, what it learns; memory in words; priors; screening."""

from __future__ import annotations

import builtins
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from workbench.errors import Unavailable
from workbench.landscapes import Landscape, landscapes
from workbench.policies.search import (
    LandscapeEvaluator,
    LandscapeSpace,
    MemoryLog,
    Screen,
    SearchNode,
    SearchTree,
    TreeSearch,
    describe_memory,
    load_strategy,
    run_search,
)
from workbench.policies.search.priors import (
    ProgramPriors,
    combine,
    modelled_priors,
    order_priors,
    prior_of,
    slowdown_rows,
)
from workbench.policies.search.protocols import ShouldStop
from workbench.policies.search.strategies.mcts import expected_improvement
from workbench.policies.search.strategies.memory import SearchMemory
from workbench.records.search import NodeResult, Prior, SearchBudget, SearchCandidate, SearchEvent
from workbench.structure.kernels.landscape_rows import problem_attributes


class Grid:
    """Points of a grid whose time is known: x halves it with each step, y fails from 3 on, z does nothing."""

    writes = False

    def __init__(self, bounds: Mapping[str, float] | None = None, size: int = 5) -> None:
        self.size, self.bounds = size, bounds or {}

    def candidate(self, x: int, y: int, z: int, kind: str = "idea") -> SearchCandidate:
        text = f"{x} {y} {z}" if kind == "idea" else f"{x} {y} {z} repaired"
        return SearchCandidate(key=text, text=text, title=text, kind=kind)  # type: ignore[arg-type]

    def point(self, candidate: SearchCandidate) -> tuple[int, int, int]:
        x, y, z = map(int, candidate.text.removesuffix(" repaired").split())
        return x, y, z

    def roots(self) -> Sequence[SearchCandidate]:
        return (self.candidate(0, 0, 0),)

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        assert node.candidate is not None
        here = self.point(node.candidate)
        if node.failed:
            return [self.candidate(*here, kind="repair")]
        return [
            self.candidate(*(value + step if axis == at else value for at, value in enumerate(here)))
            for axis in range(3)
            for step in (-1, 1)
            if 0 <= here[axis] + step < self.size
        ]

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        return ()

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        return self.bounds.get(candidate.text)

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        return dict(zip("xyz", map(str, self.point(candidate)), strict=True))

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        x, y, _ = self.point(candidate)
        if y >= 1 and not candidate.text.endswith("repaired"):
            return NodeResult(outcome="failed", message=f"run/illegal_address: at 0x{7 * x}")
        return NodeResult(outcome="passed", time_s=2.0**-x, low_s=0.99 * 2.0**-x, high_s=1.01 * 2.0**-x)


def search(grid: Grid, trials: int, **constants: float) -> tuple[SearchTree, MemoryLog]:
    log = MemoryLog()
    strategy = load_strategy("tree", **constants)
    return run_search(grid, grid, strategy, log, seed=1, budget=SearchBudget(trials=trials)), log


def test_a_failed_try_is_repaired_next_and_a_repair_is_no_idea() -> None:
    tree, _ = search(Grid(), 30)
    failed = [tree.nodes[number] for number in tree.tried if tree.nodes[number].failed]
    assert failed
    for node in failed:
        place = tree.tried.index(node.number)
        repair = tree.nodes[tree.tried[place + 1]]
        assert repair.parent == node.number and repair.candidate is not None and repair.candidate.kind == "repair"
    assert tree.best is not None and tree.best_s == 2.0**-4


def test_the_number_of_children_grows_with_the_visits() -> None:
    tree, _ = search(Grid(), 40, widen=1.0, alpha=0.5, dead_after=99)
    for node in tree.nodes[1:]:
        ideas = [one for one in node.children if (at := tree.nodes[one].candidate) is not None and at.kind == "idea"]
        if node.children and any(tree.nodes[one].passed for one in ideas):
            assert len(ideas) <= math.ceil(math.sqrt(node.visits)) + 1


def test_a_node_without_gains_is_pruned_unless_a_person_revived_it() -> None:
    tree, log = search(Grid(), 60, dead_after=2, optimism=99.0)
    pruned = [event for event in log.events() if event.kind == "pruned"]
    assert pruned and all(event.reason.endswith("changes of it gave no gain") for event in pruned)
    assert tree.best is not None and not tree.best.pruned
    closed_at = {event.node: event.number for event in pruned}
    for event in log.events():
        if event.kind == "tried" and event.node is not None:
            assert not any(closed_at.get(at, 10**9) < event.number for at in tree.path(event.node))
    first = pruned[0].node
    log.append(SearchEvent(number=0, kind="revived", node=first, by="person"))
    before = len(log.events())
    grid = Grid()
    run_search(grid, grid, load_strategy("tree", dead_after=2, optimism=99.0), log, budget=SearchBudget(trials=66))
    assert not [event for event in log.events()[before:] if event.kind == "pruned" and event.node == first]


def test_what_cannot_win_even_at_its_speed_of_light_is_not_tried() -> None:
    slow = {f"0 0 {z}": 0.9 for z in range(5)}
    tree, _ = search(Grid(slow), 30)
    best_at = min(place for place, number in enumerate(tree.tried) if tree.nodes[number].least_s <= 0.9)
    late = [tree.nodes[number].candidate for number in tree.tried[best_at + 1 :]]
    assert late and not {one.text for one in late if one is not None} & set(slow)


def test_an_open_node_that_cannot_win_is_pruned_with_the_reason() -> None:
    grid = Grid({"4 0 0": 5.0})
    log = MemoryLog()
    run_search(grid, grid, load_strategy("tree"), log, budget=SearchBudget(trials=2))
    log.append(SearchEvent(number=0, kind="opened", node=1, candidates=(grid.candidate(4, 0, 0),), by="person"))
    tree = run_search(grid, grid, load_strategy("tree"), log, budget=SearchBudget(trials=6))
    node = tree.nodes[tree.keys["4 0 0"]]
    assert node.pruned.startswith("at its speed of light it takes 5e+06 µs, the best ") and node.result is None


def test_it_learns_which_setting_helps_and_says_so() -> None:
    grid = Grid()
    tree, _ = search(grid, 30)
    memory = SearchMemory(tree, grid, priors=False)
    far, near = memory.predict([grid.candidate(4, 0, 0), grid.candidate(0, 0, 4)])[0]
    assert far > near
    said = describe_memory(tree, grid)
    assert "x 1 instead of 0: 2.00x faster (1 comparison)" in said or any(
        one.startswith("x 1 instead of 0: 2.00x faster (") for one in said
    )
    assert not any(one.startswith("z ") for one in said)
    assert any("tries failed alike" in one and "run/illegal_address: at N" in one for one in said)


def test_a_plateau_is_told() -> None:
    grid = Grid()
    tree, _ = search(grid, 60, dead_after=99)
    assert any(
        one.startswith("the last ") and f"gave no gain over node {tree.best.number}" in one  # type: ignore[union-attr]
        for one in describe_memory(tree, grid)
    )


def test_expected_improvement_against_sampling() -> None:
    mean, deviation = np.array([0.0, -1.0, 0.5]), np.array([1.0, 0.5, 0.01])
    draws = mean + deviation * np.random.default_rng(0).standard_normal((400_000, 3))
    sampled = np.maximum(draws - 0.2, 0).mean(0)
    assert expected_improvement(mean, deviation, 0.2) == pytest.approx(sampled, abs=2e-3)


def test_the_memory_is_a_gaussian_process_on_the_tries() -> None:
    """Against the textbook's formulae, with the kernel written out."""
    grid = Grid()
    tree, _ = search(grid, 8)
    memory = SearchMemory(tree, grid, priors=False)
    nodes = [node.candidate for node in tree.walk()]
    wanted = [grid.candidate(3, 0, 2), grid.candidate(0, 2, 4)]

    def kernel(one: SearchCandidate, other: SearchCandidate) -> float:
        apart = sum(a != b for a, b in zip(grid.point(one), grid.point(other), strict=True))
        return 9.0 + (memory.factor * 0.5) ** 2 * math.exp(-apart / memory.length)

    whole = np.array([[kernel(a, b) for b in nodes if b] for a in nodes if a]) + 0.02**2 * np.eye(len(nodes))
    cross = np.array([[kernel(a, b) for b in nodes if b] for a in wanted])
    mean = cross @ np.linalg.solve(whole, memory.values)
    variance = [kernel(one, one) - row @ np.linalg.solve(whole, row) for one, row in zip(wanted, cross, strict=True)]
    found, deviation = memory.predict(wanted)
    assert found == pytest.approx(mean, abs=1e-6) and deviation**2 == pytest.approx(variance, rel=1e-5)


@pytest.fixture(scope="module")
def places() -> dict[str, Landscape]:
    """Row problems of the recorded landscapes."""
    known = landscapes()
    return {name: known[name] for name in ("softmax", "rms_norm", "layer_norm", "row_sum", "cross_entropy")}


def test_priors_of_other_problems_rank_a_problem_and_hold_their_interval(places: dict[str, Landscape]) -> None:
    held = places["layer_norm"]
    others = [(name, place) for name, place in places.items() if place is not held]
    found = ProgramPriors(trees=10).fit(others).predict_place(held)
    assert set(found) == set(held.rows) and all(one.low < one.log_speedup < one.high for one in found.values())
    times = np.array([row.median_s for row in held.correct])
    expected = np.array([found[row.program].log_speedup for row in held.correct])
    assert np.corrcoef(np.argsort(np.argsort(-times)), np.argsort(np.argsort(expected)))[0, 1] > 0.5
    error = expected + np.log(times)
    wide = np.array([found[row.program].deviation for row in held.correct])
    assert np.mean(np.abs(error - error.mean()) < 1.645 * wide) > 0.6


def test_priors_of_a_problem_without_a_landscape(places: dict[str, Landscape]) -> None:
    rows = slowdown_rows([("softmax", places["softmax"]), ("rms_norm", places["rms_norm"])])
    assert min(one.rank for one in rows) == 0 and not any("registers" in one.stages[0] for one in rows)
    fitted = ProgramPriors(trees=4).fit_rows(rows)
    programs = list(places["row_sum"].rows)[:5]
    found = fitted.predict(programs, problem_attributes(1e6, 1e8, "fp32", "reduction"))
    assert list(found) == programs


def test_priors_are_joined_by_their_errors_and_brought_to_one_zero() -> None:
    one = {"a": prior_of(0.0, 0.1, "x"), "b": prior_of(1.0, 0.1, "x")}
    other = {"a": prior_of(10.0, 0.1, "y"), "b": prior_of(11.0, 0.3, "y"), "c": prior_of(9.0, 0.2, "y")}
    found = combine(one, other)
    assert found["a"].log_speedup == pytest.approx(0.0) and found["c"].log_speedup == pytest.approx(-1.0)
    assert found["b"].deviation == pytest.approx(0.1) and found["b"].source == "x; y"
    modelled = modelled_priors({"a": (2e-3, 0.2), "b": (1e-3, 0.2)})
    assert modelled["b"].log_speedup - modelled["a"].log_speedup == pytest.approx(math.log(2))
    ordered = order_priors(["p", "q"])
    assert ordered["p"].log_speedup > ordered["q"].log_speedup


def test_good_priors_find_the_best_sooner(places: dict[str, Landscape]) -> None:
    place = places["layer_norm"]
    numbers = random.Random(0)
    priors = {
        row.program: prior_of(-math.log(row.median_s) + numbers.gauss(0, 0.1), 0.1, "t")
        for row in place.correct
        if row.median_s
    }
    space = LandscapeSpace(place, priors)

    def share(**constants: bool) -> float:
        best = [
            run_search(
                space,
                LandscapeEvaluator(place),
                TreeSearch(**constants),
                MemoryLog(),
                seed=seed,
                budget=SearchBudget(trials=4),
            ).best_s
            for seed in range(5)
        ]
        return sum(best)

    assert share(priors=True) < share(priors=False)


def test_screening_saves_trials_by_what_is_expected(places: dict[str, Landscape]) -> None:
    place = places["row_sum"]
    priors = {row.program: prior_of(-math.log(row.median_s), 0.05, "t") for row in place.correct if row.median_s}
    space = LandscapeSpace(place, priors)
    judge = Screen(LandscapeEvaluator(place), space)
    log = MemoryLog()
    tree = run_search(
        space, judge, load_strategy("random"), log, should_stop=lambda: len(SearchTree.replay(log.events()).tried) >= 40
    )
    plain = run_search(
        space, LandscapeEvaluator(place), load_strategy("random"), MemoryLog(), budget=SearchBudget(trials=40)
    )
    assert tree.trials + tree.screened == 40 and tree.screened >= 12
    assert tree.best_s <= 1.02 * plain.best_s
    messages = [event.result.message for event in log.events() if event.result is not None and event.result.screened]
    assert all("at the optimistic end of what is expected, the best" in message for message in messages)
    assert all(tree.nodes[number].status in ("passed", "screened", "failed") for number in tree.tried)
    eager = run_search(
        space,
        Screen(LandscapeEvaluator(place), space, most=3),
        load_strategy("random"),
        MemoryLog(),
        budget=SearchBudget(trials=20),
    )
    states = "".join("s" if eager.nodes[number].status == "screened" else "." for number in eager.tried)
    assert "sss." in states and "ssss" not in states


def test_without_optuna_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, places: dict[str, Landscape]
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: object, **more: object) -> object:
        if name.split(".")[0] == "optuna":
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    place = places["row_sum"]
    with pytest.raises(
        Unavailable, match=r"need optuna, which is not installed: pip install 'cutegen-workbench\[tune\]'"
    ):
        run_search(LandscapeSpace(place), LandscapeEvaluator(place), load_strategy("tpe"), MemoryLog())


def test_a_prior_is_an_interval_of_90_percent() -> None:
    prior = Prior(log_speedup=1.0, low=1 - 1.645, high=1 + 1.645, source="t")
    assert prior.deviation == pytest.approx(1.0) and prior_of(1.0, 1.0, "t") == prior
