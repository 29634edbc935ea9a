"""The backward pass of an exported aggregation: kernels over the transposed rows, gradients compared with torch's."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from running_exports import export, load_text

from workbench.emulator import emulated
from workbench.emulator.emulation import Emulation

SOURCE = """
import torch, torch.nn as nn
NODES, ROWS, DEGREE, COLUMNS = 400, 100, 5, 6

class Model(nn.Module):
    def __init__(self, nodes, columns):
        super().__init__()
{init}
    def forward(self, x, indptr, indices{more}):
        return {body}

def get_inputs():
    dst, _ = torch.sort(torch.randint(0, ROWS, (ROWS * DEGREE,)))
    indptr = torch.searchsorted(dst, torch.arange(ROWS + 1))
    indices = torch.randint(0, NODES, (ROWS * DEGREE,))
    return [torch.randn(NODES, COLUMNS), indptr, indices{weights}]

def get_init_inputs():
    return [NODES, COLUMNS]
"""
SEGMENTS = "torch.segment_reduce({}, {!r}, offsets=indptr{})"
FORMS = {
    "sum": (SEGMENTS.format("x[indices]", "sum", ""), "", ""),
    "mean": (SEGMENTS.format("x[indices]", "mean", ", initial=0"), "", ""),
    "weights": (SEGMENTS.format("x[indices] * w[:, None]", "sum", ""), "", "ROWS * DEGREE"),
    "table": ("nn.functional.embedding_bag(indices, self.t, indptr, include_last_offset=True)", "self.t", ""),
    "max": (SEGMENTS.format("x[indices]", "max", ""), "", ""),
}


def make(form: str, folder: Path, degree: int = 5) -> tuple[ModuleType, Path]:
    body, table, weights = FORMS[form]
    source = SOURCE.format(
        init="        self.t = nn.Parameter(torch.randn(nodes, columns))\n" if table else "",
        body=body,
        more=", w" if weights else "",
        weights=f", torch.randn({weights})" if weights else "",
    )
    return load_text(
        export(source.replace("DEGREE, COLUMNS = 400, 100, 5", f"DEGREE, COLUMNS = 400, 100, {degree}"), folder)
    )


def differentiate(model: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of the sum of squares: of floating inputs and of parameters."""
    given = [value.detach().requires_grad_(value.is_floating_point()) for value in inputs]
    (model(*given) ** 2).sum().backward()
    return [value.grad for value in (*given, *model.parameters()) if value.grad is not None]


def kernels_of(emulation: Emulation) -> list[str]:
    return [launch.kernel for launch in emulation.launches]


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["table", "weights", "mean", "sum", "max"])
def test_gradients_are_those_of_torch(form: str, tmp_path: Path) -> None:
    module, path = make(form, tmp_path)
    assert (module.ModelNew.gradient is None) == (form == "max")  # the reference's code differentiates a maximum
    inputs = draw(form)
    with emulated(arch="sm_80", device="H200", source_file=str(path)) as emulation:
        torch.manual_seed(0)
        kernel = module.ModelNew(400, 6)
        found = differentiate(kernel, inputs)
        launched = [name for name in kernels_of(emulation) if "aggregate" in name]
        assert len(launched) == (1 if form == "max" else 2)
        assert any("sddmm" in name for name in kernels_of(emulation)) == (form == "weights")
    torch.manual_seed(0)
    wanted = differentiate(module.Model(400, 6), inputs)
    assert len(found) == len(wanted) == (2 if form == "weights" else 1)
    torch.testing.assert_close(found, wanted)


def test_long_rows_take_the_merge_path(tmp_path: Path) -> None:
    module, path = make("sum", tmp_path, degree=70)
    inputs = draw("sum")
    with emulated(arch="sm_80", device="H200", source_file=str(path)) as emulation:
        found = differentiate(module.ModelNew(400, 6), inputs)
        assert any("merge" in name for name in kernels_of(emulation))
    torch.testing.assert_close(found, differentiate(module.Model(400, 6), inputs))


def draw(form: str) -> list[torch.Tensor]:
    """Inputs of other sizes than the problem's, with rows and nodes that have no edge."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 30, (90,), generator=generator).sort().values
    indptr = torch.searchsorted(rows, torch.arange(41))
    indices = torch.randint(0, 50, (90,), generator=generator)
    nodes = 400 if form == "table" else 60
    more = [torch.randn(90, generator=generator)] if form == "weights" else []
    return [torch.randn(nodes, 6, generator=generator), indptr, indices, *more]


@pytest.mark.slow
def test_the_transposed_rows_are_made_once_for_a_graph(tmp_path: Path) -> None:
    module, path = make("sum", tmp_path)
    rows, (_, indptr, indices) = module.TransposedRows(), draw("sum")
    first = rows.find(indptr, indices, 60)
    assert rows.find(indptr, indices, 60) is first
    indices[0] = 59  # in place: another version of the tensor
    second = rows.find(indptr, indices, 60)
    assert second is not first and int(second[0][-1]) == 90 and int(second[0][59]) < 90
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        torch.library.opcheck(module.GRADIENT, (torch.randn(40, 6), torch.randn(60, 6), indptr, indices, None))
