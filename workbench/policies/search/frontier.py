"""What may be tried next in a tree: the candidates that no rule excludes. All strategies choose from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from workbench.policies.search.protocols import Action, Expand, Space, Try
from workbench.policies.search.tree import ROOT, SearchNode, SearchTree
from workbench.records.search import SearchCandidate


class Option(NamedTuple):
    """A candidate and where it would stand; `node` is set if it is in the tree already, not tried."""

    candidate: SearchCandidate
    parent: int
    node: int | None = None

    def action(self, reason: str = "") -> Try:
        """The action that tries it."""
        return Try(candidate=self.candidate, parent=self.parent, node=self.node, reason=reason)


def steer(tree: SearchTree, space: Space) -> Action | None:
    """What a person asked for, which comes before the strategy: a pinned node is tried; an idea is written out, and
    what was made of it is tried, after a pinned node that it is not below.
    """
    node = tree.pinned
    if node is not None and _is_open(node) and not tree.is_closed(node.number):
        return Try(node=node.number, reason="pinned")
    for node in tree.nodes:
        if node.candidate is None or not node.candidate.in_words or tree.is_closed(node.number):
            continue
        if not node.asked:
            return Expand(node=node.number, reason="an idea in words")
        if _is_first(tree, space) and tree.pins[-1] not in tree.path(node.number):
            continue
        for made in map(tree.node, node.made):
            if _is_open(made) and not tree.is_closed(made.number):
                return Try(node=made.number, reason="an idea in words")
    if tree.pinned is not None and not tree.is_closed(tree.pinned.number) and not options_at(tree, space, tree.pinned):
        return Expand(node=tree.pinned.number, reason="pinned") if can_write(space, tree.pinned) else None
    return None


def _is_first(tree: SearchTree, space: Space) -> bool:
    """Whether a node is pinned of which something is left."""
    node = tree.pinned
    return (
        node is not None
        and not tree.is_closed(node.number)
        and (can_write(space, node) or bool(options_at(tree, space, node)))
    )


def options(tree: SearchTree, space: Space) -> list[Option]:
    """All that may be tried: below the pinned node where there is one with something left, else anywhere.

    Open nodes come first, then the space's roots, then what is made of the nodes that passed.
    """
    if found := pinned_options(tree, space):
        return found
    found = [
        Option(node.candidate, node.parent, node.number)
        for node in tree.nodes
        if node.candidate is not None and node.parent is not None and _is_open(node) and not tree.is_closed(node.number)
    ]
    known = set(tree.keys)
    for option in _new_options(tree, space):
        if option.candidate.key not in known:
            known.add(option.candidate.key)
            found.append(option)
    return found


def pinned_options(tree: SearchTree, space: Space) -> list[Option]:
    """What may be tried below the pinned node; [] where no node is pinned, or nothing is left of it."""
    pinned = tree.pinned
    return options_at(tree, space, pinned) if pinned is not None and not tree.is_closed(pinned.number) else []


def options_at(tree: SearchTree, space: Space, node: SearchNode) -> list[Option]:
    """What may be tried as a child of one node: its open children, then what the space makes of it.

    Below a node that failed these are repairs only.
    """
    found = [
        Option(child.candidate, node.number, child.number)
        for child in map(tree.node, node.children)
        if child.candidate is not None and _is_open(child) and not child.pruned
    ]
    made = space.roots() if node.number == ROOT else space.children(node, tree)
    return found + [
        Option(one, node.number)
        for one in made
        if one.key not in tree.keys and (one.kind == "repair" or not node.failed)
    ]


def can_write(space: Space, node: SearchNode) -> bool:
    """Whether the expander may be asked for children of a node."""
    return space.writes and not node.exhausted


def _is_open(node: SearchNode) -> bool:
    return node.result is None and not node.pruned and node.candidate is not None and not node.candidate.in_words


def _new_options(tree: SearchTree, space: Space) -> Iterator[Option]:
    for candidate in space.roots():
        yield Option(candidate, ROOT)
    for number in tree.tried:
        node = tree.nodes[number]
        if node.passed and not tree.is_closed(number):
            for candidate in space.children(node, tree):
                yield Option(candidate, number)
