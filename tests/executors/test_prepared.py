"""What the worker server prepares for the processes that it forks: they need not do it again, and it is the same."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from workbench import wire
from workbench.executors.jobs import replaced
from workbench.executors.workers import server
from workbench.problems import loading
from workbench.records import Check, Job, Launch, LineCounts

LAUNCH = Launch(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), total=LineCounts(line=0, flops=3))
CHECK = Check(case="shrunk", trial=0, timed=False, passed=True)


@pytest.fixture
def fresh_functions() -> Iterator[None]:
    """Nothing prepared before, and nothing afterwards."""
    replaced._PREPARED.clear()
    yield
    replaced._PREPARED.clear()


def test_records_are_converted_without_making_functions_first(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    plain = builtins.compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        compiled.append(args)
        return plain(*args, **kwargs)

    wire._converter.cache_clear()
    wire.prepare_conversion(Job, Launch, Check)
    monkeypatch.setattr(builtins, "compile", compile)
    for one in (LAUNCH, CHECK):
        assert wire.from_plain(wire.to_plain(one), type(one)) == one
    assert not compiled
    wire._converter.cache_clear()
    wire.to_plain(CHECK)
    assert compiled


@pytest.mark.usefixtures("fresh_functions")
def test_what_was_prepared_notices_what_is_replaced_since(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced.prepare()
    find_replaced = replaced.remember_functions()
    assert find_replaced is replaced.remember_functions() and find_replaced() == ""
    monkeypatch.setattr(loading, "build_model", lambda *_: None)
    assert find_replaced() == "workbench.problems.loading.build_model"


@pytest.mark.usefixtures("fresh_functions")
def test_functions_of_a_module_that_came_later_are_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "workbench.problems.loading")
    replaced.prepare()
    monkeypatch.setitem(sys.modules, "workbench.problems.loading", loading)
    find_replaced = replaced.remember_functions()
    monkeypatch.setattr(loading, "build_model", lambda *_: None)
    assert find_replaced() == "workbench.problems.loading.build_model"


def test_no_driver_is_asked_while_the_server_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """tvm_ffi's import asks torch for a GPU. A process that is forked after CUDA was asked cannot use it."""
    import torch

    def ask() -> bool:
        raise AssertionError("CUDA was asked")

    monkeypatch.setattr(torch.cuda, "is_available", ask)
    for version in ("13.0", None):
        monkeypatch.setattr(torch.version, "cuda", version)
        with server._importing():
            assert bool(torch.cuda.is_available()) == bool(version)
