"""Text given to the planner: settings and ideas of its ladder are heeded, other text is not read."""

from __future__ import annotations

from workbench.proposers.ladders import Rung, put
from workbench.proposers.planner import read_words

RUNGS = (
    Rung(settings=(), title="simple", reason=""),
    Rung(settings=(put("tile", 64, 64, 16), put("mma", "f16")), title="tensor cores", reason=""),
    Rung(settings=(put("tile", 64, 64, 16), put("vector", 4)), title="vectors", reason=""),
)


def test_settings_in_words_and_figures() -> None:
    (rung,) = read_words("Use three stages", RUNGS)
    assert put("stages", 3) in rung.settings
    (rung,) = read_words("tile 128", RUNGS)
    assert put("tile", 128, 128, 16) in rung.settings


def test_ideas_of_the_ladder() -> None:
    assert read_words("vector loads please", RUNGS) == RUNGS[2:]
    assert read_words("try tensor cores", RUNGS) == RUNGS[1:2]
    assert read_words("make it nicer", RUNGS) == ()
