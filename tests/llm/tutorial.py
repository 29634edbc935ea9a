"""Starts the scripted server with what notebook 06 needs: python tests/llm/tutorial.py PORTFILE (prints nothing, runs
until it is ended)."""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
import urllib.request
from pathlib import Path

from workbench.codegen import compile_program
from workbench.language import Binding

INIT = "def __init__(self):\n    super().__init__()\n"
SOURCE = compile_program(
    "elementwise(relu(x)) .threads(128)", Binding(init_source=INIT, forward_arguments=("x",), operands=(("x", "x"),))
)
LINE = next(number for number, line in enumerate(SOURCE.splitlines(), 1) if "fmax" in line)
PATCH = [{"action": "insert", "line_number": LINE, "new_code": "    # the larger of v and zero"}]
STEPS = [
    {"text": f"One element per thread, with a guard for the tail.\n\n```python\n{SOURCE}```\n"},
    {
        "text": "Say in a comment what the maximum does. It helps the reader, not the device.\n\n```json\n"
        f"{json.dumps(PATCH)}\n```\n"
    },
    {
        "text": "Memory: it reads and writes each element once and computes almost nothing, so no more than the "
        "bandwidth can be gained."
    },
]


def play(port_file: Path) -> None:
    """Give the server its script once it listens."""
    while not (port_file.exists() and port_file.read_text()):
        time.sleep(0.05)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port_file.read_text()}/script", data=json.dumps(STEPS).encode(), method="POST"
    )
    urllib.request.urlopen(request, timeout=10).read()


if __name__ == "__main__":
    threading.Thread(target=play, args=(Path(sys.argv[1]),), daemon=True).start()
    runpy.run_path(str(Path(__file__).with_name("server.py")), run_name="__main__")
