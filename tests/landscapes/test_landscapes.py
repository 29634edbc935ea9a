"""Landscapes: files, what finds them, the replay executor, search on them, pictures.

The times here are made up by a hash, in files of the test alone.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import itertools
import json
import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import landscapes, problems
from workbench.codegen.canonical import canonical
from workbench.errors import Unavailable, UserError, WorkbenchError
from workbench.evaluate import find_recorded, judge
from workbench.executors.replay import ReplayExecutor
from workbench.landscapes import table
from workbench.landscapes.keys import all_settings, problem_key
from workbench.language import Program, configurations, format_program, parse
from workbench.policies.search import (
    HillClimb,
    RandomSearch,
    median_curve,
    neighbours,
    planner_order,
    regret,
    walk_landscape,
)
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Candidate, Job, Outcome, Problem
from workbench.session import Session
from workbench.views.figures import colours
from workbench.views.figures.colours import contrast, readable_ink
from workbench.views.plots import heat_map as drawing
from workbench.views.plots.heat_map import varying_settings
from workbench.views.plots.landscape import heat_map, landscape_summary, regret_curves
from workbench.views.text import tables
from workbench.views.text.mime_bundle import format_seconds

RUN = {
    "device": "NVIDIA H200",
    "date": "2026-11-21T10:00:00+00:00",
    "versions": {"torch": "2.11.0", "driver": "580"},
    "protocol": "a test",
    "limits": "",
    "sampling": "all",
}
SUM = "reduce(x, op=sum, axis=last) .arch(sm_90a)"
GEMM = "gemm(a, b) .arch(sm_90a) .mma(bf16)"


def made_up(program: str) -> float:
    return 1e-3 * (1 + int(hashlib.sha256(program.encode()).hexdigest()[:4], 16) / 65536)


def row(key: str, program: str) -> table.Row:
    if ".vector(8)" in program:
        return table.Row(
            key=key,
            run=0,
            program=program,
            correct=False,
            failure="check/wrong_result: 3 of 8 elements are wrong",
            error=7.5,
            registers=40,
        )
    at = made_up(program)
    return table.Row(
        key=key,
        run=0,
        program=program,
        correct=True,
        error=0.25,
        registers=32,
        spill_bytes=0,
        shared_bytes=1024,
        compile_s=0.4,
        **table.timing_fields([at, at * 1.02, at * 0.99, at * 1.01, at]),
    )


def described(problem: Problem, name: str, flops: int, size: int) -> dict[str, object]:
    return {
        "name": name,
        "origin": problem.name,
        "settings": dict(problem.settings),
        "precision": problem.precision,
        "mode": problem.mode,
        "kind": "reduction",
        "flops": flops,
        "least_bytes": size,
        "dtype": "float32",
        "tensor_cores": False,
        "legal": 28,
        "planned": 28,
    }


@functools.cache
def rungs() -> set[str]:
    """What the planner tries on the sum."""
    problem = problems.load("row_sum")
    facts = inspection.inspect(problem)
    found = recognise(facts)
    return {
        canonical(write_program(found, rung, "sm_90a"))
        for rung in ladder(Context(found=found, precision="fp32", arch="sm_90a", device="H200", facts=facts))
    }


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small landscapes as a person's own files."""
    total, product = problems.load("row_sum"), problems.load("matmul", precision="bf16")
    rows = []
    for problem, text, only in (
        (total, SUM, ("threads_per_row", "vector")),
        (product, GEMM, ("cluster", "schedule", "stages")),
    ):
        key = problem_key(problem)
        programs = {
            canonical(format_program(Program(stages=(stage,)))) for stage in configurations(parse(text).stages[0], only)
        }
        rows += [row(key, program) for program in sorted(programs | (rungs() if problem is total else set()))]
        rows.append(
            table.Row(
                key=key, run=0, program="", correct=True, error=0.0, **table.timing_fields([3e-4, 3.1e-4, 2.9e-4])
            )
        )
    header = {
        "runs": [RUN],
        "problems": {
            problem_key(total): described(total, "row_sum", 536_838_144, 2_147_614_720),
            problem_key(product): described(product, "matmul_bf16", 2 * 4096**3, 3 * 4096 * 4096 * 2),
        },
    }
    folder = tmp_path / "landscapes"
    folder.mkdir()
    table.write(folder / "made_up.csv.gz", header, rows)
    monkeypatch.setattr(landscapes, "files", lambda: (folder / "made_up.csv.gz",))  # alone: what is shipped grows
    return folder / "made_up.csv.gz"


