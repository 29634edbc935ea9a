"""Long loops of a followed sample whose middle is skipped: counts and clocks are those of the whole run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from engines import HEAD, START, aligned

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.sampling import steady_state
from workbench.emulator.sampling.comparisons import Comparisons
from workbench.emulator.sampling.loop_registers import LoopRegisters
from workbench.emulator.sampling.needed_values import NeededValues
from workbench.emulator.sampling.steady_state import SteadyState
from workbench.language import Binding
from workbench.records import Launch

COUNTED = """mov.u32 %r20, 0;
$TURN: shl.b32 %r21, %r20, 7;
mul.wide.u32 %rd5, %r21, 1;
add.s64 %rd6, %rd3, %rd5;
ld.global.b32 %r6, [%rd6];
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 700;
@%p2 bra $TURN;
"""
TWICE = COUNTED + COUNTED.replace("TURN", "AGAIN")  # the second pass reads what the first has read
DOWN_TO_ZERO = """mov.b32 %r20, -700;
$TURN: add.s32 %r20, %r20, 1;
setp.ne.b32 %p2, %r20, 0;
@%p2 bra $TURN;
"""
CHANGES_IN_THE_MIDDLE = """mov.u32 %r20, 0;
$TURN: setp.lt.u32 %p1, %r20, 300;
@%p1 bra $REST;
ld.global.b32 %r6, [%rd3];
add.u32 %r7, %r6, 1;
$REST: add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 700;
@%p2 bra $TURN;
"""
THREE_BUFFERS = """mov.u32 %r20, 0;
mov.u32 %r22, 0;
$TURN: mad.lo.u32 %r23, %r22, 4, 0;
cvt.u64.u32 %rd5, %r23;
add.s64 %rd6, %rd1, %rd5;
ld.global.b32 %r6, [%rd6];
add.u32 %r22, %r22, 1;
setp.eq.u32 %p1, %r22, 3;
selp.b32 %r22, 0, %r22, %p1;
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 700;
@%p2 bra $TURN;
"""
TRIANGLE = """mov.u32 %r20, 0;
$OUTER: mov.u32 %r21, 0;
$INNER: add.u32 %r21, %r21, 1;
setp.lt.u32 %p1, %r21, %r20;
@%p1 bra $INNER;
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 60;
@%p2 bra $OUTER;
"""
JUMPS = """mov.u32 %r20, 0;
$TILE: mul.lo.u32 %r21, %r20, 37;
div.u32 %r22, %r21, 64;
rem.u32 %r23, %r21, 64;
setp.lt.u32 %p3, %r23, 64;
@%p3 ld.global.b32 %r6, [%rd3];
mov.u32 %r24, 0;
$STEP: add.u32 %r24, %r24, 1;
setp.lt.u32 %p1, %r24, 5;
@%p1 bra $STEP;
setp.lt.u32 %p4, %r22, 1000;
@%p4 ld.global.b32 %r7, [%rd3];
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 90;
@%p2 bra $TILE;
"""  # a row and a column of each tile
UNTIL_SMALL = """mov.b32 %f1, 0f43FA0000;
mov.u32 %r20, 0;
$TURN: add.f32 %f1, %f1, 0fBF800000;
add.u32 %r20, %r20, 1;
setp.gt.f32 %p1, %f1, 0f3F800000;
setp.lt.u32 %p2, %r20, 100000;
and.pred %p3, %p1, %p2;
@%p3 bra $TURN;
"""  # 500 turns, bounded by a float
WARPS_APART = """shr.u32 %r21, %r2, 5;
mad.lo.u32 %r21, %r21, 200, 300;
mov.u32 %r20, 0;
$TURN: add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, %r21;
@%p2 bra $TURN;
bar.sync 0;
"""  # the second warp turns for longer
LOOPS = {
    "counted": (COUNTED, True),
    "twice": (TWICE, True),
    "down to zero": (DOWN_TO_ZERO, True),
    "changes in the middle": (CHANGES_IN_THE_MIDDLE, True),
    "three buffers": (THREE_BUFFERS, True),
    "triangle": (TRIANGLE, True),
    "jumps": (JUMPS, True),
    "until small": (UNTIL_SMALL, False),
    "warps apart": (WARPS_APART, True),
}


@pytest.fixture
def skips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of periods of each skip."""
    found, really = list[int](), SteadyState._go_on

    def go_on(self: SteadyState, passes: object, count: int) -> None:
        found.append(count)
        really(self, passes, count)  # type: ignore[arg-type]

    monkeypatch.setattr(SteadyState, "_go_on", go_on)
    return found


def follow(body: str, *, skip: bool) -> Launch:
    data, memory = aligned(1 << 18), GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    request = GridRequest(
        entry="k",
        grid=(8, 1, 1),
        block=(64, 1, 1),
        params=(data.ctypes.data.to_bytes(8, "little"), bytes(4)),
        sample=2,
        follow=True,
        skip_repeats=skip,
    )
    return Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits()).run(request, memory)


