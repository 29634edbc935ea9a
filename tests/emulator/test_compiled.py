"""The compiled engine against the interpreter: same memory, same counters, same faults, on every kind of kernel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from engines import aligned, assembled, both_engines, difference, launch
from hypothesis import given, settings
from hypothesis import strategies as st
from sequences import BODIES, FLOAT, INTEGER, SHARED, sequence, values

import workbench.problems as problems
from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.compiled import cache, jit, tiering
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.errors import ProgramError, UserError
from workbench.language import Binding
from workbench.problems import loading
from workbench.problems.inspection import inspect
from workbench.proposers.binding import binding_of
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask

pytestmark = pytest.mark.skipif(jit.missing_support() is not None, reason=str(jit.missing_support()))
LEFT = ("generic addresses", "asynchronous copy")  # to the interpreter
FAULTS = {
    "past the end": ("mul.wide.u32 %rd4, %r5, 64;\nadd.s64 %rd5, %rd1, %rd4;\nst.global.u32 [%rd5], %r5;", {}),
    "before the start": ("ld.global.u32 %r6, [%rd3+-8];", {}),
    "misaligned": ("ld.global.u32 %r6, [%rd3+2];", {}),
    "misaligned vector": ("ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd3];", {}),
    "uninitialised": ("ld.global.u32 %r6, [%rd3];", {"written": True}),
    "uninitialised shared memory": (SHARED + "ld.shared.u32 %r8, [%r7];", {}),
    "shared memory out of bounds": ("mul.lo.u32 %r6, %r5, 100;\nst.shared.u32 [%r6], %r5;", {}),
    "trap": ("setp.eq.u32 %p1, %r5, 40;\n@%p1 trap;", {}),
    "deadlock": ("setp.lt.u32 %p1, %r2, 32;\n@%p1 bra $L1;\nbar.sync 1, 64;\n$L1:\nbar.sync 0;", {}),
    "a register that nothing wrote": ("add.u32 %r6, %r60, %r5;\nst.global.u32 [%rd3], %r6;", {}),
    "divergent matrix load": (
        SHARED + "setp.lt.u32 %p1, %r2, 3;\n@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r6];",
        {},
    ),
}


@pytest.mark.few(16)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("grid", "block"), [(1, 64), (5, 64), (600, 64)])
def test_the_engines_agree(name: str, grid: int, block: int) -> None:
    data = aligned(max(4 * grid * block, 1024))
    data[:] = np.arange(len(data)) * 2654435761 % 2**32 if "float" not in name else 0
    machine = assembled(BODIES[name])
    a, b = launch(machine, data, grid=grid, block=block)
    assert bool(machine.native.reasons) == (name in LEFT) and a.failure is None
    assert not difference(a, b)


SPIN = """setp.ge.u32 %p1, %r3, 2;
@%p1 bra $WRITE;
$SPIN: ld.relaxed.gpu.global.b32 %r6, [%rd1];
setp.eq.u32 %p2, %r6, 0;
@%p2 bra $SPIN;
add.u32 %r6, %r6, %r2;
st.global.b32 [%rd3+1024], %r6;
bra $END;
$WRITE: setp.eq.u32 %p3, %r2, 40;
@%p3 st.release.gpu.global.b32 [%rd1], 7;
$END:"""


def test_threads_that_spin_let_others_go_first() -> None:
    data = aligned(1024)
    a, b = launch(assembled(SPIN), data, grid=3, block=64, steps=400_000)
    assert a.failure is None and not difference(a, b)
    assert np.frombuffer(a.memory[0], np.uint32)[256:384].tolist() == [7 + n % 64 for n in range(128)]
    a, b = launch(assembled(SPIN), data, grid=2, block=64, steps=400_000)  # nobody will write it
    assert a.failure is not None and a.failure == b.failure and "did not end" in a.failure[0].message


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_signed_load_fills_a_wider_register_with_the_sign(engine: str) -> None:
    data = aligned(64)
    data[:2] = 0x8000_0000, 0xFFFE_8003
    bodies = (
        "ld.global.s32 %rd4, [%rd1];\nld.global.s16 %r6, [%rd1+4];\nld.global.s16 %rd5, [%rd1+6];\n"
        "ld.param.s32 %rd6, [k_param_1];\nld.global.s8 %rd7, [%rd1+3];\nld.global.u32 %rd8, [%rd1];\n"
    )
    stores = (
        "st.global.b64 [%rd1+16], %rd4;\nst.global.b32 [%rd1+24], %r6;\n"
        "st.global.b64 [%rd1+32], %rd5;\nst.global.b64 [%rd1+40], %rd6;\n"
        "st.global.b64 [%rd1+48], %rd7;\nst.global.b64 [%rd1+56], %rd8;"
    )
    machine = Machine(assembled(bodies + stores).native._ptx, DeviceLimits(), engine=engine)
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    machine.run(
        GridRequest(
            entry="k",
            grid=(1, 1, 1),
            block=(1, 1, 1),
            params=(data.ctypes.data.to_bytes(8, "little"), (2**32 - 5).to_bytes(4, "little")),
        ),
        memory,
    )
    assert not machine.native.reasons and data.view(np.int32)[6] == -0x7FFD
    assert data.view(np.int64)[[2, 4, 5, 6, 7]].tolist() == [-(2**31), -2, -5, -128, 2**31]


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_worded_alike(name: str) -> None:
    body, options = FAULTS[name]
    data = aligned(256)
    machine = assembled(body)
    a, b = launch(machine, data, grid=3, block=64, written=np.zeros(data.nbytes, np.uint8) if options else None)
    assert a.failure is not None and a.failure == b.failure and not machine.native.reasons


def test_memory_is_put_back_before_the_interpreter_runs_a_fault_again() -> None:
    data = aligned(128)
    machine = Machine(
        assembled("ld.global.u32 %r6, [%rd3];\nadd.u32 %r6, %r6, 1;\nst.global.u32 [%rd3], %r6;").native._ptx,
        DeviceLimits(),
        engine="compiled",
    )
    memory = GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    request = GridRequest(
        entry="k", grid=(3, 1, 1), block=(64, 1, 1), params=(data.ctypes.data.to_bytes(8, "little"), bytes(4))
    )
    with pytest.raises(Exception, match="out of bounds"):
        machine.run(request, memory)
    assert data.max() <= 1


def test_an_endless_loop_is_ended_at_once() -> None:
    a, b = launch(assembled("$L1:\nadd.u32 %r6, %r6, 1;\nbra $L1;"), aligned(64), steps=1_000_000)
    assert a.failure is not None and a.failure == b.failure and a.failure[0].kind == "infinite_loop"


def test_an_unknown_instruction_leaves_the_kernel_to_the_interpreter() -> None:
    machine = assembled("frobnicate.b32 %r6, %r5;")
    a, b = launch(machine, aligned(64))
    assert a.failure == b.failure and "frobnicate" in machine.native.reasons["k"]


def test_one_thread_and_two_count_the_same() -> None:
    machine, data = assembled(BODIES["divergent loop"]), aligned(64 * 64)
    launches = []
    for threads in (1, 2):
        machine.native.threads = threads
        launches.append(launch(machine, data, grid=64, block=64)[1])
    assert launches[0] == launches[1]


INTEGERS, FLOATS = st.sampled_from(INTEGER), st.sampled_from(FLOAT)
PLACES = st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(INTEGERS, PLACES), min_size=1, max_size=12), st.integers(0, 2**32))
def test_integer_sequences_agree(chosen: list[tuple[str, tuple[int, int, int, int]]], seed: int) -> None:
    machine = assembled(sequence(chosen, "r", 10))
    a, b = launch(machine, values(seed), block=64)
    assert not machine.native.reasons and a.failure is None and not difference(a, b)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLOATS, PLACES), min_size=1, max_size=8), st.integers(0, 2**32))
def test_float_sequences_agree(chosen: list[tuple[str, tuple[int, int, int, int]]], seed: int) -> None:
    machine = assembled(sequence(chosen, "f", 10))
    a, b = launch(machine, values(seed), block=64)
    assert not machine.native.reasons and a.failure is None and a.launch == b.launch
    got, wanted = (np.frombuffer(ran.memory[0], np.uint32) for ran in (b, a))
    differ = got != wanted
    assert (
        np.isnan(got.view(np.float32)[differ]).all() and np.isnan(wanted.view(np.float32)[differ]).all()
    )  # which NaN is not promised


def model_of(source: str, folder: Path) -> object:
    path = folder / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"candidate_{abs(hash(source))}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LONG = (
    "matmul_transposed",
    "matmul_bias_gelu",
    "batched_matmul",
    "layer_norm",
    "max_middle_axis",
    "cross_entropy",
    "softmax",
)  # like one of the others


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in problems.shipped()]
)
def test_every_version_of_every_shipped_problem_agrees(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problems.load(name)
    facts = inspect(problem)
    found = recognise(facts)
    ask = Ask(problem=problem, facts=facts)
    case = next((case for case in facts.cases if case.name == "odd"), facts.cases[0])
    reference = loading.load_module(problem, case.settings)
    for rung in ladder(Context(found=found, precision=problem.precision)):
        try:
            source = compile_program(write_program(found, rung, "sm_80"), binding_of(ask.problem, ask.facts, found))
        except ProgramError:
            continue
        module = model_of(source, tmp_path)
        with (
            torch.no_grad(),
            emulated(source_file=str(tmp_path / "candidate.py")),
            both_engines(monkeypatch) as compared,
        ):
            loading.build_model(module, "ModelNew", problem, init_from=reference)(
                *loading.make_inputs(reference, problem, 1)
            )
        assert compared.compiled and not compared.reasons and not compared.differences, (rung.title, compared)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    [
        "gemm(a, b) .tile(64, 64, 32) .mma(f16)",
        "gemm(a, b) .tile(64, 64, 32) .mma(bf16)",
        "gemm(a, b) .tile(64, 64, 32) .mma(tf32)",
    ],
)
def test_tensor_core_kernels_agree(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = next(
        kind
        for name, kind in (("bf16", torch.bfloat16), ("tf32", torch.float32), ("f16", torch.float16))
        if name in text
    )
    module = model_of(
        compile_program(
            text, Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("a", "b"))
        ),
        tmp_path,
    )
    a, b = torch.randn(37, 67).to(kind), torch.randn(67, 51).to(kind)
    with emulated(source_file=str(tmp_path / "candidate.py")), both_engines(monkeypatch) as compared:
        module.ModelNew()(a, b)  # type: ignore[attr-defined]
    assert compared.compiled and not compared.reasons and not compared.differences


def test_auto_changes_engines_within_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODIES["divergent loop"]
    expected, data = aligned(600 * 64), aligned(600 * 64)
    launches = []
    for engine, where in (("numpy", expected), ("auto", data)):
        machine = Machine(assembled(body).native._ptx, DeviceLimits(), engine=engine)
        memory = GlobalMemory()
        memory.register(where.ctypes.data, where.nbytes, "data")
        if engine == "auto":
            machine.native.find = lambda *_: None  # type: ignore[method-assign] - nothing on disk
            machine.native.estimate_compile_s = lambda *_: 1e-4  # type: ignore[method-assign] - out of patience soon
            monkeypatch.setattr(tiering, "MARGIN", 1e9)  # no guess
        launches.append(
            machine.run(
                GridRequest(
                    entry="k",
                    grid=(600, 1, 1),
                    block=(64, 1, 1),
                    params=(where.ctypes.data.to_bytes(8, "little"), bytes(4)),
                ),
                memory,
            )
        )
    assert launches[0] == launches[1] and (data == expected).all() and machine.native._kernels


def test_engine_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="auto, numpy, compiled"):
        Machine(assembled("").native._ptx, DeviceLimits(), engine="fast")
    monkeypatch.setenv("CUTEGEN_EMULATOR_ENGINE", "numpy")
    assert assembled("").native.engine == "numpy"


def test_cached_code_is_used_and_damaged_code_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[int] = []
    plain = jit.compile_all
    monkeypatch.setattr(jit, "compile_all", lambda texts: (made.append(len(texts)), plain(texts))[1])
    for damage, expected in ((None, 1), (None, 1), (b"\0" * 100, 2), (b"", 3)):
        if damage is not None:
            (path,) = cache.cache_folder().iterdir()
            path.write_bytes(damage if not damage else path.read_bytes()[:-50] + bytes(50))
        a, b = launch(assembled(BODIES["early exit"]), aligned(64), block=64)
        assert not difference(a, b) and len(made) == expected
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert not difference(*launch(assembled(BODIES["early exit"]), aligned(64), block=64))
