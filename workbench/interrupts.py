"""Ctrl-C in code that must not be interrupted: it takes effect a little later.

C++ code that calls back into Python may end the process when such a call raises. Seen for KeyboardInterrupt:
`std::terminate` while CuTe DSL 4.8.1 traces a kernel, a segmentation fault while extension modules are imported.
"""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

AGAIN_S = 0.05  # seconds between two looks at a running import
MOST_S = 3.0  # longest wait for one import: a user's own module may run for hours
Handler = Callable[[int, "FrameType | None"], object]
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delay a Ctrl-C until the end of the block, also of a block that fails.

    A second Ctrl-C is not delayed. Outside the main thread this does nothing.
    """
    kept: list[FrameType | None] = []

    def hold_first(before: Handler, number: int, frame: FrameType | None) -> None:
        if kept:
            before(number, frame)
        kept.append(frame)

    with _replace_handler(hold_first) as before:
        try:
            yield
        finally:
            if kept and before:
                before(signal.SIGINT, kept[0])


def hold_during(plain: Callable[P, T]) -> Callable[P, T]:
    """Wrap `plain` so that it runs within `hold_interrupts`."""

    @functools.wraps(plain)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with hold_interrupts():
            return plain(*args, **kwargs)

    return call


@contextmanager
def defer_during_imports() -> Iterator[None]:
    """Delay a Ctrl-C that comes while a module is imported, until the import ends or MOST_S seconds have passed."""
    came: list[float] = []

    def retry_later(before: Handler, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        came.append(now)
        if _is_importing(frame) and now - came[0] < MOST_S:
            again = threading.Timer(AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            came.clear()
            before(number, frame)

    with _replace_handler(retry_later):
        yield


@contextmanager
def _replace_handler(handler: Callable[[Handler, int, FrameType | None], None]) -> Iterator[Handler | None]:
    """Call `handler` for each Ctrl-C, with the handler before it; yields that one, or None where nothing is changed."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield None
        return
    signal.signal(signal.SIGINT, functools.partial(handler, before))
    try:
        yield before
    finally:
        signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


__all__ = ["defer_during_imports", "hold_during", "hold_interrupts"]
