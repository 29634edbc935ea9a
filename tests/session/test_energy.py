"""Profiles that a session keeps, and versions that are accepted by their energy.

Times are rows of a landscape that were measured on a GPU; the joules are given, because no GPU is here.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

from workbench import problems
from workbench.cli import main
from workbench.errors import UserError
from workbench.hash_chain import TABLE
from workbench.policies import accept_rules
from workbench.records import Energy, Event, Profile, StoredProfile, Version
from workbench.session import DATABASE, Session
from workbench.store_schema import MIGRATIONS
from workbench.views.plots import energy as energy_plot
from workbench.views.text import tables
from workbench.views.text.profile_report import profile_report


@pytest.fixture
def session(tmp_path: Path) -> Session:
    with Session.create("row_sum", root=tmp_path, executor="replay", name="s") as made:
        yield made


def rows_at_equal_time(session: Session) -> tuple[str, str, str]:
    """The fastest recorded program, another one within the noise, and one that takes twice as long."""
    from workbench import landscapes

    place = landscapes.find(session.problem, session.device)
    assert place is not None
    best, near = place.correct[:2]
    slow = next(row for row in place.correct if (row.median_s or 0) > 2 * (best.median_s or 1))
    return best.program, near.program, slow.program


def energy(joules: float, seconds: float = 1e-3, *, device: str = "H200", spread: float = 0.01) -> Energy:
    return Energy(
        joules_per_call=joules,
        low_joules=joules * (1 - spread),
        high_joules=joules * (1 + spread),
        uncorrected_joules=joules * 0.7,
        average_w=joules / seconds,
        idle_w=100.0,
        duty=0.99,
        calls=1000,
        window_s=4.8,
        seconds_per_call=seconds,
        samples=((0.0, 0.0), (1.0, 300.0)),
        device=device,
    )


def keep(session: Session, version: Version, found: Energy) -> None:
    """Keep an energy as the profiler would."""
    profile = Profile(
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
        summary="s",
        provenance="measured",
        by="energy",
        device=session.device,
        energy=found,
    )
    session.log.add_profile(
        StoredProfile(
            version=version.number, source_hash=version.source_hash, options=(), profile=profile, at="2026-01-01"
        )
    )


def pair(session: Session, joules: tuple[float, float], *, slower: bool = False, spread: float = 0.01) -> Version:
    """A baseline and a second version with these joules; the second one is judged by the session's rule."""
    first, near, slow = rows_at_equal_time(session)
    base = session.accept(session.program(first).number)
    made = session.program(slow if slower else near)
    for version, value in zip((base, made), joules, strict=True):
        keep(session, version, energy(value, spread=spread))
    return session.judge(made.number)


def decision(version: Version) -> tuple[str, str]:
    assert version.decision is not None
    return version.decision.kind, version.decision.reason


def test_fewer_joules_win_only_where_times_cannot_be_told_apart(session: Session) -> None:
    session.accept_rule = "energy-at-equal-time"
    kind, reason = decision(pair(session, (1.0, 0.9)))
    assert kind == "accept" and "10.0% fewer joules (measured)" in reason and "within the noise" in reason
    assert session.best is not None and session.best.number == 2  # not the fastest by its median
    slow = decision(pair(session, (1.0, 0.5), slower=True))
    assert slow[0] == "reject" and "joules" not in slow[1]


@pytest.mark.parametrize(
    ("rule", "joules", "spread", "kind"),
    [
        ("time", (1.0, 0.5), 0.01, "reject"),  # half the energy, and the rule does not look
        ("energy-at-equal-time", (1.0, 0.995), 0.01, "reject"),  # the intervals overlap
        ("energy-at-equal-time", (1.0, 1.2), 0.01, "reject"),
        ("energy-delay", (1.0, 0.7), 0.01, "accept"),
        ("energy-delay", (1.0, 0.7), 0.3, "reject"),
    ],
)
def test_each_rule(session: Session, rule: str, joules: tuple[float, float], spread: float, kind: str) -> None:
    session.accept_rule = rule
    assert decision(pair(session, joules, spread=spread))[0] == kind


