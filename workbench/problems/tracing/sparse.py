"""Products with a sparse matrix that forward makes of its parts, as calls on these. Used in workers only.

torch's fake tensors refuse CSR. While a module is traced, such a matrix is therefore an object that holds its parts,
and a product with it the sum over rows of indices that the planner knows. The reference that judges runs torch.sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CSR, COO = torch.sparse_csr_tensor, torch.sparse_coo_tensor


class SparseMatrix:
    """A matrix of `size` (rows, columns) with a value for each index: CSR, or COO if `compressed` is false.

    `rows` has offsets of shape (rows + 1,), or the row of each index.
    """

    def __init__(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        values: torch.Tensor,
        size: Sequence[int],
        *,
        compressed: bool,
    ) -> None:
        self.rows, self.columns, self.values, self.compressed = rows, columns, values, compressed
        self.shape = torch.Size(size)
        lengths = {rows.shape[0] - 1: self.shape[0]} if compressed else {rows.shape[0]: columns.shape[0]}
        if len(self.shape) != 2 or values.shape != columns.shape or any(one != two for one, two in lengths.items()):
            raise RuntimeError(f"the parts of a sparse matrix of shape {tuple(self.shape)} do not fit each other")

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Products only: torch's calls whose name says so."""
        name, named = func.__name__, kwargs or {}
        if name in ("mm", "_sparse_mm", "matmul", "mv") and not named and isinstance(args[0], SparseMatrix):
            return args[0] @ args[1]
        if name in ("addmm", "_sparse_addmm", "addmv") and isinstance(args[1], SparseMatrix):
            return add_scaled(args[0], args[1] @ args[2], **named)
        raise NotImplementedError(f"SparseCsr: no {name} without data")

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, columns) by (columns, n) or (columns,)."""
        if not isinstance(x, torch.Tensor) or x.dim() not in (1, 2) or x.shape[0] != self.shape[1]:
            raise RuntimeError(
                f"SparseCsr: no product of {tuple(self.shape)} and {tuple(getattr(x, 'shape', ()))} without data"
            )
        if x.dtype != self.values.dtype:
            raise RuntimeError(f"a sparse product of {self.values.dtype} and {x.dtype}")
        weights = self.values if x.dim() == 1 else self.values[:, None]
        taken = x[self.columns] * weights
        if self.compressed:
            return torch.segment_reduce(taken, "sum", offsets=self.rows)
        return x.new_zeros((self.shape[0], *x.shape[1:])).index_add(0, self.rows, taken)

    def mm(self, x: torch.Tensor) -> torch.Tensor:
        """As `@`; so are `matmul` and `mv`."""
        return self @ x

    matmul = mv = mm

    def coalesce(self) -> SparseMatrix:
        """The matrix: values of one place are added up by a product anyway."""
        return self

    def __getattr__(self, name: str) -> object:
        if name in ("dtype", "device"):
            return getattr(self.values, name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"SparseCsr: no .{name} without data")


def add_scaled(added: torch.Tensor, product: torch.Tensor, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    """beta * added + alpha * product."""
    return (added if beta == 1 else beta * added) + (product if alpha == 1 else alpha * product)


def make_matrix(func: object, parts: tuple[Any, ...]) -> SparseMatrix:
    """The matrix that a call of torch makes of (offsets, indices, values, size) or (indices of both, values, size)."""
    if func is CSR:
        return SparseMatrix(*parts, compressed=True)
    places, values, size = parts
    return SparseMatrix(places[0], places[1], values, size, compressed=False)


class SparseProducts(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed here
    """Inside, `torch.sparse_csr_tensor` and `torch.sparse_coo_tensor` of given sizes make a `SparseMatrix`."""

    def __torch_function__(
        self, func: object, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        given = dict(kwargs or {})
        if func in (CSR, COO):
            names = ("crow_indices", "col_indices", "values", "size") if func is CSR else ("indices", "values", "size")
            parts = (*args, *(given[name] for name in names[len(args) :] if name in given))
            if len(parts) < len(names):
                raise RuntimeError("SparseCsr: without its size (rows, columns) its shape depends on values")
            if all(isinstance(part, torch.Tensor) for part in parts[:-1]):
                return make_matrix(func, parts)
        return func(*args, **given)  # type: ignore[operator]
