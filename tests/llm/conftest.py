"""The scripted server as a fixture, and a marked key."""

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

KEY = "sk-planted-9f8e7d6c5b4a"


class Scripted:
    """The running server: `play` sets what it answers, `requests` is what it was sent."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/v1"
        self.root = f"http://127.0.0.1:{port}"

    def play(self, *steps: dict[str, Any] | str) -> None:
        """Answer with these steps, one a call; a string is a plain reply."""
        body = json.dumps([{"text": step} if isinstance(step, str) else step for step in steps]).encode()
        urllib.request.urlopen(
            urllib.request.Request(f"{self.root}/script", data=body, method="POST"), timeout=10
        ).read()

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Everything that was sent since the last `play`."""
        found: list[dict[str, Any]] = json.loads(urllib.request.urlopen(f"{self.root}/requests", timeout=10).read())
        return found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    port = tmp_path_factory.mktemp("llm") / "port"
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("server.py")), str(port)])
    for _ in range(200):
        if port.exists() and port.read_text():
            break
        time.sleep(0.05)
    yield Scripted(int(port.read_text()))
    process.terminate()
    process.wait(10)


@pytest.fixture(autouse=True)
def planted_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marked key that no test may find anywhere."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