# ---- files
# ------------------------------------------------------------------------------------------------------------


def test_a_persons_own_files_come_after_those_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = landscapes.files()
    monkeypatch.setenv(landscapes.OWN, str(tmp_path))
    table.write(
        tmp_path / "mine.csv.gz",
        {"runs": [RUN], "problems": {"0" * 16: described(problems.load("row_sum"), "mine_alone", 1, 1)}},
        [row("0" * 16, SUM)],
    )
    assert shipped and landscapes.files() == (*shipped, tmp_path / "mine.csv.gz")
    assert landscapes.landscapes()["mine_alone"].rows.keys() == {SUM}


def test_a_file_says_what_was_written_and_the_same_rows_give_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    header, rows = table.read(recorded)
    assert header["runs"] == [RUN] and len(rows) > 45
    one = next(one for one in rows if one.correct and one.program)
    assert (
        one.median_s == pytest.approx(made_up(one.program), abs=1e-9)
        and one.low_s is not None
        and one.low_s <= one.median_s <= (one.high_s or 0)
        and len(one.samples_s) == 5
    )
    again = tmp_path / "again.csv.gz"
    table.write(again, header, rows)
    assert again.read_bytes() == recorded.read_bytes()


def test_a_line_that_was_cut_off_is_left_out(recorded: Path, tmp_path: Path) -> None:
    text = gzip.decompress(recorded.read_bytes()).decode()
    cut = tmp_path / "cut.csv"
    cut.write_text(text[:-9])
    assert len(table.read(cut)[1]) == len(table.read(recorded)[1]) - 1


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(WorkbenchError, match="is no landscape"):
        table.read(tmp_path / "other.csv")


def test_joining_keeps_the_last_time_and_says_which_run_gave_it() -> None:
    first, second = (
        {"runs": [RUN | {"date": date}], "problems": {"k": {"name": "n"}}} for date in ("2026-01-01", "2026-02-02")
    )
    kept = table.Row(key="k", run=0, program="p", correct=True, **table.timing_fields([1e-3]))
    newer = table.Row(key="k", run=0, program="p", correct=True, **table.timing_fields([2e-3]))
    lost = table.Row(key="k", run=0, program="p", correct=False, failure="run/crashed: the process died")
    header, rows = table.join([(first, [kept]), (second, [newer])])
    assert rows[0].median_s == 2e-3 and header["runs"][rows[0].run]["date"] == "2026-02-02"
    assert table.join([(first, [kept]), (second, [lost])])[1][0].median_s == 1e-3


# ---- what finds them
# --------------------------------------------------------------------------------------------------


def test_a_problem_is_found_by_what_it_computes() -> None:
    problem = problems.load("matmul", precision="bf16")
    other = Problem(
        name="mine",
        source="# a comment\n" + problem.source.replace('"""', '"""My own. ', 1),
        origin="cell",
        precision="bf16",
    )
    assert (
        problem_key(problem)
        == problem_key(other)
        == problem_key(problems.load("matmul", precision="bf16", settings={"n": 4096}))
    )
    assert (
        len(
            {
                problem_key(problem),
                problem_key(problems.load("matmul")),
                problem_key(problems.load("matmul", precision="bf16", settings={"n": 2048})),
            }
        )
        == 3
    )


