"""Row kernels, run directly from the library on the emulator; hooks are ordinary functions."""

import dataclasses

import cutlass
import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.rows.config import Level, Result, RowConfig, Slot
from workbench.kernels.rows.host import column_reduction, row_reduction
from workbench.kernels.rows.states import compensated_variance_absorb, variance_absorb, variance_merge
from workbench.kernels.rows.two_pass_host import two_pass_reduction


def start_sum():
    return (cutlass.Float32(0.0),)


def add(a, b):
    return (a + b,)


def start_variance():
    return (cutlass.Float32(0.0),) * 3


def mean_square(center, squares, seen, count):
    return (squares / count,)


def start_compensated():
    return (cutlass.Float32(0.0),) * 4


def find_centre(center, *_):
    return (center,)


def compensated_mean_square(center, squares, seen, lost, count):
    return (squares / count,)


def value(total):
    return total


def centred(x, total):
    return x - total


EPS = 2.0**-23
TOTAL = (Slot(name="total"),)
SUM = Level(name="sum", inputs=(0,), state=TOTAL, values=TOTAL, start=start_sum, absorb=add, merge=add, slots=(0,))
VARIANCE = Level(
    name="variance",
    inputs=(0,),
    state=tuple(Slot(name=name) for name in ("center", "squares", "seen")),
    values=(Slot(name="variance"),),
    start=start_variance,
    absorb=variance_absorb,
    merge=variance_merge,
    finish=mean_square,
    is_counted=True,
    slots=(0, 1, 2),
)
ONE = Result(name="result", reads=(0,), expression=value)
WHOLE = Result(name="result", inputs=(0,), reads=(0,), expression=centred, is_whole=True)
MEMORY = tuple(Slot(name=name) for name in ("center", "squares", "seen"))


def rows(level: Level, result: Result, **settings: object) -> RowConfig:
    return RowConfig(levels=(level,), result=result, memory=MEMORY[: len(level.state)], least_axes=1, **settings)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("reduce", "cfg", "wanted"),
    [
        (row_reduction, rows(SUM, ONE, threads=64, vector=4), lambda x: x.sum(-1)),
        (row_reduction, rows(SUM, WHOLE, threads=64, is_kept=True), lambda x: x - x.sum(-1, keepdim=True)),
        (row_reduction, rows(VARIANCE, ONE, threads=64), lambda x: x.var(-1, correction=0)),
        (
            column_reduction,
            rows(VARIANCE, ONE, axis="strided", first_axis=1, last_axis=1, threads=64, split=2),
            lambda x: x.var(1, correction=0),
        ),
        (
            column_reduction,
            rows(SUM, WHOLE, axis="strided", first_axis=1, last_axis=1, threads=64, split=2),
            lambda x: x - x.sum(1, keepdim=True),
        ),
        (two_pass_reduction, rows(SUM, WHOLE, threads=64, parts=2), lambda x: x - x.sum(-1, keepdim=True)),
    ],
)
def test_reductions(reduce, cfg, wanted):
    x = torch.arange(2 * 6 * 200, dtype=torch.float32).view(2, 6, 200) % 7
    with emulated(arch="sm_80", device="H200") as emulation:
        found = reduce(cfg, ("x",), (x,), ())
    torch.testing.assert_close(found, wanted(x))
    assert not [item for item in emulation.findings if item.severity == "error"]


@pytest.mark.slow
def test_a_variance_of_stretches_of_alike_values_is_accurate_if_one_thread_compensates_its_mean() -> None:
    noise = torch.Generator().manual_seed(5)
    x = torch.rand(4, 1, generator=noise).expand(4, 1000).reshape(1, 4000) + 1e-3 * torch.rand(1, 4000, generator=noise)
    state = (*VARIANCE.state, Slot(name="lost"))
    plain = dataclasses.replace(VARIANCE, slots=(), finish=find_centre)
    compensated = dataclasses.replace(plain, state=state, start=start_compensated, absorb=compensated_variance_absorb)
    found = []
    for level in (plain, compensated, dataclasses.replace(compensated, finish=compensated_mean_square)):
        with emulated(arch="sm_80", device="H200"):
            found.append(float(row_reduction(rows(level, ONE, threads=1), ("x",), (x,), ())))
    mean, variance = float(x.double().mean()), float(x.double().var(correction=0))
    assert abs(found[1] - mean) < EPS < 4 * EPS < abs(found[0] - mean)
    assert found[2] == pytest.approx(variance, rel=2e-6)
