"""Ctrl-C where Python cannot be left at once: it is heeded a little later.

C++ code that calls back into Python may end the process when such a call raises. Seen for KeyboardInterrupt: `std::terminate` while CuTe DSL 4.8.1 traces a kernel, a segmentation fault while extension modules are imported.
"""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_S = 0.05  # after which an import that was going on is looked at again
MOST_S = 3.0  # that one import is waited for: it may be a person's own module that works for hours
Handler = Callable[[int, "FrameType | None"], Any]


@contextmanager
def held() -> Iterator[None]:
    """Keep a Ctrl-C until the end of the block, also one that fails. A second one is not kept. In other threads than the main one it does nothing."""
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


def holding(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`plain`, within `held`."""

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        with held():
            return plain(*args, **kwargs)

    return call


@contextmanager
def after_imports() -> Iterator[None]:
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


__all__ = ["after_imports", "held", "holding"]
