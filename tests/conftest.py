"""Shared fixtures: sessions go to a temporary folder, no other host is reached, the worker server ends with the tests,
and memory is given back."""

from __future__ import annotations

import faulthandler
import functools
import gc
import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# a busy machine draws slowly
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
# CuTe DSL's caches: each keeps the MLIR contexts of the last 128 kernels that used it, which are gigabytes
IR_CACHES: list[Any] = []
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # forty grammars that jsonschema would parse
LOOP_S = 0.1  # of a loop that a machine slower than two quiet cores takes longer for (inferred)
STACKS_TO: list[int] = []  # the file descriptor that faulthandler prints to


def pytest_configure() -> None:
    """Interrupts arrive, also in the processes of tests: a shell ignores them in what it starts in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=Path,
        help="a folder where processes that run the same tests side by side note which tests they took; each test "
        "runs in one of them",
    )
    parser.addoption("--from-end", action="store_true", help="begin with the last file")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_cases_slow(items)
    if config.getoption("--from-end"):
        files = list(dict.fromkeys(item.path for item in items))
        items.sort(key=lambda item: -files.index(item.path))


def mark_cases_slow(items: list[pytest.Item]) -> None:
    """Mark the cases of a test with `few(n)` as slow, except n of them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for found in cases.values():
        mark = found[0].get_closest_marker("few")
        assert mark is not None
        kept = {at * len(found) // mark.args[0] for at in range(mark.args[0])}
        for at, item in enumerate(found):
            if at not in kept:
                item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """True, so that nothing else runs the test, when another process took it: two that come from both ends share the
    file at which they meet, and end together."""
    folder: Path | None = item.config.getoption("--share")
    if folder is None:
        return None
    try:
        (folder / hashlib.sha256(item.nodeid.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return True
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A crash prints the Python stack: tvm_ffi, which CuTe DSL imports, replaces faulthandler by what does not print
    it."""
    if "tvm_ffi" in sys.modules and faulthandler.is_enabled() and not STACKS_TO:
        with item.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            STACKS_TO.append(os.dup(2))
        faulthandler.disable()
        faulthandler.enable(STACKS_TO[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Leave out entries without a line in their file, such as code of CuTe DSL at a timeout: pytest fails on them."""
    error = call.excinfo.value if call.excinfo else None
    while error is not None:
        entry = error.__traceback__
        while entry is not None and entry.tb_next is not None:
            if entry.tb_next.tb_lineno is None:
                entry.tb_next = entry.tb_next.tb_next
            else:
                entry = entry.tb_next
        error = error.__cause__ or error.__context__


def pytest_collection_finish() -> None:
    """What was imported stays to the end: no garbage collection looks at it again, and the others come less often."""
    IR_CACHES[:] = [
        item
        for item in gc.get_objects()
        if type(item) is functools._lru_cache_wrapper and item.__qualname__.startswith("lru_cache_ir.")
    ]
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def compiled_kernels_are_given_back() -> Iterator[None]:
    yield
    for cache in IR_CACHES:
        cache.cache_clear()


@pytest.fixture(autouse=True)
def sessions_in_a_temporary_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path / "sessions"))
    monkeypatch.setenv("CUTEGEN_TRUST", str(tmp_path_factory.getbasetemp() / "trusted"))
    monkeypatch.setenv("CUTEGEN_LESSONS", str(tmp_path / "lessons.jsonl"))
    monkeypatch.setenv("CUTEGEN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anything but this machine fails the test."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            assert address[0] in ("127.0.0.1", "::1", "localhost"), f"a test reached for {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session", autouse=True)
def workers_end_with_the_tests() -> Iterator[None]:
    """And not with a command of the command line that a test runs in its own process."""
    from workbench import executors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "shutdown", lambda: None)
        yield
    executors.shutdown()


@pytest.fixture
def slowness() -> Callable[[], float]:
    """How many times the seconds of a quiet machine this one takes: the worst of the calls so far; at least 1.

    Limits of seconds are multiplied by it, asked before and after what is timed.
    """
    worst = 1.0

    def measure() -> float:
        nonlocal worst
        start = time.perf_counter()
        sum(number * number for number in range(1_000_000))
        worst = max(worst, (time.perf_counter() - start) / LOOP_S)
        return worst

    measure()
    return measure
