"""Ctrl-C where Python cannot be left at once."""

from __future__ import annotations

import importlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from workbench import interrupts
from workbench.emulator import emulated
from workbench.interrupts import defer_during_imports, hold_interrupts

traced: list[str] = []


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """A shell that runs the tests in the background makes them ignore Ctrl-C: heed it again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stop() -> None:
    """What Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


def test_a_held_one_is_heeded_at_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), hold_interrupts():
        stop()
        done.append(1)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_held_one_is_heeded_though_the_block_fails_and_a_second_is_not_held() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, hold_interrupts():
        stop()
        raise ValueError("no such tile")
    assert isinstance(caught.value.__context__, ValueError)
    with pytest.raises(KeyboardInterrupt), hold_interrupts():
        stop()
        stop()
        pytest.fail("the second was held too")


def test_one_in_an_import_is_heeded_when_the_import_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_meanwhile.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nended = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), defer_during_imports():
        module = importlib.import_module("imported_meanwhile")
        assert module.ended
        time.sleep(5)
        pytest.fail("it was forgotten")


def test_a_module_that_works_for_long_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "works_for_long.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\nfor _ in range(1200):\n    time.sleep(0.05)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(interrupts, "MOST_S", 0.2)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), defer_during_imports():
        importlib.import_module("works_for_long")
    assert time.monotonic() - start < 30


@cute.kernel
def copy_kernel(x: cute.Tensor, y: cute.Tensor) -> None:
    """y = x on the first elements, with a Ctrl-C while it is traced."""
    stop()
    y[cute.arch.thread_idx()[0]] = x[cute.arch.thread_idx()[0]]
    traced.append("the kernel to its end")


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor) -> None:
    """Launch copy_kernel."""
    copy_kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_one_while_a_kernel_is_traced_is_heeded_afterwards() -> None:
    with emulated():
        with pytest.raises(KeyboardInterrupt):
            cute.compile(copy, from_dlpack(torch.ones(32)), from_dlpack(torch.zeros(32)))
        assert traced == ["the kernel to its end"]