@pytest.mark.few(2)
@pytest.mark.parametrize(("body", "skipped"), LOOPS.values(), ids=LOOPS)
def test_a_loop_that_was_skipped_counts_as_if_it_had_run(body: str, skipped: bool, skips: list[int]) -> None:
    whole = follow(body, skip=False)
    assert skips == []
    short = follow(body, skip=True)
    assert bool(skips) == skipped
    assert short.total == whole.total and short.lines == whole.lines and short.classes == whole.classes
    assert short.paced is not None and whole.paced is not None
    assert short.paced.cycles == pytest.approx(whole.paced.cycles, rel=0.005)
    for name in ("issue", "l1_requests", "l1_missed", "l2_missed", "touched"):
        assert getattr(short.paced, name) == getattr(whole.paced, name), name


@pytest.mark.parametrize(
    ("first", "last", "unchanged"),
    [
        ([-9, -8], [-7, -6], 1),
        ([-1, 0, -4, -3], [-2, -1, 0, -4], 0),  # four passes of a loop of five, which looks as if it counted down
        ([-9, -8], [-7], 0),
    ],
)
def test_every_comparison_of_a_period_counts(first: list[int], last: list[int], unchanged: int) -> None:
    request = GridRequest(entry="k", grid=(1, 1, 1), block=(32, 1, 1), params=())
    kernel = Machine(HEAD + START + "ret;\n}\n", DeviceLimits()).module.kernels["k"]
    batch = Batch(kernel, request, DeviceLimits(), GlobalMemory(), 0, 1)
    comparisons = Comparisons(batch, [], LoopRegisters([]))
    comparisons.log = [((0, 0), np.array([left])) for left in (*first, *last)]
    count = comparisons.count_unchanged(0, len(first), len(first) + len(last), turning=True)
    assert count == unchanged


@pytest.mark.parametrize(("table", "needed"), [("%rd1", True), ("%rd4", False)], ids=["same", "other"])
def test_stores_are_needed_if_a_load_of_the_same_tensor_is(table: str, needed: bool) -> None:
    text = (
        HEAD.replace(".u32 k_param_1", ".u64 k_param_1")
        + f"""ld.param.u64 %rd1, [k_param_0];
ld.param.u64 %rd4, [k_param_1];
mov.u32 %r2, %tid.x;
mul.wide.u32 %rd2, %r2, 4;
add.s64 %rd3, %rd1, %rd2;
ld.global.b32 %r6, [{table}];
setp.eq.u32 %p1, %r6, 0;
add.f32 %f1, %f1, %f2;
@%p1 st.global.f32 [%rd3], %f1;
ret;
}}
"""
    )
    instructions = Machine(text, DeviceLimits()).module.kernels["k"].instructions
    executes = NeededValues(instructions).executes
    kinds = {"store global", "f32"}
    assert {executes(ins) for ins in instructions if ins.form.counter_class in kinds} == {needed}


def product(program: str, folder: Path, *, k: int, skip: bool) -> Launch:
    """One launch of a product of (256, k) and (k, 256) in bf16, or in fp32 if the program asks for it."""
    path = folder / "candidate.py"
    binding = Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("a", "b"))
    path.write_text(compile_program(program, binding))
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)  # a new one, which has compiled nothing
    spec.loader.exec_module(module)
    dtype = torch.bfloat16 if "bf16" in program else torch.float32
    a, b = torch.zeros(256, k, dtype=dtype), torch.zeros(k, 256, dtype=dtype)
    arch = "sm_90a" if "sm_90a" in program else "sm_80"
    with emulated(arch=arch, sample=2, follow=True, skip_repeats=skip) as emulation, torch.no_grad():
        module.ModelNew()(a, b)
    return emulation.launches[0]


def assert_alike(short: Launch, whole: Launch, *, counts: float) -> None:
    """Counts differ by no more than `counts`, relative, and clocks by no more than half a percent."""
    assert whole.paced is not None and short.paced is not None
    assert short.paced.cycles == pytest.approx(whole.paced.cycles, rel=0.005)
    assert short.paced.issue == pytest.approx(whole.paced.issue, rel=counts)
    for name in ("instructions", "flops", "global_sectors", "shared_wavefronts"):
        assert getattr(short.total, name) == pytest.approx(getattr(whole.total, name), rel=counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "k"),
    [
        ("gemm(a, b) .arch(sm_80) .mma(bf16) .tile(64, 64, 32) .stages(3)", 2048),
        ("gemm(a, b) .arch(sm_80) .thread_tile(4, 4) .tile(64, 64, 8)", 400),
        ("gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative) .tile(128, 64, 32) .stages(5)", 4096),
        ("gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(pingpong) .tile(64, 64, 64) .stages(3)", 4096),
    ],
)
def test_a_product_with_a_long_k(
    program: str, k: int, tmp_path: Path, skips: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = product(program, tmp_path, k=k, skip=True)
    assert sum(skips) > 1
    with monkeypatch.context() as never:
        never.setattr(steady_state, "MOST_PASSES", 0)
        assert_alike(short, product(program, tmp_path, k=k, skip=True), counts=0.001)
    # in full, copies arrive as late as possible, so that waits repeat more often
    assert_alike(short, product(program, tmp_path, k=k, skip=False), counts=0.03)