def test_landscapes_are_listed_and_their_problem_is_the_one_that_finds_them(recorded: Path) -> None:
    for name in ("row_sum", "matmul_bf16"):
        place = landscapes.landscapes()[name]
        assert (
            landscapes.find(place.problem(), "H200") == place
            and place.provenance == "recorded on NVIDIA H200, 2026-11-21"
        )
    place = landscapes.landscapes()["row_sum"]
    frame = place.frame()
    assert (
        len(frame) == len(place.rows) >= 28
        and set(frame["threads_per_row"]) > {"", "32"}
        and frame["measured_s"].min() == place.best.median_s
    )  # type: ignore[union-attr]
    assert (
        place.row("reduce(x, op=sum, axis=last) .vector(4) .threads_per_row(32)")
        is place.row("reduce(x, op=sum, axis=last) .threads_per_row(32) .vector(4) .arch(sm_90a)")
        is not None
    )
    assert (
        place.row("reduce(x, op=max, axis=last)") is None
        and place.nearest(SUM + " .threads_per_row(256) .vector(4)") is not None
    )


def test_settings_of_a_hopper_gemm_are_filled_in() -> None:
    assert all_settings(GEMM + " .schedule(cooperative)") | {"arch": ()} == {
        "arch": (),
        "mma": ("bf16",),
        "schedule": ("cooperative",),
        "tile": (128, 256, 64),
        "cluster": (1, 1),
        "stages": (4,),
        "raster": ("along_m", 8),
        "splitk": (1,),
        "store": ("tma",),
    }


# ---- the replay executor
# ----------------------------------------------------------------------------------------------


def test_the_planners_loop_runs_on_recorded_measurements(recorded: Path, tmp_path: Path) -> None:
    with Session.create("row_sum", root=tmp_path / "s", executor="replay") as session:
        made = session.run(3)
        place = landscapes.find(session.problem, session.device)
        assert place is not None and session.arch == "sm_90a" and len(made) == 4
        for version in made:
            verdict, outcome = version.trials[-1].verdict, version.trials[-1].outcome
            assert (
                verdict.correct
                and verdict.time_provenance == "measured"
                and verdict.time_s == place.row(version.proposal.candidate.program or "").median_s
            )  # type: ignore[union-attr]
            assert (
                outcome.executor == "replay"
                and dict(outcome.versions)["recorded"] == "2026-11-21"
                and outcome.reference_timing is not None
                and outcome.reference_timing.median_s == 3e-4
                and not verdict.suspect
            )
        assert session.best is not None and session.best.trials[-1].verdict.time_s == min(
            version.trials[-1].verdict.time_s or 1.0 for version in made
        )
        assert "(measured, recorded on NVIDIA H200 2026-11-21)" in str(tables.verdict(made[0]))


def test_a_run_passes_over_what_was_not_recorded(recorded: Path, tmp_path: Path) -> None:
    with Session.create("row_sum", root=tmp_path / "first", executor="replay") as session:
        first, *others = [version.proposal.candidate.program for version in session.run(3)]
    header, rows = table.read(recorded)
    table.write(recorded, header, [one for one in rows if one.program != canonical(first or "")])
    with Session.create("row_sum", root=tmp_path / "s", executor="replay") as session:
        made = session.run(2)
        assert [version.proposal.candidate.program for version in made] == others and all(
            version.trials for version in made
        )
        missing = session.version("v1")
        assert (
            missing.proposal.candidate.program == first
            and missing.decision is not None
            and missing.decision.kind == "reject"
            and "was not recorded for row_sum" in missing.decision.reason
        )
        assert session.pending is None
        with pytest.raises(Unavailable, match="was not recorded"):
            session.program(first or "")
        assert (
            session.pending is not None and session.pending.proposal.by == "human"
        )  # a person decides on what a person wrote


