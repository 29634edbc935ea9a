"""Searches of a session on recorded times, with the real emulator and with a scripted expander; a person steers."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import problems
from workbench.errors import Stopped, UserError
from workbench.executors.replay import ReplayExecutor
from workbench.policies.search import SearchTree, load_strategy
from workbench.proposers.planner import read_settings
from workbench.protocols import PLAIN, RunContext
from workbench.records import Job, Outcome
from workbench.records.search import SearchBudget, SearchEvent
from workbench.session import DATABASE, Session
from workbench.session.searching.candidates import key_of_program, key_of_source
from workbench.session.searching.guesses import guess_next
from workbench.session.searching.programs import describe_change
from workbench.session.searching.words import write_as_asked
from workbench.session.verifying import verify_log
from workbench.views.search import draw_search_tree, find_rows, summarise

RELU = "elementwise(relu(x)) .arch(sm_90a) .threads(256)"
SLOW = "elementwise(relu(x)) .arch(sm_90a) .threads(64) .vector(2)"  # in the landscape of relu
FAST = "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"  # the fastest of it


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session on relu's landscape without a version."""
    folder = tmp_path_factory.mktemp("sessions") / "relu"
    Session.create("relu", root=folder.parent, name=folder.name, executor="replay").close()
    return folder


@pytest.fixture
def session(fresh: Path, tmp_path: Path) -> Iterator[Session]:
    shutil.copytree(fresh, tmp_path / "relu")
    with Session.open(tmp_path / "relu", trusted=True) as opened:
        yield opened


def story(session: Session, search: int = 1) -> list[SearchEvent]:
    """The events without what the clock says, and without budgets and stops."""
    return [
        dataclasses.replace(
            event, number=0, at="", result=dataclasses.replace(event.result, seconds=0.0) if event.result else None
        )
        for event in session.log.store.search_events(search)
        if event.kind not in ("budget", "stopped", "started")
    ]


def test_each_trial_is_a_version_with_its_verdict(session: Session) -> None:
    tree = session.search("greedy", 6)
    assert tree.trials == 6 and tree.stopped == "the budget of 6 trials is used up"
    results = [tree.nodes[number].result for number in tree.tried]
    assert [result.version for result in results] == [1, 2, 3, 4, 5, 6]
    for number, result in zip(tree.tried, results, strict=True):
        version, node = session.version(result.version), tree.nodes[number]
        verdict = version.trials[-1].verdict
        assert (result.time_s, verdict.time_provenance) == (verdict.time_s, "measured")
        assert (
            result.low_s <= result.time_s <= result.high_s and version.proposal.candidate.program == node.candidate.text
        )
        above = tree.nodes[node.parent].result
        assert version.parent == (above.version if above is not None else None)
    assert session.baseline is not None and session.version(1).decision.kind == "accept"
    assert not verify_log(session).problems
    assert session.search_tree().tried == tree.tried


def test_a_search_that_goes_on_is_one_that_was_never_stopped(session: Session, fresh: Path, tmp_path: Path) -> None:
    session.search("tree", 4, seed=5)
    session.close()
    with Session.open(session.folder) as again:
        tree = again.search("tree", 8, seed=5)
        assert tree.trials == 8 and len(again.versions) == 8 and list(again.log.store.searches()) == [1]
        parts = story(again)
    shutil.copytree(fresh, tmp_path / "whole")
    with Session.open(tmp_path / "whole", trusted=True) as other:
        other.search("tree", 8, seed=5)
        assert story(other) == parts
        assert other.search("tree", 3, seed=6).trials == 3  # another seed is another search
        assert list(other.log.store.searches()) == [1, 2]
        assert other.search("tree", 8, seed=5, fresh=True).trials == 8
        assert len(other.versions) < 8 + 3 + 8  # what the session had tested before is not run again


