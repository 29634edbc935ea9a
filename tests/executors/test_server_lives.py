"""The parent's side of the worker server."""

from __future__ import annotations

import threading
import time

from workbench.executors.jobs.client import Server


def test_the_server_outlives_the_thread_that_asked_for_it() -> None:
    """Sessions have threads of their own, which end with them; the server is all sessions'."""
    made: list[Server] = []

    def ask() -> None:
        made.append(Server())
        made[0].ready.wait(120)  # by now the server has asked the kernel to end with its parent

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    (server,) = made
    try:
        time.sleep(0.3)
        assert server.ready.is_set() and not server.problem and server.alive
    finally:
        server.close()
    assert server.process.returncode is not None
