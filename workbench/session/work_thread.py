"""The single thread that does the work of a session, and how the work is stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TypeVar

from workbench.errors import Stopped, UserError

T = TypeVar("T")


class WorkThread:
    """Runs one piece of work after the other. Setting `stop` ends the running one; `on_stopped` is called then.

    With a `refusal` it runs nothing and raises it.
    """

    def __init__(self, on_stopped: Callable[[], None], refusal: str = "") -> None:
        self.stop = threading.Event()
        self._on_stopped, self._refusal = on_stopped, refusal
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cutegen-session")
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` on the thread and return its result. Ctrl-C stops the work and raises `Stopped`."""
        if threading.current_thread() is self._thread:
            return work()
        future = self.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.stop.set()
            with contextlib.suppress(Stopped, CancelledError):
                future.cancel()
                future.result()
            raise Stopped from None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work` after the work that is queued already. Raises `UserError` if all work is refused."""
        if self._refusal:
            raise UserError(self._refusal)
        return self._pool.submit(self._run_on_thread, work)

    def _run_on_thread(self, work: Callable[[], T]) -> T:
        self._thread = threading.current_thread()
        self.stop.clear()
        try:
            return work()
        except Stopped:
            self._on_stopped()
            raise

    def close(self) -> None:
        """Stop the running work and end the thread."""
        self.stop.set()
        self._pool.shutdown(wait=True)