def test_a_person_pins_prunes_and_takes(session: Session) -> None:
    tree = session.search("random", 4, seed=1)
    first, last = tree.tried[0], tree.tried[-1]
    session.steer_search("prune", last, "a dead end")
    session.steer_search("pin", first)
    tree = session.search("random", 6, seed=1)
    assert all(tree.nodes[number].parent == first for number in tree.tried[4:])
    assert tree.nodes[last].pruned == "a dead end" and tree.nodes[first].pinned
    session.steer_search("unpin", first)
    assert not session.steer_search("revive", last).nodes[last].pruned
    tree = session.steer_search("expand", last)
    assert tree.nodes[last].children and all(tree.nodes[n].status == "open" for n in tree.nodes[last].children)
    worst = max(tree.tried, key=lambda number: tree.nodes[number].result.time_s)
    assert session.steer_search("take", worst).nodes[worst].taken
    assert session.baseline.number == tree.nodes[worst].result.version
    session.steer_search("budget", budget=SearchBudget(trials=7))
    assert session.search("random", seed=1).trials == 7
    assert [event.by for event in session.log.store.search_events(1) if event.kind in ("pruned", "taken")] == [
        "person",
        "person",
    ]


def test_an_idea_in_words_becomes_candidates(session: Session) -> None:
    session.search("random", 2, seed=1)
    tree = session.steer_search("idea", text="use 512 threads, please")
    idea = tree.nodes[-1]
    assert idea.candidate.in_words and idea.by == "person"
    tree = session.search("random", 3, seed=1)
    children = [tree.nodes[number] for number in tree.nodes[idea.number].children]
    assert children and all({"threads": "512"}.items() <= settings(node.candidate.text).items() for node in children)
    assert tree.tried[-1] == children[0].number, "what a person asks for is tried next"
    session.steer_search("idea", text="make it nicer")
    tree = session.search("random", 4, seed=1)
    assert tree.trials == 4 and not tree.nodes[tree.keys[tree.nodes[-1].candidate.key]].children
    with pytest.raises(UserError, match=r"this idea is node \d+ already"):
        session.steer_search("idea", text="use 512 threads, please")


def test_an_idea_beside_a_pinned_node_says_for_what_it_waits(session: Session) -> None:
    first = session.search("random", 2, seed=1).tried[0]
    session.steer_search("pin", first)
    session.steer_search("idea", text="use 512 threads")
    tree = session.search("random", 3, seed=1)
    assert tree.nodes[tree.tried[-1]].parent == first
    made = next(node.number for node in tree.nodes if node.candidate and node.candidate.title.startswith("as asked"))
    said = f"after what is below the pinned node {first}"
    assert {row.number for row in find_rows(tree) if said in row.note} == {made}
    assert not any(said in row.note for row in find_rows(session.steer_search("unpin", first)))
    assert session.search("random", 4, seed=1).tried[-1] == made


def test_an_idea_below_a_node_changes_that_nodes_program(session: Session) -> None:
    tree = session.search("random", 3, seed=1)
    node = tree.nodes[tree.tried[-1]]
    tree = session.steer_search("expand", node.number)
    before = settings(node.candidate.text)
    changes = {
        at: dict(settings(tree.nodes[at].candidate.text).items() - before.items())
        for at in tree.nodes[node.number].children
    }
    known, (threads,) = next((at, new.values()) for at, new in changes.items() if new.keys() == {"threads"})
    session.steer_search("idea", node.number, f"use {threads} threads")
    tree = session.search("random", 4, seed=1)
    assert tree.tried[-1] == known, "the change of this node's program, although it was written already"
    assert f"which is node {known}" in str(draw_search_tree(tree, opened=(node.number,)))


def test_the_threads_of_a_row_are_meant_where_a_program_writes_only_those() -> None:
    program = "softmax(x) .arch(sm_80) .kept() .threads_per_row(1024) .vector(4)"
    asked = write_as_asked(program, read_settings("use 512 threads, vector 8", for_hopper=False))
    assert asked is not None and settings(asked) == settings(program) | {"threads_per_row": "512", "vector": "8"}
    named = write_as_asked(program, (), "try unroll 4 and passes 2, please, with tile 64x64x32")
    assert named is not None and settings(named) == settings(program) | {"unroll": "4", "passes": "2"}
    assert write_as_asked(program, read_settings("tile 64x64", for_hopper=False)) is None


