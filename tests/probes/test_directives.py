"""Advice in words: measures with their limits, what such a change gained elsewhere, directives, questions."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.landscapes import landscapes
from workbench.probes import directives, load_probes
from workbench.probes.calibration import calibrated
from workbench.probes.moving import ABSENT, choose_moved, find_default, find_neighbours, is_made_by, write_moved
from workbench.records import Advice, Candidate, Diagnosis, KernelMetrics, Measure, Move, Profile

SOURCE = "import cute\n\n    value = x[lane * 64]\n"
ADVICE = Advice(
    probe="coalescing",
    severity="high",
    cause="each warp access touches 8.0x the sectors",
    action="let consecutive threads take consecutive elements",
    line=3,
    evidence=(Measure(name="sectors over the least", value=8.0, limit=1.2, unit="x"),),
    moves=(Move(setting="vector", direction="more"),),
    pattern="coalesced copy",
    gain=5.0,
    hit_rate=0.6,
    mean_gain=1.8,
)
FOUND = Diagnosis(
    device="H200",
    case="full",
    provenance="counted",
    bottleneck="memory",
    analytic="memory",
    measured="latency",
    seconds=6e-3,
    room=6.0,
    advice=(ADVICE,),
)


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (Measure(name="occupancy", value=0.31, limit=0.5, unit="%"), "occupancy 31%, limit 50%"),
        (Measure(name="ratio", value=4.04, unit="x"), "ratio 4.0x"),
        (Measure(name="shared", value=65536.0, limit=232448.0, unit="bytes"), "shared 64 KB, limit 227 KB"),
        (Measure(name="width", value=4.0, limit=8.0, unit="bytes"), "width 4 bytes, limit 8 bytes"),
        (Measure(name="CTAs", value=8.0, limit=132.0), "CTAs 8, limit 132"),
    ],
)
def test_measures_have_their_unit_and_their_limit(measure: Measure, said: str) -> None:
    assert directives.describe_measure(measure) == said


def test_a_directive_has_severity_cause_line_evidence_and_action() -> None:
    (text,) = directives.write_directives(FOUND, Candidate(source=SOURCE))
    assert text == (
        "[high] each warp access touches 8.0x the sectors at line 3 (`value = x[lane * 64]`) (sectors over the least "
        "8.0x, limit 1.2x). Do: let consecutive threads take consecutive elements"
    )


def test_directives_of_a_program_name_its_settings_and_the_first_has_an_example() -> None:
    many = dataclasses.replace(FOUND, advice=(ADVICE,) * 9)
    made = directives.write_directives(
        many, Candidate(source=SOURCE, program="softmax(x)"), lambda pattern: f"an example of {pattern}"
    )
    assert len(made) == directives.MOST_DIRECTIVES
    assert made[0].endswith("settings: vector (more)\n  For example, an example of coalesced copy")
    assert "For example" not in made[1]


def test_without_room_the_directive_is_to_leave_the_kernel() -> None:
    (text,) = directives.write_directives(dataclasses.replace(FOUND, room=1.01), Candidate(source=SOURCE))
    assert "nothing is left to gain" in text
    assert directives.write_directives(None, Candidate(source=SOURCE)) == ()


def test_gains_elsewhere_are_said_with_their_rows_or_as_not_calibrated() -> None:
    known = calibrated()["coalescing"]
    said = directives.describe_gains(ADVICE)
    assert f"helped in {known.hits} of {known.fires} rows of {known.problems} problems (60%); 1.80x" in said
    own = dataclasses.replace(ADVICE, tried=3, helped=2)
    assert directives.describe_gains(own).endswith("; of your own 3 such changes 2 helped")
    unknown = dataclasses.replace(ADVICE, probe="acme", hit_rate=None, mean_gain=None)
    assert directives.describe_gains(unknown).startswith("not calibrated")
    assert directives.expected_gain(unknown) is None and directives.expected_gain(ADVICE) == 1.8
    assert directives.expected_gain(dataclasses.replace(ADVICE, gain=1.2)) == 1.2


def test_the_gain_of_one_cost_is_no_bound() -> None:
    said = directives.describe_gain
    assert said(ADVICE, 6.0) == "about 5.00x here without this cost, at most 6.00x by the bound"
    assert said(ADVICE, 4746.67).endswith("at most 4,747x by the bound")
    assert said(ADVICE, 5.0) == "about 5.00x here, all that the bound leaves"
    assert said(ADVICE, None) == "about 5.00x here without this cost"


def test_a_model_asks_one_probe_by_name() -> None:
    wasteful = KernelMetrics(kernel="k", provenance="counted", modelled_s=1e-3, l1_bytes=8e8, l1_ideal_bytes=1e8)
    profile = Profile(
        by="counters",
        summary="",
        device="H200",
        kernels=(wasteful,),
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
    )
    probes = load_probes()
    assert {question.partition(":")[0] for question in directives.list_questions(probes)} == {
        one.name for one in probes
    }
    answer = directives.answer_question(probes, "coalescing", profile, None, SOURCE)
    assert "8.0x the 32-byte sectors" in answer and "Do: let consecutive threads" in answer
    assert directives.answer_question(probes, "bank_conflicts", profile, None, SOURCE).endswith("nothing to advise")
    assert "there is no probe 'luck'" in directives.answer_question(probes, "luck", profile, None, SOURCE)


def test_more_than_none_is_more_than_one() -> None:
    wanted = [Move(setting="unroll", direction="more")]
    moved = [text for _, text in write_moved("softmax(x) .threads_per_row(32) .vector(4)", wanted)]
    assert moved and not any(".unroll(1)" in text for text in moved)


def test_a_setting_that_is_not_written_has_its_default() -> None:
    """256 threads: fewer than that are less, more are more, and the nearest comes first."""
    program = "elementwise(gelu_tanh(x)) .vector(8)"
    moves = [Move(setting="threads", direction="less"), Move(setting="threads", direction="more")]
    less, more = ([text.partition(".threads")[2] for _, text in write_moved(program, [move])] for move in moves)
    assert (less, more) == (["(128)", "(64)", "(32)"], ["(512)", "(1024)"])
    fewer = [text for _, text in write_moved("elementwise(gelu_tanh(x)) .threads(64)", moves[:1])]
    assert fewer == ["elementwise(gelu_tanh(x)) .threads(32)"]  # to leave it out is not less


def test_a_measured_row_without_a_setting_has_its_default() -> None:
    place, program = landscapes()["relu"], "elementwise(relu(x)) .arch(sm_90a) .vector(4)"
    more, less = (Move(setting="threads", direction=way) for way in ("more", "less"))
    near = find_neighbours(place, program)
    assert {old for _, name, old, _ in near if name == "threads"} == {(256,)}
    for move, wanted in ((more, " .threads(512)"), (less, " .threads(128)")):
        moved = choose_moved(near, [move])
        assert moved is not None and wanted in moved.program
    moved = choose_moved(find_neighbours(place, program.replace(" .vector", " .threads(128) .vector")), [more])
    assert moved is not None and moved.program == program
    assert not is_made_by([less], program, program.replace(" .vector", " .threads(512) .vector"))


def test_a_program_of_other_stages_is_made_by_no_advice() -> None:
    short, long = "softmax(x) .threads_per_row(32)", "h = elementwise(relu(x)) .threads(64) |> softmax(h) .vector(4)"
    moves = [Move(setting=name, direction="other") for name in ("threads", "threads_per_row", "vector")]
    assert not is_made_by(moves, short, long) and not is_made_by(moves, long, short)


def test_a_setting_that_changes_nothing_has_no_default() -> None:
    assert find_default("softmax(x) .threads_per_row(1)", "threads") == ABSENT


def test_a_row_gets_few_parts_before_many() -> None:
    program = "softmax(x) .arch(sm_90a) .threads_per_row(64)"
    moved = [text.partition(".parts")[2] for _, text in write_moved(program, [Move(setting="parts", direction="more")])]
    assert moved == ["(8)", "(32)", "(128)", "(512)", "(1024)"]
