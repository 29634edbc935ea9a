"""How the GPU is: what is made of NVML's answers, and that nothing breaks where there is no NVML."""

from __future__ import annotations

import sys

import pytest

from tests.analysis.test_devices import H100
from workbench.executors.gpu import telemetry
from workbench.executors.gpu.presence import Gpu, find_gpu

FOUND = find_gpu()
GPU = FOUND if isinstance(FOUND, Gpu) else Gpu(number=0, uuid="GPU-none", bus_id="0000:00:00.0", attributes=H100)


@pytest.fixture(autouse=True)
def forget() -> object:
    telemetry._nvml.cache_clear()
    yield
    telemetry._nvml.cache_clear()


def test_without_pynvml_nothing_is_known_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert telemetry.observer(GPU, lambda: (), lambda: 0)() is None
    assert "nvidia-ml-py" in telemetry.why_not()


def test_without_a_driver_nothing_is_known_and_it_is_said() -> None:
    """This machine has pynvml and, where the tests run, mostly no driver; with one, it answers."""
    seen = telemetry.observer(GPU, lambda: (), lambda: 0)()
    assert (seen is None) == bool(telemetry.why_not())


@pytest.mark.parametrize(
    ("seen", "ours", "contexts", "found"),
    [
        ([10, 11, 99], [10, 11], 2, 1),
        ([10, 11], [10, 11, 12], 2, 0),
        ([], [10], 2, None),
        ([], [10], 0, 0),
        ([501, 502, 503], [10, 11], 2, 1),
        ([501], [10, 11], 2, 0),
    ],
)
def test_processes_of_others(seen: list[int], ours: list[int], contexts: int, found: int | None) -> None:
    assert telemetry.count_others(seen, ours, contexts) == found
