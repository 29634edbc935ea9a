"""The search's contract, on a recorded landscape: replay, resuming, budgets, pins, pruning, ideas; every strategy."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from workbench.errors import Stopped, UserError, WorkbenchError
from workbench.landscapes import Landscape, landscapes
from workbench.policies.search import (
    FileLog,
    LandscapeEvaluator,
    LandscapeSpace,
    MemoryLog,
    SearchTree,
    Strategy,
    load_strategy,
    run_search,
    share_of_best,
    strategy_names,
    walk_landscape,
)
from workbench.policies.search.frontier import options_at
from workbench.policies.search.protocols import Action, ShouldStop, Space
from workbench.policies.search.tree import SearchNode
from workbench.records.search import NodeResult, Prior, SearchBudget, SearchCandidate, SearchEvent, SearchSetup

TRIALS = 12  # more than the random tries with which tpe and bayes begin


@pytest.fixture(scope="module")
def place() -> Landscape:
    """Rows of a real landscape with a few failures among them."""
    return landscapes()["layer_norm"]


@pytest.fixture(scope="module")
def space(place: Landscape) -> LandscapeSpace:
    """With priors that are right by a factor of two or so, of most programs."""
    numbers = random.Random(3)
    priors = {
        row.program: Prior(
            log_speedup=(at := numbers.gauss(0, 0.3) - 1e3 * (row.median_s or 0)), low=at - 1, high=at + 1, source="t"
        )
        for row in place.rows.values()
        if numbers.random() < 0.8
    }
    return LandscapeSpace(place, priors)


@pytest.fixture(
    scope="module", params=[(name, priors) for name in strategy_names() for priors in (False, True)], ids=str
)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    """Every strategy with and without priors."""
    name, priors = request.param
    return load_strategy(name, priors=priors)


class Killed(Exception):
    """The process dies."""


class MortalLog(MemoryLog):
    """A log whose process dies when it has some events."""

    def __init__(self, events: Sequence[SearchEvent], most: int) -> None:
        super().__init__(events)
        self.most = most

    def append(self, event: SearchEvent) -> SearchEvent:
        kept = super().append(event)
        if len(self.events()) >= self.most:
            raise Killed
        return kept


def search(
    place: Landscape, space: LandscapeSpace, strategy: Strategy, log: MemoryLog, trials: int = TRIALS
) -> SearchTree:
    return run_search(space, LandscapeEvaluator(place), strategy, log, seed=5, budget=SearchBudget(trials=trials))


def shape(tree: SearchTree) -> object:
    """All of a tree that anything depends on."""
    return (
        [dataclasses.astuple(node) for node in tree.nodes],
        *(tree.tried, tree.pins, tree.pending, tree.trials, tree.screened, tree.best_s, tree.turns, tree.budget),
    )


def test_a_search_spends_its_budget_and_tries_nothing_twice(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log = MemoryLog()
    tree = search(place, space, strategy, log)
    walk = [node.candidate.text for node in tree.walk() if node.candidate]
    assert tree.trials == len(walk) == len(set(walk)) == TRIALS
    assert tree.stopped == "the budget of 12 trials is used up"
    curve = share_of_best(place, walk)
    assert tree.best is not None and place.best is not None and place.best.median_s is not None
    assert curve[-1] == pytest.approx(place.best.median_s / tree.best_s) and list(curve) == sorted(curve)


def test_every_prefix_of_the_log_replays_to_the_same_tree(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    whole = MemoryLog()
    search(place, space, strategy, whole)
    grown = SearchTree()
    for number, event in enumerate(whole.events()):
        grown.apply(event)
        assert shape(SearchTree.replay(whole.events()[: number + 1])) == shape(grown)


def test_killed_after_every_event_and_resumed_it_writes_the_same_events(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    whole, log = MemoryLog(), MortalLog((), 1)
    search(place, space, strategy, whole)
    deaths = 0
    while len(log.events()) < len(whole.events()):
        with pytest.raises(Killed):
            search(place, space, strategy, log)
        deaths += 1
        log = MortalLog(log.events(), len(log.events()) + 1)
    assert list(log.events()) == list(whole.events()) and deaths == len(whole.events())


def test_the_seed_decides(place: Landscape) -> None:
    walks = [walk_landscape(place, load_strategy("random"), seed, 8) for seed in (1, 1, 2)]
    assert walks[0] == walks[1] != walks[2]


def test_a_pinned_node_is_expanded_next_until_nothing_is_left_of_it(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log = MemoryLog()
    tree = search(place, space, strategy, log, 8)
    node = max((tree.nodes[number] for number in tree.tried), key=lambda node: len(options_at(tree, space, node)))
    count = min(5, len(options_at(tree, space, node)))
    assert count >= 2
    log.append(SearchEvent(number=0, kind="pinned", node=node.number, by="person"))
    tree = search(place, space, strategy, log, 8 + count)
    assert [tree.nodes[number].parent for number in tree.tried[8:]] == [node.number] * count
    log.append(SearchEvent(number=0, kind="unpinned", node=node.number, by="person"))
    assert search(place, space, strategy, log, 14).trials == 14


def test_nothing_is_tried_below_a_pruned_node_until_it_is_revived(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log = MemoryLog()
    tree = search(place, space, strategy, log, 6)
    closed = [tree.tried[0], tree.tried[3]]
    for number in closed:
        log.append(SearchEvent(number=0, kind="pruned", node=number, reason="dull", by="person"))
    before = len(log.events())
    tree = search(place, space, strategy, log, 13)
    assert tree.nodes[closed[0]].pruned == "dull"
    tried = [event.node for event in log.events()[before:] if event.kind == "tried"]
    assert len(tried) == 7 and not any(set(closed) & set(tree.path(number)) for number in tried if number)
    log.append(SearchEvent(number=0, kind="revived", node=closed[0], by="person"))
    assert not SearchTree.replay(log.events()).is_closed(closed[0])


def test_a_search_that_ran_out_goes_on_with_a_larger_budget(place: Landscape, space: LandscapeSpace) -> None:
    log, whole = MemoryLog(), MemoryLog()
    strategy = load_strategy("hill-climb")
    search(place, space, strategy, log, 4)
    tree = search(place, space, strategy, log, 9)
    straight = search(place, space, strategy, whole, 9)
    assert [node.candidate for node in tree.walk()] == [node.candidate for node in straight.walk()]


def test_a_search_does_not_go_on_with_other_constants(place: Landscape, space: LandscapeSpace) -> None:
    log = MemoryLog()
    search(place, space, load_strategy("hill-climb"), log, 3)
    with pytest.raises(UserError, match=r"began with hill-climb \(patience=10, priors=False\) and cannot go on"):
        search(place, space, load_strategy("hill-climb", patience=3), log, 6)


def test_a_budget_of_seconds_holds_and_a_stop_keeps_everything(place: Landscape, space: LandscapeSpace) -> None:
    strategy, judge = load_strategy("random"), LandscapeEvaluator(place)
    tree = run_search(space, judge, strategy, MemoryLog(), budget=SearchBudget(seconds=3.0))
    last = tree.nodes[tree.tried[-1]].result
    assert last is not None and tree.seconds >= 3 > tree.seconds - last.seconds
    log = MemoryLog()
    tree = run_search(space, judge, strategy, log, should_stop=lambda: len(log.events()) > 9)
    assert tree.stopped == "stopped by the person" and 3 < tree.trials < 6


class Model:
    """An expander that writes programs when it is asked, as a language model does; and the evaluator's part."""

    writes = True

    def __init__(self, space: LandscapeSpace) -> None:
        self.space, self.pool, self.calls = space, list(space.roots()), 0

    def roots(self) -> Sequence[SearchCandidate]:
        return ()

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        return ()

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        self.calls += 1
        if len(tree.nodes) > 30:
            return ()
        chosen = self.pool[(7 * len(tree) + node.number) % len(self.pool)]
        return (chosen,) if chosen.key not in tree.keys else ()

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        return None

    def settings(self, candidate: SearchCandidate) -> dict[str, str]:
        return dict(self.space.settings(candidate))


