"""Elementwise kernels, run directly from the library on the emulator."""

import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.elementwise.config import ElementwiseConfig
from workbench.kernels.elementwise.kernel import elementwise, unrolled_elementwise


def product_and_sum(x, y, *others):
    return x * y + (others[0] if others else 1.0)


@pytest.mark.parametrize(
    ("count", "settings", "repeats"),
    [(77, {}, ()), (96, {"vector": 4}, ()), (77, {"vector": 4, "unroll": 2}, ((11,),))],
)
def test_every_element(count, settings, repeats):
    x, y = torch.arange(count, dtype=torch.float32).view(-1, 11 if repeats else count), torch.tensor(2.0).expand(count)
    y = y.reshape(x.shape)
    others = tuple(torch.arange(shape[0], dtype=torch.float32) for shape in repeats)
    cfg = ElementwiseConfig(expression=product_and_sum, threads=32, **settings)
    with emulated(arch="sm_80", device="H200") as emulation:
        if "unroll" in settings:
            found = unrolled_elementwise(cfg, ("x", "y", "b"), (x, y), others)
        else:
            found = elementwise(cfg, ("x", "y"), (x, y))
    assert torch.equal(found, x * y + (others[0] if others else 1.0))
    assert not emulation.findings
