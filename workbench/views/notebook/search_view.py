"""The search of a session in the panel: its tree as plain JSON, and what a person orders there."""

from __future__ import annotations

import contextlib
from typing import TypedDict, get_args

from workbench.errors import UserError
from workbench.policies.search import SearchTree
from workbench.session import Session
from workbench.session.searching.steering import SteerAction
from workbench.views.notebook.messages import Message, read_count, read_number
from workbench.views.search.outline import Row, find_kept, find_rows, summarise
from workbench.views.text.tables import list_settled

MOST_TRIALS = 1000  # of a search that the panel starts


class NodeRow(TypedDict):
    """A node: the browser draws it where its parent is open. `kept`: on the way to the best, pinned or last one."""

    number: int
    parent: int | None
    depth: int
    change: str
    status: str
    mark: str
    visits: int
    value: str
    time: str
    note: str
    flags: list[str]
    kept: bool
    tried: bool


class SearchView(TypedDict):
    """The last search of a session."""

    head: str
    rows: list[NodeRow]


def search_view(session: Session) -> SearchView:
    """The tree of the session's last search; without one, no rows."""
    tree: SearchTree | None = None
    with contextlib.suppress(UserError):  # no search yet, or one that was changed
        tree = session.search_tree()
    if tree is None:
        return {"head": "", "rows": []}
    kept = find_kept(tree)
    return {
        "head": summarise(tree, session.versions),
        "rows": [_node_row(row, tree, row.number in kept) for row in find_rows(tree)],
    }


def _node_row(row: Row, tree: SearchTree, kept: bool) -> NodeRow:
    return {
        "number": row.number,
        "parent": row.parent,
        "depth": row.depth,
        "change": row.change,
        "status": row.status,
        "mark": row.mark,
        "visits": row.visits,
        "value": row.said_value,
        "time": row.time,
        "note": row.note,
        "flags": [word for word in ("best", "pinned", "taken") if getattr(row, word)],
        "kept": kept,
        "tried": tree.nodes[row.number].result is not None,
    }


def run_search(session: Session, message: Message, by: str) -> str:
    """Search, or go on with the last search that began so, for some more trials; returns what is to be said."""
    trials = read_count(message, 20, MOST_TRIALS)
    before, versions = 0, session.versions
    with contextlib.suppress(UserError):  # no search yet, or one that was changed
        tree = session.search_tree()
        if tree.setup is not None and (tree.setup.strategy, tree.setup.seed, tree.setup.expander) == ("tree", 0, by):
            before = tree.trials
    tree = session.search(budget=before + trials, by=by)
    return "; ".join((*list_settled(session, versions), summarise(tree, session.versions)))


def steer(session: Session, message: Message) -> str:
    """Do what a person orders of the last search; returns what is to be said."""
    action, node, text = str(message.get("action", "")), message.get("node"), str(message.get("text", ""))
    if action not in get_args(SteerAction):
        raise UserError(f"a search cannot {action!r}; it can: {', '.join(get_args(SteerAction))}")
    number = None if node is None else read_number(node)
    tree = session.steer_search(action, number, text)  # type: ignore[arg-type]
    if action == "idea":
        return f"the idea is node {len(tree.nodes) - 1}; the search makes candidates of it next"
    if action == "take":
        return f"node {number} is the baseline"
    return f"{action}: node {number}; {summarise(tree, session.versions)}"
