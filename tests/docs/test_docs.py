"""The documentation: generated pages are what their generators write, links lead somewhere, pages are found by name."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from workbench import docs
from workbench.cli.reference import PANEL_KEYS, render_pages
from workbench.errors import UserError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bench"))


@pytest.mark.parametrize("name", ["magics", "command_line", "language", "plugins", "api"])
def test_generated_pages_are_current(name: str) -> None:
    assert docs.read(name) == render_pages()[name], "run python -m workbench.cli.reference"


def test_measurements_are_current() -> None:
    import write_measurements

    assert docs.read("measurements") == write_measurements.write_page(), "run tests/bench/write_measurements.py"


def test_the_page_of_probes_is_current() -> None:
    import write_probes

    assert docs.read("probes") == write_probes.write_page(), "run tests/bench/write_probes.py"


def test_the_page_of_structure_is_current() -> None:
    import write_structure

    assert docs.read("structure") == write_structure.page(), "run tests/bench/write_structure.py"


@pytest.mark.parametrize("path", [*sorted(docs.FOLDER.glob("*.md")), ROOT / "README.md"], ids=lambda path: path.stem)
def test_links_lead_to_pages_and_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_index_names_every_page() -> None:
    index = docs.read("index")
    assert [name for name in docs.pages() if name != "index" and f"({name}.md)" not in index] == []


def test_a_page_is_found_by_name_and_a_slip_is_told() -> None:
    assert docs.read("command-line").startswith("# Command line")
    with pytest.raises(UserError, match="did you mean emulator"):
        docs.read("emulatr")
    assert "emulator" in docs.overview("cutegen docs")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_keys_of_the_panel_are_those_of_its_sources() -> None:
    extensions = ROOT / "extensions"
    shortcuts = (extensions / "panel/src/keys.ts").read_text()
    of_panel = re.findall(r'^  Key[A-Z]: \["([A-Z])", "(.*)"\],$', shortcuts, re.MULTILINE)
    assert len(of_panel) == 6 and [row for row in PANEL_KEYS if row[0] != "P"] == of_panel
    schema = json.loads((extensions / "cutegen-lab/schema/plugin.json").read_text())
    of_lab = {key for one in schema["jupyter.lab.shortcuts"] for key in one["keys"]}
    assert of_lab == {f"Alt Shift {key}" for key, _ in PANEL_KEYS if key != "U"}
