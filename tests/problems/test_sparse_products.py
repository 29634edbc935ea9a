"""Products with a sparse matrix that forward makes of its parts: opened, planned, and judged by torch.sparse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection
from workbench.problems.tracing.sparse import SparseMatrix, SparseProducts
from workbench.proposers.recognition import recognise
from workbench.session import Session

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

SOURCE = """
import torch
import torch.nn as nn
NODES, ROWS, DEGREE, COLUMNS = {nodes}, {rows}, 10, 64
class Model(nn.Module):
    def forward(self, x, indptr, indices, w, edges):
        A = {matrix}
        return {forward}

def get_inputs():
    counts = torch.randint(0, 2 * DEGREE, (ROWS,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(0, NODES, (int(indptr[-1]),))
    edges = torch.stack([torch.randint(0, NODES, (len(indices),)), indices])
    return [torch.randn(NODES, COLUMNS), indptr, indices, torch.rand(len(indices)), edges]

def get_init_inputs():
    return []
"""
CSR = "torch.sparse_csr_tensor(indptr, indices, w, (len(indptr) - 1, len(x)))"
ONES = "torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), size=(indptr.numel() - 1, x.shape[0]))"
COO = "torch.sparse_coo_tensor(edges, w, (x.shape[0], x.shape[0])).coalesce()"


def load(matrix: str, forward: str = "A @ x", nodes: int = 50_000, rows: int = 5_000) -> problems.Problem:
    return problems.load(SOURCE.format(matrix=matrix, forward=forward, nodes=nodes, rows=rows))


@pytest.mark.parametrize("forward", ["A @ x", "torch.sparse.mm(A, x)", "A.matmul(x)", "torch.mm(A, x)", "A.mm(x)"])
def test_a_product_is_an_aggregation_with_weights(forward: str) -> None:
    facts = inspection.inspect(load(CSR, forward))
    operation = recognise(facts).operation
    assert (operation.name, operation.positional) == ("aggregate", ("x", "indptr", "indices"))
    assert operation.named == (("weighted", 1),)
    assert {case.name for case in facts.cases} >= {"shrunk", "odd"} and any(size.varied for size in facts.sizes)


def test_ones_are_no_weights_and_coordinates_are_scattered() -> None:
    summed = recognise(inspection.inspect(load(ONES))).operation
    assert summed.name == "aggregate" and summed.named == ()
    assert recognise(inspection.inspect(load(COO))).operation.name == "scatter_add"


@pytest.mark.few(1)
@pytest.mark.parametrize(("matrix", "wrong"), [(CSR, "indices, torch.ones_like(w)"), (COO, "")])
def test_a_kernel_is_judged_by_the_product_of_torch(matrix: str, wrong: str, tmp_path: Path) -> None:
    with Session.create(load(matrix, nodes=4096, rows=512), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        verdict = version.trials[-1].verdict
        assert verdict.correct and verdict.doubts == () and "NODES from 1" in verdict.tested[0]
        if wrong:
            source = version.proposal.candidate.source
            assert source.endswith("indices, w)\n")
            assert not session.edit(source.replace("indices, w)\n", f"{wrong})\n")).trials[-1].verdict.correct


@pytest.mark.parametrize("width", [(), (5,)])
def test_the_lowered_products_are_those_of_torch(width: tuple[int, ...]) -> None:
    offsets, columns = torch.tensor([0, 2, 2, 3]), torch.tensor([3, 0, 1])
    rows, values, x = torch.tensor([0, 0, 2]), torch.rand(3), torch.rand(4, *width)
    for function, parts in (
        (torch.sparse_csr_tensor, (offsets, columns, values)),
        (torch.sparse_coo_tensor, (torch.stack([rows, columns]), values)),
    ):
        with SparseProducts():
            made = function(*parts, (3, 4))
        assert isinstance(made, SparseMatrix) and made.dtype == torch.float32
        wanted = function(*parts, (3, 4)) @ x
        torch.testing.assert_close(made @ x, wanted)
        if width:
            torch.testing.assert_close(torch.addmm(wanted, made, x, beta=0.5, alpha=2), 0.5 * wanted + 2 * wanted)


@pytest.mark.parametrize(
    ("matrix", "forward"),
    [
        (CSR, "A.to_dense() @ x"),
        (CSR, "torch.relu(A) @ x"),
        ("torch.sparse_csr_tensor(indptr, indices, w)", "A @ x"),
        ("x.to_sparse_csr()", "A @ torch.ones(64, 3)"),
    ],
)
def test_what_is_no_product_of_given_parts_is_refused_with_the_form_to_write(matrix: str, forward: str) -> None:
    with pytest.raises(ProblemError, match=r"write the product as torch\.segment_reduce"):
        inspection.inspect(load(matrix, forward, nodes=4096, rows=512))


def test_parts_that_do_not_fit_are_refused() -> None:
    offsets, columns, values = torch.tensor([0, 1, 3]), torch.tensor([0, 1, 0]), torch.rand(3)
    with pytest.raises(RuntimeError, match="do not fit each other"):
        SparseMatrix(offsets, columns, values, (3, 2), compressed=True)
    matrix = SparseMatrix(offsets, columns, values, (2, 2), compressed=True)
    with pytest.raises(RuntimeError, match=r"no product of \(2, 2\) and \(3, 4\)"):
        matrix @ torch.rand(3, 4)
    with pytest.raises(RuntimeError, match=r"a sparse product of torch\.float32 and torch\.float16"):
        matrix @ torch.rand(2, 4).half()