def test_a_wrong_configuration_is_a_failure_and_what_is_not_there_is_unavailable(
    recorded: Path, tmp_path: Path
) -> None:
    with Session.create("row_sum", root=tmp_path / "s", executor="replay") as session:
        version = session.generate()
        assert version is not None
        job = session.job(version)
        outcome = ReplayExecutor().run(
            dataclasses.replace(job, candidate=Candidate(source="", program=SUM + " .vector(8) .threads_per_row(32)"))
        )
        verdict = judge(job, outcome, None)
        assert (
            not verdict.correct
            and verdict.failure is not None
            and verdict.failure.kind == "wrong_result"
            and outcome.timing is None
        )
        with pytest.raises(Unavailable, match="source of its own"):
            session.edit(version.proposal.candidate.source)
    header, rows = table.read(recorded)
    table.write(recorded, header, [one for one in rows if not one.program or one.program == canonical(SUM)])
    with (
        Session.create("row_sum", root=tmp_path / "s", executor="replay") as session,
        pytest.raises(Unavailable, match=r"was not recorded for row_sum; the nearest that was is reduce\(x, op=sum"),
    ):
        session.generate()
    with pytest.raises(UserError, match=r"--device A100: row_sum was recorded on an NVIDIA H200"):
        Session.create("row_sum", root=tmp_path / "s", executor="replay", device="A100")
    with Session.create("row_sum", root=tmp_path / "s", executor="replay") as session:
        session.cold_l2 = False
        with pytest.raises(Unavailable, match="cold L2"):
            session.generate()
    eval_mode = dataclasses.replace(problems.load("relu"), mode="eval")
    with pytest.raises(
        Unavailable, match=r"nothing was recorded of relu .* in fp32, eval mode; recorded are matmul_bf16"
    ):
        Session.create(eval_mode, root=tmp_path / "s", executor="replay")
    assert not list((tmp_path / "s").glob("relu*"))  # a refused problem leaves no empty session


# ---- search
# -----------------------------------------------------------------------------------------------------------


def test_every_strategy_ends_at_the_best_and_never_gets_worse(recorded: Path) -> None:
    for place in (landscapes.landscapes()["row_sum"], landscapes.landscapes()["matmul_bf16"]):
        for walk in (walk_landscape(place, RandomSearch(), 1), walk_landscape(place, HillClimb(), 1)):
            assert sorted(walk) == sorted(place.rows)
            curve = regret(place, walk)
            assert curve[-1] == 0 and all(a >= b for a, b in itertools.pairwise(curve))
        assert walk_landscape(place, HillClimb(), 5) != walk_landscape(place, HillClimb(), 6)
        planned = planner_order(place, [*reversed(list(place.rows)), "reduce(x, op=max, axis=last)"])
        assert planned == tuple(reversed(list(place.rows)))


def test_neighbours_differ_in_one_setting(recorded: Path) -> None:
    near = neighbours(landscapes.landscapes()["row_sum"])
    assert (
        SUM + " .threads_per_row(32)" in near[SUM + " .threads_per_row(64)"]
        and SUM + " .threads_per_row(32) .vector(4)" not in near[SUM + " .threads_per_row(64)"]
    )
    assert all(one in near[other] for one, others in near.items() for other in others)


def test_a_row_that_is_no_longer_a_program_is_read_and_never_tried(recorded: Path) -> None:
    """Checks may have been added since it was measured."""
    header, rows = table.read(recorded)
    key, gone = problem_key(problems.load("row_sum")), SUM + " .threads_per_row(48)"
    table.write(recorded, header, [*rows, row(key, gone)])
    place = landscapes.landscapes()["row_sum"]
    assert (
        gone in place.rows
        and place.row(gone) is None
        and place.row(SUM + " .threads_per_row(64)") is not None
        and len(place.frame()) == len(place.rows)
    )
    assert gone not in neighbours(place) and all(gone not in others for others in neighbours(place).values())
    for walk in (walk_landscape(place, RandomSearch(), 1), walk_landscape(place, HillClimb(), 1)):
        assert sorted(walk) == sorted(set(place.rows) - {gone})


