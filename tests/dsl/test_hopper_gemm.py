"""Hopper GEMMs: checks, a golden text, and every kernel on the emulator.

Operands are small integers, so all sums are exact.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
from running import INIT, launched, load

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.hook import Emulation
from workbench.language import Binding, check, format_program, parse

GOLDEN = Path(__file__).parent / "golden"
HOPPER = "gemm(a, b) .arch(sm_90a) .mma(f16) "
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}


def matrix(
    rows: int, columns: int, dtype: torch.dtype, *, seed: int, turned: bool = False, batch: int = 0
) -> torch.Tensor:
    """Return a matrix of small integers; with `turned` its rows are the contiguous extent."""
    shape = (*((batch,) if batch else ()), *((columns, rows) if turned else (rows, columns)))
    values = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return values.transpose(-2, -1) if turned else values


def product(
    text: str, arguments: tuple[torch.Tensor, ...], names: tuple[str, ...] = ("a", "b"), resident: int | None = None
) -> tuple[torch.Tensor, Emulation]:
    """Return the result of the program's kernel on a device that runs `resident` clusters at once."""
    return launched(text, arguments, names, resident=resident)


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("gemm(a, b) .mma(f16) .schedule(cooperative)", "arch", "sm_90a"),
        (HOPPER + ".schedule(both)", "schedule", "cooperative, pingpong"),
        ("gemm(a, b) .arch(sm_90a) .mma(int8) .schedule(pingpong)", "mma", "f16"),
        (HOPPER + ".schedule(pingpong) .tile(128, 256, 64)", "tile", "n at most 128 with m 128"),
        (HOPPER + ".schedule(cooperative) .tile(96, 128, 64)", "tile", "m 64, 128, 256"),
        (HOPPER + ".schedule(cooperative) .tile(128, 100, 64)", "tile", "multiple of 16"),
        (
            HOPPER + ".schedule(cooperative) .tile(128, 256, 64) .stages(5)",
            "stages",
            "at most 4 stages of this tile in 232448 bytes",
        ),
        ("gemm(a, b) .arch(sm_90a) .mma(tf32) .schedule(cooperative) .tile(128, 48, 32)", "tile", "multiple of 32"),
        (HOPPER + ".schedule(cooperative) .stages(1)", "stages", "2 to 16"),
        (HOPPER + ".schedule(cooperative) .cluster(3, 1)", "cluster", "1, 2 or 4 along m; 1 or 2 along n"),
        (HOPPER + ".schedule(cooperative) .cluster(4, 1) .tile(64, 16, 64)", "cluster", "a smaller cluster"),
        (HOPPER + ".schedule(cooperative) .raster(diagonal)", "raster", "along_m or along_n"),
        (HOPPER + ".schedule(cooperative) .store(later)", "store", "tma, direct"),
        (HOPPER + ".schedule(cooperative) .store(tma, 3)", "store", "(tma, 1), (tma, 2), (tma, 4)"),
        (HOPPER + ".schedule(cooperative) .store(tma, 2) >> rowsum()", "store", "tma"),
        (HOPPER + ".schedule(cooperative) .splitk(1)", "splitk", "2 to 64"),
        (HOPPER + ".schedule(pingpong) .tile(64, 64, 64) .splitk(2)", "splitk", "schedule(cooperative)"),
        (HOPPER + ".schedule(cooperative) .thread_tile(2, 2)", "thread_tile", "leave it out"),
        (HOPPER + ".tile(64, 64, 32) .cluster(2, 1)", "cluster", "schedule"),
    ],
)
def test_rejections_name_field_and_legal_values(text: str, field: str, legal: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == [field]
    assert found[0].reason and legal in found[0].legal


def test_text_is_as_written_down() -> None:
    program = HOPPER + ".tile(128, 128, 64) .schedule(pingpong) .cluster(2, 1) .raster(along_n, 4) >> bias() >> relu()"
    assert format_program(parse(program)) == program.replace("  ", " ")
    text, path = (
        compile_program(program, Binding(init_source=INIT, forward_arguments=("a", "b", "bias"))),
        GOLDEN / "gemm_hopper.txt",
    )
    if os.environ.get("CUTEGEN_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "shape", "turned", "batch"),
    [
        ("f16", ".tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1)", (200, 264, 136), "", 0),
        ("bf16", ".tile(128, 64, 64) .schedule(cooperative) .cluster(1, 2)", (136, 200, 72), "b", 0),
        ("bf16", ".tile(64, 64, 64) .schedule(pingpong) .cluster(2, 2) .stages(3)", (136, 136, 200), "a", 2),
        ("f16", ".tile(256, 128, 64) .schedule(cooperative) .raster(along_n, 2)", (264, 136, 40), "ab", 0),
        ("f16", ".tile(64, 32, 32) .schedule(cooperative) .store(direct)", (72, 56, 72), "", 2),
        ("bf16", ".tile(64, 48, 128) .schedule(cooperative)", (8, 72, 264), "b", 0),
        ("f16", ".tile(128, 128, 16) .schedule(pingpong) .cluster(4, 1)", (136, 136, 40), "b", 0),
        ("tf32", ".tile(128, 256, 32) .schedule(cooperative) .cluster(2, 1)", (200, 264, 76), "b", 0),
        ("tf32", ".tile(64, 96, 64) .schedule(pingpong) .cluster(1, 2)", (72, 100, 136), "b", 2),
        (
            "tf32",
            ".tile(128, 256, 32) .schedule(cooperative) .stages(2) .store(tma, 8) .raster(along_n, 64)",
            (300, 520, 32),
            "b",
            0,
        ),
        ("bf16", ".tile(128, 128, 64) .schedule(pingpong) .store(tma, 4)", (264, 136, 40), "b", 0),
        ("f16", ".tile(64, 128, 64) .schedule(cooperative) .store(tma, 1)", (72, 136, 40), "b", 2),
    ],
)
def test_products_are_exact(kind: str, settings: str, shape: tuple[int, int, int], turned: str, batch: int) -> None:
    m, n, k = shape
    a, b = (
        matrix(m, k, DTYPES[kind], seed=1, turned="a" in turned, batch=batch),
        matrix(k, n, DTYPES[kind], seed=2, turned="b" in turned, batch=batch),
    )
    got, emulation = product(f"gemm(a, b) .arch(sm_90a) .mma({kind}) {settings}", (a, b))
    assert torch.equal(got, (a.double() @ b.double()).to(DTYPES[kind]))
    assert len(emulation.launches) == 1 and not [
        finding for finding in emulation.findings if finding.severity == "error"
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "shape", "turned", "batch"),
    [
        (".tile(128, 64, 32) .swap()", (72, 136, 76), "", 0),
        (".tile(128, 128, 32) .cluster(2, 1) .swap()", (200, 264, 136), "", 2),
        (".tile(64, 64, 32) .swap()", (64, 100, 72), "b", 0),
        (".tile(128, 32, 32)", (136, 40, 68), "ab", 0),
    ],
)
def test_tf32_takes_an_operand_that_is_not_along_k_through_registers(
    settings: str, shape: tuple[int, int, int], turned: str, batch: int
) -> None:
    m, n, k = shape
    a, b = (
        matrix(m, k, torch.float32, seed=1, turned="a" in turned, batch=batch),
        matrix(k, n, torch.float32, seed=2, turned="b" in turned, batch=batch),
    )
    got, emulation = product(
        f"gemm(a, b) .arch(sm_90a) .mma(tf32) .schedule(cooperative) .through(registers) {settings}", (a, b), resident=2
    )
    assert torch.equal(got, (a.double() @ b.double()).float())
    assert len(emulation.launches) == 1 and not [
        finding for finding in emulation.findings if finding.severity == "error"
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
@pytest.mark.parametrize("resident", [1, 2])
def test_ctas_go_on_to_further_tiles(schedule: str, resident: int) -> None:
    a, b, bias = (
        matrix(200, 136, torch.float16, seed=1, batch=2),
        matrix(136, 136, torch.float16, seed=2, batch=2),
        matrix(1, 136, torch.float16, seed=3)[0],
    )
    got, emulation = product(
        HOPPER + f".tile(64, 64, 64) .schedule({schedule}) .cluster(2, 1) .stages(3) >> bias() >> scale(0.5) >> relu()",
        (a, b, bias),
        ("a", "b", "bias"),
        resident,
    )
    assert torch.equal(got, torch.relu((a.double() @ b.double() + bias.double()) * 0.5).to(torch.float16))
    assert emulation.launches[0].grid == (2, 1, resident)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "shape", "batch"),
    [
        ("f16", ".tile(64, 64, 64) .splitk(3)", (72, 40, 600), 0),
        ("bf16", ".tile(128, 128, 64) .cluster(2, 1) .splitk(2)", (136, 69, 200), 2),
        ("tf32", ".tile(64, 32, 32) .splitk(8)", (40, 72, 72), 0),
    ],
)
def test_parts_of_k_are_added_by_a_second_kernel(
    kind: str, settings: str, shape: tuple[int, int, int], batch: int
) -> None:
    m, n, k = shape
    a, b, bias = (
        matrix(m, k, DTYPES[kind], seed=1, batch=batch),
        matrix(k, n, DTYPES[kind], seed=2, turned=True, batch=batch),
        matrix(1, n, DTYPES[kind], seed=3)[0],
    )
    got, emulation = product(
        f"gemm(a, b) .arch(sm_90a) .mma({kind}) .schedule(cooperative) {settings} >> bias() >> relu()",
        (a, b, bias),
        ("a", "b", "bias"),
        resident=3,
    )
    assert torch.equal(got, torch.relu(a.double() @ b.double() + bias.double()).to(DTYPES[kind]))
    assert "combine_kernel" in emulation.launches[-1].kernel


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "turned", "launches"),
    [
        ((37, 51, 67), "", 3),
        ((37, 51, 67), "ab", 3),
        ((64, 56, 1), "", 2),
        ((1, 64, 130), "", 1),
        ((17, 24, 70), "b", 3),
    ],
)
def test_rows_that_tma_cannot_read_are_copied(shape: tuple[int, int, int], turned: str, launches: int) -> None:
    m, n, k = shape
    a, b = (
        matrix(m, k, torch.bfloat16, seed=1, turned="a" in turned),
        matrix(k, n, torch.bfloat16, seed=2, turned="b" in turned),
    )
    got, emulation = product("gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(64, 64, 64) .schedule(cooperative)", (a, b))
    assert torch.equal(got, (a.double() @ b.double()).to(torch.bfloat16))
    assert len(emulation.launches) == launches


