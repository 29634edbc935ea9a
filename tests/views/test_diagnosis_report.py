"""What `diagnose` shows: class, room, advice with line, bars, gains and command; nothing to gain; skipped probes."""

from __future__ import annotations

import base64
import dataclasses
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "probes"))
import pytest
from test_directives import ADVICE, FOUND, SOURCE

from workbench.probes.moving import write_moved
from workbench.records import Candidate, Decision, Measure, Move, Proposal, Version
from workbench.views.figures.colours import contrast
from workbench.views.figures.style import QUIET
from workbench.views.notebook import advice_view
from workbench.views.plots import measures
from workbench.views.text.diagnosis import Found, diagnosis_report, file_way, find_move, notebook_way


def version(source: str = SOURCE, program: str | None = None) -> Version:
    made = Proposal(candidate=Candidate(source=source, program=program), title="t", reason="", by="test")
    return Version(number=3, parent=None, proposal=made, source_hash="h", path="")


def test_an_advice_has_its_line_its_bars_its_gains_and_its_command() -> None:
    shown = diagnosis_report(
        version(program="softmax(x)"), FOUND, notebook_way(version(program="softmax(x)"), (), has_model=False)
    )
    for text in (shown.text, shown.html):
        assert "v3 is bound by memory (counted for H200, case full)" in text and "6x the attainable bound" in text
        assert (
            "line 3 | value = x[lane * 64]" in text
            and "about 5.00x here without this cost, at most 6.00x by the bound" in " ".join(text.split())
        )
        assert "%cutegen diagnose v3 --apply coalescing" in text and "let consecutive threads" in text
    assert "8.0x, limit 1.2x" in shown.text and "8.0x, limit 1.2x" in shown.html and "1. ▲ HIGH" in shown.text
    ET.fromstring(shown.svg)


def test_the_bars_of_an_advice_are_an_image_that_an_untrusted_notebook_keeps() -> None:
    """JupyterLab's sanitizer leaves of an inline SVG only its texts: title, description and tooltips."""
    found = dataclasses.replace(FOUND, advice=(dataclasses.replace(ADVICE, cause="c"),))
    page = diagnosis_report(version(), found, notebook_way(version(), (), has_model=False)).html
    ((tag, image),) = re.findall(r'(<img [^>]*src="data:image/svg\+xml;base64,([^"]+)"[^>]*>)', page)
    assert "<svg" not in page and 'alt="the counters behind the advice: ' in tag and "8.0x, limit 1.2x" in tag
    drawing = base64.b64decode(image).decode()
    assert ET.fromstring(drawing).tag.endswith("svg") and f"color:var(--jp-ui-font-color1,{QUIET})" in drawing
    assert all(contrast(QUIET, ground) > 4.2 for ground in ("#ffffff", "#111111"))


def test_texts_are_escaped() -> None:
    hostile = dataclasses.replace(ADVICE, cause="<script>alert(1)</script>", pattern="<img src=x>")
    source = "\n\nvalue = '<b>'\n"
    shown = diagnosis_report(
        version(source),
        dataclasses.replace(FOUND, advice=(hostile,)),
        notebook_way(version(source), (), has_model=False),
    )
    assert not any(tag in shown.html for tag in ("<script", "<img src=x", "<b>"))


def test_nothing_to_gain_is_said_instead_of_advice() -> None:
    shown = diagnosis_report(
        version(), dataclasses.replace(FOUND, room=1.02), notebook_way(version(), (), has_model=False)
    )
    assert "Nothing to gain here" in shown.text and "Nothing to gain here" in shown.html
    assert "coalescing" not in shown.text


def test_skipped_probes_take_one_line() -> None:
    found = dataclasses.replace(FOUND, skipped=(("a", "not for memory problems"), ("b", "not for memory problems")))
    shown = diagnosis_report(version(), found, notebook_way(version(), (), has_model=False))
    assert shown.text.splitlines()[-1] == "not asked: a, b (not for memory problems)"
    assert "<summary>2 probes were not asked</summary>" in shown.html


def test_the_way_depends_on_the_program_and_the_model() -> None:
    program = version(program="softmax(x) .threads_per_row(32)")
    moved = file_way(program, "softmax")(ADVICE)
    assert moved.way.startswith('cutegen test softmax "softmax(x)') and ".vector(" in moved.way
    assert moved.sets == "vector 2"
    assert file_way(version(), "softmax")(ADVICE).way == "by hand, in the file"
    assert "by hand" in notebook_way(version(), (), has_model=False)(ADVICE).way
    assert notebook_way(version(), (), has_model=True)(ADVICE).way.endswith("--apply coalescing (the model writes it)")


