"""The magics in a real kernel over its sockets: the interrupt button, and the finished notebook of the demo as HTML."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import KernelManager


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[KernelManager, Any]]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def text_of(client: Any, code: str, timeout: float = 60.0) -> tuple[str, str]:
    """(status, everything that the cell printed, showed or raised)."""
    said: list[str] = []

    def collect(message: Any) -> None:
        content = message["content"]
        said.append(
            content.get("text", "")
            or content.get("data", {}).get("text/plain", "")
            or "\n".join(content.get("traceback", []))
        )

    reply = client.execute_interactive(code, timeout=timeout, output_hook=collect)
    return reply["content"]["status"], "\n".join(said)


def test_interrupting_a_step_keeps_the_session(kernel: tuple[KernelManager, Any]) -> None:
    manager, client = kernel
    status, text = text_of(
        client,
        "%load_ext workbench\n%cutegen problem softmax --set batch_size=16 --set dim=64 --executor emulator\n"
        "%cutegen generate\n%cutegen accept",
    )
    assert status == "ok", text
    client.execute("for _ in range(50): get_ipython().run_line_magic('cutegen', 'test v1')")
    time.sleep(2.5)
    start = time.monotonic()
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=60)
    assert reply["content"]["status"] == "error" and time.monotonic() - start < 20  # fifty tests take longer
    time.sleep(0.5)  # after an error, a kernel aborts what it has been sent already
    status, text = text_of(client, "%cutegen history")
    assert status == "ok" and "v1" in text and "accepted" in text, text


@pytest.mark.slow
def test_the_demo_leaves_a_notebook_that_reads_without_a_kernel(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    notebook = tmp_path / "cutegen-demo" / "demo.ipynb"
    converted = subprocess.run(
        [sys.executable, "-m", "jupyter", "nbconvert", "--to", "html", str(notebook)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert converted.returncode == 0, converted.stderr
    page = notebook.with_suffix(".html").read_text()
    assert "roofline" in page.lower() and "hunk 1" in page and "accepted" in page