def test_strided_operands_are_copied_and_other_dtypes_refused() -> None:
    a, b = matrix(40, 72, torch.float16, seed=1), matrix(72, 96, torch.float16, seed=2)[:, ::2]
    got, emulation = product(HOPPER + ".tile(64, 64, 64) .schedule(cooperative)", (a, b))
    assert torch.equal(got, (a.double() @ b.double()).half()) and len(emulation.launches) == 2
    with pytest.raises(TypeError, match=r"b is torch.float32; this kernel takes torch.float16"):
        product(HOPPER + ".tile(64, 64, 64) .schedule(cooperative)", (a.float(), b.float()))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("dtype", "settings", "shape", "turned", "launches"),
    [
        (
            torch.float8_e4m3fn,
            ".mma(e4m3) .tile(128, 128, 128) .schedule(cooperative) .cluster(2, 1)",
            (136, 144, 160),
            "b",
            1,
        ),
        (torch.float8_e5m2, ".mma(e5m2) .tile(64, 48, 64) .schedule(pingpong)", (72, 50, 67), "", 3),
    ],
)
def test_eight_bit_floats_give_bfloat16(
    dtype: torch.dtype, settings: str, shape: tuple[int, int, int], turned: str, launches: int
) -> None:
    m, n, k = shape
    a, b = matrix(m, k, dtype, seed=1), matrix(k, n, dtype, seed=2, turned="b" in turned)
    got, emulation = product(f"gemm(a, b) .arch(sm_90a) {settings}", (a, b))
    assert (
        got.dtype == torch.bfloat16
        and torch.equal(got, (a.double() @ b.double()).bfloat16())
        and len(emulation.launches) == launches
    )