def test_every_strategy_works_with_an_expander_that_writes(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log = MemoryLog()
    tree = run_search(Model(space), LandscapeEvaluator(place), strategy, log, budget=SearchBudget(trials=6))
    assert tree.trials == 6 and all(tree.nodes[number].by == "expander" for number in tree.tried)


def test_an_idea_in_words_is_written_out_and_tried_next(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log, judge = MemoryLog(), LandscapeEvaluator(place)
    run_search(Model(space), judge, strategy, log, budget=SearchBudget(trials=2))
    words = SearchCandidate(key="idea-1", text="use wider loads", title="use wider loads", in_words=True)
    log.append(SearchEvent(number=0, kind="idea", parent=0, candidates=(words,), by="person"))
    before = len(log.events())
    tree = run_search(Model(space), judge, strategy, log, budget=SearchBudget(trials=4))
    idea = tree.keys["idea-1"]
    opened = [event for event in log.events()[before:] if event.kind == "opened"]
    assert opened[0].node == idea and tree.nodes[idea].children and tree.nodes[idea].result is None
    assert tree.tried[2] == tree.nodes[idea].children[0], "before what the strategy prefers"


@pytest.mark.parametrize("is_tried", [True, False])
def test_an_idea_that_the_tree_has_already_is_that_node(
    place: Landscape, space: LandscapeSpace, strategy: Strategy, is_tried: bool
) -> None:
    class Same(Model):
        def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
            if node.candidate is None or not node.candidate.in_words:
                return super().expand(node, tree, should_stop)
            return [one.candidate for one in (tree.nodes[known],) if one.candidate is not None]

    log, judge = MemoryLog(), LandscapeEvaluator(place)
    tree = run_search(Same(space), judge, strategy, log, budget=SearchBudget(trials=2))
    known = tree.tried[0]
    if not is_tried:
        new = next(one for one in space.roots() if one.key not in tree.keys)
        log.append(SearchEvent(number=0, kind="opened", node=tree.tried[0], candidates=(new,), by="person"))
        known = SearchTree.replay(log.events()).keys[new.key]
    words = SearchCandidate(key="idea-1", text="use wider loads", title="use wider loads", in_words=True)
    log.append(SearchEvent(number=0, kind="idea", parent=0, candidates=(words,), by="person"))
    tree = run_search(Same(space), judge, strategy, log, budget=SearchBudget(trials=3))
    idea = tree.nodes[tree.keys["idea-1"]]
    assert idea.made == [known] and not idea.children and tree.trials == 3
    assert (tree.tried[2] == known) is not is_tried


def test_a_pinned_node_comes_before_an_idea_that_is_not_below_it(
    place: Landscape, space: LandscapeSpace, strategy: Strategy
) -> None:
    log, judge = MemoryLog(), LandscapeEvaluator(place)
    tree = run_search(Model(space), judge, strategy, log, budget=SearchBudget(trials=2))
    pinned = tree.tried[0]
    log.append(SearchEvent(number=0, kind="pinned", node=pinned, by="person"))
    words = SearchCandidate(key="idea-1", text="use wider loads", title="use wider loads", in_words=True)
    log.append(SearchEvent(number=0, kind="idea", parent=0, candidates=(words,), by="person"))
    tree = run_search(Model(space), judge, strategy, log, budget=SearchBudget(trials=4))
    idea = tree.keys["idea-1"]
    assert tree.nodes[idea].made and all(tree.nodes[one].result is None for one in tree.nodes[idea].children)
    assert all(pinned in tree.path(one) for one in tree.tried[2:])


def test_a_stop_while_the_strategy_chooses_tries_nothing_more(place: Landscape, space: LandscapeSpace) -> None:
    log, judge, stopped = MemoryLog(), LandscapeEvaluator(place), list[bool]()

    class Slow:
        name, constants = "slow", load_strategy("random").constants

        def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
            if tree.trials == 2:
                stopped.append(True)  # a person stops it now
            return load_strategy("random").choose(tree, space, numbers)

    tree = run_search(space, judge, Slow(), log, should_stop=lambda: bool(stopped))
    assert tree.trials == 2 and tree.pending is None and tree.stopped == "stopped by the person"


def test_a_result_without_a_gpu_costs_no_trial(place: Landscape, space: LandscapeSpace) -> None:
    class Screen(LandscapeEvaluator):
        def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
            found = super().judge(candidate, tree, should_stop)
            slow = found.time_s is not None and found.time_s > 1.05 * tree.best_s
            return dataclasses.replace(found, screened=slow)

    tree = run_search(space, Screen(place), load_strategy("random"), MemoryLog(), budget=SearchBudget(trials=5))
    assert tree.trials == 5 and tree.screened > 0 and len(tree.walk()) == 5


def test_a_file_keeps_the_log_without_a_last_line_that_was_cut_off(
    place: Landscape, space: LandscapeSpace, tmp_path: Path
) -> None:
    path, strategy = tmp_path / "search.jsonl", load_strategy("random")
    first = search(place, space, strategy, FileLog(path), 3)
    with path.open("a") as out:
        out.write('{"record": {"kind": "tr')
    again = search(place, space, strategy, FileLog(path), 6)
    straight = search(place, space, strategy, MemoryLog(), 6)
    assert first.trials == 3 and [node.candidate for node in again.walk()] == [
        node.candidate for node in straight.walk()
    ]
    assert shape(SearchTree.replay(FileLog(path).events())) == shape(again)
    path.write_text("no event\n")
    with pytest.raises(WorkbenchError, match=r"search.jsonl, line 1: .*; remove the file to begin anew"):
        FileLog(path)


def test_least_energy_among_those_that_are_as_fast() -> None:
    events = [SearchEvent(number=0, kind="started")]
    log = MemoryLog(events)

    def add(time_s: float, high_s: float, joules: float | None) -> None:
        key = str(len(log.events()))
        log.append(
            SearchEvent(number=0, kind="added", parent=0, candidates=(SearchCandidate(key=key, text="", title=""),))
        )
        result = NodeResult(outcome="passed", time_s=time_s, low_s=2 * time_s - high_s, high_s=high_s, joules=joules)
        log.append(SearchEvent(number=0, kind="tried", node=(len(log.events()) - 1) // 2 + 1, result=result))

    for time_s, high_s, joules in ((1.0, 1.1, 5.0), (1.05, 1.1, 3.0), (2.0, 2.1, 1.0), (0.99, 1.0, 4.0)):
        add(time_s, high_s, joules)
    by_time = SearchTree.replay(log.events())
    setup = SearchSetup(strategy="random", seed=0, constants=(), aim="energy")
    by_energy = SearchTree.replay([dataclasses.replace(log.events()[0], setup=setup), *log.events()[1:]])
    assert by_time.best is not None and by_time.best.number == 4
    assert by_energy.best is not None and by_energy.best.number == 2


def test_unknown_names_are_said_in_one_line() -> None:
    with pytest.raises(UserError, match=r"no search is called 'best'; there are: .*random"):
        load_strategy("best")
    with pytest.raises(UserError, match=r"the search random does not take .*speed.*; its constants are: priors"):
        load_strategy("random", speed=3)


def test_a_stop_in_the_middle_of_a_try_is_written_down_and_the_try_comes_first_then(
    place: Landscape, space: LandscapeSpace
) -> None:
    class Interrupted(LandscapeEvaluator):
        def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
            if tree.trials == 2:
                raise Stopped
            return super().judge(candidate, tree, should_stop)

    log, whole, strategy = MemoryLog(), MemoryLog(), load_strategy("random")
    tree = run_search(space, Interrupted(place), strategy, log, seed=5, budget=SearchBudget(trials=5))
    assert tree.pending is not None and tree.stopped
    search(place, space, strategy, log, 5)
    search(place, space, strategy, whole, 5)
    assert [event.kind for event in log.events()].count("stopped") == 2
    assert [e.result for e in log.events() if e.kind == "tried"] == [
        e.result for e in whole.events() if e.kind == "tried"
    ]


THIRD = """
from workbench.policies.search import Stop, Try


class Last:
    name = "last"

    def __init__(self, priors=False):
        self.constants = {"priors": priors}

    def choose(self, tree, space, numbers):
        left = [one for one in space.roots() if one.key not in tree.keys]
        return Try(candidate=left[-1]) if left else Stop(reason="done")
"""


def test_a_strategy_of_another_package_is_found(
    place: Landscape, space: LandscapeSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_search.py").write_text(THIRD)
    facts = tmp_path / "acme_search-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-search\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[workbench.search_strategies]\nlast = acme_search:Last\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "last" in strategy_names()
    tree = search(place, space, load_strategy("last"), MemoryLog(), 3)
    assert [node.candidate for node in tree.walk()] == list(space.roots())[:-4:-1]
