"""What stands side by side says the same: the verdict, the plots of its profile, the answers of commands."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from workbench import landscapes, problems
from workbench.analysis.hunks import name_hunks
from workbench.language import format_program, parse
from workbench.records import Candidate, Decision, EnergyEstimate, Proposal, Verdict, Version
from workbench.session import DATABASE, Session
from workbench.stored_sessions import outline
from workbench.views.commands.handlers import show_program
from workbench.views.notebook import view_model
from workbench.views.plots import energy as energy_plot
from workbench.views.plots import profile as profile_plots
from workbench.views.plots import roofline as roofline_plot
from workbench.views.text import tables
from workbench.views.text.diagnosis import diagnosis_report, notebook_way
from workbench.views.text.mime_bundle import format_share, format_times
from workbench.views.text.profile_report import profile_plot, profile_report

WITHIN = 0.01
TORCH_ONLY = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross_entropy", "softmax", "layer_norm", "matmul", "matmul_bias_gelu", "row_sum"])
def test_the_plots_of_a_profile_have_the_time_and_the_limit_of_the_verdict(name: str, tmp_path: Path) -> None:
    with Session.create(name, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        verdict, found = version.trials[-1].verdict, session.profile()
    assert found.case == "full" and verdict.time_s is not None
    assert sum(kernel.modelled_s or 0.0 for kernel in found.kernels) == pytest.approx(verdict.time_s, rel=WITHIN)
    assert found.limits[0][0] == verdict.limit and f"limited by {verdict.limit}" in found.summary
    bars = profile_plots.plot(found, "pipes").plotly["data"][0]
    parts = dict(zip(bars["y"], bars["x"], strict=True))
    largest = max((name for name in parts if name != "other"), key=lambda name: parts[name])
    assert largest == verdict.limit and parts[largest] + parts["other"] == pytest.approx(1.0, rel=WITHIN)
    for plot in profile_plots.all_plots(found).parts[1:]:
        assert "case full" in plot.text and "case shrunk" not in plot.text
    _check_roofline(found, verdict)


def _check_roofline(found: object, verdict: Verdict) -> None:
    """The points at DRAM stand for the FLOPs of the whole call in the verdict's time."""
    marks = [trace for trace in profile_plots.plot(found, "roofline").plotly["data"] if trace["mode"] == "markers"]
    times = [
        kernel.flops / rate
        for trace in marks
        if trace["name"].startswith("DRAM: ")
        for kernel, rate in zip((k for k in found.kernels if k.flops), trace["y"], strict=True)
    ]
    assert verdict.time_s is not None and sum(times) <= verdict.time_s * (1 + WITHIN)


