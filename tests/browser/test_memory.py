"""Peak memory of server, kernel and workers while a tutorial runs in JupyterLab: under 1 GB, as Binder gives it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lab import open_notebook, run_all
from labserver import ROOT
from memory import Peak

LIMIT_BYTES = 1_000_000_000
TUTORIAL = next(iter(sorted((ROOT / "notebooks").glob("02*.ipynb"))), None)
DONE = """() => { const widgets = window.jupyterapp.shell.currentWidget.content.widgets;
    const cells = widgets.filter(c => c.model.type === 'code');
    return cells.every(c => c.model.executionCount !== null && c.model.executionState !== 'running') }"""

ERRORS = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')
    .flatMap(c => c.model.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.evalue))"""


def run_measured(page: Any, server: Any, notebook: Path) -> Peak:
    """Run a copy of any notebook to its end in the browser, with the peak memory of the server's process tree."""
    copy = server.root / notebook.name
    cleared = json.loads(notebook.read_text())
    for cell in cleared["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    copy.write_text(json.dumps(cleared))
    for extra in notebook.parent.iterdir():
        if extra.is_dir() and not extra.name.startswith("."):
            shutil.copytree(extra, server.root / extra.name, dirs_exist_ok=True)
    open_notebook(page, server.lab(notebook.name))
    with Peak(server.process.pid) as peak:
        run_all(page)
        page.wait_for_function(DONE, timeout=150_000)
    return peak


@pytest.mark.slow
@pytest.mark.skipif(TUTORIAL is None, reason="notebooks/02*.ipynb is not there")
def test_tutorial_fits_in_a_gigabyte(browser_page: Any, server: Any, artefacts: Path) -> None:
    assert TUTORIAL is not None
    peak = run_measured(browser_page, server, TUTORIAL)
    found = {"notebook": TUTORIAL.name, "pss_bytes": peak.pss, "rss_bytes": peak.rss, "processes": peak.processes}
    (artefacts / "memory.json").write_text(json.dumps(found, indent=2) + "\n")
    assert browser_page.evaluate(ERRORS) == []
    assert 0 < peak.pss < LIMIT_BYTES, found
