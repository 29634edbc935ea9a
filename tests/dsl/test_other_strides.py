"""One module, called with operands of other strides from call to call: expanded, sliced, transposed, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from emitted import run_on
from torch.nn.functional import conv2d, scaled_dot_product_attention

Operands = tuple[torch.Tensor, ...]
BATCH, SIZE = 3, 64
HOPPER = ".arch(sm_90a) .mma(f16) .tile(64, 64, 32) .schedule(cooperative)"
AMPERE = ".mma(f16) .tile(64, 64, 32) .stages(3)"


def matrices() -> Operands:
    """One batch of matrices after the other, the expanded ones first: what they are compiled for must take the rest."""
    wide = torch.randn(BATCH, 2 * SIZE, 2 * SIZE).half() / 8
    whole = wide[:, :SIZE, :SIZE].contiguous()
    shape = whole.shape
    return (
        whole[:1, :1, :1].expand(shape),
        whole[:1].expand(shape),
        whole[:, :, :1].expand(shape),
        whole[:, :1].expand(shape),
        whole,
        whole.mT,
        wide[:, ::2, ::2],
        wide[:, :SIZE, ::2],
    )


def vectors(size: int) -> Operands:
    """A vector of one value, every second value of another one, and a whole one."""
    whole = torch.randn(2 * size).half()
    return whole[:1].expand(size), whole[::2], whole[:size]


def products() -> Iterator[Operands]:
    given = matrices()
    yield from ((a, given[4]) for a in given)
    yield from ((given[4], b) for b in given)


def residuals() -> Iterator[Operands]:
    a, *_ = matrices()[4:]
    for shape in ((SIZE,), (SIZE, 1), (SIZE, SIZE), (BATCH, 1, SIZE), (BATCH, SIZE, SIZE)):
        yield a, a, torch.randn(shape).half()


def biases() -> Iterator[Operands]:
    yield from ((matrices()[4], matrices()[4], bias) for bias in vectors(SIZE))


def images() -> Iterator[Operands]:
    whole, filters = torch.randn(2, 8, 12, 12).half() / 4, torch.randn(16, 8, 3, 3).half() / 4
    for x in (whole[:1].expand(whole.shape), whole, whole[:, :1].expand(whole.shape)):
        yield from ((x, filters, bias) for bias in vectors(16))
    yield whole, filters[:1].expand(filters.shape), vectors(16)[-1]


def heads() -> Iterator[Operands]:
    whole = torch.randn(2, 4, SIZE, SIZE).half()
    shared = whole[:, :1].expand(whole.shape)
    for shape in ((SIZE, SIZE), (2, 1, SIZE, SIZE), (1, 1, 1, SIZE), (2, 4, SIZE, SIZE)):
        yield from ((whole, k, whole, torch.randn(shape)) for k in (shared, whole))


def rows() -> Iterator[Operands]:
    yield from ((a[0], vector) for a in matrices() for vector in vectors(SIZE))


def multiply(a: torch.Tensor, b: torch.Tensor, added: torch.Tensor | float = 0.0) -> torch.Tensor:
    return a.float() @ b.float() + added


CASES: dict[str, tuple[str, str, Callable[[], Iterator[Operands]], Callable[..., torch.Tensor]]] = {
    f"gemm{settings} {what}": (f"gemm(a, b) {settings}{rest}", names, operands, multiply)
    for settings in (HOPPER, AMPERE, "")
    for what, rest, names, operands in (
        ("", "", "a b", products),
        ("residual", " >> add(c)", "a b c", residuals),
        ("bias", " >> bias()", "a b bias", biases),
    )
}
CASES["conv"] = (
    "conv(x, w) .arch(sm_90a) .mma(f16) .tile(64, 64, 32) >> bias()",
    "x w bias",
    images,
    lambda x, w, bias: conv2d(x.float(), w.float(), bias.float()),
)
CASES["attention"] = (
    "attention(q, k, v, mask=m) .mma(f16)",
    "q k v m",
    heads,
    lambda q, k, v, m: scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=m),
)
CASES["matvec"] = ("matvec(a, v)", "a v", rows, multiply)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CASES)
def test_each_call_is_right(name: str) -> None:
    text, names, operands, expected = CASES[name]
    torch.manual_seed(1)
    for given in operands():
        wanted = expected(*given)
        error = (run_on(text, given, tuple(names.split())).float() - wanted).abs().max() / wanted.abs().max()
        assert error < 4e-3, [(tuple(x.shape), x.stride()) for x in given]
