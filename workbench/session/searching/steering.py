"""What a person does to a search: each order is one event of its log."""

from __future__ import annotations

import textwrap
from typing import Literal, get_args

from workbench.errors import UserError
from workbench.policies.search import ROOT, SearchNode, SearchTree, Space
from workbench.policies.search.protocols import ShouldStop
from workbench.records import record
from workbench.records.search import SearchBudget, SearchCandidate, SearchEvent
from workbench.session.searching.candidates import DIGITS
from workbench.session.searching.store_log import StoreLog
from workbench.wire import content_hash

SteerAction = Literal["pin", "unpin", "prune", "revive", "expand", "budget", "take", "idea"]
ACTIONS: tuple[SteerAction, ...] = get_args(SteerAction)


@record
class Steer:
    """An order of a person.

    pin, unpin     expand a node before all others; no more
    prune, revive  close a node and all below it, with `text` as the reason; open it again
    expand         list the children of a node as open nodes; a model writes one
    budget         replace the budget
    take           make the node's version the baseline of the session
    idea           `text` becomes a node below `node` (the root without one), and the expander makes candidates of it
    """

    action: SteerAction
    node: int | None = None
    text: str = ""
    budget: SearchBudget | None = None

    def check(self) -> None:
        """Raise `UserError` for an order that lacks what it needs."""
        if self.action not in ACTIONS:
            raise UserError(f"a search cannot {self.action!r}; it can: {', '.join(ACTIONS)}")
        if self.action not in ("budget", "idea") and self.node is None:
            raise UserError(f"{self.action} which node? give its number")
        if self.action == "idea" and not self.text.strip():
            raise UserError("an idea needs words: use 256 threads per row")
        if self.action == "budget" and self.budget is None:
            raise UserError("what may the search spend? give trials, seconds, tokens, dollars or joules")


def steer(log: StoreLog, order: Steer, space: Space | None, should_stop: ShouldStop) -> None:
    """Append the event of a checked order; `space` is needed to expand. Raises `UserError` if it does not fit."""
    tree = log.tree()
    event = SearchEvent(number=0, kind="budget", by="person", budget=order.budget)
    if order.action == "idea":
        event = _write_idea(order, tree)
    elif order.action != "budget":
        node = find_node(tree, order.node)
        event = _expand(node, tree, space, should_stop) if order.action == "expand" else _mark(order, node)
    log.append(event)


def find_node(tree: SearchTree, number: int | None) -> SearchNode:
    """A node of a tree. Raises `UserError` if there is none of this number."""
    if number is None:
        raise UserError(f"which node? give its number; the tree has nodes 0 to {len(tree.nodes) - 1}")
    if not 0 <= number < len(tree.nodes):
        raise UserError(f"no node {number}; the tree has nodes 0 to {len(tree.nodes) - 1}")
    return tree.nodes[number]


def _mark(order: Steer, node: SearchNode) -> SearchEvent:
    number = node.number
    if order.action == "prune":
        if number == ROOT:
            raise UserError("node 0 is the problem itself; stop the search instead")
        if node.pruned:
            raise UserError(f"node {number} is pruned already: {node.pruned}")
        reason = order.text.strip() or "by a person"
        return SearchEvent(number=0, kind="pruned", node=number, reason=reason, by="person")
    if order.action == "revive":
        if not node.pruned:
            raise UserError(f"node {number} is not pruned")
        return SearchEvent(number=0, kind="revived", node=number, by="person")
    if order.action == "unpin" and not node.pinned:
        raise UserError(f"node {number} is not pinned")
    return SearchEvent(number=0, kind="pinned" if order.action == "pin" else "unpinned", node=number, by="person")


def _write_idea(order: Steer, tree: SearchTree) -> SearchEvent:
    words = order.text.strip()
    above = find_node(tree, order.node or ROOT)
    key = content_hash(f"{above.number} {words}")[:DIGITS]
    if key in tree.keys:
        raise UserError(f"this idea is node {tree.keys[key]} already")
    candidate = SearchCandidate(key=key, text=words, title=textwrap.shorten(words, 60), in_words=True)
    return SearchEvent(number=0, kind="idea", parent=above.number, candidates=(candidate,), by="person")


def _expand(node: SearchNode, tree: SearchTree, space: Space | None, should_stop: ShouldStop) -> SearchEvent:
    if space is None:
        raise UserError("the space of this search is not known here")
    if node.number != ROOT and node.result is None and not (node.candidate is not None and node.candidate.in_words):
        raise UserError(f"node {node.number} was not tried yet; pin it, and it is tried next")
    found = tuple(space.expand(node, tree, should_stop))
    return SearchEvent(
        number=0, kind="opened", node=node.number, candidates=found, reason="asked by a person", by="person"
    )
