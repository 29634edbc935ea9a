"""Convolution kernels, run directly from the library on the emulator; small integers, so all sums are exact."""

import dataclasses
from collections.abc import Callable

import cutlass
import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.conv.config import ConvConfig, DirectConfig, PatchConfig, Sm80Config, Sm90Config
from workbench.kernels.conv.host import direct_convolution, implicit_gemm_convolution
from workbench.kernels.conv.patch.host import patch_convolution
from workbench.kernels.conv.patch.plan import plan_patches
from workbench.kernels.operands import Read

NAMES = {name: name for name in ("x", "w", "bias", "residual")}
READS = (Read(role="bias", along="n"), Read(role="residual", along="both"))
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "tf32x3": torch.float32}


def integers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def reference(cfg: ConvConfig, x: torch.Tensor, w: torch.Tensor, groups: int) -> torch.Tensor:
    name = f"conv{'_transpose' if cfg.transposed else ''}{x.dim() - 2}d"
    more = {"output_padding": cfg.output_padding} if cfg.transposed else {}
    convolve: Callable[..., torch.Tensor] = getattr(torch.nn.functional, name)
    return convolve(
        x.double(),
        w.double(),
        stride=cfg.stride,
        padding=cfg.padding,
        dilation=cfg.dilation,
        groups=groups,
        **more,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cfg", "shape", "filters", "dtype"),
    [
        (
            DirectConfig(stride=(2, 1), padding=1, dilation=(1, 2), groups=2),
            (2, 6, 9, 8),
            (10, 3, 3, 2),
            torch.float32,
        ),
        (
            DirectConfig(transposed=True, stride=(2, 3), padding=1, output_padding=(1, 0), groups=2),
            (2, 6, 9, 8),
            (6, 5, 3, 2),
            torch.bfloat16,
        ),
        (DirectConfig(rows=8, threads=64, padding=1, depthwise=True), (2, 6, 19, 18), (12, 1, 3, 3), torch.float16),
        (
            DirectConfig(rows=2, filters=4, stride=(1, 3, 2), padding=(1, 2, 1)),
            (2, 3, 5, 7, 6),
            (6, 3, 2, 3, 2),
            torch.float32,
        ),
    ],
)
def test_direct_sums_are_exact(
    cfg: DirectConfig, shape: tuple[int, ...], filters: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, w = integers(shape, dtype, 1), integers(filters, dtype, 2)
    with emulated(arch="sm_80", device="H200") as emulation:
        got = direct_convolution(cfg, NAMES, x, w, ())
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    assert torch.equal(got, reference(cfg, x, w, shape[1] if cfg.depthwise else cfg.groups).to(dtype))


def check_implicit_gemm(cfg: Sm80Config | Sm90Config, shape: tuple[int, ...], filters: tuple[int, ...]) -> None:
    x, w = integers(shape, DTYPES[cfg.mma], 1), integers(filters, DTYPES[cfg.mma], 2)
    with emulated(arch="sm_90a" if cfg.warpgroup_mma else "sm_80", device="H200") as emulation:
        got = implicit_gemm_convolution(cfg, NAMES, x, w, ())
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    assert torch.equal(got, reference(cfg, x, w, cfg.groups).to(DTYPES[cfg.mma]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cfg", "shape", "filters"),
    [
        (
            Sm80Config(
                mma="bf16", tile_m=128, tile_n=64, tile_k=32, stages=3, stride=(2, 1), padding=(1, 2), dilation=(1, 2)
            ),
            (2, 5, 9, 11),
            (7, 5, 3, 2),
        ),
        (
            Sm80Config(
                mma="tf32",
                tile_m=64,
                tile_n=32,
                tile_k=16,
                stages=3,
                transposed=True,
                stride=3,
                padding=1,
                output_padding=2,
            ),
            (1, 20, 3, 4, 5),
            (20, 6, 3, 2, 1),
        ),
    ],
)
def test_implicit_gemm_by_mma_sync(cfg: Sm80Config, shape: tuple[int, ...], filters: tuple[int, ...]) -> None:
    check_implicit_gemm(cfg, shape, filters)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cfg", "shape", "filters"),
    [
        (
            Sm90Config(
                mma="tf32", tile_m=256, tile_n=32, tile_k=16, stages=4, cluster=2, schedule="cooperative", stride=2
            ),
            (2, 3, 11, 9),
            (24, 3, 3, 4),
        ),
        (
            Sm90Config(
                mma="tf32",
                tile_m=64,
                tile_n=16,
                tile_k=16,
                stages=4,
                schedule="pingpong",
                transposed=True,
                stride=2,
                padding=1,
                output_padding=1,
                groups=2,
            ),
            (1, 4, 3, 4, 3),
            (4, 6, 3, 2, 3),
        ),
        (
            Sm90Config(
                mma="tf32x3", tile_m=64, tile_n=32, tile_k=16, stages=4, unfold=True, schedule="pingpong", stride=4
            ),
            (2, 3, 15, 13),
            (24, 3, 5, 7),
        ),
    ],
)
def test_implicit_gemm_by_wgmma(cfg: Sm90Config, shape: tuple[int, ...], filters: tuple[int, ...]) -> None:
    check_implicit_gemm(cfg, shape, filters)


@pytest.mark.slow
def test_epilogues_are_hooks() -> None:
    x, w = integers((2, 6, 7, 8), torch.float16, 1), integers((12, 6, 3, 3), torch.float16, 2)
    bias, residual = integers((12,), torch.float16, 3), integers((2, 12, 5, 6), torch.float16, 4)

    def at_coordinates(total, operands, n, k, z, p, q):  # type: ignore[no-untyped-def]
        return total + operands[0][k].to(cutlass.Float32) + operands[1][n, k, z, p, q].to(cutlass.Float32)

    def of_elements(total, elements):  # type: ignore[no-untyped-def]
        return total + elements[0].to(cutlass.Float32) + elements[1].to(cutlass.Float32)

    def of_fragments(total, fragments, i):  # type: ignore[no-untyped-def]
        return total + fragments[0][0].to(cutlass.Float32) + fragments[1][i].to(cutlass.Float32)

    gemm = Sm80Config(mma="f16", tile_m=64, tile_n=32, tile_k=32, stages=2, reads=READS, epilogue=of_fragments)
    with emulated(arch="sm_80", device="H200"):
        results = (
            direct_convolution(DirectConfig(reads=READS, epilogue=at_coordinates), NAMES, x, w, (bias, residual)),
            direct_convolution(DirectConfig(rows=2, reads=READS, epilogue=of_elements), NAMES, x, w, (bias, residual)),
            implicit_gemm_convolution(gemm, NAMES, x, w, (bias, residual)),
        )
    wanted = torch.nn.functional.conv2d(x.double(), w.double(), bias.double()) + residual
    assert all(torch.equal(got, wanted.half()) for got in results)


def test_patches_are_planned_within_shared_memory_and_lose_no_tap() -> None:
    how = (2, 1, 1, 1, True)  # stride, padding, dilation, output padding, transposed
    plan = plan_patches((9, 11), (3, 3), 20, how, (64, 32, 8), 3, 232_448)
    assert plan is not None and plan.shared_bytes <= 232_448 and plan.box[0] * plan.box[1] * plan.box[2] == 64
    assert [axis.outputs for axis in plan.axes] == [1, 18, 22] and plan.stages == 3 and plan.channels == 8
    taps = [tap for _, tap, channel in plan.entries if channel == 0 and tap >= 0]
    assert sorted(taps) == list(range(9))  # each tap of a phase once: no inserted zero is multiplied
    assert plan_patches((9, 11), (3, 3), 20, how, (64, 32, 8), 3, 20_000) is None


def test_a_convolution_by_patches_is_exact_and_says_what_does_not_fit() -> None:
    cfg = PatchConfig(
        padding=1, tile_m=64, tile_n=16, tile_k=8, stages=2, threads=128, smem_bytes=166_912, result="bf16"
    )
    x, w = integers((2, 11, 6, 9), torch.float32, 1), integers((20, 11, 3, 3), torch.float32, 2)
    with emulated(arch="sm_80", device="H200") as emulation:
        got = patch_convolution(cfg, NAMES, x, w, ())
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    assert torch.equal(got, reference(cfg, x, w, 1).bfloat16())
    with pytest.raises(ValueError, match="shared memory"):
        patch_convolution(dataclasses.replace(cfg, smem_bytes=1024), NAMES, x, w, ())
    with pytest.raises(ValueError, match="do not fit into an input"):
        patch_convolution(cfg, NAMES, x[:, :, :1, :1], integers((20, 11, 4, 4), torch.float32, 2), ())
