"""Stop ends what waits as well as what runs: pieces of work of a session, and commands of the panel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from workbench import Session
from workbench.errors import Stopped
from workbench.session.work_thread import WorkThread
from workbench.views.notebook.panel import Panel

LIMIT_S = 60


@pytest.fixture
def thread() -> Iterator[tuple[WorkThread, list[int]]]:
    """A thread, and a list that gets an item for each piece of work that was stopped."""
    stopped: list[int] = []
    made = WorkThread(on_stopped=lambda: stopped.append(len(stopped)))
    yield made, stopped
    made.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def work_until_stopped(made: WorkThread, begun: threading.Event) -> None:
    begun.set()
    assert made.stop.wait(LIMIT_S)
    raise Stopped


def test_a_stop_ends_what_runs_and_what_waits_and_not_what_comes_later(
    thread: tuple[WorkThread, list[int]],
) -> None:
    made, stopped = thread
    begun, done = threading.Event(), list[str]()
    running: Future[None] = made.submit(lambda: work_until_stopped(made, begun))
    waiting = made.submit(lambda: done.append("waited"))
    assert begun.wait(LIMIT_S)
    made.stop_all()
    for one in (running, waiting):
        with pytest.raises(Stopped):
            one.result(LIMIT_S)
    made.run(lambda: done.append("later"))
    assert done == ["later"] and len(stopped) == 2 and not made.stop.is_set()


def test_a_stop_ends_queued_work_at_each_moment_before_it_begins(thread: tuple[WorkThread, list[int]]) -> None:
    made, _ = thread
    done: list[str] = []
    queued = made.queue(lambda: made.run(lambda: done.append("first")))
    made.stop_all()  # another thread has not yet come to it
    with pytest.raises(Stopped):
        queued()

    def stop_and_go_on() -> None:
        made.run(lambda: done.append("second"))
        made.stop_all()  # between two pieces of one command
        made.run(lambda: done.append("third"))

    with pytest.raises(Stopped):
        made.queue(stop_and_go_on)()
    made.run(lambda: done.append("last"))  # the thread is as free as before
    assert done == ["second", "last"]


@pytest.mark.parametrize("command", ["generate", "run", "search", "test"])
def test_stop_ends_a_command_of_the_panel_that_has_not_begun(tmp_path: Path, command: str) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as session:
        session.accept(session.refine().number)  # type: ignore[union-attr]
        held = [(version.number, len(version.trials)) for version in session.versions]
        panel, busy = Panel(session), threading.Event()
        panel.controller._steps.submit(busy.wait, LIMIT_S)  # as if its thread were slow to begin
        panel._on_message(panel, {"command": command, "steps": 2, "version": 1}, [])
        assert panel.live["busy"] == command
        panel._on_message(panel, {"command": "stop"}, [])
        assert panel.live["progress"]["message"].startswith("stopping")
        busy.set()
        wait_for(lambda: not panel.controller.live_state()["busy"])
        assert panel.controller.live_state()["message"] == {
            "kind": "info",
            "text": f"{command} stopped; everything finished so far is kept",
        }
        assert [(version.number, len(version.trials)) for version in session.versions] == held
        panel._on_message(panel, {"command": "generate"}, [])
        wait_for(lambda: not panel.controller.live_state()["busy"])
        assert len(session.versions) == 2  # the next command runs
        panel.close()
