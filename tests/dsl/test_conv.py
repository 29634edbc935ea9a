"""Convolutions: checks, and every kernel on the emulator against torch.

Operands are small integers, so all sums are exact.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from running import INIT, launched

from workbench.codegen import compile_program
from workbench.language import Binding, check, format_program, parse

GOLDEN = Path(__file__).parent / "golden"
HOPPER = ".arch(sm_90a) .mma(tf32) .schedule(cooperative)"
HALO = ".arch(sm_90a) .schedule(halo)"
PATCH = ".mma(tf32) .schedule(patch)"
STRICT = ".arch(sm_90a) .mma(tf32x3)"
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}


def integers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def convolved(
    operation: str,
    how: str,
    tensors: tuple[torch.Tensor, ...],
    *,
    epilogue: str = "",
    arch: str = "sm_90a",
    resident: int | None = None,
) -> torch.Tensor:
    """Return the program's result on a device that runs `resident` clusters at once."""
    result, emulation = launched(
        f"{operation} {how} {epilogue}", tensors, ("x", "w", "bias")[: len(tensors)], resident=resident, arch=arch
    )
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    return result


def reference(
    x: torch.Tensor, w: torch.Tensor, transposed: bool, bias: torch.Tensor | None = None, **settings: Any
) -> torch.Tensor:
    function = getattr(torch.nn.functional, f"conv{'_transpose' if transposed else ''}{x.dim() - 2}d")
    result: torch.Tensor = function(x.double(), w.double(), None if bias is None else bias.double(), **settings)
    return result


