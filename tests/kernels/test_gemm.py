"""Matrix products for sm_80 and below, run directly from the library on the emulator; results are exact."""

import pytest
import torch

from workbench.codegen.gemm.lower import config_of
from workbench.emulator import emulated
from workbench.kernels.gemm.config import Epilogue, MmaConfig, NaiveConfig, Sm80Config, TiledConfig
from workbench.kernels.gemm.host import gemm
from workbench.kernels.operands import Read
from workbench.language import parse
from workbench.language.checks import check

NAMES = {"a": "a", "b": "b", "bias": "bias", "residual": "residual"}
READS = (Read(role="bias", along="n"), Read(role="residual", along="both"))


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def bias_and_residual(total, operands, batch, row, column):
    """An epilogue as an ordinary function."""
    bias, residual = operands
    return (total + bias[column]) * 2.0 + residual[batch, row, column]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (NaiveConfig(epilogue=bias_and_residual, reads=READS), torch.float32),
        (TiledConfig(tile_m=16, tile_n=16, tile_k=8, per_m=2, per_n=2, b_by_rows=False), torch.float32),
        (MmaConfig(element="bf16", tile_m=32, tile_n=32, tile_k=16, result="f32"), torch.bfloat16),
        (
            Sm80Config(
                element="tf32", tile_m=32, tile_n=32, tile_k=16, stages=2, epilogue=bias_and_residual, reads=READS
            ),
            torch.float32,
        ),
    ],
    ids=("naive", "tiled", "mma", "sm80"),
)
def test_a_product_is_exact(config: Epilogue, dtype: torch.dtype):
    a, b = integers(35, 19, dtype=dtype), integers(19, 37, dtype=dtype)
    operands = (integers(37), integers(1, 37)) if config.reads else ()
    with emulated(arch="sm_80", device="H200"):
        d = gemm(config, NAMES, a, b, operands)
    wanted = a.float() @ b.float()
    if config.reads:
        wanted = (wanted + operands[0]) * 2 + operands[1]
    assert d.dtype == (torch.float32 if config.result else dtype) and torch.equal(d.float(), wanted)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("element", "tile"),
    [("tf32", (64, 96, 32)), ("tf32", (32, 96, 16)), ("bf16", (32, 96, 32)), ("f16", (64, 64, 16))],
    ids=str,
)
def test_stages_take_extents_that_are_no_power_of_two(element: str, tile: tuple[int, int, int], turned: bool):
    """The threads that copy a tile divide it whichever way the operands lie."""
    settings = f".mma({element}) .stages(2) .tile{tile}"
    assert not check(parse(f"gemm(a, b) {settings}"))
    dtype = {"tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[element]
    a, b = integers(104, 48, dtype=dtype), integers(48, 112, dtype=dtype)
    given = [one.t().contiguous().t() if turned else one for one in (a, b)]
    with emulated(arch="sm_80", device="H200"):
        d = gemm(config_of(parse(f"gemm(a, b) {settings}").stages[0]), NAMES, *given, ())
    assert torch.equal(d.float(), a.float() @ b.float())


def test_stages_refuse_tiles_of_which_threads_have_no_part():
    for tile in ("32, 64, 16", "64, 96, 16"):
        (rejection,) = check(parse(f"gemm(a, b) .mma(bf16) .stages(2) .tile({tile})"))
        assert "16 bytes each" in rejection.reason and "multiples of 64" in rejection.legal
    assert not check(parse("gemm(a, b) .mma(tf32) .stages(2) .tile(32, 64, 16)"))


def test_a_product_refuses_other_shapes():
    with pytest.raises(ValueError, match="b has the shape"):
        gemm(NaiveConfig(), NAMES, integers(3, 4), integers(5, 6), ())
    with pytest.raises(TypeError, match=r"a is torch\.float32; this kernel takes torch\.bfloat16"):
        gemm(Sm80Config(element="bf16"), NAMES, integers(3, 4), integers(4, 6), ())


@pytest.mark.parametrize(
    ("program", "config"),
    [
        ("gemm(a, b)", NaiveConfig()),
        (
            "gemm(a, b) .layout(a=column) .tile(64, 32, 16) .thread_tile(4, 2) >> cast(f16)",
            TiledConfig(tile_m=64, tile_n=32, tile_k=16, per_m=4, per_n=2, a_by_rows=False, result="f16"),
        ),
        ("gemm(a, b) .mma(tf32)", MmaConfig(element="tf32")),
        ("gemm(a, b) .mma(f16) .stages(4)", Sm80Config(element="f16", stages=4)),
    ],
)
def test_a_stage_becomes_a_configuration(program: str, config: Epilogue):
    assert config_of(parse(program).stages[0]) == config
