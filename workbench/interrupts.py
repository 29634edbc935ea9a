"""Ctrl-C where Python cannot be left at once: it is heeded a little later.

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

AGAIN_S = 0.05  # after which an import that was going on is looked at again
MOST_S = 3.0  # that one import is waited for: it may be a person's own module that works for hours
Handler = Callable[[int, "FrameType | None"], object]
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Keep a Ctrl-C until the end of the block, also of a block that fails.

    A second one is not kept. In other threads than the main one this does nothing.
    """
    kept: list[FrameType | None] = []

    def keep(before: Handler, number: int, frame: FrameType | None) -> None:
        if kept:
            before(number, frame)
        kept.append(frame)

    with _handled_by(keep) as before:
        try:
            yield
        finally:
            if kept and before:
                before(signal.SIGINT, kept[0])


def hold_during(plain: Callable[P, T]) -> Callable[P, T]:
    """`plain`, within `hold_interrupts`."""

    @functools.wraps(plain)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with hold_interrupts():
            return plain(*args, **kwargs)

    return call


@contextmanager
def defer_during_imports() -> Iterator[None]:
    """Heed a Ctrl-C that comes while a module is imported when that import has ended, or after MOST_S seconds."""
    came: list[float] = []

    def later(before: Handler, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        came.append(now)
        if _imports(frame) and now - came[0] < MOST_S:
            again = threading.Timer(AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            came.clear()
            before(number, frame)

    with _handled_by(later):
        yield


@contextmanager
def _handled_by(handler: Callable[[Handler, int, FrameType | None], None]) -> Iterator[Handler | None]:
    """`handler` gets each Ctrl-C with what handled it before; yields that, or None where nothing is changed."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield None
        return
    signal.signal(signal.SIGINT, functools.partial(handler, before))
    try:
        yield before
    finally:
        signal.signal(signal.SIGINT, before)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


__all__ = ["defer_during_imports", "hold_during", "hold_interrupts"]