def test_words_may_name_the_stage_as_titles_do() -> None:
    program = "h1 = softmax(x) .arch(sm_80) .threads(128) |> softmax(h1) .arch(sm_80) .threads(128)"
    words = "threads 64 in stage 2 instead of 128"
    asked = write_as_asked(program, read_settings(words, for_hopper=False), words)
    assert asked is not None and describe_change(program, asked) == words
    assert write_as_asked(program, (), "threads 64 in stage 3") is None


def settings(program: str) -> dict[str, str]:
    from workbench.landscapes.keys import format_settings

    return dict(format_settings(program))


def test_an_order_that_does_not_fit_is_one_line(session: Session) -> None:
    with pytest.raises(UserError, match="no search yet"):
        session.search_tree()
    session.search("random", 2)
    for order, said in (
        (("prune", 99), "no node 99; the tree has nodes 0 to 2"),
        (("prune", 0), "stop the search instead"),
        (("revive", 1), "node 1 is not pruned"),
        (("unpin", 1), "node 1 is not pinned"),
        (("take", 0), "has no version"),
        (("pin",), "pin which node"),
        (("dig", 1), "a search cannot 'dig'"),
        (("idea",), "an idea needs words"),
        (("budget",), "what may the search spend"),
    ):
        with pytest.raises(UserError, match=said) as error:
            session.steer_search(*order)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"no search is called 'deep'; there are: .*tree"):
        session.search("deep", 2)
    for budget, said in (
        (SearchBudget(joules=5.0), "a budget in joules needs a GPU"),
        (SearchBudget(tokens=5), "planner spends no tokens"),
    ):
        with pytest.raises(UserError, match=said):
            session.search("random", budget)
        with pytest.raises(UserError, match=said):
            session.steer_search("budget", budget=budget)
    with pytest.raises(UserError, match="aims at time or energy"):
        session.search("random", 2, aim="space")


def test_stop_ends_a_search_within_a_second_and_keeps_everything(session: Session) -> None:
    running = session.start_search("random", 50, seed=2)
    deadline = time.monotonic() + 20
    while len(session.versions) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    started = time.monotonic()
    session.stop()
    tree = running.result(10)
    assert time.monotonic() - started < 1.5 and 2 <= tree.trials < 50 and tree.stopped == "stopped by the person"
    assert session.search("random", tree.trials + 2, seed=2).trials == tree.trials + 2


def test_the_version_that_a_search_starts_from_is_its_first_root(session: Session) -> None:
    own = session.program(RELU)
    session.accept(own.number)
    session.search("greedy", 3)
    events = session.log.store.search_events(1)
    assert events[0].setup.start == own.number and events[0].setup.expander == "planner"
    root = session._searching._make_space(events[0].setup, {}).roots()[0]
    assert root.key == key_of_program(RELU) and root.prior.source == "its own time"
    assert [event.kind for event in events[1:3]] == ["added", "tried"] and events[1].candidates[0] == root
    assert len(session.version(own.number).trials) == 1  # what was tested is not run again


@pytest.mark.parametrize("strategy", ["tree", "random", "greedy", "hill-climb", "annealing", "halving"])
def test_the_best_of_a_search_is_never_slower_than_what_the_session_had(session: Session, strategy: str) -> None:
    session.accept(session.program(SLOW).number)
    best = session.program(FAST)
    session.accept(best.number)
    session.accept(1, by="person")  # a slower baseline, as a person wants it
    tree = session.search(strategy, 3, seed=1)
    given = tree.nodes[1]
    assert (given.parent, given.is_given, given.result.version) == (0, True, best.number)
    assert given.result.time_s == session.version(best.number).trials[-1].verdict.time_s
    assert tree.trials == 3 and len(tree.tried) == 4 and tree.best_s <= given.result.time_s
    assert tree.best is given and "the session had it; nothing that was tried is better" in summarise(tree)
    assert f"nothing that search 1 tried is better than v{best.number}" in session.events()[-1].message


def test_a_search_that_goes_on_gets_what_the_session_found_meanwhile(session: Session) -> None:
    tree = session.search("random", 2, seed=3)
    best = session.program(FAST)
    session.accept(best.number)
    assert tree.best_s > best.trials[-1].verdict.time_s
    tree = session.search("random", 3, seed=3)
    assert list(session.log.store.searches()) == [1] and tree.trials == 3
    assert tree.best.result.version == best.number and tree.best.is_given


