"""attention with a mask: every kernel against torch on the emulator, and what the planner makes of masks."""

from __future__ import annotations

import math

import pytest
import torch
from emitted import found, run_on
from torch.nn.functional import scaled_dot_product_attention

from workbench.codegen import compile_program
from workbench.language import Binding
from workbench.proposers.ladders import Context, ladder

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
ERRORS = {HALF: 2e-3, BRAIN: 1.6e-2, SINGLE: 3e-3}
NAMES = ("q", "k", "v", "mask")
FLASH = ".mma(bf16) .schedule(flash) .tile(64, 64)"
HIDDEN = ", hide=zero, empty=zero"


def make_mask(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A mask of bools with rows of False, or of numbers with rows and elements of -inf."""
    hides = torch.rand(shape) < 0.3
    if shape[-2] > 1:
        hides[..., 3, :] = True
    if dtype == torch.bool:
        return ~hides
    return torch.randn(shape).masked_fill(hides, -math.inf).to(dtype)


def expected_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **more: object) -> torch.Tensor:
    """What torch computes in float64."""
    mask = mask if mask.dtype == torch.bool else mask.double()
    return scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask, enable_gqa=True, **more)


CASES = [
    # settings, shape of the mask, its dtype, dtype of q
    (".tile(32, 32)", (2, 1, 1, 50), torch.bool, SINGLE),
    (".tile(32, 32)", (1, 2, 37, 50), SINGLE, HALF),
    (".mma(tf32) .tile(32, 32)", (2, 1, 37, 50), torch.bool, SINGLE),
    (".mma(tf32) .tile(32, 16)", (37, 50), SINGLE, SINGLE),
    (".mma(bf16) .tile(32, 16)", (1, 2, 1, 51), torch.bool, BRAIN),
    (".mma(bf16) .tile(32, 32)", (2, 2, 37, 50), BRAIN, BRAIN),
    (".mma(f16) .tile(32, 32)", (2, 1, 37, 51), HALF, HALF),
    (FLASH, (2, 1, 37, 150), torch.bool, BRAIN),
    (FLASH, (1, 2, 37, 135), SINGLE, BRAIN),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("settings", "shape", "dtype", "operands"), CASES)
def test_against_torch(settings: str, shape: tuple[int, ...], dtype: torch.dtype, operands: torch.dtype) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 2, 37, 24).to(operands)
    k, v = (torch.randn(2, 1, shape[-1], 24).to(operands) for _ in range(2))
    mask = make_mask(shape, dtype)
    how = HIDDEN if dtype == torch.bool else ", empty=zero"
    result = run_on(f"attention(q, k, v, mask=mask{how}) .arch(sm_90a) {settings}", (q, k, v, mask), NAMES)
    allowed = ERRORS[operands] if "mma" in settings else {SINGLE: 1e-5}.get(operands, 1e-3)
    torch.testing.assert_close(result.double(), expected_of(q, k, v, mask), rtol=0, atol=allowed)


def softmax_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scores: object) -> torch.Tensor:
    """softmax(scores(scaled scores)) @ v in float32."""
    q, k, v = q.float(), k.float(), v.float()
    return torch.softmax(scores((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5), -1) @ v  # type: ignore[operator]


def tensors(dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, ...]:
    """q, k and v."""
    torch.manual_seed(1)
    return tuple(torch.randn(*shape).to(dtype) for _ in range(3))


KERNELS = [(".tile(32, 32)", SINGLE), (".mma(tf32) .tile(32, 16)", SINGLE), (FLASH, BRAIN)]


@pytest.mark.few(1)
@pytest.mark.parametrize(("settings", "dtype"), KERNELS)
def test_hidden_by_other_elements_and_with_a_number(settings: str, dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype, 2, 2, 21, 16)
    mask = torch.randint(0, 3, (2, 1, 21, 21))
    mask[0, :, 5] = 1  # every score of this query is the number, so all keys count alike
    text = f"attention(q, k, v, mask=mask, hide=nonzero, fill=-1e9) .arch(sm_90a) {settings}"
    expected = softmax_of(q, k, v, lambda scores: scores.masked_fill(mask != 0, -1e9))
    torch.testing.assert_close(run_on(text, (q, k, v, mask), NAMES).float(), expected, rtol=0, atol=ERRORS[dtype])


@pytest.mark.few(1)
@pytest.mark.parametrize(("settings", "dtype"), KERNELS)
def test_rows_of_infinities_and_of_the_least_numbers(settings: str, dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype, 1, 2, 21, 16)
    mask = torch.randn(21, 21)
    mask[3], mask[7], mask[9:, ::2] = -math.inf, torch.finfo(SINGLE).min, torch.finfo(SINGLE).min
    expected = softmax_of(q, k, v, lambda scores: scores + mask)
    assert expected[:, :, 3].isnan().all() and not expected[:, :, 7].isnan().any()
    result = run_on(f"attention(q, k, v, mask=mask) .arch(sm_90a) {settings}", (q, k, v, mask), NAMES)
    torch.testing.assert_close(result.float(), expected, rtol=0, atol=ERRORS[dtype], equal_nan=True)


STRIDES = {
    "expanded": torch.randn(1, 1, 1, 33).expand(2, 2, 33, 33),
    "transposed": torch.randn(2, 1, 33, 33).transpose(-2, -1),
    "by query": torch.randn(33, 1),
    "part": torch.randn(2, 2, 40, 41)[..., 3:36, 5:38],
    "number": torch.tensor(0.5),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", STRIDES)
def test_strides_and_a_causal_mask_beside(name: str) -> None:
    q, k, v = tensors(HALF, 2, 2, 33, 16)
    mask = STRIDES[name]
    later = torch.ones(33, 33).triu(1).bool()
    expected = softmax_of(q, k, v, lambda scores: (scores + mask).masked_fill(later, -math.inf))
    text = "attention(q, k, v, causal=1, mask=mask) .arch(sm_90a) .mma(f16) .tile(32, 16)"
    torch.testing.assert_close(run_on(text, (q, k, v, mask), NAMES).float(), expected, rtol=0, atol=ERRORS[HALF])


def test_samples_without_heads_and_masks_one_after_another() -> None:
    q, k, v = tensors(SINGLE, 3, 18, 8)
    text, mask = "attention(q, k, v, mask=mask, hide=zero) .tile(32, 32)", torch.rand(3, 18, 18) > 0.3
    expected = softmax_of(q, k, v, lambda scores: scores.masked_fill(~mask, -math.inf))
    torch.testing.assert_close(run_on(text, (q, k, v, mask), NAMES), expected, rtol=0, atol=1e-5)
    one = softmax_of(q, k, v, lambda scores: scores.masked_fill(~mask[1], -math.inf))
    torch.testing.assert_close(run_on(text, (q, k, v, mask[1]), NAMES), one, rtol=0, atol=1e-5)  # another kernel
    with pytest.raises(ValueError, match="mask has the shape"):
        run_on(text, (q, k, v, mask[:2]), NAMES)
    with pytest.raises(TypeError, match=r"mask is torch\.bool"):
        run_on(text.replace(", hide=zero", ""), (q, k, v, mask), NAMES)


@pytest.mark.parametrize("settings", ["", ".mma(bf16)", ".mma(bf16) .schedule(flash)"])
def test_a_kernel_without_a_mask_has_nothing_of_it(settings: str) -> None:
    binding = Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("q", "k", "v"))
    text = compile_program(f"attention(q, k, v) .arch(sm_90a) {settings}", binding)
    assert not any(
        name in text for name in ("own_masks", "broadcast_mask", "apply_mask", "mask_row", "mask: ", "score_scale")
    )


SIZES = "heads = 3\nn = 16\ndim = 8"
SHAPE = "2, heads, n, dim"
SDPA = "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask={})"
SCORES = "q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5"
WRITTEN = "torch.softmax({}, -1) @ v"
LATER = "torch.triu(torch.ones(n, n), diagonal=1).bool()"
BOOLS, NUMBERS = "torch.rand(2, 1, n, n) > 0.2", "1, heads, n, n"
HIDES, SPREAD = {"mask": "mask", "hide": "zero"}, "m.unsqueeze(1).unsqueeze(2)"
RECOGNISED = [
    (SDPA.format("m"), BOOLS, HIDES | {"empty": "zero"}, "m"),
    (SDPA.format("m[:, None, None, :]"), "torch.rand(2, n) > 0.2", HIDES | {"empty": "zero"}, SPREAD),
    (SDPA.format("m, scale=0.3"), "n, n", {"scale": 0.3, "mask": "mask", "empty": "zero"}, "m"),
    (WRITTEN.format(f"{SCORES} + m"), NUMBERS, {"mask": "mask"}, "m"),
    (WRITTEN.format(f"m + {SCORES}"), NUMBERS, {"mask": "mask"}, "m"),
    (WRITTEN.format(f"({SCORES}).masked_fill(m == 0, -torch.inf)"), "torch.rand(2, 1, n, n).round()", HIDES, "m"),
    (
        WRITTEN.format(f"({SCORES}).masked_fill(m[:, None, None, :], float('-inf'))"),
        "torch.rand(2, n) > 0.2",
        {"mask": "mask", "hide": "nonzero"},
        SPREAD,
    ),
    (WRITTEN.format(f"torch.where(m, {SCORES}, -1e9)"), BOOLS, HIDES | {"fill": -1e9}, "m"),
    (
        WRITTEN.format(f"({SCORES} + m).masked_fill({LATER}, -torch.inf)"),
        NUMBERS,
        {"causal": 1, "mask": "mask"},
        "m",
    ),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("body", "mask", "named", "expression"), RECOGNISED)
def test_recognised(body: str, mask: str, named: dict[str, object], expression: str) -> None:
    computation = found(body, full=SIZES, q=SHAPE, k=SHAPE, v=SHAPE, m=mask)
    assert computation.kind == "attention" and dict(computation.operation.named) == named
    assert dict(computation.operands)["mask"] == expression


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("body", "mask"),
    [
        (WRITTEN.format(f"({SCORES} + m) * 2"), NUMBERS),  # which scales the mask too
        (WRITTEN.format(f"({SCORES}).masked_fill({LATER}, -torch.inf).masked_fill(m, -1e9)"), BOOLS),
        (WRITTEN.format(f"({SCORES} + m).masked_fill(m > 1, -torch.inf)"), NUMBERS),  # two masks
        (WRITTEN.format(f"({SCORES}).masked_fill(m > 1, -torch.inf)"), NUMBERS),
        (f"torch.softmax(torch.add({SCORES}, m, alpha=2), -1) @ v", NUMBERS),
    ],
)
def test_other_masks_are_not_taken_for_one(body: str, mask: str) -> None:
    computation = found(body, full=SIZES, q=SHAPE, k=SHAPE, v=SHAPE, m=mask)
    assert computation is None or computation.kind != "attention"


def names_of(computation: object) -> list[str]:
    """The operations of a pipeline."""
    return [piece.named.operation.name for piece in computation.pieces]  # type: ignore[attr-defined]


def test_in_a_pipeline_and_with_wide_heads() -> None:
    module = SDPA.replace("(q", "(self.a(q)")
    more = {"full": SIZES, "init": "        self.a = nn.Linear(dim, dim)", "q": SHAPE, "k": SHAPE, "v": SHAPE}
    assert names_of(found(module.format("m[:, None, None, :]"), m="torch.rand(2, n) > 0.2", **more))[-1] == "attention"
    made = found(module.format("m[:, None, None, :] & p"), m="torch.rand(2, n) > 0.2", p=BOOLS, **more)
    assert names_of(made)[-3:] == ["elementwise", "view", "attention"]
    wide = SIZES.replace("8", "512")
    apart = found(SDPA.format("m"), full=wide, q=SHAPE, k=SHAPE, v=SHAPE, m=BOOLS)
    assert "attention" not in names_of(apart)


def test_the_ladder_has_no_kernel_that_reads_no_mask() -> None:
    computation, facts = found(SDPA.format("m"), full=SIZES, q=SHAPE, k=SHAPE, v=SHAPE, m=BOOLS, facts=True)
    for precision in ("fp32", "tf32", "bf16"):
        rungs = ladder(Context(found=computation, precision=precision, arch="sm_90a", facts=facts))
        assert rungs and not any("stages" in call.positional for rung in rungs for call in rung.settings)
