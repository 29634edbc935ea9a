"""The panel with a language model in JupyterLab: the reply streams in, a failed version is repaired, a question is
answered, proposals stand side by side."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import STEP_MS, click, open_notebook, run_all, theme, version_status, wait_status, write_notebook
from labserver import ROOT

from workbench.codegen import compile_program
from workbench.language import Binding

GOOD = compile_program(
    "elementwise(relu(x)) .threads(128)",
    Binding(
        init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("x",), operands=(("x", "x"),)
    ),
)
AT, LINE = next((n, line) for n, line in enumerate(GOOD.splitlines(), 1) if "fmax" in line)
WRONG = GOOD.replace("cutlass.Float32(0.0)", "cutlass.Float32(1.0)")


def patch(words: str, action: str, code: str) -> str:
    return f"{words}\n\n```json\n{json.dumps([{'action': action, 'line_number': AT, 'new_code': code}])}\n```\n"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[str]:
    """The scripted model's address; the first reply takes a few seconds, as real ones do."""
    port = tmp_path / "port"
    process = subprocess.Popen([sys.executable, str(ROOT / "tests/llm/server.py"), str(port)])
    try:
        for _ in range(200):
            if port.exists() and port.read_text():
                break
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port.read_text()}"
        script = [
            {"text": f"A first version.\n\n```python\n{WRONG}```\n", "cut": [400], "pace": 0.1},
            {"text": "The constant must be zero."},
            {"text": patch("Compare with zero.", "replace", LINE)},
            {"text": "Because each thread moves four bytes only."},
            {"text": patch("Say what it does.", "insert", "    # the larger of both")},
            {"text": patch("Say it in another way.", "insert", "    # negative values become zero")},
        ]
        urllib.request.urlopen(
            urllib.request.Request(f"{address}/script", data=json.dumps(script).encode(), method="POST"), timeout=10
        ).read()
        yield address
    finally:
        process.terminate()
        process.wait(10)


def set_in_the_panel(page: Any, address: str) -> None:
    """Set the model by the form, its key by the name of a variable of the kernel."""
    page.locator(".cg-model summary").click()
    page.get_by_label("Address of the model").fill(address)
    page.get_by_label("Name of the model").fill("scripted")
    key = page.get_by_label("Environment variable with the key")
    key.fill("sk-typed-by-mistake")
    click(page, "Use this model")
    wait_status(page, "never the key itself")
    assert key.input_value() == "" and "sk-typed" not in page.locator(".cutegen-panel").inner_html()
    key.fill("PANEL_KEY")
    click(page, "Use this model")
    wait_status(page, "makes the proposals now; its key is from PANEL_KEY")
    page.locator(".cg-model summary", has_text=f"Proposals by scripted at {address} (key set)").wait_for()
    assert "4711" not in page.locator(".cutegen-panel").inner_html()
    assert serious_violations(page, ".cutegen-panel") == []


@pytest.mark.slow
def test_a_model_in_the_panel(browser_page: Any, server: Any, model: str, artefacts: Path) -> None:
    page = browser_page
    setup = (
        "%load_ext workbench\n%cutegen problem relu --set batch_size=8 --set dim=64\n"
        "%cutegen model --price-in 1 --price-out 10\n%env PANEL_KEY=sk-browser-4711"
    )
    write_notebook(server.root / "model.ipynb", setup, "%cutegen panel")
    open_notebook(page, server.lab("model.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=STEP_MS)
    set_in_the_panel(page, f"{model}/v1")
    log = page.locator(".cutegen-panel .cg-log")
    click(page, "Generate")
    seen: set[int] = set()
    while "class ModelNew" not in (text := log.inner_text()):
        seen.add(len(text))
        page.wait_for_timeout(50)
    assert len(seen) > 8, seen  # it grew piece by piece
    wait_status(page, "wrong result")
    click(page, "Repair")
    wait_status(page, "v2 correct")
    assert "The constant must be zero." in log.inner_text()
    click(page, "Accept v2")
    version_status(page, 2, "accepted")
    page.get_by_label("What to change next").fill("why is it slow?")
    click(page, "Ask")
    wait_status(page, "Because each thread moves four bytes only.")
    page.get_by_label("What to change next").fill("")
    page.get_by_label("Number of proposals").fill("2")
    click(page, "Propose")
    wait_status(page, "2 versions to choose from: v3 to v4")
    found = page.locator(".cg-choice")
    assert found.count() == 2 and "negative values become zero" in found.nth(1).inner_text()
    assert "$0.0036 so far; 600 tokens in, 300 out" in page.locator(".cutegen-panel .cg-about").inner_text()
    for name, shot in (("JupyterLab Light", "model_light.png"), ("JupyterLab Dark", "model_dark.png")):
        theme(page, name)
        page.locator(".cutegen-panel").screenshot(path=artefacts / shot)
        assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Light")
    found.nth(1).get_by_role("button", name="Show v4").click()
    page.locator(".cg-choice button[aria-current]", has_text="Show v4").wait_for()
    click(page, "Accept v4")
    version_status(page, 4, "accepted")
    page.locator(".cg-at-choices").wait_for(state="hidden")