def test_equal_code_is_one_candidate(session: Session) -> None:
    plain = "softmax(x) .arch(sm_80) .kept() .threads_per_row(256) .vector(4)"
    assert key_of_program(f"{plain} .split(16)") == key_of_program(plain)
    assert key_of_program(f"{plain} .split(2) .unroll(8)") == key_of_program(f"{plain} .unroll(2)")
    split = "softmax(x, axis=middle) .arch(sm_80) .split(4)"
    assert key_of_program(split) != key_of_program(split.replace("4", "8"))
    source = session.program(RELU).proposal.candidate.source
    tree = ast.parse(source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    renamed = source.replace(function.name, "other_name") + "\n# a comment\n"
    assert ast.get_docstring(tree) in source
    renamed = renamed.replace(ast.get_docstring(tree), "Another docstring.")
    assert renamed != source and key_of_source(renamed) == key_of_source(source)
    assert "256" in source and key_of_source(source.replace("256", "128")) != key_of_source(source)


def test_a_change_behind_its_back_hides_a_search(session: Session) -> None:
    session.search("random", 2)
    session.close()
    db = sqlite3.connect(session.folder / DATABASE)
    db.execute("DROP TRIGGER search_update")
    db.execute("UPDATE search SET record = replace(record, '\"passed\"', '\"failed\"') WHERE id = 3")
    db.commit()
    db.close()
    with Session.open(session.folder) as opened:
        assert any("search 3 was changed" in one.message for one in opened.log.store.damage)
        with pytest.raises(UserError, match="search 1 was changed by another program"):
            opened.search_tree()
        assert opened.search("random", 2).trials == 2 and list(opened.log.store.searches()) == [1, 2]


def test_guesses_are_often_right_and_change_nothing(session: Session) -> None:
    session.search("random", 8, seed=4, priors=False)
    events = session.log.store.search_events(1)
    searching = session._searching
    space, strategy = searching._make_space(session.search_tree().setup, {}), load_strategy("random", priors=False)
    added = [event for event in events if event.kind == "added"]
    hits = 0
    for event, following in itertools.pairwise(added):
        guess = guess_next(space, strategy, events[: event.number + 1], 1)
        hits += bool(guess) and guess[0].key == following.candidates[0].key
    assert hits >= 5
    tree = session.steer_search("expand", session.search_tree().best.number)
    node = [node for node in tree.nodes[1:] if node.result is None][-1]
    session.steer_search("pin", node.number)
    (first,) = guess_next(space, strategy, session.log.store.search_events(1), 1)
    assert first.key == node.candidate.key
    assert SearchTree.replay(session.log.store.search_events(1)).events == len(events) + 2


# ---- a proposer as the expander -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(fresh: Path) -> list[str]:
    """A right kernel of relu, one that does not compile, one that is wrong, and another right one."""
    from workbench.proposers.binding import candidate_of

    with Session.open(fresh, write=False, trusted=True) as opened:
        right, other = (
            candidate_of(
                opened.problem, opened.facts, "sm_80", f"elementwise(relu(x)) .arch(sm_80) .threads({n})"
            ).source
            for n in (128, 256)
        )
    broken = right.replace("class ModelNew", "nonsense = missing_name\n\n\nclass ModelNew")
    return [right, broken, other]


def test_each_child_is_one_proposal_and_a_failure_gets_a_repair(sources: list[str], tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator", name="s") as session:
        options = {"sources": sources, "titles": ["first", "broken", "other"]}
        tree = session.search("tree", 3, by="scripted", options=options)
        assert [tree.nodes[n].candidate.title for n in tree.tried] == ["first", "broken", "other"]
        outcomes = [tree.nodes[number].result.outcome for number in tree.tried]
        assert outcomes[0] == "passed" and outcomes[1] != "passed" and tree.trials == 3
        assert len(session.versions) == 3 and [v.proposal.by for v in session.versions] == ["scripted"] * 3
        repaired = [node for node in tree.nodes if node.candidate is not None and node.candidate.kind == "repair"]
        assert all(tree.nodes[node.parent].result.outcome != "passed" for node in repaired)


def test_a_proposal_that_was_written_before_a_kill_is_taken_up(sources: list[str], session: Session) -> None:
    options = {"sources": sources, "titles": ["first", "broken", "other"]}
    session._proposing.generate("scripted", options=options, test=False)  # and killed before the event was written
    with pytest.raises(Exception, match="only programs of muCUTLASS were recorded"):
        session.search("random", 1, by="scripted", options=options)
    tree = session.search_tree()
    assert tree.nodes[1].candidate.title == "first" and len(session.versions) == 1


# ---- cheap before dear ----------------------------------------------------------------------------------------------


class RecordedGpu(ReplayExecutor):
    """Measured times of a landscape, as if a GPU were here."""

    name = "recorded-gpu"

    def device_name(self) -> str | None:
        return "H200"

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        return dataclasses.replace(super().run(job, context), executor=self.name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_cannot_win_is_not_sent_to_the_gpu(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor=RecordedGpu(), calibrate=False, name="s") as session:
        tree = session.search("tree", 4, seed=1)
        screened = [tree.nodes[n] for n in tree.tried if tree.nodes[n].result.screened]
        assert tree.trials == 4 and tree.screened == len(screened) > 0
        for node in screened:
            assert "by the time model" in node.result.message or "on the emulator" in node.result.message
            version = session.version(node.result.version)
            assert [trial.outcome.executor for trial in version.trials] == ["emulator"]
            assert version.decision.kind == "reject" and version.decision.reason == node.result.message
        for number in set(tree.tried) - {node.number for node in screened}:
            version = session.version(tree.nodes[number].result.version)
            assert [trial.outcome.executor for trial in version.trials][-1] == "recorded-gpu"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_version_that_was_measured_before_is_not_screened(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor=RecordedGpu(), calibrate=False, name="s") as session:
        session.judge(session.generate().number)
        tree = session.search("tree", 4, seed=1)
        assert tree.trials == 4 and tree.screened > 0
        assert "by the time model" in "".join(tree.nodes[n].result.message for n in tree.tried)
        assert {trial.outcome.executor for trial in session.version(1).trials} == {"recorded-gpu"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_candidates_that_were_emulated_ahead_change_nothing(tmp_path: Path) -> None:
    stories = []
    for workers in (0, 2):
        problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
        with Session.create(problem, root=tmp_path, executor="emulator", name=f"w{workers}") as session:
            session.search("random", 4, seed=1, workers=workers)
            stories.append(story(session))
    assert stories[0] == stories[1]


@pytest.mark.slow
def test_a_search_for_few_joules_takes_the_least_at_an_equal_time(tmp_path: Path) -> None:
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator", name="s") as session:
        tree = session.search("greedy", 2, aim="energy")
        assert summarise(tree).startswith("search greedy for energy, seed 0; ")
        results = [tree.nodes[number].result for number in tree.tried]
        assert tree.setup.aim == "energy" and all(result.joules and result.high_s for result in results)
        fastest = min(results, key=lambda result: result.time_s)
        close = [result for result in results if result.low_s <= max(fastest.time_s, fastest.high_s)]
        assert tree.best.result == min(close, key=lambda result: result.joules)
        assert session.baseline.number == tree.best.result.version


def test_ctrl_c_is_kept(session: Session) -> None:
    """An interrupt of the thread that waits stops the search, and everything tried is there."""

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while len(session.versions) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(Stopped):
        session.search("annealing", 60, seed=9)  # takes seconds
    watcher.join()
    tree = session.search_tree()
    assert tree.stopped == "stopped by the person" and tree.trials == len(session.versions) > 0


def test_a_change_of_a_setting_is_named_by_that_setting_alone(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as session:
        session.accept(session.generate().number)
        tree = session.search("greedy", 6, seed=1)
    changes = [node.candidate.title for node in tree.nodes if node.parent]  # the root's are the planner's own ideas
    assert len(changes) > 4 and any(title.startswith("cluster ") for title in changes)
    assert not [title for title in changes if "," in title], changes  # of `unroll`, which a cluster has no use for
