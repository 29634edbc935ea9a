"""The machine on hand-written PTX: instruction semantics, divergence, barriers, checks, counters."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.emulator.execution import machine as execution_machine
from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.isa import bitwise, floats
from workbench.records import Launch

HEAD = (
    ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k(\n .param .u64 k_param_0,\n"
    " .param .u32 k_param_1\n)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
    ".shared .align 16 .b8 sm[1024];\n"
)
START = (
    "ld.param.u64 %rd1, [k_param_0];\nld.param.u32 %r1, [k_param_1];\nmov.u32 %r2, %tid.x;\n"
    "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmad.lo.s32 %r5, %r3, %r4, %r2;\n"
    "mul.wide.u32 %rd2, %r5, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
)
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def run(
    body: str,
    data: np.ndarray,
    *,
    grid: int = 1,
    block: int = 32,
    value: int = 0,
    written: np.ndarray | None = None,
    steps: int = 10_000_000,
) -> Launch:
    machine = Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits())
    memory = GlobalMemory()
    address = data.ctypes.data
    memory.register(address, data.nbytes, "data", written=written)
    params = (address.to_bytes(8, "little"), value.to_bytes(4, "little"))
    return machine.run(
        GridRequest(entry="k", grid=(grid, 1, 1), block=(block, 1, 1), params=params, step_limit=steps), memory
    )


def aligned(count: int) -> np.ndarray:
    """Zeros that start at a multiple of 256 bytes, as device allocations do."""
    raw = np.zeros(4 * count + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + 4 * count].view(np.uint32)


def fault(body: str, data: np.ndarray, **options: int) -> EmulationFault:
    with pytest.raises(EmulationFault) as caught:
        run(body, data, **options)  # type: ignore[arg-type]
    return caught.value


def test_every_thread_writes_its_number() -> None:
    data = aligned(256)
    launch = run("st.global.u32 [%rd3], %r5;", data, grid=4, block=64)
    assert (data == np.arange(256)).all()
    assert (
        launch.total.global_write_bytes == 1024
        and launch.total.global_sectors == 32 == launch.total.global_ideal_sectors
    )


def test_stride_touches_more_sectors() -> None:
    data = aligned(32 * 8)
    launch = run("mul.wide.u32 %rd4, %r5, 32;\nadd.s64 %rd5, %rd1, %rd4;\nst.global.u32 [%rd5], %r5;", data)
    assert launch.total.global_sectors == 32 and launch.total.global_ideal_sectors == 4
    assert [finding.kind for finding in launch.findings] == ["uncoalesced"]


def test_divergent_loop_ends_at_each_threads_own_count() -> None:
    data = np.zeros(64, np.uint32)
    run(
        "mov.u32 %r6, 0;\nmov.u32 %r7, 0;\n$L1:\nsetp.ge.u32 %p1, %r6, %r5;\n@%p1 bra $L2;\n"
        "add.u32 %r7, %r7, %r6;\nadd.u32 %r6, %r6, 1;\nbra $L1;\n$L2:\nst.global.u32 [%rd3], %r7;",
        data,
        grid=2,
    )
    assert (data == [n * (n - 1) // 2 for n in range(64)]).all()


def test_shared_memory_and_barrier_reverse_a_block() -> None:
    data = np.zeros(128, np.uint32)
    run(
        "mov.u32 %r6, sm;\nmad.lo.u32 %r7, %r2, 4, %r6;\nst.shared.u32 [%r7], %r2;\nbar.sync 0;\n"
        "sub.u32 %r8, 127, %r2;\nmad.lo.u32 %r9, %r8, 4, %r6;\nld.shared.u32 %r10, [%r9];\n"
        "st.global.u32 [%rd3], %r10;",
        data,
        block=128,
    )
    assert (data == np.arange(128)[::-1]).all()


def test_bank_conflicts_are_counted() -> None:
    data = np.zeros(32, np.uint32)
    launch = run(
        "mov.u32 %r6, sm;\nand.b32 %r8, %r2, 7;\nmad.lo.u32 %r7, %r8, 128, %r6;\nst.shared.u32 [%r7], %r2;", data
    )
    assert launch.total.shared_wavefronts == 8 and launch.total.shared_ideal_wavefronts == 1


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("bfly.b32 %r6, %r2, 1, 31, -1", [n ^ 1 for n in range(32)]),
        ("up.b32 %r6, %r2, 1, 0, -1", [max(n - 1, 0) for n in range(32)]),
        ("down.b32 %r6, %r2, 4, 31, -1", [n + 4 if n < 28 else n for n in range(32)]),
        ("idx.b32 %r6, %r2, 7, 31, -1", [7] * 32),
        ("bfly.b32 %r6, %r2, 8, 0x1807, -1", [n ^ 8 if n & 8 else n for n in range(32)]),
    ],
)
def test_shuffles(mode: str, expected: list[int]) -> None:
    data = np.zeros(32, np.uint32)
    run(f"shfl.sync.{mode};\nst.global.u32 [%rd3], %r6;", data)
    assert list(data) == expected


def test_ballot_and_reduction() -> None:
    data = np.zeros(32, np.uint32)
    run(
        "setp.lt.u32 %p1, %r2, 5;\nvote.sync.ballot.b32 %r6, %p1, -1;\n"
        "redux.sync.add.u32 %r7, %r2, -1;\nadd.u32 %r8, %r6, %r7;\nst.global.u32 [%rd3], %r8;",
        data,
    )
    assert (data == 31 + 496).all()


def test_atomics_add_every_thread_once() -> None:
    data = np.zeros(1, np.uint32)
    run("atom.global.add.u32 %r6, [%rd1], 3;", data, grid=4, block=64)
    assert data[0] == 3 * 256


def test_out_of_bounds_names_thread_and_tensor() -> None:
    failure = fault("st.global.u32 [%rd3], %r5;", np.zeros(40, np.uint32), grid=2).failure
    assert (
        failure.kind == "out_of_bounds"
        and "data" in failure.message
        and "(8, 0, 0)" in failure.message
        and "(1, 0, 0)" in failure.message
    )


def test_misaligned_and_uninitialised() -> None:
    assert (
        fault("add.s64 %rd4, %rd3, 2;\nld.global.u32 %r6, [%rd4];", np.zeros(64, np.uint32)).failure.kind
        == "misaligned"
    )
    data = np.zeros(32, np.uint32)
    unwritten = np.zeros(128, np.uint8)
    found = fault("ld.global.u32 %r6, [%rd3];", data, written=unwritten)  # type: ignore[arg-type]
    assert found.failure.kind == "uninitialised"
    assert fault("mov.u32 %r6, sm;\nld.shared.u32 %r7, [%r6];", data).failure.kind == "uninitialised"


def test_barrier_that_some_never_reach_is_a_deadlock() -> None:
    body = "setp.lt.u32 %p1, %r2, 32;\n@%p1 bra $L1;\nbar.sync 1, 64;\n$L1:\nbar.sync 0;"
    failure = fault(body, np.zeros(1, np.uint32), block=64).failure
    assert failure.kind == "barrier_deadlock" and "32 of 64 threads have arrived" in failure.message


def test_endless_loop_is_ended() -> None:
    assert fault("$L1:\nbra $L1;", np.zeros(1, np.uint32), steps=100_000).failure.kind == "infinite_loop"


@pytest.mark.parametrize("engine", ["auto", "compiled"])
def test_a_kernel_with_atomics_ends_however_long_its_first_batch_takes(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_machine, "PATIENCE_S", 0.0)

    loop = "mov.u32 %r6, 0;\n$L1:\nred.global.add.u32 [%rd1], 1;\nadd.u32 %r6, %r6, 1;\n"
    body = loop + "setp.lt.u32 %p1, %r6, 2000;\n@%p1 bra $L1;"
    data = aligned(1)
    machine = Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits(), engine=engine)
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    params = (data.ctypes.data.to_bytes(8, "little"), bytes(4))
    machine.run(GridRequest(entry="k", grid=(2, 1, 1), block=(32, 1, 1), params=params), memory)
    assert int(data[0]) == 2 * 32 * 2000


def test_ctas_of_a_cluster_add_to_one_word_of_shared_memory() -> None:
    body = """