def test_the_typical_walk_is_the_median() -> None:
    assert median_curve([(3.0, 0.0), (1.0,), (2.0, 1.5, 0.5)]) == (2.0, 1.0, 0.5) and math.isinf(
        median_curve([(math.inf,)])[0]
    )


# ---- pictures
# ---------------------------------------------------------------------------------------------------------


def test_numbers_on_the_cells_of_a_heat_map_can_be_read_on_any_ground(recorded: Path) -> None:
    """Cells are opaque, so that their ground is known; WCAG asks for a contrast of 4.5."""
    shown = heat_map(landscapes.landscapes()["matmul_bf16"], "stages", "cluster")
    grounds = re.findall(r'<rect [^>]*fill="(#[0-9a-f]{6})">', shown.svg)
    inks = re.findall(r'<text [^>]*fill="(#[0-9a-f]{6})"', shown.svg)
    cells = list(zip(grounds, inks, strict=True))
    assert (
        len(cells) > 4
        and "fill-opacity" not in shown.svg
        and all(colours.contrast(ground, ink) >= 4.5 for ground, ink in cells)
    )
    assert shown.plotly is not None and all(
        re.fullmatch("#[0-9a-f]{6}", colour) for _, colour in shown.plotly["data"][0]["colorscale"]
    )


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_black_or_white_reads_on_every_ground(red: int, green: int, blue: int) -> None:
    ground = f"#{red:02x}{green:02x}{blue:02x}"
    assert colours.contrast(colours.readable_ink(ground), ground) >= 4.5


def test_the_colours_of_a_heat_map_tell_twice_as_slow_from_twenty_times() -> None:
    fastest, twice, five, twenty, more = (drawing._cell_colour(slow) for slow in (1.0, 2.0, 5.0, 20.0, 140.0))
    assert len({fastest, twice, five, twenty}) == 4 and twenty == more
    assert all(contrast(readable_ink(one), one) >= 4.5 for one in (fastest, twice, five, twenty))


def test_a_heat_map_shows_the_fastest_of_each_pair(recorded: Path) -> None:
    place = landscapes.landscapes()["matmul_bf16"]
    shown = heat_map(place, "stages", "cluster", {"schedule": "cooperative"})
    assert (
        "measured, recorded on NVIDIA H200, 2026-11-21" in shown.text
        and shown.svg.startswith("<svg")
        and json.dumps(shown.plotly)
    )
    least = min(
        one.median_s or 1.0 for one in place.correct if all_settings(one.program).get("schedule") == ("cooperative",)
    )
    assert (
        min(value for line in shown.plotly["data"][0]["z"] for value in line if value is not None) == 0
        and format_seconds(least) in shown.text
    )  # type: ignore[index]
    with pytest.raises(UserError, match=r"over 'threads'; settings that vary: .*cluster.*schedule.*stages"):
        heat_map(place, "threads")
    with pytest.raises(UserError, match="no correct configuration of matmul_bf16 has stages 99"):
        heat_map(place, where={"stages": 99})


