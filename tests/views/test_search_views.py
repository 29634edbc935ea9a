"""The tree of a search, its curves and its front: what is drawn, what is folded, and what is said of each node."""

from __future__ import annotations

import dataclasses
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from workbench import landscapes
from workbench.errors import UserError
from workbench.policies.search import ROOT, MemoryLog, SearchTree, load_strategy, run_search, search_landscape
from workbench.policies.search.landscape_space import LandscapeEvaluator, LandscapeSpace
from workbench.records.search import NodeResult, Prior, SearchBudget, SearchCandidate, SearchEvent, SearchSetup
from workbench.views.search import LiveTree, ShownLog, compare_searches, draw_curve, draw_front, draw_search_tree
from workbench.views.search.curves import best_so_far
from workbench.views.search.live import EVERY_S
from workbench.views.search.outline import find_rows, fold, summarise
from workbench.views.text.mime_bundle import PLOTLY

SETUP = SearchSetup(strategy="by hand", seed=3, constants=())


def grown(*steps: tuple[int, NodeResult | None], titles: Sequence[str] = ()) -> list[SearchEvent]:
    """A log in which each step adds a node below a parent and tries it, if it has a result."""
    events = [SearchEvent(number=0, kind="started", setup=SETUP, budget=SearchBudget(trials=99))]
    for number, (parent, result) in enumerate(steps, 1):
        title = titles[number - 1] if titles else f"threads {32 * number}, vector {number % 4}"
        candidate = SearchCandidate(
            key=f"k{number}",
            text=title,
            title=title,
            prior=Prior(log_speedup=0.25, low=0.0, high=0.5, source="time model"),
        )
        by = "strategy" if result is not None else "expander"
        at = len(events)
        events.append(SearchEvent(number=at, kind="added", parent=parent, candidates=(candidate,), by=by))
        if result is not None:
            events.append(SearchEvent(number=len(events), kind="tried", node=number, result=result))
    return events


def passed(time_s: float, **more: object) -> NodeResult:
    return dataclasses.replace(
        NodeResult(outcome="passed", time_s=time_s, low_s=time_s * 0.9, high_s=time_s * 1.1), **more
    )


STEPS = (
    (0, passed(4e-6)),
    (1, passed(2e-6, joules=3e-6)),
    (1, NodeResult(outcome="failed", message="1 of 8 elements\nis wrong")),
    (0, passed(9e-6, screened=True, message="at most 0.4x of v1, by the time model")),
    (2, passed(1e-6, joules=5e-6)),
    (2, None),
)


def steered() -> SearchTree:
    tree = SearchTree.replay(grown(*STEPS))
    for kind, node, reason in (("pruned", 3, "wrong twice"), ("pinned", 5, "")):
        tree.apply(SearchEvent(number=tree.events, kind=kind, node=node, reason=reason, by="person"))
    return tree


def test_every_node_says_what_became_of_it_and_why() -> None:
    text = draw_search_tree(steered()).text
    lines = {line.split("; ")[0].lstrip("│├└─ "): line for line in text.splitlines()}
    assert "best" in lines["★ 5 threads 160, vector 1"] and "pinned" in lines["★ 5 threads 160, vector 1"]
    assert "pruned: wrong twice; 1 of 8 elements is wrong" in lines["⊘ 3 threads 96, vector 3"]
    assert "9 µs modelled" in lines["◌ 4 threads 128, vector 0"]
    assert "screened out without a GPU; at most 0.4x of v1" in lines["◌ 4 threads 128, vector 0"]
    assert "prior +0.25 (time model)" in lines["○ 6 threads 192"]  # the change against its parent
    assert (
        "3 tries, value" in lines["● 2 threads 64, vector 2"] or "2 tries, value" in lines["● 2 threads 64, vector 2"]
    )
    assert "1 screened out without a GPU (20% of the trials saved)" in text.splitlines()[0]


def test_what_is_below_a_pruned_node_is_closed_too() -> None:
    tree = steered()
    tree.apply(SearchEvent(number=tree.events, kind="pruned", node=2, reason="slow", by="person"))
    rows = {row.number: row for row in find_rows(tree)}
    assert rows[5].status == "pruned" and rows[5].note == "below a pruned node"
    assert [row.number for row in fold(tree)] == [0, 1, 2, 3, 4] and fold(tree)[2].hidden == 2
    tree.apply(SearchEvent(number=tree.events, kind="revived", node=2, by="person"))
    assert {row.number: row.status for row in find_rows(tree)}[5] == "passed"


@pytest.fixture(scope="module")
def climbed() -> SearchTree:
    """Every program of a landscape tried by hill climbing."""
    return search_landscape(landscapes.landscapes()["matmul_bf16_4096"], load_strategy("hill-climb"), seed=1)


