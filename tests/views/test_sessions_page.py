"""The list of stored sessions says which is which, and names one that cannot be read."""

from __future__ import annotations

from pathlib import Path

from workbench import landscapes, problems
from workbench.session import DATABASE, Session
from workbench.views.text.sessions_page import list_sessions


def test_sessions_are_told_apart(tmp_path: Path) -> None:
    assert list_sessions(tmp_path).text == "no sessions yet"
    expression = problems.from_expression("x * 2 + y", "x: f32[8, 64], y: f32[64]")
    with Session.create(expression, root=tmp_path, executor="emulator", name="sum"):
        pass
    with Session.create("row_sum", root=tmp_path, executor="replay", name="rows") as session:
        place = landscapes.find(session.problem, session.device)
        assert place is not None and place.best is not None
        version = session.program(place.best.program)
        session.accept(version.number)
        best = version.trials[-1].verdict.time_s
    head, first, second = list_sessions(tmp_path).text.splitlines()
    assert head.split()[0] == "session" and first.startswith("rows") and "row_sum, fp32" in first
    assert best is not None and f"{best * 1e6:.4g} µs measured" in first and first.endswith(" UTC")
    assert second.startswith("sum ") and "x * 2 + y, fp32" in second and " 0  " in second
    (tmp_path / "sum" / DATABASE).write_bytes(b"no database")
    assert [line.split()[0] for line in list_sessions(tmp_path).text.splitlines()] == ["session", "rows", "sum"]
