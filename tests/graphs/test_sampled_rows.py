"""The problem `sage` reads the rows of a mini-batch; both knobs are its settings."""

from __future__ import annotations

import pytest
import torch

from workbench import problems
from workbench.errors import UserError
from workbench.graphs.sampled_rows import sample_rows
from workbench.problems import loading


def test_the_knobs_change_how_many_rows_are_read() -> None:
    unique = []
    for mix, p in ((1.0, 0.5), (0.125, 0.5), (0.125, 1.0)):
        indptr, indices = sample_rows(8000, 12, 256, 10, mix, p)
        assert indptr.dtype == indices.dtype == torch.int64
        assert indptr[-1] == len(indices) and len(indptr) - 1 > 256 and indices.max() < 8000
        unique.append(len(indices.unique()))
    assert unique == sorted(unique, reverse=True) and unique[0] > 4 * unique[2]
    again = sample_rows(8000, 12, 256, 10, 0.125, 1.0)
    assert torch.equal(again[1], indices)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 1, 2, 1), (2, 5, 7, 3)])
def test_the_smallest_sizes_give_rows(sizes: tuple[int, int, int, int]) -> None:
    indptr, indices = sample_rows(*sizes, 1.0, 0.5)
    assert len(indptr) >= 2 and indptr[-1] == len(indices)


def test_the_problem_takes_the_knobs_as_settings() -> None:
    settings = {"mix": 0.25, "p": 0.9, "nodes": 2000, "features": 6, "batch_size": 32}
    problem = problems.load("sage", settings=settings)
    module = loading.load_module(problem)
    x, indptr, indices = loading.make_inputs(module, problem, 0)
    assert x.shape == (2000, 6)
    wanted = sample_rows(2000, 18, 32, 10, 0.25, 0.9)
    assert torch.equal(indptr, wanted[0]) and torch.equal(indices, wanted[1])
    result = module.Model()(x, indptr, indices)
    row = int(indptr.diff().argmax())
    torch.testing.assert_close(result[row], x[indices[indptr[row] : indptr[row + 1]]].mean(dim=0))
    bad = problems.load("sage", settings={"mix": 1.5, "nodes": 500})
    with pytest.raises(UserError, match="it goes from 0 to 1"):
        loading.make_inputs(loading.load_module(bad), bad, 0)