def test_a_large_tree_is_folded_and_no_node_is_lost(climbed: SearchTree) -> None:
    assert climbed.best is not None and len(climbed.nodes) > 400
    rows = fold(climbed)
    drawn = {row.number for row in rows}
    assert len(rows) < 40 and set(climbed.path(climbed.best.number)) <= drawn
    assert len(rows) + sum(row.hidden for row in rows) == len(climbed.nodes)
    for at, row in enumerate(rows[1:], 1):
        assert row.parent in {one.number for one in rows[:at]}
    opened = fold(climbed, opened={row.number for row in rows})
    assert set(climbed.nodes[ROOT].children) <= {row.number for row in opened} > drawn
    assert len(opened) + sum(row.hidden for row in opened) == len(climbed.nodes)
    assert [row.number for row in fold(climbed, closed={ROOT})] == [ROOT]


def test_a_thousand_nodes_are_drawn_in_some_dozens_of_rows() -> None:
    steps = [(max(0, n - 3) if n % 3 else 0, passed(1e-6 + 1e-9 * (n * 7919 % 1000))) for n in range(1000)]
    shown = draw_search_tree(SearchTree.replay(grown(*steps)))
    assert shown.text.count("\n") < 80 and len(shown.svg) < 80_000
    assert len(shown._repr_mimebundle_()["image/svg+xml"]) == len(shown.svg)


def test_the_drawing_is_well_formed_whatever_a_title_says(climbed: SearchTree) -> None:
    hostile = '<script>alert("x")</script> & more'
    tree = SearchTree.replay(grown((0, passed(1e-6)), (1, passed(2e-6)), titles=(hostile, "vector 4")))
    shown = draw_search_tree(tree)
    for drawing in (shown.svg, draw_search_tree(climbed).svg, draw_curve(tree).svg):
        root = ET.fromstring(drawing)
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "<script" not in shown.svg and "<script" not in shown.html
    assert shown.plotly is not None and "<script" not in str(shown.plotly)


def test_an_empty_tree_is_drawn_and_has_no_curve() -> None:
    tree = SearchTree.replay(grown())
    assert "none is correct yet" in draw_search_tree(tree).text and summarise(tree).startswith("search by hand, seed 3")
    for draw, said in ((draw_curve, "nothing was tried"), (draw_front, "no node of this search has joules")):
        with pytest.raises(UserError, match=said):
            draw(tree)
    with pytest.raises(UserError, match="nothing to compare"):
        compare_searches({"none": [tree]})


def test_the_curve_falls_and_what_was_screened_out_does_not_count() -> None:
    tree = steered()
    assert best_so_far(tree) == [4e-6, 2e-6, 2e-6, 2e-6, 1e-6]
    shown = draw_curve(tree)
    assert shown.svg.count("candidate 4: screened out") == 1 and shown.plotly is not None
    assert [row.split()[-1] for row in shown.text.splitlines()[2:]].count("yes") == 1
    marks = next(trace for trace in shown.plotly["data"] if trace["name"].startswith("screened"))
    assert marks["x"] == [4]
    dots = next(trace for trace in shown.plotly["data"] if trace["name"] == "of each candidate")
    assert dots["x"] == [1, 2, 5]  # not the one that failed, nor the one whose time is modelled


def test_searches_are_compared_at_equal_trials() -> None:
    place = landscapes.landscapes()["softmax"]
    assert place.best is not None
    trees = {
        name: [search_landscape(place, load_strategy(name), seed, trials=12) for seed in range(3)]
        for name in ("random", "greedy")
    }
    shown = compare_searches(trees, place.best.median_s)
    (head, *rows) = [line.split("  ") for line in shown.text.splitlines()[1:]]
    assert head[0] == "search" and [row[0] for row in rows] == ["random", "greedy"] and "12 trials" in head[-1]
    ends = sorted(place.best.median_s / (best_so_far(tree)[-1] or 1.0) for tree in trees["random"])
    assert rows[0][-1].strip() == f"{ends[1]:.1%}"
    assert "is 100 %" in shown.text.splitlines()[0]


def test_the_front_has_the_nodes_with_joules() -> None:
    shown = draw_front(steered())
    assert [line.split()[0] for line in shown.text.splitlines()[2:]] == ["v2", "v5"]


def test_a_search_is_drawn_while_it_runs_and_stays_as_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    place = landscapes.landscapes()["softmax"]
    log = ShownLog(MemoryLog())
    tree = run_search(
        LandscapeSpace(place), LandscapeEvaluator(place), load_strategy("random"), log, budget=SearchBudget(trials=5)
    )
    told = capsys.readouterr().out
    assert told.count("0 the problem") == 1 and "5 of 5 trials" in told and "is used up" in told
    assert log.events() and SearchTree.replay(log.events()).trials == tree.trials == 5


def test_in_a_notebook_one_output_is_replaced() -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    try:
        display, tree = LiveTree(), steered()
        with capture_output() as told:
            display.begin()
            assert not display.show(tree)  # just drawn
            time.sleep(EVERY_S)
            assert display.show(tree) and not display.show(tree)
            display.end(tree)
    finally:
        InteractiveShell.clear_instance()
    first, during, last = (set(output.data) for output in told.outputs)
    assert first == {"text/plain"} and during == {"text/plain", "image/svg+xml"} and PLOTLY in last