def test_a_cell_says_what_else_its_configuration_sets(recorded: Path) -> None:
    """1 of splitk may be a kernel that cuts its last wave along k all the same, and rows of a tile those of the
    transposed product."""
    header, rows = table.read(recorded)
    key = next(one.key for one in rows if one.program.startswith("gemm"))
    programs = [canonical(f"{GEMM} .schedule(cooperative) .tile(128, 128, 64) .splitk({splits})") for splits in (2, 4)]
    programs += [
        canonical(f"{GEMM} .schedule(cooperative) .tile({tile}, 64) {more}")
        for tile, more in (("128, 128", ".streamk(yes)"), ("256, 64", ".swap()"))
    ]
    times = dict(zip(programs, (2e-4, 3e-4, 1e-4, 4e-4), strict=True))
    table.write(
        recorded,
        header,
        [one for one in rows if one.key != key]
        + [dataclasses.replace(row(key, program), **table.timing_fields([at])) for program, at in times.items()],
    )
    place = landscapes.landscapes()["matmul_bf16"]
    split = heat_map(place, "splitk", "tile")
    assert (
        "100 µs*" in split.text
        and "200 µs*" not in split.text
        and "* .streamk(yes): tiles of the last wave are cut along k" in split.text
    )
    assert "400 µs†" in split.text and "† .swap()" in split.text  # tile is an axis
    assert (
        split.svg.count("100 µs*") == 1
        and "* .streamk(yes)" in split.svg
        and split.plotly is not None
        and "* .streamk(yes)" in split.plotly["layout"]["title"]["text"]
    )
    hover = next(text for line in split.plotly["data"][0]["hovertext"] for text in line if "streamk" in text)
    assert (
        "100 µs (measured), 1.00x the fastest" in hover
        and ".streamk(yes)" in hover.partition("100 µs")[0]
        and "stages 6" in hover.partition("left out: ")[2]
    )
    assert (
        "*" not in heat_map(place, "splitk", "streamk").text
        and "*" not in heat_map(place, "splitk", "swap", {"streamk": ""}).text
    )  # an axis or the choice says it
    assert "streamk not set" in heat_map(place, "splitk", "swap", {"streamk": "not set"}).text


def test_a_heat_map_is_over_two_settings(recorded: Path) -> None:
    place = landscapes.landscapes()["matmul_bf16"]
    with pytest.raises(
        UserError,
        match=r"^stages is named for both axes of the heat map: name another setting for one of them, of cluster, "
        r".*schedule",
    ):
        heat_map(place, "stages", "stages")
    assert (
        heat_map(place, y="cluster").text.startswith("matmul_bf16: ")
        and "cluster \\ cluster" not in heat_map(place, x="cluster").text
    )
    header, rows = table.read(recorded)
    few = [one for one in rows if one.program in ("", canonical(SUM), canonical(SUM + " .threads_per_row(64)"))]
    table.write(recorded, header, few)
    with pytest.raises(UserError, match="a heat map needs two settings, but row_sum varies only in threads_per_row"):
        heat_map(landscapes.landscapes()["row_sum"])


def test_more_values_than_an_axis_holds_are_said() -> None:
    shown = heat_map(landscapes.landscapes()["matmul_bf16_4096"], "tile", "cluster")
    count = len(varying_settings(landscapes.landscapes()["matmul_bf16_4096"])["tile"])
    assert (
        count > 14
        and re.search(r"; 14 of \d+ values of tile, those with the fastest", shown.text)
        and all("of tile, those" in text for text in (shown.svg, shown.html, json.dumps(shown.plotly)))
    )


@pytest.mark.slow
def test_every_shipped_landscape_has_a_heat_map_in_a_second_or_two() -> None:
    for place in landscapes.landscapes().values():
        start = time.process_time()
        shown = heat_map(place)
        assert time.process_time() - start < 2, place.name
        assert shown.text.startswith(f"{place.name}: ")


def test_curves_and_standing_are_texts_too(recorded: Path) -> None:
    places = list(landscapes.landscapes().values())
    walk = walk_landscape(places[0], RandomSearch(), 0)
    shown = regret_curves("random", {"random": regret(places[0], walk), "nothing correct": (math.inf, math.inf)})
    assert "none correct" in shown.text and json.dumps(shown.plotly)
    said = landscape_summary(places)
    assert "faster than its bound" in said.text  # times are made up
    assert "row_sum" in said.text and "torch eager" in said.text
    assert said.svg.count("<rect") == 2 * len(places) + 2  # bars, and the two in the legend


def test_a_file_that_was_recorded_in_another_precision_says_in_which() -> None:
    path = Path(__file__).parents[1] / "bench" / "problems" / "55_conv2d_wide.py"
    said = landscapes.describe_recorded(problems.load(str(path)))
    assert said == "55_conv2d_wide was recorded with --precision tf32"


