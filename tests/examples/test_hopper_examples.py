"""The Hopper example kernels against torch, on the emulator, at odd sizes.

Operands are small integers where the result can be exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch

from workbench.emulator import EmulationFault
from workbench.emulator.hook import Emulation, emulated

HALF, BRAIN, SINGLE, E4M3, E5M2 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture
def hopper() -> Iterator[Emulation]:
    with emulated(arch="sm_90a", device="H200", cuda=True) as emulation:
        yield emulation


def matrix(rows: int, columns: int, dtype: torch.dtype, *, major: int = 1, seed: int) -> torch.Tensor:
    """Small integers on the device; `major` is the contiguous dimension."""
    values = torch.randint(-3, 4, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)
    return (values if major == 1 else values.t().contiguous().t()).cuda()


GEMMS = [
    # m, n, k, of A and B, of C and D, contiguous dimensions of A and B, options
    (257, 136, 72, HALF, HALF, (1, 1), {}),
    (257, 129, 72, HALF, SINGLE, (1, 1), {}),  # rows of D that TMA does not take
    (600, 520, 136, BRAIN, BRAIN, (1, 1), {"max_clusters": 1, "add": True}),  # several tiles, one after the other
    (304, 264, 72, BRAIN, HALF, (0, 0), {"cluster": (2, 2), "swizzle": 1}),
    (300, 264, 72, HALF, HALF, (1, 0), {"cluster": (1, 2)}),
    (304, 264, 72, HALF, HALF, (0, 1), {"cluster": (1, 1), "tile": (64, 128, 64), "stages": 2}),
    (257, 129, 144, E4M3, HALF, (1, 1), {}),
    (300, 200, 144, E5M2, SINGLE, (1, 1), {"tile": (256, 128, 128), "add": True}),
    (
        500,
        200,
        144,
        HALF,
        HALF,
        (1, 1),
        {"tile": (128, 192, 64), "add": True, "max_clusters": 1},
    ),  # an odd number of sub-tiles
    (8, 8, 8, HALF, BRAIN, (1, 1), {"tile": (64, 32, 64), "cluster": (1, 1)}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("m", "n", "k", "dtype", "out", "majors", "options"), GEMMS)
def test_gemm(
    hopper: Emulation,
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    out: torch.dtype,
    majors: tuple[int, int],
    options: dict[str, Any],
) -> None:
    from workbench.examples.gemm_hopper import gemm

    options = dict(options)
    a, b = matrix(m, k, dtype, major=majors[0], seed=1), matrix(n, k, dtype, major=majors[1], seed=2)
    c = matrix(m, n, out, seed=3) if options.pop("add", False) else None
    d = torch.empty((m, n), dtype=out, device="cuda")
    gemm(a, b, d, c=c, **options)
    expected = a.double() @ b.double().t() + (0 if c is None else c.double())
    assert torch.equal(d, expected.to(out))
    assert not [finding for finding in hopper.findings if finding.severity == "error"]


def test_gemm_reads_a_tile_of_b_once_for_a_cluster(hopper: Emulation) -> None:
    from workbench.examples.gemm_hopper import gemm

    read = {}
    for cluster in ((1, 1), (2, 1)):
        a, b, d = (
            matrix(256, 64, HALF, seed=1),
            matrix(256, 64, HALF, seed=2),
            torch.empty((256, 256), dtype=HALF, device="cuda"),
        )
        gemm(a, b, d, cluster=cluster)
        read[cluster] = hopper.launches[-1].total.global_read_bytes
    assert read == {(1, 1): (2 * 128 + 2 * 256) * 64 * 2, (2, 1): (2 * 128 + 256) * 64 * 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": 9}, "rows of a multiple of 16 bytes, but a row takes 18 bytes"),
        ({"dtype": SINGLE}, "dtypes a torch.float32"),
        ({"tile": (96, 256, 64)}, "m is 64, 128 or 256"),
        ({"stages": 9}, "9 stages of tile"),
        ({"cluster": (3, 1)}, "1, 2 or 4 CTAs"),
        ({"wide": 8}, "shapes a"),
    ],
)
def test_gemm_says_what_it_does_not_take(hopper: Emulation, change: dict[str, Any], said: str) -> None:
    from workbench.examples.gemm_hopper import gemm

    change = dict(change)
    k, dtype, wide = change.pop("k", 72), change.pop("dtype", HALF), change.pop("wide", 0)
    a, b, d = (
        matrix(64, k, dtype, seed=1),
        matrix(64, k + wide, dtype, seed=2),
        torch.empty((64, 64), dtype=dtype, device="cuda"),
    )
    with pytest.raises(ValueError, match=said):
        gemm(a, b, d, **change)


ATTENTIONS = [
    # batch, heads, key heads, queries, keys, dim, dtype, causal, options
    (1, 2, 2, 200, 333, 64, HALF, False, {"max_ctas": 2}),  # more tiles than CTAs
    (2, 1, 1, 130, 257, 128, BRAIN, True, {}),
    (1, 2, 2, 333, 77, 128, HALF, True, {"max_ctas": 1}),  # queries that see every key
    (1, 2, 2, 500, 500, 64, BRAIN, True, {"max_ctas": 2}),  # 192 queries a tile: blocks of which some rows see no key
    (1, 4, 2, 70, 300, 64, HALF, False, {"groups": 3, "scale": 0.3}),  # heads that share keys
    (1, 1, 1, 1, 1, 128, HALF, True, {}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "queries", "keys", "dim", "dtype", "causal", "options"), ATTENTIONS
)
def test_flash_attention(
    hopper: Emulation,
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    dim: int,
    dtype: torch.dtype,
    causal: bool,
    options: dict[str, Any],
) -> None:
    from workbench.examples.flash_attention import attention

    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(shape, generator=generator).to(dtype).cuda()
        for shape in ((batch, heads, queries, dim), (batch, key_heads, keys, dim), (batch, key_heads, keys, dim))
    )
    out = attention(q, k, v, causal=causal, **options)
    wide_k, wide_v = (t.float().repeat_interleave(heads // key_heads, 1) for t in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), wide_k, wide_v, is_causal=causal, scale=options.get("scale")
    )
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-3 if dtype == HALF else 1.6e-2)
    assert not [finding for finding in hopper.findings if finding.severity == "error"]


def test_flash_attention_takes_heads_that_lie_inside_rows(hopper: Emulation) -> None:
    """(batch, length, heads, dim) in memory, as projections leave it.

    Values exact: one key, so that the weights are 1.
    """
    from workbench.examples.flash_attention import attention

    q = torch.randn(1, 65, 3, 64).to(HALF).cuda().transpose(1, 2)
    v = matrix(3, 64, HALF, seed=1).reshape(1, 1, 3, 64).transpose(1, 2)
    assert torch.equal(attention(q, v, v), v.expand(1, 3, 65, 64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dim": 96}, "dim 64 or 128"),
        ({"heads": 3}, "multiple of key heads"),
        ({"groups": 3}, "3 warpgroups for dim 128"),
    ],
)
def test_flash_attention_says_what_it_does_not_take(hopper: Emulation, change: dict[str, int], said: str) -> None:
    from workbench.examples.flash_attention import attention

    change = {"dim": 128, "heads": 2, **change}
    q, k = (
        torch.zeros(1, change.pop("heads"), 4, change["dim"], dtype=HALF, device="cuda"),
        torch.zeros(1, 2, 4, change.pop("dim"), dtype=HALF, device="cuda"),
    )
    with pytest.raises(ValueError, match=said):
        attention(q, k, k, **change)


GROUPS = [
    # problems (m, n, k), dtype of A and B, of D, options
    ([(129, 136, 72), (300, 264, 136), (64, 8, 16), (1, 600, 8)], HALF, HALF, {"cluster": (1, 1), "max_clusters": 2}),
    ([(257, 264, 144), (8, 8, 16), (400, 520, 32)], BRAIN, SINGLE, {"max_clusters": 1}),
    ([(200, 136, 144), (120, 72, 272)], E4M3, HALF, {"tile": (128, 128, 128)}),
    (
        [(8 * number, 8 * number + 8, 16) for number in range(1, 13)],
        HALF,
        HALF,
        {"tile": (64, 64, 64), "cluster": (1, 1), "max_clusters": 1},
    ),  # more problems than places of the ring
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("sizes", "dtype", "out", "options"), GROUPS)
def test_grouped_gemm(
    hopper: Emulation, sizes: list[tuple[int, int, int]], dtype: torch.dtype, out: torch.dtype, options: dict[str, Any]
) -> None:
    from workbench.examples.grouped_gemm import grouped_gemm

    problems = [
        (matrix(m, k, dtype, seed=m), matrix(n, k, dtype, seed=n), torch.empty((m, n), dtype=out, device="cuda"))
        for m, n, k in sizes
    ]
    grouped_gemm(problems, **options)
    for a, b, d in problems:
        assert torch.equal(d, (a.double() @ b.double().t()).to(out))
    assert len(hopper.launches) == 1 and not [finding for finding in hopper.findings if finding.severity == "error"]


def test_grouped_gemm_without_its_acquire_is_an_error(hopper: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.examples.grouped_gemm import grouped_gemm
    from workbench.kernels import host
    from workbench.kernels.gemm.sm90.grouped_problems import host as grouped_host
    from workbench.kernels.gemm.sm90.grouped_problems import kernel

    monkeypatch.setattr(type(kernel.MAPS), "fence_tensormap_update", lambda self, place: None)
    monkeypatch.setattr(host, "compiled", {})
    monkeypatch.setattr(grouped_host, "compiled", host.compiled)
    problem = (
        matrix(64, 64, HALF, seed=1),
        matrix(64, 64, HALF, seed=2),
        torch.empty((64, 64), dtype=HALF, device="cuda"),
    )
    with pytest.raises(EmulationFault, match="a descriptor in global memory that this CTA did not acquire"):
        grouped_gemm([problem], tile=(64, 64, 64), cluster=(1, 1))


def test_grouped_gemm_says_what_it_does_not_take(hopper: Emulation) -> None:
    from workbench.examples.grouped_gemm import grouped_gemm

    good = (
        matrix(64, 64, HALF, seed=1),
        matrix(64, 64, HALF, seed=2),
        torch.empty((64, 64), dtype=HALF, device="cuda"),
    )
    narrow = (good[0], matrix(9, 64, HALF, seed=3), torch.empty((64, 9), dtype=HALF, device="cuda"))
    with pytest.raises(ValueError, match="rows of a multiple of 16 bytes, D too"):
        grouped_gemm([good, narrow])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("gemm_hopper", "--m 130 --n 264 --k 80 --add", "130 x 264 x 80, bfloat16: equal"),
        ("grouped_gemm", "--problems 2 --size 64", "2 problems in one launch: equal"),
        ("flash_attention", "--queries 65 --keys 130 --causal", "130 keys: at most"),
    ],
)
def test_each_example_runs_and_checks_itself(
    hopper: Emulation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    arguments: str,
    said: str,
) -> None:
    monkeypatch.setattr("sys.argv", [name, *arguments.split()])
    import_module(f"workbench.examples.{name}").main()
    assert said in capsys.readouterr().out
