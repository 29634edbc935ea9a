"""What a search's tree says to a person, and to a model that writes the next version: repeated errors, plateaus, and
changes of a setting that helped or hurt. Nothing is kept beside the tree.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from workbench.policies.search.protocols import Space
from workbench.policies.search.tree import SearchNode, SearchTree

UNLIKE = 0.1  # log of the least change of a time that is told (inferred)
PLATEAU = 6  # tries without a gain that are told (inferred)
MOST = 8  # sentences of each kind


def describe_memory(tree: SearchTree, space: Space) -> tuple[str, ...]:
    """Sentences: errors that came back, plateaus, discoveries, nodes that were closed."""
    return (*_repeated_errors(tree), *_plateaus(tree), *_discoveries(tree, space), *_closed(tree))


def _repeated_errors(tree: SearchTree) -> Iterator[str]:
    alike: dict[str, list[int]] = defaultdict(list)
    for number in tree.tried:
        result = tree.nodes[number].result
        if result is not None and tree.nodes[number].failed:
            alike[re.sub(r"0x[0-9a-fA-F]+|\d[\d.e+-]*", "N", result.message)[:120]].append(number)
    for message, numbers in sorted(alike.items(), key=lambda item: -len(item[1]))[:MOST]:
        if len(numbers) > 1:
            yield f"{len(numbers)} tries failed alike (nodes {_list(numbers)}): {message or 'no message'}"


def _plateaus(tree: SearchTree) -> Iterator[str]:
    walk = tree.walk()
    if tree.best is not None and (idle := len(walk) - 1 - walk.index(tree.best)) >= PLATEAU:
        yield f"the last {idle} tries gave no gain over {_name(tree.best)} ({tree.best_s:.4g} s)"
    for node in tree.nodes[1:]:
        tried = [tree.nodes[number] for number in node.children if tree.nodes[number].result is not None]
        own = node.result.time_s if node.result is not None else None
        if own and node.least_s >= own and len(tried) >= PLATEAU:
            yield f"{len(tried)} changes of {_name(node)} gave no gain"


def _discoveries(tree: SearchTree, space: Space) -> Iterator[str]:
    """Changes of one setting between two tries, by the mean of their effects."""
    effects: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    passed = [tree.nodes[number] for number in tree.tried if tree.nodes[number].passed]
    settings = [dict(space.settings(node.candidate)) if node.candidate is not None else {} for node in passed]
    for at, node in enumerate(passed):
        for before in range(at):
            names = {*settings[at], *settings[before]}
            changed = [name for name in names if settings[at].get(name) != settings[before].get(name)]
            if len(changed) == 1:
                old, new = (one.get(changed[0], "absent") for one in (settings[before], settings[at]))
                gain = math.log(_time_s(passed[before]) / _time_s(node))
                key, sign = ((changed[0], old, new), 1) if gain >= 0 else ((changed[0], new, old), -1)
                effects[key].append(sign * gain)
    means = {key: sum(values) / len(values) for key, values in effects.items()}
    for key, mean in sorted(means.items(), key=lambda item: -item[1])[:MOST]:
        name, old, new = key
        if mean >= UNLIKE and (name, new, old) not in means:
            yield f"{name} {new} instead of {old}: {math.exp(mean):.2f}x faster ({_count(len(effects[key]))})"


def _closed(tree: SearchTree) -> Iterator[str]:
    for node in tree.nodes:
        if node.pruned:
            yield f"{_name(node)} is closed: {node.pruned}"


def _name(node: SearchNode) -> str:
    """The node by its number and the version that it became, which is what a model knows."""
    version = node.result.version if node.result is not None else None
    return f"node {node.number}" + (f" (v{version})" if version else "")


def _count(number: int) -> str:
    return "1 comparison" if number == 1 else f"{number} comparisons"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")


def _time_s(node: SearchNode) -> float:
    return node.result.time_s if node.result is not None and node.result.time_s else math.inf
