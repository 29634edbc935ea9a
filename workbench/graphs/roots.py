"""The order in which an epoch visits its root nodes: the first of the two knobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.errors import UserError
from workbench.graphs.graph import Ints


def check_share(name: str, value: float) -> None:
    """Raise `UserError` unless the knob is a number from 0 to 1."""
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UserError(f"{name}={value}: it goes from 0 to 1")


def mixed_order(roots: Ints, community: Ints, mix: float, rng: np.random.Generator) -> Ints:
    """The roots in the order of COMM-RAND: communities are shuffled, each max(1, round(mix * C)) that follow each other
    are merged into a block, and roots are shuffled inside their block. C counts communities that have a root.

    roots: int64[R]; community: int64[N], of all nodes. mix=1 is one block: a uniform shuffle. mix=0 shuffles only
    inside of communities.
    """
    check_share("mix", mix)
    found, whose = np.unique(community[roots], return_inverse=True)
    size = max(1, round(mix * len(found)))
    block = rng.permutation(len(found)) // size
    shuffled = rng.permutation(len(roots))
    return roots[shuffled[np.argsort(block[whose[shuffled]], kind="stable")]]


def static_order(roots: Ints, community: Ints) -> Ints:
    """The roots community by community, always the same: int64[R]."""
    return roots[np.argsort(community[roots], kind="stable")]


def cut(order: Ints, batch: int) -> Iterator[Ints]:
    """The order in pieces of `batch` roots; the last one holds the rest."""
    if batch < 1:
        raise UserError(f"a batch of {batch} roots: it must have one at least")
    for start in range(0, len(order), batch):
        yield order[start : start + batch]
