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
    """Runs one piece of work after the other. `stop_all` ends the running one, by setting `stop`, and those that wait;
    `on_stopped` is called for each.

    With a `refusal` it runs nothing and raises it.
    """

    def __init__(self, on_stopped: Callable[[], None], refusal: str = "") -> None:
        self.stop = threading.Event()
        self._on_stopped, self._refusal = on_stopped, refusal
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cutegen-session")
        self._thread: threading.Thread | None = None
        self._stops = 0
        self._lock = threading.Lock()  # a stop comes before a piece of work begins or after it
        self._queued = threading.local()  # .stops: how many stops there were when this thread's work was queued

    def stop_all(self) -> None:
        """End the running piece of work, and all that were queued before now."""
        with self._lock:
            self._stops += 1
            self.stop.set()

    def queue(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work` for another thread, which comes to it later: what it runs here counts as queued now."""
        stops = self._stops

        def run_queued() -> T:
            self._queued.stops = stops
            try:
                return work()
            finally:
                del self._queued.stops

        return run_queued

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` on the thread and return its result. Ctrl-C stops the work and raises `Stopped`."""
        if threading.current_thread() is self._thread:
            return work()
        future = self.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.stop_all()
            with contextlib.suppress(Stopped, CancelledError):
                future.cancel()
                future.result()
            raise Stopped from None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work` after the work that is queued already. Raises `UserError` if all work is refused."""
        if self._refusal:
            raise UserError(self._refusal)
        return self._pool.submit(self._run_on_thread, work, getattr(self._queued, "stops", self._stops))

    def _run_on_thread(self, work: Callable[[], T], stops: int) -> T:
        """Do a piece of work that was queued after so many stops."""
        self._thread = threading.current_thread()
        try:
            with self._lock:
                if self._stops > stops:
                    raise Stopped
                self.stop.clear()
            return work()
        except Stopped:
            self._on_stopped()
            raise

    def close(self) -> None:
        """Stop the running work and what waits, and end the thread."""
        self.stop_all()
        self._pool.shutdown(wait=True)
