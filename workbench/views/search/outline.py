"""The rows of a search tree: each node after its parent, with what is said of it.

`find_rows` gives all nodes; `fold` leaves out what is closed: pruned and failed branches, and all that leads neither to
the best node nor to the last one tried. So a tree of a thousand nodes is drawn in some dozens of rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence

from workbench.plugins import DEFAULTS
from workbench.policies.search import ROOT, SearchNode, SearchTree
from workbench.records import Version, record
from workbench.records.search import NodeResult
from workbench.views.text.mime_bundle import format_joules, format_seconds

MOST_SIBLINGS = 8  # children of one node that are drawn unasked
FEW = 2  # nodes below another that are drawn unasked
MARKS = {"root": "◇", "open": "○", "passed": "●", "failed": "✗", "screened": "◌", "pruned": "⊘"}


@record
class Row:
    """A node of the tree as it is shown. `value` is the mean reward of its subtree, with an interval of 90 %."""

    number: int
    parent: int | None
    depth: int
    title: str
    change: str  # of its settings against the parent; else the title
    status: str  # root, open, passed, failed, screened, pruned
    visits: int
    value: float | None
    low: float | None
    high: float | None
    time: str  # of a call; "" where there is none
    note: str  # why it is pruned, failed or screened out; what is expected of it
    text: str  # the program or the idea
    best: bool
    pinned: bool
    taken: bool
    children: int  # that it has
    hidden: int = 0  # nodes below it that are not drawn

    @property
    def mark(self) -> str:
        """Its status as a sign; ★ is the best so far."""
        return "★" if self.best else MARKS[self.status]

    @property
    def said_status(self) -> str:
        """Its status; nothing for the problem."""
        return "" if self.parent is None else self.status

    @property
    def said_value(self) -> str:
        """Its value with the interval."""
        if self.value is None:
            return ""
        said = format_value(self.value)
        return (
            said
            if self.low is None or self.high is None
            else f"{said} ({format_value(self.low)} to {format_value(self.high)})"
        )

    @property
    def words(self) -> str:
        """All that is known of it, in a line."""
        flags = [word for word in ("best", "pinned", "taken") if getattr(self, word)]
        tries = f"{self.visits} {'try' if self.visits == 1 else 'tries'}"
        value = f"value {self.said_value}" if self.visits else ""
        return "; ".join(
            filter(None, [f"{self.number} {self.title}", self.said_status, *flags, self.time, tries, value, self.note])
        )


def format_value(value: float) -> str:
    """A mean reward, without a sign before zero."""
    return f"{round(value, 3) + 0.0:.3f}"


def find_rows(tree: SearchTree) -> list[Row]:
    """All nodes, each after its parent, siblings in the order of the log."""
    rows: list[Row] = []
    waiting = [(ROOT, 0, False)]
    while waiting:
        number, depth, closed = waiting.pop()
        node = tree.nodes[number]
        closed = closed or bool(node.pruned)
        rows.append(_row(tree, node, depth, closed))
        waiting += [(child, depth + 1, closed) for child in reversed(node.children)]
    return rows


def _row(tree: SearchTree, node: SearchNode, depth: int, closed: bool) -> Row:
    interval = node.value_interval
    title = _title(node)
    return Row(
        number=node.number,
        parent=node.parent,
        depth=depth,
        title=title,
        change=_describe_change(title, _title(tree.nodes[node.parent])) if node.parent else title,
        status="pruned" if closed else node.status,
        visits=node.visits,
        value=node.value,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        time=_describe_time(node),
        note=_explain(tree, node, closed),
        text=node.candidate.text if node.candidate is not None else "",
        best=tree.best is node,
        pinned=node.pinned,
        taken=node.taken,
        children=len(node.children),
    )


def _title(node: SearchNode) -> str:
    candidate = node.candidate
    return candidate.title or candidate.text if candidate is not None else "the problem"


def _describe_change(title: str, before: str) -> str:
    """The settings that the title of a parent does not have; the whole title where that says nothing."""
    known = set(before.split(", "))
    return ", ".join(part for part in title.split(", ") if part not in known) or title


def _describe_time(node: SearchNode) -> str:
    result = node.result
    if result is None or result.time_s is None:
        return ""
    energy = f", {format_joules(result.joules)}" if result.joules is not None else ""
    how = " modelled" if result.screened else ""  # it was not sent to the GPU, where the others were measured
    return f"{format_seconds(result.time_s)}{how}{energy}"


def _explain(tree: SearchTree, node: SearchNode, closed: bool) -> str:
    """Why a node is where it is; for an open one what is expected of it."""
    candidate, result = node.candidate, node.result
    said = []
    if node.pruned:
        said.append(f"pruned: {node.pruned}")
    elif closed:
        said.append("below a pruned node")
    if candidate is not None and candidate.in_words:
        said.append(f"an idea in words{_say_made(tree, node)}")
    elif candidate is not None and candidate.kind == "repair":
        said.append("a repair")
    if result is not None:
        said += _explain_result(tree, result)
    elif candidate is not None:
        if not closed and (before := _find_pin_before(tree, node)) is not None:
            said.append(f"after what is below the pinned node {before}")
        if candidate.prior is not None:
            said.append(f"prior {candidate.prior.log_speedup:+.2f} ({candidate.prior.source})")
    return "; ".join(said)


def _explain_result(tree: SearchTree, result: NodeResult) -> Iterator[str]:
    """What a result says beside its time."""
    if result.screened:
        yield "screened out without a GPU"
    if result.message:
        yield " ".join(result.message.split())
    if result.quick and (result.time_s or math.inf) < tree.best_s:
        yield "by a quick trial, not surely faster than the best"


def _find_pin_before(tree: SearchTree, node: SearchNode) -> int | None:
    """The pinned node that goes before an open node which came of an idea in words; None if it is not such a node."""
    above = tree.node(node.parent).candidate if node.parent is not None else None
    pinned = tree.pinned
    if pinned is None or above is None or not above.in_words or tree.is_closed(pinned.number):
        return None
    return None if pinned.number in tree.path(node.number) else pinned.number


def _say_made(tree: SearchTree, node: SearchNode) -> str:
    """What became of an idea in words, where its children do not show it."""
    if not node.asked:
        return ", next"
    if node.made:
        known = [f"node {number}" for number in node.made if number not in node.children]
        return f", {'also' if node.children else 'which is'} {' and '.join(known)}" if known else ""
    is_planner = tree.setup is None or tree.setup.expander == DEFAULTS.proposer
    return "; nothing came of it" + (": name a legal setting, as in vector 4" if is_planner else "")


def fold(
    tree: SearchTree, opened: Collection[int] = (), *, closed: Collection[int] = (), siblings: int = MOST_SIBLINGS
) -> list[Row]:
    """The rows that are drawn: the root's children, the path to the best, to the last tried and to a pinned node, what
    has few nodes below it, and the children of the nodes in `opened`. Of more than `siblings` children the ones that
    matter most are drawn, in their order; those in `opened` show all.
    """
    rows = find_rows(tree)
    kept = find_kept(tree)
    shown: list[Row] = []
    is_open = {ROOT: True}
    drawn = _choose_children(tree, rows, kept, opened, siblings)
    below = _count_below(rows)
    for row in rows:
        if row.parent is not None and not (is_open.get(row.parent) and row.number in drawn[row.parent]):
            continue
        is_wanted = row.number in kept or below[row.number] <= FEW
        open_here = row.number not in closed and (
            row.number == ROOT or row.number in opened or (is_wanted and row.status != "pruned")
        )
        is_open[row.number] = open_here
        visible = drawn[row.number] if open_here else ()
        hidden = below[row.number] - sum(below[child] + 1 for child in visible)
        shown.append(dataclasses.replace(row, hidden=hidden))
    return shown


def find_kept(tree: SearchTree) -> set[int]:
    """Nodes on the way to the best, the pinned ones, a person's ideas and the last one tried."""
    ideas = [node.number for node in tree.nodes if node.candidate is not None and node.candidate.in_words]
    ends = [*tree.pins, *ideas, *tree.tried[-1:]]
    if tree.best is not None:
        ends.append(tree.best.number)
    return {number for end in ends for number in tree.path(end)}