def test_tf32_is_rounded_to_ten_bits() -> None:
    a, b = (
        torch.randn(72, 136, generator=torch.Generator().manual_seed(1)),
        torch.randn(136, 72, generator=torch.Generator().manual_seed(2)),
    )
    got, _ = product("gemm(a, b) .arch(sm_90a) .mma(tf32) .tile(64, 64, 32) .schedule(cooperative)", (a, b))
    wanted = a.double() @ b.double()
    assert 1e-5 < float((got.double() - wanted).norm() / wanted.norm()) < 2e-3


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "shape", "turned"),
    [
        (".tile(64, 64, 32) .schedule(cooperative)", (72, 136, 200), ""),
        (".tile(128, 64, 32) .schedule(pingpong) .cluster(2, 1)", (70, 67, 131), "b"),
        (".tile(64, 32, 32) .schedule(cooperative) .swap()", (20, 130, 64), "a"),
    ],
)
def test_three_products_of_tf32_are_as_accurate_as_float32(
    settings: str, shape: tuple[int, int, int], turned: str
) -> None:
    m, n, k = shape
    draw = torch.Generator().manual_seed(3)
    a = torch.randn(k, m, generator=draw).t() if "a" in turned else torch.randn(m, k, generator=draw)
    b = torch.randn(n, k, generator=draw).t() if "b" in turned else torch.randn(k, n, generator=draw)
    got, emulation = product(f"gemm(a, b) .arch(sm_90a) .mma(tf32x3) {settings}", (a, b))
    wanted = a.double() @ b.double()
    assert float((got.double() - wanted).norm() / wanted.norm()) < 1e-6 and len(emulation.launches) == 3