@pytest.mark.slow
def test_the_emulated_case_is_shown_on_request(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        session.generate()
        found = session.profile(case="shrunk")
    assert found.case == "shrunk" and "case shrunk" in profile_plots.plot(found, "roofline").text


def test_a_profile_of_a_wrong_version_says_so(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        source = session.generate().proposal.candidate.source
        broken = re.sub(r"cute\.arch\.fmax\(([^,]+), ", r"cute.arch.fmin(\1, ", source)
        assert broken != source
        version = session.edit(broken)
        assert not version.trials[-1].verdict.correct
        found = session.profile(version.number)
        diagnosis = session.diagnose(1)
        shown = [profile_report(version, found), profile_plot(version, found, "pipes")]
    for one in shown:
        assert one.text.startswith("v2 is NOT CORRECT") and "NOT CORRECT" in one.parts[0].html
    told = diagnosis_report(version, diagnosis, notebook_way(version, (), has_model=False))
    assert "v2 is NOT CORRECT" in told.text and "v2 is NOT CORRECT" in told.html
    assert "v2 is NOT CORRECT" in view_model.profile_table(version)["note"]


@pytest.mark.slow
def test_what_is_refused_is_not_to_be_accepted_next(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        version = session.edit(TORCH_ONLY)
    assert version.trials[-1].verdict.correct and version.trials[-1].verdict.refused
    assert tables.next_step(version, has_model=False) == "%%cutegen edit mends it, %cutegen reject WHY drops it"


def test_traffic_below_the_least_bytes_is_explained(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        version = session.generate()
        found = session.profile(version.number)
        work = next(one for one in session.facts.work if one.case == "full")
    moved = sum(kernel.dram_read_bytes + kernel.dram_write_bytes for kernel in found.kernels)
    assert moved < work.least_bytes
    assert (
        f"DRAM moves {moved / work.least_bytes:.0%} of the problem's least bytes" in profile_report(version, found).text
    )


def test_a_version_in_part_names_its_hunks_by_ranges() -> None:
    assert name_hunks((1, 2, 4, 5, 6, 9)) == "hunks 1, 2, 4 to 6, 9" and name_hunks((3,)) == "hunk 3"


def test_the_list_of_sessions_knows_the_last_write_of_an_open_one(tmp_path: Path) -> None:
    import os

    with Session.create("relu", root=tmp_path, executor="replay", name="s") as session:
        for name in (DATABASE, f"{DATABASE}-wal"):
            os.utime(session.folder / name, (0, 0))
        assert outline(session.folder).used.year == 1970
        session.generate()
        assert (session.folder / DATABASE).stat().st_mtime == 0
        assert outline(session.folder).used.year > 1970


def test_an_interval_does_not_begin_at_its_own_time(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        version = session.generate()
    assert version is not None
    verdict = version.trials[-1].verdict
    low = {"time_interval": (verdict.time_s, 2 * (verdict.time_s or 0.0))}
    import dataclasses

    at_least = dataclasses.replace(verdict, **low)
    trial = dataclasses.replace(version.trials[-1], verdict=at_least)
    line = tables.verdict(dataclasses.replace(version, trials=(trial,))).text
    assert "and not less, limited by" in line and "90 % between" not in line.split("energy")[0]
    assert "expected before it was compiled: no gain (by" in tables.verdict(_predicting(version, 1.0)).text
    assert "expected before it was compiled: 2.00x (by" in tables.verdict(_predicting(version, 2.0)).text


def test_the_history_names_what_is_refused_and_the_verdict_says_why(tmp_path: Path) -> None:
    import dataclasses

    with Session.create("softmax", root=tmp_path, executor="replay") as session:
        version = session.generate()
    assert version is not None
    refuses = ("rows=0 (grid (0, 1, 1) is not launchable)", "inputs of offset layout (RuntimeError: view)")
    verdict = dataclasses.replace(version.trials[-1].verdict, refuses=refuses)
    version = dataclasses.replace(version, trials=(dataclasses.replace(version.trials[-1], verdict=verdict),))
    line = view_model.verdict_text(version)
    assert "refuses rows=0, inputs of offset layout" in line and "RuntimeError" not in line and "launchable" not in line
    assert all(f"refuses {said}" in tables.verdict(version).text for said in refuses)


@pytest.mark.parametrize(
    ("value", "said"), [(0.354, "35%"), (0.003, "0.3%"), (6.2e-5, "0.006%"), (0.0, "0%"), (1.07, "107%")]
)
def test_a_small_share_is_not_called_zero(value: float, said: str) -> None:
    assert format_share(value) == said


def test_how_many_times_is_a_number_that_one_can_read() -> None:
    assert [format_times(value) for value in (15123.4, 1.0149, 12.0)] == ["15,123x", "1.01x", "12x"]


def _predicting(version: Version, gain: float) -> Version:
    import dataclasses

    return dataclasses.replace(version, proposal=dataclasses.replace(version.proposal, predicted_gain=gain))


@pytest.mark.slow
def test_a_notebook_without_a_session_is_executed_by_nbconvert(tmp_path: Path) -> None:
    """nbclient keeps what a comm sends as "state": the lab extension's comm must not break it."""
    cells = ["%load_ext workbench", "%cutegen docs index"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = tmp_path / "plain.ipynb"
    nbformat.write(notebook, path)
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(path.read_text())["cells"][1]["outputs"]


@pytest.mark.slow
def test_a_version_is_not_named_after_its_last_change_alone(tmp_path: Path) -> None:
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        session.generate()
        session.accept()
        warp = session.refine()
        assert warp is not None and warp.proposal.title == "one warp per row"
        session.accept(warp.number, hunks=[1])  # the docstring, which names settings that the code has not
        vector = session.refine()
    assert vector is not None and vector.proposal.title == "one warp per row, 4 elements per access"
    assert "it has also what the baseline has not: one warp per row" in vector.proposal.reason
    assert vector.proposal.predicted_gain is None


def recorded_session(tmp_path: Path) -> Session:
    return Session.create("row_sum", root=tmp_path, executor="replay")


def recorded_programs(session: Session) -> list[str]:
    """The programs that were recorded of the problem, fastest first."""
    place = landscapes.find(session.problem, session.device)
    assert place is not None
    return [row.program for row in place.correct]


@pytest.mark.parametrize(
    ("kind", "word"),
    [("accept", "accepted"), ("reject", "rejected"), ("part", "accepted in part"), (None, "pending")],
)
def test_one_word_says_what_was_decided(kind: str | None, word: str, tmp_path: Path) -> None:
    with recorded_session(tmp_path) as session:
        version = session.program(recorded_programs(session)[0])
        if kind is not None:
            made = Decision(kind=kind, version=1, source_hash=version.source_hash)  # type: ignore[arg-type]
            session.log.add_decisions(made)
        version = session.version(1)
        shown = [tables.history(session).text, roofline_plot.roofline(session).text.splitlines()[-1]]
        row = session.frame().loc[1]
    point = energy_plot.find_points((with_modelled_energy(version),), "H200")
    shown.append(energy_plot.draw_points(point, "t", "n").text.splitlines()[-1])
    assert all(text.rstrip().endswith(word) for text in shown), shown
    assert view_model.version_row(version, 0)["status"] == version.standing == row["decision"] == word
    assert point[0].is_chosen == (kind == "accept")


def with_modelled_energy(version: Version) -> Version:
    joules = EnergyEstimate(joules=1.0, low_joules=0.9, high_joules=1.1, static_joules=0.5, parts=())
    trial = version.trials[-1]
    verdict = dataclasses.replace(trial.verdict, energy=joules, time_provenance="modelled")
    return dataclasses.replace(version, trials=(dataclasses.replace(trial, verdict=verdict),))


def test_a_program_that_is_not_of_the_latest_version_says_whose_it_is(tmp_path: Path) -> None:
    with recorded_session(tmp_path) as session:
        assert "#" not in show_program(session)
        fast, other = recorded_programs(session)[:2]
        first = session.accept(session.program(fast).number)
        assert show_program(session) == first.proposal.candidate.program
        session.program(other)
        source = first.proposal.candidate.source
        made = session.log.add_version(
            Proposal(candidate=Candidate(source=source + "#"), title="t", reason="", by="human", parent=1)
        )
        said, _, text = show_program(session).partition("\n")
        assert said == f"# v{made.number} has no program; this is that of v1, the nearest it was made from"
        assert text == first.proposal.candidate.program and format_program(parse(f"{said}\n{text}")) == text
        session.log.add_version(Proposal(candidate=Candidate(source=source + "##"), title="t", reason="", by="human"))
        said, _, text = show_program(session).partition("\n")
        assert said.startswith("# v4 has no program; this is the problem without settings") and text and "#" not in text