def _choose_children(
    tree: SearchTree, rows: Sequence[Row], kept: Collection[int], opened: Collection[int], siblings: int
) -> dict[int, set[int]]:
    """For each node the children that are drawn where it is open."""
    by_number = {row.number: row for row in rows}

    def weight(child: int) -> tuple[bool, bool, float, int]:
        row, node = by_number[child], tree.nodes[child]
        return (child not in kept, row.status in ("pruned", "failed"), node.least_s, -node.visits)

    return {
        row.number: set(
            sorted(tree.nodes[row.number].children, key=weight)[: None if row.number in opened else siblings]
        )
        for row in rows
    }


def _count_below(rows: Sequence[Row]) -> dict[int, int]:
    """Number of nodes below each."""
    below = {row.number: 0 for row in rows}
    for row in reversed(rows):
        if row.parent is not None:
            below[row.parent] += below[row.number] + 1
    return below


def _name_node(node: SearchNode) -> str:
    """A node by its number, and the version that it is in the session."""
    version = node.result.version if node.result is not None else None
    return f"node {node.number}" if version is None else f"v{version} (node {node.number})"


def summarise(tree: SearchTree, versions: Sequence[Version] = (), in_shell: bool = False) -> str:
    """The search in a line: strategy, trials, what they cost, what was saved, the best so far, why it stopped.

    With the session's versions it says what was decided on the best, which need not be the session's best.
    """
    setup, best = tree.setup, tree.best
    most = f" of {tree.budget.trials}" if tree.budget.trials is not None else ""
    nodes = len(tree.nodes) - 1
    said = [
        f"search {setup.strategy}{' for energy' if setup.aim == 'energy' else ''}, seed {setup.seed}"
        if setup is not None
        else "search",
        f"{nodes} node{'s' if nodes != 1 else ''}, {tree.trials}{most} trials",
    ]
    if tree.screened:
        share = tree.screened / (tree.screened + tree.trials)
        said.append(f"{tree.screened} screened out without a GPU ({share:.0%} of the trials saved)")
    if tree.tokens:
        said.append(f"{tree.tokens} tokens")
    if tree.usd:
        said.append(f"${tree.usd:.4f}")
    said.append(_describe_best(tree, best, versions, in_shell) if best is not None else "none is correct yet")
    if best is not None and best.is_given and tree.trials:
        said.append("the session had it; nothing that was tried is better")
    if tree.stopped:
        said.append(tree.stopped)
    return "; ".join(said)


def _describe_best(tree: SearchTree, best: SearchNode, versions: Sequence[Version], in_shell: bool) -> str:
    """The best node with its time and what was decided on its version."""
    name = "best" if tree.setup is not None and tree.setup.aim == "energy" else "fastest"
    number = best.result.version if best.result is not None else None
    version = next((one for one in versions if one.number == number), None)
    standing = ""
    if version is not None:
        is_open = version.decision is None
        how = f"{'; in a notebook' if in_shell else ''}: %cutegen accept v{number}"
        standing = f", not accepted{how}" if is_open else f", {version.standing}"
    tried = "" if best.is_given else " tried"
    return f"{name}{tried} is {_name_node(best)}: {_describe_time(best)}{standing}"