# ---- several GPUs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def on_two(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recorded landscape, and row_sum on an H100 that takes twice as long and was tried with one program more."""
    header, rows = table.read(recorded)
    key = problem_key(problems.load("row_sum"))
    mine = [
        dataclasses.replace(one, **table.timing_fields([2 * s for s in one.samples_s])) if one.samples_s else one
        for one in rows
        if one.key == key
    ]
    path = tmp_path / "h100.csv"
    run = RUN | {"device": "NVIDIA H100 80GB HBM3", "date": "2026-11-26"}
    table.write(path, {"runs": [run], "problems": {key: header["problems"][key]}}, mine)
    monkeypatch.setattr(landscapes, "files", lambda: (recorded, path))
    return path


def test_each_gpu_has_its_own_landscape_that_carries_its_name(on_two: Path) -> None:
    problem = problems.load("row_sum")
    h200, h100 = landscapes.find(problem, "H200"), landscapes.find(problem, "H100")
    assert h200 is not None and h100 is not None and h200.rows.keys() == h100.rows.keys()
    assert h200.best is not None and h100.best is not None and h200.best.program == h100.best.program
    assert h100.best.median_s == pytest.approx(2 * (h200.best.median_s or 0))
    assert h100.provenance == "recorded on NVIDIA H100 80GB HBM3, 2026-11-26"
    assert all(h100.runs[one.run]["device"] == h100.device for one in h100.rows.values())
    assert landscapes.find(problem, "A100") is None and landscapes.find(problem, "GH200") is None
    assert landscapes.find_near(problem, "H100") == h100 and landscapes.find_near(problem, "A100") == h200
    assert list(landscapes.landscapes()) == ["matmul_bf16", "row_sum", "row_sum on NVIDIA H100 80GB HBM3"]


def test_a_landscape_of_another_gpu_is_labelled_where_it_is_shown(on_two: Path) -> None:
    problem = problems.load("row_sum")
    place = landscapes.find_near(problem, "H100")
    assert place is not None
    assert "recorded on NVIDIA H100 80GB HBM3" in heat_map(place, "threads_per_row", "vector").text
    shown = landscape_summary(tuple(landscapes.landscapes().values())).text
    assert "row_sum, recorded on NVIDIA H100 80GB HBM3, 2026-11-26" in shown


def test_a_recorded_time_is_that_of_the_device_that_is_judged(on_two: Path) -> None:
    """Never one of another GPU, and no speed-up from times of two."""
    problem = problems.load("row_sum")
    facts = inspection.open_problem(problem).facts
    program = next(iter(landscapes.find(problem, "H200").rows))  # type: ignore[union-attr]
    job = Job(problem=problem, facts=facts, candidate=Candidate(source="", program=program), arch="sm_90a")
    found = {
        name: find_recorded(job, Outcome(executor="emulator", arch="sm_90a", device=name))
        for name in ("H200", "H100", "GH200")
    }
    assert found["GH200"] is None and found["H100"] is not None and found["H200"] is not None
    assert found["H100"].seconds == pytest.approx(2 * found["H200"].seconds)
    assert found["H100"].device == "NVIDIA H100 80GB HBM3"


def test_replay_answers_for_the_device_of_the_session(on_two: Path) -> None:
    problem = problems.load("row_sum")
    facts = inspection.open_problem(problem).facts
    executor = ReplayExecutor()
    with pytest.raises(UserError, match=r"recorded on an NVIDIA H200 and NVIDIA H100 80GB HBM3; give"):
        executor.admit(problem, facts, "A100")
    program = next(iter(landscapes.find(problem, "H200").rows))  # type: ignore[union-attr]
    times = {}
    for name in ("H200", "H100"):
        executor.admit(problem, facts, name)
        job = Job(
            problem=problem, facts=facts, candidate=Candidate(source="", program=program), arch="sm_90a", device=name
        )
        outcome = executor.run(job)
        assert outcome.timing is not None and name in outcome.device
        times[name] = outcome.timing.median_s
    assert times["H100"] == pytest.approx(2 * times["H200"])