def text_of(transposed: bool, settings: dict[str, Any]) -> str:
    return (
        f"{'convtranspose' if transposed else 'conv'}(x, "
        f"w{''.join(f', {name}={value}' for name, value in settings.items())})"
    )


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("conv(x, w, stride=0)", "stride", "from 1"),
        ("conv(x, w, padding=(1, -1))", "padding", "from 0"),
        ("conv(x, w, dilation=(1, 1, 1, 1))", "dilation", "1 to 3 of them"),
        ("conv(x, w, stride=(1, 2), padding=(1, 2, 3))", "stride", "as many as the others have"),
        ("conv(x, w, groups=0)", "groups", "channels"),
        ("conv(x, w, output_padding=1)", "output_padding", "stride, padding, dilation, groups"),
        ("convtranspose(x, w, output_padding=1)", "output_padding", "less than the stride"),
        ("conv(x)", "conv", "conv(x, w)"),
        ("conv(x, w) .mma(e4m3)", "mma", "f16, bf16, tf32"),
        ("conv(x, w) .mma(bf16) .rows(4)", "rows", "leave it out"),
        ("conv(x, w) .mma(bf16) .tile(256, 64, 32)", "tile", "positions 64, 128"),
        ("conv(x, w) .mma(bf16) .tile(128, 128, 64) .stages(5)", "stages", "166912 bytes"),
        ("conv(x, w, groups=channels) .mma(bf16)", "groups", ".rows(8)"),
        ("conv(x, w) .mma(bf16) .cluster(2)", "cluster", "leave it out"),
        ("conv(x, w) .rows(0)", "rows", "1 to 32"),
        ("conv(x, w) .filters(4)", "filters", ".rows(1)"),
        ("convtranspose(x, w) .rows(4)", "rows", "arch, mma"),
        ("conv(x, w) .mma(tf32) .schedule(cooperative)", "arch", "sm_90a"),
        (f"conv(x, w) {HOPPER} .rows(8)", "rows", "leave it out"),
        (f"conv(x, w, groups=channels) {HOPPER}", "groups", ".rows(8)"),
        (f"conv(x, w, groups=2) {HOPPER} .unfold()", "unfold", "groups=1"),
        (f"conv(x, w) {HOPPER} .cluster(3)", "cluster", "1, 2, 4"),
        (f"conv(x, w) {HOPPER} .tile(96, 64, 32)", "tile", "positions 64, 128, 256"),
        ("conv(x, w) .arch(sm_90a) .mma(bf16) .schedule(cooperative) .tile(128, 40, 32)", "tile", "multiple of 16"),
        (f"conv(x, w) {HOPPER} .tile(128, 48, 32)", "tile", "multiple of 32"),
        (f"conv(x, w) {HOPPER} .tile(256, 256, 32)", "tile", "n at most 128 with m 256"),
        (f"conv(x, w) {HOPPER} .tile(256, 128, 32) .stages(9)", "stages", "at most 4 stages"),
        ("conv(x, w, stride=2) .product()", "stride", "1, or leave product out"),
        ("conv(x, w) .product() .rows(2)", "rows", "leave it out"),
        (f"conv(x, w) {HOPPER} .splitk(2)", "splitk", ".product()"),
        ("convtranspose(x, w) .product()", "product", "arch, mma"),
        ("conv(x, w) .mma(tf32x3)", "mma", ".schedule(cooperative)"),
        (f"conv(x, w, groups=channels) {STRICT} .schedule(cooperative)", "groups", ".rows(8)"),
        (f"conv(x, w) {STRICT} .schedule(cooperative) .tile(128, 48, 32)", "tile", "with mma(tf32x3)"),
        (f"conv(x, w) {STRICT} .schedule(cooperative) .tile(128, 64, 64)", "tile", "channels 16, 32"),
        ("conv(x, w) .arch(sm_90a) .mma(e4m3) .schedule(cooperative)", "mma", "tf32, bf16, f16, tf32x3"),
        ("conv(x, w) .arch(sm_90a) .mma(bf16) .schedule(both)", "schedule", "cooperative, pingpong"),
        ("conv(x, w) .mma(bf16) .schedule(patch)", "mma", "tf32"),
        ("conv(x, w) .mma(tf32) .schedule(halo)", "arch", ".schedule(patch)"),
        (f"conv(x, w) {HALO} .mma(tf32x3)", "mma", "tf32, bf16, f16"),
        (f"conv(x, w, stride=(1, 2)) {HALO} .mma(tf32)", "stride", "1, or .schedule(cooperative)"),
        (f"conv(x, w, groups=2) {HALO} .mma(tf32)", "groups", "1, or .schedule(cooperative)"),
        (f"conv(x, w, groups=channels) {HALO} .mma(tf32)", "groups", "1, or .schedule(cooperative)"),
        (f"conv(x, w) {HALO} .mma(bf16) .tile(512, 128, 16)", "tile", "filters up to 32768"),
        (f"conv(x, w) {HALO} .mma(bf16) .tile(256, 64, 8)", "tile", "channels 16, 32, 64"),
        (f"conv(x, w) {HALO} .mma(tf32) .stages(1)", "stages", "2 to 16"),
        (f"conv(x, w) {HALO} .mma(tf32) .cluster(2)", "cluster", "leave it out"),
        (f"conv(x, w, groups=channels) {PATCH}", "groups", ".rows(8)"),
        (f"conv(x, w) {PATCH} .tile(128, 24, 8)", "tile", "filters a multiple of 16"),
        (f"conv(x, w) {PATCH} .tile(256, 128, 8)", "tile", "128 sums of a thread"),
        (f"convtranspose(x, w, stride=(1, 4)) {PATCH} .tile(128, 64, 8)", "tile", "of all outputs of its positions"),
        (f"conv(x, w) {PATCH} .tile(64, 32, 8) .threads(256)", "threads", "at most twice m"),
        (f"conv(x, w) {PATCH} .stages(1)", "stages", "2 to 8"),
        (f"conv(x, w) {PATCH} .cluster(2)", "cluster", "leave it out"),
    ],
)
def test_rejections_name_field_and_legal_values(text: str, field: str, legal: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == [field]
    assert found[0].reason and legal in found[0].legal


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("conv(x, w, stride=(2, 1), padding=1) .threads(64) >> bias() >> relu()", "conv"),
        ("convtranspose(x, w, stride=2, padding=1, output_padding=1)", "convtranspose"),
    ],
)
def test_text_is_as_written_down(program: str, name: str) -> None:
    assert format_program(parse(program)) == program
    text, path = (
        compile_program(program, Binding(init_source=INIT, forward_arguments=("x", "w", "bias"))),
        GOLDEN / f"{name}.txt",
    )
    if os.environ.get("CUTEGEN_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "how", "shape", "filters", "transposed", "settings", "resident"),
    [
        (
            "bf16",
            ".tile(64, 32, 32) .schedule(pingpong)",
            (3, 20, 5, 7),
            (40, 20, 3, 2),
            False,
            {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
            2,
        ),
        (
            "tf32",
            ".tile(256, 32, 16) .schedule(cooperative) .cluster(2)",
            (2, 3, 11, 9),
            (24, 3, 3, 4),
            False,
            {"stride": 2, "padding": 2},
            1,
        ),
        (
            "tf32",
            ".tile(64, 32, 16) .schedule(pingpong) .unfold()",
            (2, 3, 15, 13),
            (24, 3, 5, 7),
            False,
            {"stride": 4, "padding": 2},
            1,
        ),
        (
            "f16",
            ".tile(64, 16, 16) .schedule(cooperative)",
            (2, 8, 3, 4, 5),
            (20, 8, 3, 1, 2),
            False,
            {"stride": (1, 2, 1), "padding": (1, 0, 1)},
            3,
        ),
        (
            "tf32",
            ".tile(64, 16, 16) .schedule(cooperative)",
            (2, 32, 4, 4),
            (32, 8, 3, 2),
            False,
            {"groups": 4, "padding": 1},
            2,
        ),
        (
            "tf32",
            ".tile(64, 16, 16) .schedule(pingpong)",
            (1, 4, 3, 4, 3),
            (4, 6, 3, 2, 3),
            True,
            {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
            2,
        ),
        (
            "bf16",
            ".tile(64, 32, 32) .schedule(cooperative)",
            (2, 6, 21),
            (6, 12, 3),
            True,
            {"stride": 2, "padding": 1, "dilation": 2},
            None,
        ),
        (
            "tf32",
            ".tile(64, 16, 16) .schedule(pingpong)",
            (1, 6, 3, 3),
            (6, 12, 3, 3),
            True,
            {"stride": 5, "padding": 1, "dilation": 2},
            1,
        ),
    ],
)
def test_implicit_products_are_exact(
    kind: str,
    how: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    transposed: bool,
    settings: dict[str, Any],
    resident: int | None,
) -> None:
    x, w = integers(shape, DTYPES[kind], 1), integers(filters, DTYPES[kind], 2)
    got = convolved(text_of(transposed, settings), f".arch(sm_90a) .mma({kind}) {how}", (x, w), resident=resident)
    assert torch.equal(got, reference(x, w, transposed, **settings).to(DTYPES[kind]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how", "shape", "filters", "transposed", "settings"),
    [
        ("bf16", "", (2, 5, 9, 11), (7, 5, 3, 2), False, {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
        ("f16", ".tile(64, 32, 32) .stages(2)", (2, 6, 30), (8, 3, 4), False, {"padding": 2, "groups": 2}),
        (
            "tf32",
            ".tile(64, 32, 16)",
            (1, 20, 3, 4, 5),
            (20, 6, 3, 2, 1),
            True,
            {"stride": 3, "padding": 1, "output_padding": 2},
        ),
    ],
)
def test_implicit_products_without_tma_are_exact(
    kind: str, how: str, shape: tuple[int, ...], filters: tuple[int, ...], transposed: bool, settings: dict[str, Any]
) -> None:
    x, w = integers(shape, DTYPES[kind], 1), integers(filters, DTYPES[kind], 2)
    bias = integers((filters[1] if transposed else filters[0],), DTYPES[kind], 3)
    got = convolved(
        text_of(transposed, settings), f".mma({kind}) {how}", (x, w, bias), epilogue=">> bias() >> relu()", arch="sm_80"
    )
    assert torch.equal(got, torch.relu(reference(x, w, transposed, bias, **settings)).to(DTYPES[kind]))


@pytest.mark.slow
def test_places_that_no_tap_reaches_are_zero_beside_an_infinity() -> None:
    x, w = integers((1, 4, 5, 5), torch.float16, 1), integers((4, 4, 1, 1), torch.float16, 2).abs() + 1
    x[0, 0, 2, 2] = float("inf")
    got = convolved("convtranspose(x, w, stride=2)", ".mma(f16)", (x, w), arch="sm_80")
    assert torch.equal(got, reference(x, w, True, stride=2).half())


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("how", "shape", "filters", "transposed", "settings"),
    [
        (
            ".arch(sm_90a) .tile(64, 32, 8) .stages(2)",
            (2, 20, 3, 4, 5),
            (20, 11, 3, 3, 3),
            True,
            {"stride": 2, "padding": 1, "output_padding": 1},
        ),
        (
            ".arch(sm_80) .tile(64, 16, 8) .threads(64)",
            (1, 20, 4, 9),
            (20, 6, 2, 4),
            True,
            {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 2},
        ),
        (
            ".arch(sm_90a) .tile(256, 32, 4) .threads(256)",
            (2, 6, 9, 23),
            (34, 3, 3, 2),
            False,
            {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2},
        ),
        (".arch(sm_80) .tile(128, 48, 16) .stages(4)", (3, 70, 19), (40, 70, 4), False, {"padding": 2}),
        (".arch(sm_90a) .tile(32, 16, 4) .threads(64)", (1, 3, 5, 6, 7), (5, 3, 2, 3, 4), False, {"stride": 3}),
        (".arch(sm_80) .tile(64, 64, 8)", (2, 9, 6, 7), (9, 40, 1, 1), True, {"stride": 2, "output_padding": (1, 0)}),
        (".arch(sm_90a)", (2, 1, 12, 31), (1, 8, 5, 3), True, {"dilation": (3, 1), "padding": 2}),
    ],
)
def test_products_from_patches_are_exact(
    how: str, shape: tuple[int, ...], filters: tuple[int, ...], transposed: bool, settings: dict[str, Any]
) -> None:
    x, w = integers(shape, torch.float32, 1), integers(filters, torch.float32, 2)
    bias = integers((filters[1] * settings.get("groups", 1) if transposed else filters[0],), torch.float32, 3)
    got = convolved(
        text_of(transposed, settings),
        f"{PATCH} {how}",
        (x, w, bias),
        epilogue=">> bias() >> relu()",
        arch="sm_80" if "sm_80" in how else "sm_90a",
    )
    assert torch.equal(got, torch.relu(reference(x, w, transposed, bias, **settings)).float())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "how", "shape", "filters", "transposed", "settings", "resident"),
    [
        # strips; warpgroups that take turns, each with several tiles; filters and channels that fill no tile
        ("f16", ".tile(128, 64, 16)", (2, 20, 9, 70), (72, 20, 3, 3), False, {"padding": 1}, 2),
        # three strips that take turns, several tiles of filters
        ("bf16", ".tile(128, 16, 16)", (1, 3, 21, 100), (20, 3, 3, 3), False, {"padding": (0, 1)}, 2),
        # a tile that the warpgroups share, a part of the padding taken off
        ("tf32", ".tile(256, 128, 8)", (2, 20, 9, 17), (20, 11, 3, 4), True, {"padding": (1, 0)}, 1),
        # taps of several lines in stages of their own, where those of all lines do not fit
        ("tf32", ".tile(256, 64, 32)", (1, 33, 9, 40), (16, 33, 5, 5), False, {"padding": 2, "dilation": (1, 3)}, None),
        ("bf16", ".tile(512, 32, 32) .stages(2)", (2, 3, 30), (20, 3, 7), False, {"padding": 3}, None),
        ("tf32", ".tile(128, 16, 16)", (1, 9, 4, 6, 7), (9, 5, 3, 2, 3), True, {"dilation": 2, "output_padding": 1}, 1),
    ],
)
def test_products_with_halos_are_exact(
    kind: str,
    how: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    transposed: bool,
    settings: dict[str, Any],
    resident: int | None,
) -> None:
    x, w = integers(shape, DTYPES[kind], 1), integers(filters, DTYPES[kind], 2)
    bias = integers((filters[1] if transposed else filters[0],), DTYPES[kind], 3)
    got = convolved(
        text_of(transposed, settings),
        f"{HALO} .mma({kind}) {how}",
        (x, w, bias),
        epilogue=">> bias() >> relu()",
        resident=resident,
    )
    assert torch.equal(got, torch.relu(reference(x, w, transposed, bias, **settings)).to(DTYPES[kind]))


def test_inputs_with_halos_are_rounded_to_tf32_and_reach_no_other_line() -> None:
    x, w = torch.rand(1, 8, 6, 9), torch.rand(8, 8, 3, 3)
    x[0, :, 3, 8] = float("inf")
    got = convolved("conv(x, w, padding=1)", f"{HALO} .mma(tf32) .tile(128, 16, 8)", (x[:, :, ::1], w))
    wanted = reference(x, w, False, padding=1).float()
    assert torch.equal(got.isinf(), wanted.isinf())
    finite = ~wanted.isinf()
    assert (got - wanted)[finite].abs().max() < 0.02  # 72 products, each of two operands that are rounded by 2**-12
    assert (got - wanted)[finite].mean().abs() < 0.002  # where bits are cut off, all sums are too small


def test_an_infinity_stays_where_its_taps_are_though_blocks_are_filled_up() -> None:
    x, w = integers((1, 3, 5, 5), torch.float32, 1), integers((4, 3, 3, 3), torch.float32, 2).abs() + 1
    x[0, :, 2, 2] = float("inf")
    got = convolved("conv(x, w, padding=2)", f"{PATCH} .tile(64, 16, 4)", (x, w), arch="sm_80")
    assert torch.equal(got, reference(x, w, False, padding=2).float())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("how", "shape", "filters", "transposed", "settings", "dtype"),
    [
        (
            "",
            (2, 6, 9, 8),
            (10, 3, 3, 2),
            False,
            {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2},
            torch.float32,
        ),
        (
            "",
            (2, 6, 9, 8),
            (6, 5, 3, 2),
            True,
            {"stride": (2, 3), "padding": 1, "output_padding": (1, 0), "groups": 2},
            torch.bfloat16,
        ),
        (".rows(4)", (2, 6, 19, 18), (6, 1, 3, 3), False, {"groups": 6}, torch.float32),
        (".rows(8) .threads(64)", (2, 6, 19, 18), (12, 1, 3, 3), False, {"padding": 1, "groups": 6}, torch.float16),
        (
            ".rows(3) .filters(2)",
            (2, 6, 9, 8),
            (10, 3, 3, 2),
            False,
            {"stride": (2, 1), "padding": (1, 0), "dilation": (2, 2), "groups": 2},
            torch.bfloat16,
        ),
        (
            ".rows(2) .filters(4)",
            (2, 3, 5, 7, 6),
            (6, 3, 2, 3, 2),
            False,
            {"stride": (1, 3, 2), "padding": (1, 2, 1)},
            torch.float32,
        ),
    ],
)
def test_direct_sums_are_exact(
    how: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    transposed: bool,
    settings: dict[str, Any],
    dtype: torch.dtype,
) -> None:
    x, w = integers(shape, dtype, 1), integers(filters, dtype, 2)
    bias = integers((filters[1] * settings["groups"] if transposed else filters[0],), dtype, 3)
    got = convolved(
        text_of(transposed, settings), how, (x, w, bias), epilogue=">> bias() >> scale(0.5) >> relu()", arch="sm_80"
    )
    assert torch.equal(got, torch.relu(reference(x, w, transposed, bias, **settings) * 0.5).to(dtype))


def test_a_group_for_each_channel() -> None:
    x, w = integers((2, 5, 7, 6), torch.float32, 1), integers((5, 1, 3, 3), torch.float32, 2)
    got = convolved("conv(x, w, groups=channels)", ".rows(2)", (x, w), arch="sm_80")
    assert torch.equal(got, reference(x, w, False, groups=5).float())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "how",
    [
        f"{PATCH} .arch(sm_90a) .tile(64, 16, 4)",
        f"{HOPPER} .tile(64, 16, 16)",
        f"{HALO} .mma(tf32) .tile(128, 16, 8)",
        ".rows(2)",
    ],
)
def test_inputs_with_other_strides_and_epilogues(how: str) -> None:
    x = integers((2, 6, 5, 4), torch.float32, 1).contiguous(memory_format=torch.channels_last)[:, ::2]
    w, bias = integers((9, 3, 2, 2), torch.float32, 2), integers((9,), torch.float32, 3)
    got = convolved("conv(x, w)", how, (x, w, bias), epilogue=">> bias() >> relu()")
    assert torch.equal(got, torch.relu(reference(x, w, False, bias)).float())