setp.ne.u32 %p1, %r5, 0;
@!%p1 st.shared.b32 [sm], 0;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r6, sm;
mapa.shared::cluster.u32 %r7, %r6, 0;
add.u32 %r8, %r3, 1;
red.relaxed.cluster.shared::cluster.add.u32 [%r7], %r8;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%p1 bra $end;
ld.shared.b32 %r9, [sm];
st.global.b32 [%rd1], %r9;
$end:"""
    data = aligned(1)
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    params = (data.ctypes.data.to_bytes(8, "little"), bytes(4))
    request = GridRequest(entry="k", grid=(4, 1, 1), block=(32, 1, 1), cluster=(4, 1, 1), params=params)
    Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits()).run(request, memory)
    assert int(data[0]) == 32 * (1 + 2 + 3 + 4)


def test_unknown_instruction_names_itself() -> None:
    failure = fault("frobnicate.b32 %r6, %r5;", np.zeros(1, np.uint32)).failure
    assert failure.kind == "unknown_instruction" and "frobnicate.b32" in failure.message


def test_too_much_shared_memory_and_too_many_threads() -> None:
    machine = Machine(HEAD + "ret;\n}\n", DeviceLimits())
    for request in (
        GridRequest(entry="k", grid=(1, 1, 1), block=(2048, 1, 1)),
        GridRequest(entry="k", grid=(1, 1, 1), block=(32, 1, 1), dynamic_shared_bytes=300_000),
        GridRequest(entry="k", grid=(0, 1, 1), block=(32, 1, 1)),
        GridRequest(entry="k", grid=(1, 1, 1), block=(1, 1, 128)),
        GridRequest(entry="k", grid=(32, 1, 1), block=(32, 1, 1), cluster=(32, 1, 1)),
    ):
        with pytest.raises(EmulationFault) as caught:
            machine.run(request, GlobalMemory())
        assert caught.value.failure.kind == "bad_launch"


@given(FLOAT32, FLOAT32, FLOAT32)
def test_fma_is_rounded_once(a: float, b: float, c: float) -> None:
    got = floats.fma32(np.float32(a), np.float32(b), np.float32(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if np.isfinite(got):
        below, above = (
            np.nextafter(np.float32(got), np.float32(-np.inf)),
            np.nextafter(np.float32(got), np.float32(np.inf)),
        )
        own = abs(Fraction(float(got)) - exact)
        assert all(own <= abs(Fraction(float(other)) - exact) for other in (below, above) if np.isfinite(other))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3), st.integers(0, 255))
def test_lop3_is_its_truth_table(values: list[int], table: int) -> None:
    a, b, c = (np.array([v], np.uint32) for v in values)
    got = int(bitwise._lop3(a, b, c, table)[0])
    for bit in range(32):
        index = (values[0] >> bit & 1) << 2 | (values[1] >> bit & 1) << 1 | values[2] >> bit & 1
        assert got >> bit & 1 == table >> index & 1


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integer_division_truncates_like_c(a: int, b: int) -> None:
    data = np.array([a, b, 0, 0], np.int32)
    run(
        "ld.global.s32 %r6, [%rd1];\nld.global.s32 %r7, [%rd1+4];\ndiv.s32 %r8, %r6, %r7;\n"
        "rem.s32 %r9, %r6, %r7;\nst.global.s32 [%rd1+8], %r8;\nst.global.s32 [%rd1+12], %r9;",
        data,
        block=1,
    )
    if b and not (a == -(2**31) and b == -1):
        quotient = int(ctypes.c_int32(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)).value)
        assert data[2] == quotient and data[3] == a - quotient * b


@given(FLOAT32)
def test_half_conversions_agree_with_numpy(value: float) -> None:
    data = np.array([value, 0], np.float32)
    run(
        "ld.global.f32 %r6, [%rd1];\ncvt.rn.f16.f32 %r7, %r6;\ncvt.f32.f16 %r8, %r7;\nst.global.f32 [%rd1+4], %r8;",
        data,
        block=1,
    )
    with np.errstate(over="ignore"):
        assert data[1] == np.float32(np.float16(np.float32(value)))


def test_a_second_launch_of_the_same_program_is_the_same() -> None:
    first, second = aligned(64), aligned(64)
    assert run("st.global.u32 [%rd3], %r5;", first, grid=2) == run("st.global.u32 [%rd3], %r5;", second, grid=2)


def test_a_barrier_or_special_register_that_is_not_there_is_named() -> None:
    assert fault("mov.u32 %r6, 23;\nbar.sync %r6;", aligned(32)).failure.kind == "bad_barrier"
    failure = fault("mov.u32 %r6, %pm3;\nst.global.u32 [%rd3], %r6;", aligned(32)).failure
    assert failure.kind == "unknown_instruction" and "%pm3" in failure.message
