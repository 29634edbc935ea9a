"""cute.math on the emulator against torch in float64: each function on float32 and float64, in the ranges where code
paths differ.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

import workbench

UNARY = {
    "abs": torch.abs,
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "asinh": torch.asinh,
    "atanh": torch.atanh,
    "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "neg": torch.neg,
    "round": lambda x: x.sign() * (x.abs() + 0.5).floor(),
    "roundeven": torch.round,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
POSITIVE = {
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "acosh": lambda x: torch.acosh(x + 0),
}
INSIDE = ("acos", "asin", "atanh")
DEVICE_CALLS = {
    "float64": ("cos", "sin", "tan")
}  # large arguments call a function in the PTX, which is refused by name


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, names: cutlass.Constexpr) -> None:
    """Row n of y is function n of x."""
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    for n in cutlass.range_constexpr(len(names)):
        y[n, i] = getattr(cute.math, names[n])(x[i])


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, names: cutlass.Constexpr) -> None:
    """One thread an element."""
    kernel(x, y, names).launch(grid=(cute.size(x) // 128, 1, 1), block=(128, 1, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("group", ["unary", "inside", "positive"])
def test_functions_agree_with_torch(dtype: torch.dtype, group: str) -> None:
    left_out = DEVICE_CALLS.get(str(dtype).removeprefix("torch."), ())
    table = {
        name: f
        for name, f in (POSITIVE if group == "positive" else UNARY).items()
        if name not in left_out and (group == "positive" or (name in INSIDE) == (group == "inside"))
    }
    generator = torch.Generator().manual_seed(3)
    x = {
        "unary": torch.randn(256, generator=generator, dtype=dtype) * 6,
        "inside": torch.rand(256, generator=generator, dtype=dtype) * 1.99 - 0.99,
        "positive": torch.rand(256, generator=generator, dtype=dtype) * 50 + 1.001,
    }[group]
    with workbench.emulated(device="A100"):
        y = torch.zeros(len(table), 256, dtype=dtype, device="cuda")
        launch(from_dlpack(x.cuda()), from_dlpack(y), tuple(table))
        got = y.cpu()
    tolerance = {"rtol": 4e-6, "atol": 2e-6} if dtype is torch.float32 else {"rtol": 1e-13, "atol": 1e-13}
    for n, (name, function) in enumerate(table.items()):
        torch.testing.assert_close(
            got[n].double(), function(x.double()), msg=lambda said, name=name: f"{name}: {said}", **tolerance
        )