def test_infinities_and_large_numbers_in_parts() -> None:
    a, b = (
        torch.randn(64, 40, generator=torch.Generator().manual_seed(4)),
        torch.randn(40, 64, generator=torch.Generator().manual_seed(5)),
    )
    a[3, 5], a[9, 7] = float("inf"), 3e38
    got, _ = product("gemm(a, b) .arch(sm_90a) .mma(tf32x3) .tile(64, 64, 32) .schedule(cooperative)", (a, b * 0.5))
    wanted = a.double() @ (b * 0.5).double()
    torch.testing.assert_close(
        got.double(),
        torch.where(wanted.abs() > 3.4e38, torch.copysign(torch.full_like(wanted, torch.inf), wanted), wanted),
        rtol=1e-5,
        atol=1e-4,
    )


def test_views_of_operands_live_as_long_as_the_operands() -> None:
    module, path = load(
        HOPPER + ".tile(64, 64, 64) .schedule(cooperative)", ("a", "b"), (("b", "b.transpose(-2, -1)"),)
    )
    model, a, b = module.ModelNew(), matrix(64, 64, torch.float16, seed=1), matrix(64, 64, torch.float16, seed=2)
    with emulated(arch="sm_90a", source_file=str(path)):
        first = model(a, b)
        views = dict(module.operand_tensors)
        b.mul_(2)
        assert (
            torch.equal(model(a, b), 2 * first)
            and torch.equal(first, a @ b.t() / 2)
            and module.operand_tensors == views
            and len(views) == 2
        )
        a = matrix(64, 64, torch.float16, seed=3)
        assert torch.equal(model(a, b), a @ b.t()) and len(module.operand_tensors) == 2
        del a, b
        assert not module.operand_tensors


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_legal_program_computes_the_product() -> None:
    """Draws programs, shapes and layouts at random from one seed."""
    draw = random.Random(20261121)
    done = 0
    while done < 60:
        kind, turned, batch = (
            draw.choice(["f16", "bf16", "tf32"]),
            draw.choice(["", "a", "b", "ab"]),
            draw.choice([0, 0, 2]),
        )
        text = (
            f"gemm(a, b) .arch(sm_90a) .mma({kind}) .tile({draw.choice([64, 128, 256])}, "
            f"{16 * draw.randint(1, 16)}, {draw.choice([8, 16, 32, 64, 128])})"
        )
        text += (
            f" .schedule({draw.choice(['cooperative', 'pingpong'])}) .cluster({draw.choice([1, 2, 4])}, "
            f"{draw.choice([1, 2])}) .raster({draw.choice(['along_m', 'along_n'])}, {draw.choice([1, 3, 8])})"
        )
        if check(parse(text)):
            continue
        done += 1
        m, n, k = (draw.choice([8 * draw.randint(1, 40), draw.randint(1, 300)]) for _ in range(3))
        a, b = (
            matrix(m, k, DTYPES[kind], seed=1, turned="a" in turned, batch=batch),
            matrix(k, n, DTYPES[kind], seed=2, turned="b" in turned, batch=batch),
        )
        got, _ = product(text, (a, b), resident=draw.choice([1, 2, 66]))
        assert torch.equal(got, (a.double() @ b.double()).to(DTYPES[kind])), (text, m, n, k, turned, batch)
