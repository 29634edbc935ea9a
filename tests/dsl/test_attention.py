"""attention: every kernel against torch on the emulator; recognition; rejections.

Shapes are odd and narrow, heads are shared, masks are causal.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from emitted import found, run_on
from torch.nn.functional import scaled_dot_product_attention

from workbench.language import check, parse
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition.patterns.attention import find_unequal_heads

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
ERRORS = {HALF: 2e-3, BRAIN: 1.6e-2, SINGLE: 3e-3}  # rounding of P to 16 bits, of all operands to TF32
CASES = [
    # settings, causal, scale, shape of q, shape of k and v, dtype
    (".tile(32, 32)", 0, None, (1, 2, 40, 24), (1, 1, 50, 24), SINGLE),
    pytest.param(".tile(64, 32)", 1, 0.3, (3, 37, 17), (3, 37, 17), HALF, marks=pytest.mark.slow),
    pytest.param(".mma(f16) .schedule(flash)", 0, None, (1, 2, 150, 64), (1, 2, 200, 64), HALF, marks=pytest.mark.slow),
    (
        ".mma(bf16) .schedule(flash)",
        1,
        None,
        (1, 2, 150, 40),
        (1, 1, 300, 40),
        BRAIN,
    ),  # narrower than a tile, several key blocks
    (".mma(f16) .schedule(flash)", 0, 0.2, (2, 37, 51), (2, 67, 51), HALF),  # rows that TMA cannot read or store
    pytest.param(
        ".mma(f16) .schedule(flash) .tile(64, 64)",
        1,
        None,
        (1, 1, 70, 256),
        (1, 1, 70, 256),
        HALF,
        marks=pytest.mark.slow,
    ),  # stored by one warpgroup that multiplies
    pytest.param(".mma(tf32)", 0, None, (1, 2, 150, 64), (1, 2, 200, 64), SINGLE, marks=pytest.mark.slow),
    (".mma(tf32)", 1, None, (2, 37, 51), (2, 67, 51), SINGLE),
    pytest.param(".mma(bf16) .tile(64, 32)", 1, None, (1, 2, 70, 37), (1, 2, 90, 37), BRAIN, marks=pytest.mark.slow),
    (".mma(tf32) .schedule(stages) .tile(128, 64, 32)", 0, None, (2, 2, 70, 40), (2, 2, 96, 40), SINGLE),
    (".mma(f16) .schedule(stages) .tile(128, 64, 64)", 1, None, (2, 1, 37, 51), (2, 1, 67, 51), HALF),
    (".schedule(stages) .tile(32, 32, 16) .thread_tile(2, 2)", 1, 0.5, (2, 1, 20, 33), (2, 1, 17, 33), SINGLE),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("settings", "causal", "scale", "shape", "other", "dtype"), CASES)
def test_against_torch(
    settings: str, causal: int, scale: float | None, shape: tuple[int, ...], other: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(shape).to(dtype), torch.randn(other).to(dtype), torch.randn(other).to(dtype)
    more = f", causal={causal}" + ("" if scale is None else f", scale={scale}")
    result = run_on(f"attention(q, k, v{more}) .arch(sm_90a) {settings}", (q, k, v), ("q", "k", "v"))
    expected = scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=bool(causal), scale=scale, enable_gqa=len(shape) == 4
    )
    assert result.dtype == dtype
    allowed = ERRORS[dtype] if "mma" in settings else {SINGLE: 1e-5}.get(dtype, 1e-3)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=allowed)


@pytest.mark.slow
def test_transposed_operands_and_nothing_to_attend_to() -> None:
    q, k, v = (torch.randn(1, 40, 2, 24).transpose(1, 2).half() for _ in range(3))
    text = "attention(q, k, v) .arch(sm_90a) .mma(f16) .schedule(flash)"
    torch.testing.assert_close(
        run_on(text, (q, k, v), ("q", "k", "v")).double(),
        scaled_dot_product_attention(q.double(), k.double(), v.double()),
        rtol=0,
        atol=2e-3,
    )
    assert run_on(text, (q[:, :, :0], k, v), ("q", "k", "v")).shape == (1, 2, 0, 24)
    with pytest.raises(ValueError, match="k and v of one shape"):
        run_on(text, (q, k, v[:, :, :3]), ("q", "k", "v"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attention(q, k)", "takes three operands"),
        ("attention(q, k, v, causal=2)", "causal=2"),
        ("attention(q, k, v, bias=1)", "no such argument"),
        ("attention(q, k, v, mask=1)", "which tensor"),
        ("attention(q, k, v, hide=zero)", "there is none"),
        ("attention(q, k, v, mask=m, fill=0)", "hides no score"),
        ("attention(q, k, v, mask=m, hide=one)", "hide=one"),
        ("attention(q, k, v, mask=m) .schedule(stages)", "reads no mask"),
        ("attention(q, k, v, scale=fast)", "scale=fast"),
        ("attention(q, k, v) .mma(f16) .schedule(flash)", "only Hopper has"),
        ("attention(q, k, v) .arch(sm_90a) .mma(tf32) .schedule(flash)", "16-bit"),
        ("attention(q, k, v) .tile(7, 3)", "tile=(7, 3)"),
        ("attention(q, k, v) .mma(f16) .schedule(stages)", "Hopper's"),
        ("attention(q, k, v) .stages(2)", "stages=2"),
        ("attention(q, k, v) >> relu()", "takes no epilogue"),
        ("attention(q, k, v) .thread_tile(2, 2)", "thread_tile"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


SDPA = "torch.nn.functional.scaled_dot_product_attention(q, k, v{})"
WRITTEN = "torch.softmax({}, dim=-1) @ v"
SCORES = "(q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])"
HIDDEN = "torch.triu(torch.ones(q.shape[-2], q.shape[-2]), diagonal={}).bool()"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("body", "named"),
    [
        (SDPA.format(""), {}),
        (SDPA.format(", is_causal=True, scale=0.3"), {"causal": 1, "scale": 0.3}),
        (WRITTEN.format(SCORES), {}),
        (WRITTEN.format("q @ k.transpose(-2, -1)"), {"scale": 1.0}),
        (WRITTEN.format(f"({SCORES}).masked_fill({HIDDEN.format(1)}, float('-inf'))"), {"causal": 1}),
        (
            WRITTEN.format(
                f"({SCORES}).masked_fill(torch.tril(torch.ones(q.shape[-2], q.shape[-2])) == 0, float('-inf'))"
            ),
            {"causal": 1},
        ),
        (WRITTEN.format("0.5 * q @ k.transpose(2, 3)"), {"scale": 0.5}),
    ],
)
def test_recognised(body: str, named: dict[str, object]) -> None:
    shape = "2, heads, n, dim"
    computation = found(body, full="heads = 3\nn = 16\ndim = 8", q=shape, k=shape, v=shape)
    assert computation is not None and computation.kind == "attention" and dict(computation.operation.named) == named


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "body",
    [
        WRITTEN.format(SCORES).replace("dim=-1", "dim=-2"),
        WRITTEN.format(SCORES).replace("k.tr", "q.tr") + " * 2",
        WRITTEN.format(f"({SCORES}).masked_fill({HIDDEN.format(2)}, float('-inf'))"),
        WRITTEN.format(f"({SCORES}).masked_fill({HIDDEN.format(1)}, 0.0)"),
        WRITTEN.format(f"({SCORES}).masked_fill({HIDDEN.format(1)} == 0, float('-inf'))"),
        WRITTEN.format(f"{SCORES} + 1"),
        WRITTEN.format(SCORES).replace("@ v", "@ v.transpose(0, 1).reshape(v.shape)"),
    ],
)
def test_other_computations_are_not_taken_for_it(body: str) -> None:
    computation = found(body, q="2, 3, 16, 8", k="2, 3, 16, 8", v="2, 3, 16, 8")
    assert computation is None or computation.kind != "attention"


def test_the_ladder_starts_with_what_is_fast_on_hopper() -> None:
    narrow, wide = (
        found(
            SDPA.format(""),
            full=f"n = 512\ndim = {dim}",
            q="2, 3, n, dim",
            k="2, 3, n, dim",
            v="2, 3, n, dim",
            facts=True,
        )
        for dim in (128, 1024)
    )

    def first(pair: tuple, precision: str, arch: str = "sm_90a") -> str:
        computation, facts = pair
        dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
        computation = dataclasses.replace(computation, dtype=dtype)
        return " ".join(
            str(call.positional[0])
            for call in ladder(Context(found=computation, precision=precision, arch=arch, facts=facts))[0].settings
        )

    assert (
        first(narrow, "bf16") == "bf16 flash" and first(narrow, "fp32") == "" and first(narrow, "fp16", "sm_80") == ""
    )
    assert (
        first(wide, "tf32").startswith("tf32 stages")
        and first(wide, "fp16").startswith("f16 stages")
        and first(wide, "fp32") == "stages"
    )


def test_head_dimensions_that_vary_apart_are_named() -> None:
    _, apart = found(
        SDPA.format(""),
        full="dim = 32\nwide = 32",
        q="2, 3, 64, dim",
        k="2, 3, 64, dim",
        v="2, 3, 64, wide",
        facts=True,
    )
    _, tied = found(
        SDPA.format(""), full="dim = 32", q="2, 3, 64, dim", k="2, 3, 64, dim", v="2, 3, 64, dim", facts=True
    )
    assert "several head dimensions" in (find_unequal_heads(apart) or "") and find_unequal_heads(tied) is None


def test_repeated_heads_are_read_as_groups() -> None:
    body = SDPA.format("").replace("k, v", "k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)")
    computation = found(body, full="dim = 8\nrows = 16", q="2, 8, rows, dim", k="2, 2, rows, dim", v="2, 2, rows, dim")
    assert computation.kind == "attention" and dict(computation.operands) == {"q": "q", "k": "k", "v": "v"}
    repeated = found(
        body.replace("repeat_interleave(4, dim=1)", "repeat(1, 4, 1, 1)"),
        q="2, 8, 5, 6",
        k="2, 2, 5, 6",
        v="2, 2, 5, 6",
    )
    assert repeated is None or dict(repeated.operands) != {"q": "q", "k": "k", "v": "v"}  # heads in another order