def test_energy_delay_takes_a_slower_version_that_saves_more(session: Session) -> None:
    session.accept_rule = "energy-delay"
    first, _, slow = rows_at_equal_time(session)
    base, made = session.accept(session.program(first).number), session.program(slow)
    times = [version.trials[-1].verdict.time_s or 0.0 for version in (base, made)]
    keep(session, base, energy(1.0))
    keep(session, made, energy(0.5 * times[0] / times[1]))
    assert decision(session.judge(made.number))[0] == "accept"
    assert session.best is not None and session.best.number == 2


def test_where_an_energy_is_unknown_one_line_says_so_and_the_time_decides(session: Session) -> None:
    session.accept_rule = "energy-at-equal-time"
    first, near, _ = rows_at_equal_time(session)
    base = session.accept(session.program(first).number)
    made = session.program(near)
    keep(session, base, energy(1.0))
    assert (
        decision(session.judge(made.number)) == decision(session.version(2))
        and "no gain" in decision(session.version(2))[1]
    )
    notes = [event.message for event in session.log.store.events(Event) if event.kind == "note"]
    assert sum("energy of v2 is unknown" in note and "falls back to time" in note for note in notes) == 1


def test_energies_of_two_devices_are_not_compared(session: Session) -> None:
    first, near, _ = rows_at_equal_time(session)
    base, made = session.program(first), session.program(near)
    keep(session, base, energy(1.0))
    keep(session, made, energy(0.5, device="A100"))
    said = accept_rules.compare_energy(session.version(2), session.version(1))
    assert isinstance(said, str) and "unknown" in said


def test_the_rule_is_kept_shown_and_checked(session: Session) -> None:
    assert session.accept_rule == "time" and "accept rule    time" in str(tables.status(session))
    session.accept_rule = "energy-delay"
    with pytest.raises(UserError, match="there are: time, energy-at-equal-time, energy-delay"):
        session.accept_rule = "joules"
    with Session.open(session.folder, write=False) as again:
        assert again.accept_rule == "energy-delay"


def test_one_row_has_time_energy_and_cost(session: Session) -> None:
    pair(session, (1.0, 0.9))
    frame = session.frame()
    row = frame.loc[2]
    assert row["measured_s"] > 0 and row["measured_j"] == 0.9 and {"tokens_in", "cost_usd"} <= set(frame.columns)
    assert row["measured_active_j"] + row["measured_idle_j"] == pytest.approx(row["measured_j"])
    assert row["measured_uncorrected_j"] == pytest.approx(0.63) and row["modelled_j"] is None
    assert {"measured_j", "measured_s"} <= set(
        shown := tables.version_frame(session).columns
    ) and "cost_usd" not in shown
    assert "900 mJ a call (measured on H200" in str(tables.verdict(session.version(2)))
    assert "900 mJ a call measured on H200" in str(tables.history(session))


def test_energy_against_time_shows_one_provenance_and_the_front(session: Session, tmp_path: Path) -> None:
    first, near, slow = rows_at_equal_time(session)
    for text, joules in ((first, 1.0), (near, 0.8), (slow, 0.9)):
        keep(session, session.program(text), energy(joules))
    session.program(rows_at_equal_time(session)[0])  # without an energy: not on the plot
    points = energy_plot.find_points(session.versions, session.device)
    front = energy_plot.find_front(points)
    assert [point.version for point in points] == [1, 2, 3] and {point.provenance for point in points} == {"measured"}
    assert [point.version for point in front] == [1, 2]
    shown = energy_plot.plot_energy(session)
    assert shown.svg.count("<rect") == 3 + 1 and "currentColor" in shown.svg and "on the front" in shown.text
    assert shown.plotly is not None and len(shown.plotly["data"][1]["x"]) == 3
    assert energy_plot.find_points(session.versions, "A100") == ()


