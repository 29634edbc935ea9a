"""Row kernels, run directly from the library on the emulator; hooks are ordinary functions."""

import cutlass
import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.rows.config import Level, Result, RowConfig, Slot
from workbench.kernels.rows.host import column_reduction, row_reduction
from workbench.kernels.rows.states import variance_absorb, variance_merge
from workbench.kernels.rows.two_pass_host import two_pass_reduction


def start_sum():
    return (cutlass.Float32(0.0),)


def add(a, b):
    return (a + b,)


def start_variance():
    return (cutlass.Float32(0.0),) * 3


def mean_square(center, squares, seen, count):
    return (squares / count,)


def value(total):
    return total


def centred(x, total):
    return x - total


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
