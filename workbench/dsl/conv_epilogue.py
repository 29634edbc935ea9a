"""Epilogues of convolutions: those of products, element by element. n are the filters; a tensor has the result's shape, or one that is broadcast to it."""

from __future__ import annotations

import dataclasses

from workbench.dsl import epilogue
from workbench.dsl.epilogue import Chain, Read
from workbench.dsl.ir import Binding, Call, Rejection, Stage
from workbench.dsl.operation import COMBINERS

NAMES = tuple(name for name in epilogue.NAMES if name not in epilogue.REDUCTIONS)
SPREAD = '''
def spread(tensor, d, space):
    """A tensor that the epilogue reads, laid out as the result d (images, filters, three extents) of `space` dimensions is."""
    view = torch.broadcast_to(tensor.detach(), (*d.shape[:2], *d.shape[5 - space:])).reshape(d.shape)
    return view if view.stride() == d.stride() else torch.empty_like(d, dtype=view.dtype).copy_(view)


'''


def check(stage: Stage) -> list[Rejection]:
    """Rejections of arguments and of the order, and of vectors along the places."""
    legal = "along=n, the filters, or a tensor of the result's shape without along"
    along = [Rejection(field=call.name, value="along=m", reason="the places of a convolution have several extents", legal=legal) for call in stage.epilogues if dict(call.named).get("along") == "m"]
    known = tuple(call for call in stage.epilogues if call.name in NAMES)  # of others the operation's list of epilogues speaks
    return along or epilogue.check(dataclasses.replace(stage, epilogues=known))


def of_product(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The same in a product of the filters and an image, whose rows are the filters."""
    return tuple(
        Call(name=call.name, positional=call.positional, named=(("along", "m"),)) if call.name == "bias" or (call.name in COMBINERS and dict(call.named).get("along") == "n") else call
        for call in calls
    )  # fmt: skip


def bound_in_product(chain: Chain, bound: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The tensors as the product reads them: (images, filters, places) where they have the result's shape."""
    shape = "(x.shape[0], w.shape[0], *x.shape[2:])"
    texts = {read.role: bound.get(read.role, read.role) for read in chain.reads}
    return tuple((read.role, texts[read.role] if read.along != "both" else f"torch.broadcast_to({texts[read.role]}, {shape}).flatten(2)") for read in chain.reads)


def roles(chain: Chain) -> tuple[str, ...]:
    """What the kernel calls the tensors."""
    return tuple(read.role for read in chain.reads)


def whole(chain: Chain) -> tuple[Read, ...]:
    """Those of the result's shape."""
    return tuple(read for read in chain.reads if read.along == "both")


def views(chain: Chain) -> list[str]:
    """The kernel's arguments, where d is the result and x the input, as (images, channels, ...)."""
    return [
        f"from_dlpack({read.role}.detach()).mark_layout_dynamic()" if read.along != "both" else f"from_dlpack(spread({read.role}, d, x.dim() - 2)).mark_layout_dynamic(leading_dim=4)"
        for read in chain.reads
    ]  # fmt: skip


def expected(chain: Chain, filters: str, shape: str) -> str:
    """Lines of convolve that refuse tensors of other shapes; both texts are Python of it."""
    return "".join(f"    {line}\n" for line in epilogue.expected(chain, {}, "", filters, shape))


def forward_text(binding: Binding, chain: Chain) -> str:
    """The body of forward."""
    bound = dict(binding.operands)
    return f"return convolve({', '.join(bound.get(name, name) for name in ('x', 'w', *roles(chain)))})"