EPILOGUE = (
    ">> bias() >> mul(scales, along=n) >> residual(r) >> sub(planes) >> clamp(-40, 50) >> max(floor, "
    "along=n) >> scale(0.5) >> cast(bf16)"
)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("how", "transposed", "filters", "settings"),
    [
        (f"{PATCH} .arch(sm_90a) .tile(64, 16, 4)", True, (6, 12, 2, 2), {"stride": 2}),
        ("", False, (12, 6, 3, 3), {"padding": 1}),
        ("", True, (6, 12, 2, 3), {"stride": 2}),
        (".rows(4) .filters(2)", False, (12, 6, 3, 2), {"stride": (2, 1)}),
        (f"{HOPPER} .tile(64, 16, 16)", False, (12, 6, 3, 3), {"padding": 1}),
        (".arch(sm_90a) .mma(tf32) .tile(64, 16, 16) .schedule(pingpong)", True, (6, 12, 2, 3), {"stride": 2}),
        (".arch(sm_90a) .product() .mma(tf32) .tile(64, 32, 32) .schedule(cooperative)", False, (12, 6, 1, 1), {}),
        (".product()", False, (12, 6, 1, 1), {}),
        (f"{HALO} .mma(tf32) .tile(128, 16, 8)", False, (12, 6, 3, 3), {"padding": (2, 1)}),
    ],
)
def test_epilogues_read_tensors_of_the_results_shape_and_of_the_filters(
    how: str, transposed: bool, filters: tuple[int, ...], settings: dict[str, Any]
) -> None:
    x, w = integers((2, 6, 7, 8), torch.float32, 1), integers(filters, torch.float32, 2)
    bias, scales, floor = (integers((12,), torch.float32, seed) for seed in (3, 4, 5))
    plain = reference(x, w, transposed, **settings)
    r, planes = (
        integers(tuple(plain.shape), torch.float32, 6).transpose(2, 3).contiguous().transpose(2, 3),
        integers((2, 1, 1, plain.shape[3]), torch.bfloat16, 7),
    )
    result, emulation = launched(
        f"{text_of(transposed, settings)} {how} {EPILOGUE}",
        (x, w, bias, scales, r, planes, floor),
        ("x", "w", "bias", "scales", "r", "planes", "floor"),
        arch="sm_90a",
    )
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    wanted = (
        torch.maximum(
            ((plain + bias.view(-1, 1, 1)) * scales.view(-1, 1, 1) + r - planes).clamp(-40, 50), floor.view(-1, 1, 1)
        )
        * 0.5
    )
    assert result.dtype == torch.bfloat16 and torch.equal(result, wanted.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("conv(x, w) >> rowsum()", "epilogue", "or write h = conv(...) |> reduce(h, ...)"),
        ("conv(x, w) >> add(c, along=m)", "add", "along=n, the filters"),
        ("conv(x, w) >> clamp(2, 1)", "clamp", "the smaller one first"),
        ("conv(x, w) >> cast(f16) >> relu()", "cast", "as the last"),
    ],
)
def test_epilogues_that_a_convolution_does_not_have(text: str, field: str, legal: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == [field] and legal in found[0].legal


@pytest.mark.slow
def test_filters_of_one_tap_are_a_product() -> None:
    x, w, bias = (
        integers((2, 20, 3, 8), torch.bfloat16, 1),
        integers((24, 20, 1, 1), torch.bfloat16, 2),
        integers((24,), torch.bfloat16, 3),
    )
    how = ".arch(sm_90a) .product() .mma(bf16) .tile(64, 32, 32) .schedule(cooperative)"
    assert torch.equal(
        convolved("conv(x, w)", how, (x, w, bias), epilogue=">> bias() >> relu()"),
        torch.relu(reference(x, w, False, bias)).bfloat16(),
    )
    with pytest.raises(ValueError, match=r"filters of shape \(24, 20, 1, 2\) are not of one tap"):
        convolved(
            "conv(x, w)", how, (x, integers((24, 20, 1, 2), torch.bfloat16, 2), bias), epilogue=">> bias() >> relu()"
        )


def test_wrong_shapes_and_types_are_refused() -> None:
    x, w = integers((1, 3, 5, 5), torch.float32, 1), integers((4, 3, 7, 2), torch.float32, 2)
    for how in (".rows(2)", HOPPER):
        with pytest.raises(ValueError, match=r"filters of \(7, 2\) do not fit into an input of \(5, 5\)"):
            convolved("conv(x, w)", how, (x, w))
        with pytest.raises(
            ValueError, match=r"filters of shape \(4, 2, 2, 2\) for an input of shape \(1, 3, 5, 5\) in 1 groups"
        ):
            convolved("conv(x, w)", how, (x, w[:, :2, :2]))
        with pytest.raises(TypeError, match="multiplies"):
            convolved("conv(x, w)", how, (x, w.half()))


@pytest.mark.slow  # the products of tf32 in the next test are rounded too
def test_tf32_is_rounded_to_ten_bits() -> None:
    x, w = (
        torch.randn(1, 40, 6, 6, generator=torch.Generator().manual_seed(1)),
        torch.randn(16, 40, 3, 3, generator=torch.Generator().manual_seed(2)),
    )
    wanted = reference(x, w, False)
    for how, least, most in ((f"{HOPPER} .tile(64, 16, 32)", 1e-5, 2e-3), (".rows(2)", 0.0, 1e-6)):
        assert least < float((convolved("conv(x, w)", how, (x, w)).double() - wanted).norm() / wanted.norm()) < most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "shape", "filters", "transposed", "settings"),
    [
        (".tile(64, 16, 16) .schedule(cooperative)", (1, 5, 6, 7), (9, 5, 3, 2), False, {"padding": 1}),
        (
            ".tile(64, 16, 32) .schedule(cooperative) .cluster(2)",
            (1, 22, 9, 7),
            (9, 22, 3, 2),
            False,
            {"stride": 2, "dilation": (1, 2)},
        ),
        (
            ".tile(64, 32, 16) .schedule(pingpong) .unfold()",
            (2, 3, 15, 13),
            (24, 3, 5, 7),
            False,
            {"stride": 4, "padding": 2},
        ),
        (".tile(64, 16, 16) .schedule(cooperative)", (2, 24, 4, 4), (32, 6, 3, 2), False, {"padding": 1, "groups": 4}),
        (
            ".tile(64, 16, 16) .schedule(cooperative)",
            (2, 8, 3, 4, 5),
            (20, 8, 3, 1, 2),
            False,
            {"stride": (1, 2, 1), "padding": (1, 0, 1)},
        ),
        (
            ".tile(64, 16, 16) .schedule(pingpong)",
            (1, 4, 3, 4, 3),
            (4, 6, 3, 2, 3),
            True,
            {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        ),
    ],
)
def test_float32_in_two_parts_of_tf32_is_as_accurate_as_float32(
    how: str, shape: tuple[int, ...], filters: tuple[int, ...], transposed: bool, settings: dict[str, Any]
) -> None:
    x, w = (
        torch.randn(extents, generator=torch.Generator().manual_seed(seed))
        for seed, extents in ((1, shape), (2, filters))
    )
    wanted, text = reference(x, w, transposed, **settings), text_of(transposed, settings)
    strict, rounded = (
        float((convolved(text, f".arch(sm_90a) .mma({kind}) {how}", (x, w)).double() - wanted).norm() / wanted.norm())
        for kind in ("tf32x3", "tf32")
    )
    assert strict < 1e-6 < 3e-4 < rounded


@pytest.mark.slow
def test_parts_of_infinities_and_of_large_numbers() -> None:
    x, w = (
        torch.randn(1, 5, 6, 7, generator=torch.Generator().manual_seed(3)),
        torch.randn(9, 5, 3, 2, generator=torch.Generator().manual_seed(4)) * 0.25,
    )
    x[0, 1, 1, 1], x[0, 2, 4, 5] = float("inf"), 3e38
    got, wanted = (
        convolved("conv(x, w)", f"{STRICT} .tile(64, 16, 16) .schedule(cooperative)", (x, w)).double(),
        reference(x, w, False),
    )
    assert torch.isinf(wanted).any() and not torch.isinf(wanted).all()
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
