"""Energy on a real GPU: `pytest -m gpu tests/gpu/test_energy_measured.py -s`, about two minutes.

A rule that needs joules measures those of both versions, keeps them, and measures neither again; the meter's numbers
hang together: active and idle joules make the corrected ones, and the average power is one that a GPU can draw.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.records import Event
from workbench.session import Session

pytestmark = pytest.mark.gpu
PROGRAMS = (
    "softmax(x) .threads_per_row(256) .vector(4) .kept()",
    "softmax(x) .threads_per_row(1024) .vector(4) .kept()",
)
LEAST_W, MOST_W = 30.0, 1500.0


def test_a_rule_measures_what_it_needs_once(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="gpu", calibrate=False) as session:
        session.accept_rule = "energy-delay"
        base = session.accept(session.program(PROGRAMS[0]).number)
        made = session.program(PROGRAMS[1])
        running: list[Event] = []
        session.subscribe(lambda event: running.append(event) if event.kind == "running" else None)
        decided = session.judge(made.number).decision
        assert decided is not None and "joules (measured)" in decided.reason
        session.undo()
        assert session.judge(made.number).decision is not None
        profiled = [event.message for event in running if "by energy" in event.message]
        assert sorted(profiled) == ["profiling v1 by energy", "profiling v2 by energy"]
        for version in (session.version(base.number), session.version(made.number)):
            found = version.energy
            assert found is not None and found.device == session.device and found.samples == ()
            assert 0 < found.low_joules <= found.joules_per_call <= found.high_joules
            assert found.active_joules + found.idle_joules == pytest.approx(found.joules_per_call)
            assert LEAST_W < found.idle_w < found.average_w < MOST_W and 0.5 < found.duty <= 1
        assert (session.frame()["measured_j"] > 0).all()
