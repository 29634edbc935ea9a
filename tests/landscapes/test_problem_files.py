"""The problem file that a landscape names runs only if it is the recorded one, or the user trusts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.errors import UserError
from workbench.landscapes import landscapes


def test_the_recorded_file_of_a_shipped_landscape_needs_no_question_and_any_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = landscapes()["matvec_04"]
    source = Path(str(place.facts["origin"])).read_text()
    monkeypatch.chdir(tmp_path)
    path = Path(str(place.facts["origin"]))
    path.parent.mkdir(parents=True)
    path.write_text("# a comment\n" + source)
    assert place.problem().name == "matvec_04"
    path.write_text(source + "\nimport os\n")
    with pytest.raises(UserError, match="is a file that the landscape of matvec_04 names"):
        place.problem()
    path.write_text(source)
    with pytest.raises(UserError, match="looking at the problem runs its code"):
        replace(place, key="0" * 16).problem()