def test_what_versions_have_already_is_not_advised_again() -> None:
    own = version(program="softmax(x) .threads_per_row(32)")
    decision = Decision(kind="reject", version=4, source_hash="h", at="", reason="reads x twice", by="person")
    twin = version(program="softmax(x) .vector(2) .threads_per_row(32)")
    twin = dataclasses.replace(twin, number=4, decision=decision)
    change = notebook_way(own, (own, twin), has_model=False)(ADVICE)
    assert change.sets == "vector 4" and change.made == "vector 2 in v4, rejected: reads x twice"
    shown = diagnosis_report(own, FOUND, notebook_way(own, (own, twin), has_model=False), versions=(own, twin))
    for text in (shown.text, shown.html):
        assert "vector 2 in v4, rejected: reads x twice" in text and "vector 4" in text
    seen = advice_view.advice_view(own, FOUND, (own, twin), has_model=False)["top"]
    assert seen is not None and seen["action"].endswith("(vector 4)") and seen["way"] == "apply"
    only = dataclasses.replace(ADVICE, moves=(Move(setting="cluster", direction="less"),))
    assert find_move(own, only, ()) == Found(passed="cluster has no smaller legal value by itself")
    programs = [text for _, text in write_moved("softmax(x) .threads_per_row(32)", ADVICE.moves)]
    every = tuple(dataclasses.replace(version(program=text), number=n) for n, text in enumerate(programs, 4))
    change = notebook_way(own, every, has_model=False)(ADVICE)
    assert change.way.startswith("every setting that makes it was tried") and change.made.startswith("vector 2 in v4")
    seen = advice_view.advice_view(own, FOUND, every, has_model=False)["top"]
    assert seen is not None and "each setting that makes this change was tried (vector 2 in v4" in seen["way"]


def test_no_other_value_is_said_only_where_none_is_legal() -> None:
    own = version(program="elementwise(gelu_tanh(x)) .threads(1024) .vector(8)")
    more = tuple(Move(setting=name, direction="more") for name in ("vector", "threads"))
    nothing = find_move(own, dataclasses.replace(ADVICE, moves=more))
    assert nothing == Found(passed="vector, threads have no larger legal value by themselves")
    less = tuple(dataclasses.replace(move, direction="less") for move in more)
    assert find_move(own, dataclasses.replace(ADVICE, moves=less)).sets == "vector 4 instead of 8"
    programs = [text for _, text in write_moved(own.proposal.candidate.program or "", less[:1])]
    parted = version(program="softmax(x) .parts(8) .threads_per_row(32)")  # a row in parts is never kept
    kept = dataclasses.replace(ADVICE, moves=(Move(setting="kept", direction="more"),))
    assert find_move(parted, kept) == Found(passed="kept has no other legal value by itself")
    every = tuple(dataclasses.replace(version(program=text), number=n) for n, text in enumerate(programs, 4))
    tried = find_move(own, dataclasses.replace(ADVICE, moves=less), every)
    assert tried.sets == "threads 512 instead of 1024" and tried.passed == "vector has no untried smaller value"


def test_bars_have_their_limit_as_a_mark() -> None:
    found = [Measure(name="low", value=0.25, limit=0.5, unit="%"), Measure(name="no limit", value=3.0)]
    low, free = measures.write_measures(found)
    bar = low.split("  ")[-2].strip()
    assert bar.index("|") == measures.CELLS // 2 and bar.count("█") == measures.CELLS // 4 and "|" not in free
    root = ET.fromstring(measures.draw_measures(found))
    marks = [node for node in root.iter() if node.tag.endswith("path")]
    whole = next(node for node in root.iter() if node.tag.endswith("rect"))
    middle = float(whole.get("x", 0)) + float(whole.get("width", 0)) / 2
    assert len(marks) == 1 and marks[0].get("transform", "").startswith(f"translate({middle:.1f} ")
    assert measures.draw_measures([]) == ""


def test_the_panel_gets_the_first_advice_in_short() -> None:
    seen = advice_view.advice_view(version(program="softmax(x)"), FOUND, has_model=False)
    assert seen["top"] is not None and seen["top"]["probe"] == "coalescing" and seen["top"]["way"] == "apply"
    assert seen["top"]["code"] == "line 3: value = x[lane * 64]" and seen["more"] == 0
    by_hand = advice_view.advice_view(version(), FOUND, has_model=False)["top"]
    assert by_hand is not None and by_hand["way"].startswith("edit it by hand")
    no_room = advice_view.advice_view(version(), dataclasses.replace(FOUND, room=1.0), has_model=False)
    assert no_room["top"] is None and "nothing to gain" in no_room["note"]
    assert "%cutegen diagnose v3" in advice_view.advice_view(version(), None, has_model=False)["note"]


@pytest.mark.parametrize(
    ("room", "provenance", "said"),
    [
        (0.951, "counted", "at the attainable bound"),
        (0.951, "modelled", "at the attainable bound"),
        (0.951, "measured", "0.951x the attainable bound"),
        (1.02, "counted", "1.02x the attainable bound"),
        (None, "counted", "no bound is known"),
    ],
)
def test_a_modelled_time_is_never_below_the_attainable_bound(room: float | None, provenance: str, said: str) -> None:
    found = dataclasses.replace(FOUND, room=room, provenance=provenance, seconds=1e-3)
    shown = diagnosis_report(version(), found, notebook_way(version(), (), has_model=False))
    assert f"  time 1 ms, {said}" in shown.text.splitlines()
    head = advice_view.advice_view(version(), found, has_model=False)["head"]
    assert head.endswith(f", {said}" if room is not None else f"({provenance})")