def test_what_is_on_the_front_is_beaten_by_none() -> None:
    base = energy_plot.EnergyPoint(
        version=1,
        title="t",
        seconds=1,
        joules=1,
        low_joules=1,
        high_joules=1,
        provenance="measured",
        standing="pending",
    )
    places = [(1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (3.0, 3.0), (4.0, 1.0), (0.5, 9.0), (6.0, 2.0)]
    points = [
        dataclasses.replace(base, version=n, seconds=seconds, joules=joules)
        for n, (seconds, joules) in enumerate(places)
    ]
    front = energy_plot.find_front(points)
    beaten = [
        point
        for point in points
        if any(
            (other.seconds <= point.seconds and other.joules <= point.joules)
            and (other.seconds, other.joules) != (point.seconds, point.joules)
            for other in points
        )
    ]
    assert {point.version for point in front} == {point.version for point in points if point not in beaten}


@pytest.mark.slow
def test_a_profile_is_kept_and_shown_without_a_run(tmp_path: Path) -> None:
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator", name="kept") as session:
        session.generate()
        runs: list[str] = []
        session.subscribe(lambda event: runs.append(event.message) if event.kind == "running" else None)
        made = session.profile(1)
        kept = session.profile(1)
        assert (
            runs[0] == "profiling v1 by counters"
            and "--again profiles it anew" in runs[1]
            and [one.profile.by for one in session.profiles(1)] == ["counters"]
        )
        assert profile_report(session.version(1), kept).text == profile_report(session.version(1), made).text
        assert made.builds[0].ptx and not kept.builds[0].ptx and session.profiles(1)[0].source_hash
        session.profile(1, again=True)
        assert len(runs) == 3 and runs[2] == runs[0] and len(session.profiles(1)) == 2
    with Session.open(tmp_path / "kept", write=False) as reader:
        assert reader.profile(1).summary == made.summary and len(reader.profiles(1)) == 2
    size = sqlite3.connect(tmp_path / "kept" / DATABASE).execute("SELECT MAX(LENGTH(record)) FROM profile").fetchone()
    assert size[0] < 40_000


def test_a_changed_profile_is_named_and_not_believed(session: Session) -> None:
    pair(session, (1.0, 0.9))
    folder = session.folder
    session.close()
    db = sqlite3.connect(folder / DATABASE)
    db.execute("DROP TRIGGER profile_update")
    db.execute("""UPDATE profile SET energy = replace(energy, '"joules_per_call":0.9', '"joules_per_call":0.1')""")
    db.commit()
    db.close()
    with Session.open(folder, write=False) as again:
        said = "\n".join(damage.message for damage in again.log.store.damage)
        assert "profile 2 of v2 was changed" in said and "profile the version again" in said
        assert again.version(2).energy is None and again.version(1).energy is not None and again.profiles(2) == ()


def test_a_session_of_an_older_workbench_opens(session: Session) -> None:
    session.program(rows_at_equal_time(session)[0])
    folder = session.folder
    session.close()
    db = sqlite3.connect(folder / DATABASE)
    db.execute("INSERT INTO meta SELECT key, value FROM setting")
    for table in ("chain", "profile", "search", "setting"):
        db.execute(f"DROP TABLE {table}")
    db.execute(f"PRAGMA user_version={MIGRATIONS.index(TABLE)}")
    db.commit()
    db.close()
    with Session.open(folder, write=False) as reader:
        assert reader.profiles(1) == () and not reader.log.store.damage
    with Session.open(folder, trusted=True) as writer:
        keep(writer, writer.version(1), energy(1.0))
        assert writer.version(1).energy is not None and writer.version(1).energy.samples == ()


def test_the_command_line_shows_energy_and_its_rule(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path))
    pair(session, (1.0, 0.9))
    session.close()
    assert main(["energy", "--session", "s", "--svg", str(tmp_path / "energy.svg")]) == 0
    assert "900 mJ" in capsys.readouterr().out and (tmp_path / "energy.svg").read_text().startswith("<svg")
    assert main(["history", "--session", "s", "--json"]) == 0
    assert '"measured_j": 0.9' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", "row_sum", "--accept", "joules"])
    assert "energy-at-equal-time" in capsys.readouterr().err
