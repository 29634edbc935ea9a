"""The gradient of aggregate as an operator of `torch.library`: an aggregation over the transposed rows of indices.

`cutegen export --as custom-op` writes this into the exported file, with the kernels of the gradient.
"""

import torch


class TransposedRows:
    """The transposed compressed rows of the last offsets and indices: those of another batch replace them."""

    def __init__(self):
        self.last = None

    def find(self, indptr, indices, nodes):
        """Return (offsets of the nodes, the row of each of their indices, its place among the indices)."""
        last, versions = self.last, None
        if not (indptr.is_inference() or indices.is_inference()):
            versions = (indptr._version, indices._version, nodes)
            if last is not None and last[0] is indptr and last[1] is indices and last[2] == versions:
                return last[3]
        order = torch.argsort(indices, stable=True)
        numbers = torch.arange(nodes + 1, dtype=indices.dtype, device=indices.device)
        offsets = torch.searchsorted(indices[order], numbers)
        rows = torch.searchsorted(indptr, order.to(indptr.dtype), right=True) - 1
        found = offsets, rows, order
        if versions is not None:
            self.last = indptr, indices, versions, found
        return found


def define_gradient(name, reduce, kernel):
    """Define the operator of the gradient of aggregate(x, indptr, indices), a sum or a mean, perhaps with weights.

    It returns the gradient of x, then that of the weights. `kernel` aggregates (gradient, offsets, rows), with weights
    for factors, and for those computes the products of the gradient with rows of x.
    """
    transposed = TransposedRows()

    def run(gradient, x, indptr, indices, weight):
        offsets, rows, order = transposed.find(indptr, indices, x.shape[0])
        gradient = gradient.contiguous()
        if weight is not None:
            pair = (gradient, x) if weight.dim() > 1 else (gradient.reshape(-1, x[0].numel()), x.reshape(len(x), -1))
            for_x, for_weight = kernel(gradient, offsets, rows, weight[order], *pair, indptr, indices)
            return [for_x, for_weight.to(weight.dtype)]
        if reduce == "mean":
            factors = 1 / indptr.diff().clamp(min=1).to(torch.float32)
            return [kernel(gradient, offsets, rows, factors[rows])]
        return [kernel(gradient, offsets, rows)]

    def make_results(gradient, x, indptr, indices, weight):
        return [torch.empty_like(value) for value in (x, weight) if value is not None]

    operands = "(Tensor gradient, Tensor x, Tensor indptr, Tensor indices, Tensor? weight) -> Tensor[]"
    operator = torch.library.custom_op(name, run, mutates_args=(), schema=operands)
    operator.register_fake(make_results)
    return operator
