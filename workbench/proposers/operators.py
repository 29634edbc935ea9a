"""NVIDIA's kernels of nvidia-cutlass-operators as versions: rivals of what the workbench writes.

The package is an optional extra (pip install "cutegen-workbench[operators]"). Its registry is asked on the CPU, with
tensors that have no data. A version is one file that imports the package and takes one of its operators.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterator

from workbench.analysis import devices
from workbench.codegen.exports.registry import PRODUCTS, is_plain_product
from workbench.protocols import PLAIN, Proposer, RunContext
from workbench.records import Ask, Candidate, Event, Proposal, TensorSpec, record

PACKAGE = "nvidia-cutlass-operators"
SOURCE = '''"""{title}"""

import cutlass.operators as ops
import torch
from torch import nn

ALIGNMENT = 8  # elements; the registry's kernels take rows of whole 16 bytes
prepared: dict = {{}}


def is_chosen(metadata):
    """Return whether an operator is the one of this file."""
    design = metadata.design
    chosen = (metadata.operator_class.__name__, tuple(design.tile_shape), tuple(design.cluster_shape))
    return chosen == ({name!r}, {tile}, {cluster})


def multiply(a, b):
    """Return a @ b by the operator, or None if it does not take these operands."""
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
    arguments = ops.GemmArguments(a, b, out, accumulator_type=torch.float32)
    key = (a.dtype, a.shape, a.stride(), a.data_ptr() % 16, b.shape, b.stride(), b.data_ptr() % 16)
    if key not in prepared:
        found = ops.get_operators(arguments, metadata_filter=is_chosen, target_sm={target!r})
        prepared[key] = (found[0], found[0].compile(arguments, target_sm={target!r})) if found else None
    if prepared[key] is None:
        return None
    operator, artifact = prepared[key]
    operator.run(arguments, artifact, stream=torch.cuda.current_stream(), assume_supported_args=True)
    return out


def pad(matrix):
    """Return an aligned copy with zeros up to whole vectors."""
    rows, columns = matrix.shape[-2:]
    return nn.functional.pad(matrix, (0, -columns % ALIGNMENT, 0, -rows % ALIGNMENT)).clone(
        memory_format=torch.contiguous_format
    )


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        if not ({a}.numel() and {b}.numel()):
            return torch.matmul({a}, {b})  # nothing to compute
        out = multiply({a}, {b})
        if out is None:
            out = multiply(pad({a}), pad({b}))[..., : {a}.shape[-2], : {b}.shape[-1]].contiguous()
        return out
'''


@record
class Design:
    """An operator of the registry, by what its file chooses it by."""

    name: str  # of its class
    tile: tuple[int, ...]
    cluster: tuple[int, ...]


class Operators(Proposer):
    """Proposes the registry's kernels for a product, one a step: largest tiles first that still fill the GPU."""

    name = "operators"

    def why_not(self) -> str | None:
        """Whether the package is installed."""
        try:
            importlib.metadata.version(PACKAGE)
        except importlib.metadata.PackageNotFoundError:
            return f'{PACKAGE} is not installed: pip install "cutegen-workbench[operators]"'
        return None

    def propose(self, ask: Ask, context: RunContext = PLAIN, /) -> Iterator[Event | Proposal]:
        """The next operator that the history does not hold, or a note."""
        if not is_plain_product(ask.facts):
            yield _note("the registry has kernels for plain products of two matrices, and this problem is another")
            return
        product = next(node for node in ask.facts.graph if node.target in PRODUCTS)
        case = next(case for case in ask.facts.cases if case.name == "full")
        specs = {spec.name: spec for spec in case.inputs}
        a, b = (specs[name] for name in product.operands)
        target = ask.arch.removeprefix("sm_")
        designs = list_designs(a, b, target)
        if not designs:
            yield _note(f"the registry has no kernel for {a.dtype} {a.shape} @ {b.shape} on {ask.arch}")
            return
        known = {version.proposal.candidate.source for version in ask.history}
        for design in sort_designs(designs, a, b, devices.find(ask.device).sms):
            size = " x ".join(map(str, design.tile))
            title = f"NVIDIA's {design.name}, tile {size}, cluster {design.cluster[0]} x {design.cluster[1]}"
            source = SOURCE.format(
                title=title,
                name=design.name,
                tile=design.tile,
                cluster=design.cluster,
                target=target,
                arguments=", ".join(ask.facts.forward_arguments),
                a=a.name,
                b=b.name,
            )
            if source not in known:
                yield Proposal(
                    candidate=Candidate(source=source),
                    title=title,
                    reason=f"one of {len(designs)} kernels of {PACKAGE} that support this product",
                    by=self.name,
                    parent=ask.baseline.number if ask.baseline else None,
                )
                return
        yield _note(f"all {len(designs)} kernels of the registry for this product are versions")


def _note(message: str) -> Event:
    return Event(kind="note", message=message)


def list_designs(a: TensorSpec, b: TensorSpec, target: str) -> tuple[Design, ...]:
    """What the registry has for a product on an architecture, with sizes as they are or else padded."""
    import cutlass.operators as ops  # late: optional, and it loads CuTe DSL
    import torch

    for step in (1, 8):
        left, right = (_make_empty(spec, step) for spec in (a, b))
        out = torch.empty(*left.shape[:-1], right.shape[-1], dtype=left.dtype, device="meta")
        query = ops.GemmArguments(left, right, out, accumulator_type=torch.float32)
        found = ops.get_operators(query, target_sm=target)
        if found:
            metadata = [item.metadata for item in found]
            made = (
                Design(
                    name=item.operator_class.__name__,
                    tile=tuple(item.design.tile_shape),
                    cluster=tuple(item.design.cluster_shape),
                )
                for item in metadata
                if hasattr(item.design, "tile_shape")
            )
            return tuple(dict.fromkeys(made))
    return ()


def _make_empty(spec: TensorSpec, step: int):  # type: ignore[no-untyped-def]  # a tensor of torch
    """A tensor with no data; the extents of the matrix in whole steps, the strides its own if those are 1."""
    import torch

    dtype = getattr(torch, spec.dtype)
    if step == 1:
        return torch.empty_strided(spec.shape, spec.strides, dtype=dtype, device="meta")
    matrix = [-(-extent // step) * step for extent in spec.shape[-2:]]
    return torch.empty(*spec.shape[:-2], *matrix, dtype=dtype, device="meta")


def sort_designs(designs: tuple[Design, ...], a: TensorSpec, b: TensorSpec, sms: int) -> list[Design]:
    """Designs with a tile for each SM first, of these the largest tiles, and small clusters before large ones."""
    batches, m, n = math.prod(a.shape[:-2]), a.shape[-2], b.shape[-1]

    def order(design: Design) -> tuple[bool, int, int]:
        rows, columns = design.tile[:2]
        tiles = batches * -(-m // rows) * -(-n // columns)
        return tiles < sms, -rows * columns if tiles >= sms else rows * columns, math.prod(design.cluster)

    return sorted(designs, key=order)
