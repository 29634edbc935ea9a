"""Draws rules on graphs: a rule as highlighted graphs, and a global tree as a tree."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from workbench.structure.extras import require
from workbench.structure.graph import Graph, read_graph
from workbench.structure.rules import Literal, Rule, TreeNode
from workbench.views.figures import objects as go
from workbench.views.figures.colours import readable_ink
from workbench.views.figures.describe import NO_AXIS, escape, make_figure, show
from workbench.views.figures.style import LETTER, QUIET, WIDTH, colour_of
from workbench.views.text.mime_bundle import MimeBundle

PANEL = 300  # pixels of one graph, at most
ACROSS = 1.2  # from one graph to the next, of a graph's width
MOST_PANELS = 3
MOST_NODES = 200  # a larger graph is drawn without what is not of the pattern
LEVEL = 92  # pixels between levels of a tree
Places = NDArray[numpy.float64]


def draw_rule(rule: Rule, graphs: Sequence[object]) -> MimeBundle:
    """A rule on the graphs that it was learnt from: for each of its first literals an example, with the pattern's nodes
    numbered and coloured by their orbit. The anchor has a double outline.
    """
    literals = [one for one in rule.literals if not one.negated][:MOST_PANELS] or list(rule.literals[:MOST_PANELS])
    panels = [_Panel(one, read_graph(graphs[one.pattern.graph])) for one in literals]
    said = [str(panel.literal) for panel in panels]
    size = min(PANEL, (WIDTH - 36) / (ACROSS * (len(panels) - 1) + 1.16))
    figure = make_figure(
        "\n".join([f"label {rule.label}: support {rule.support}, confidence {rule.confidence:.1%}", *said]),
        [trace for number, panel in enumerate(panels) for trace in panel.make_traces(number)],
        height=size,
        xaxis={**NO_AXIS, "range": [-0.08, (WIDTH - 36) / size - 0.08]},
        yaxis={**NO_AXIS, "range": [-0.08, 1.08], "scaleanchor": "x"},
    )
    return show(figure, str(rule), described=str(rule))


class _Panel:
    """One literal on its example graph, with a place for each node."""

    def __init__(self, literal: Literal, graph: Graph) -> None:
        self.literal, self.graph = literal, graph
        self.nodes = literal.pattern.nodes
        self.shown = range(graph.size) if graph.size <= MOST_NODES else sorted(self.nodes)
        inside = set(self.shown)
        self.edges = [(a, b) for a, b in graph.edges.tolist() if a in inside and b in inside and a != b]
        self.inner = {frozenset((self.nodes[a], self.nodes[b])) for a, b in literal.pattern.edges}
        self.places = place_nodes(self.shown, self.edges)

    def make_traces(self, number: int) -> Iterator[Any]:
        """Edges outside the pattern and inside, the outline of the anchor, nodes outside and inside."""
        at = {node: (x + ACROSS * number, 1 - y) for node, (x, y) in self.places.items()}
        for inner, width in ((False, 1), (True, 2.5)):
            edges = [edge for edge in self.edges if (frozenset(edge) in self.inner) == inner]
            yield go.Scatter(
                mode="lines",
                hoverinfo="skip",
                opacity=1 if inner else 0.35,
                line={"color": QUIET, "width": width},
                x=[value for a, b in edges for value in (at[a][0], at[b][0], None)],
                y=[value for a, b in edges for value in (at[a][1], at[b][1], None)],
            )
        outer = [node for node in self.shown if node not in self.nodes]
        names = {node: f"node {self.graph.node_name(node)}" for node in self.shown}
        colours = [colour_of(orbit) for orbit in self.literal.pattern.orbits]
        (x, y), tips = at[self.nodes[0]], [names[node] for node in outer]
        yield _dots([(x, y)], {"color": QUIET, "size": 24, "symbol": "circle-open"}, [""], [names[self.nodes[0]]])
        yield _dots([at[node] for node in outer], {"color": QUIET, "size": 8, "opacity": 0.6}, [""] * len(outer), tips)
        said = [f"orbit {orbit}" if n else "the node itself" for n, orbit in enumerate(self.literal.pattern.orbits)]
        tips = [f"{names[node]}: {role}" for node, role in zip(self.nodes, said, strict=True)]
        orbits = [str(orbit) for orbit in self.literal.pattern.orbits]
        yield _dots([at[node] for node in self.nodes], {"color": colours, "size": 18}, orbits, tips)


def _dots(
    places: Sequence[tuple[float, float]], marker: Mapping[str, Any], labels: Sequence[str], tips: Sequence[str]
) -> go.Scatter:
    colours = marker["color"] if isinstance(marker["color"], list) else [marker["color"]] * len(places)
    return go.Scatter(
        mode="markers+text",
        x=[x for x, _ in places],
        y=[y for _, y in places],
        text=list(labels),
        textposition="middle center",
        textfont={"color": [readable_ink(colour) for colour in colours]},
        hovertext=escape(tips),
        hoverinfo="text",
        marker=marker,
    )


def place_nodes(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, tuple[float, float]]:
    """A place for each node in the unit square; the same for the same graph."""
    require("networkx")
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    found = networkx.spring_layout(graph, seed=1, iterations=200)
    places: Places = numpy.array([found[node] for node in nodes]).reshape(-1, 2)
    low, high = places.min(axis=0), places.max(axis=0)
    places = (places - low) / numpy.where(high > low, high - low, 1)
    return {node: (float(x), float(y)) for node, (x, y) in zip(nodes, places, strict=True)}


def draw_rule_tree(tree: TreeNode) -> MimeBundle:
    """A global tree as text, indented, and as a drawing; a branch is taken to the left where the test holds."""
    leaves = list(_leaves(tree))
    links: list[tuple[float, float] | None] = []
    words: list[tuple[float, float, str, str, str]] = []
    places = {id(leaf): (n + 0.5) / len(leaves) for n, leaf in enumerate(leaves)}
    depth = _place_tree(tree, places, 0, links, words)[1]
    lines = go.Scatter(
        mode="lines",
        x=[place and place[0] for place in links],
        y=[place and place[1] for place in links],
        line={"color": QUIET, "width": 1},
        opacity=0.5,
        hoverinfo="skip",
    )
    texts = go.Scatter(
        mode="text",
        x=[word[0] for word in words],
        y=[word[1] for word in words],
        text=[word[2] for word in words],
        textfont={"weight": [word[3] for word in words]},
        textposition="bottom center",
        hovertext=[word[4] for word in words],
        hoverinfo="text",
    )
    figure = make_figure(
        "",
        [lines, texts],
        height=(depth + 0.4) * LEVEL,
        xaxis={**NO_AXIS, "range": [0, 1]},
        yaxis={**NO_AXIS, "range": [depth + 0.4, -0.1]},
    )
    said = "\n".join(_lines(tree, 0))
    return show(figure, said, described=f"the tree of rules: {said}")


def _leaves(tree: TreeNode) -> Iterator[TreeNode]:
    if tree.yes is None or tree.no is None:
        yield tree
    else:
        yield from _leaves(tree.yes)
        yield from _leaves(tree.no)


def _lines(tree: TreeNode, depth: int) -> Iterator[str]:
    if tree.yes is None or tree.no is None:
        yield f"{'    ' * depth}{tree.text} ({tree.support})"
        return
    yield f"{'    ' * depth}{tree.text}?"
    for word, branch in (("yes", tree.yes), ("no", tree.no)):
        first, *more = _lines(branch, depth + 1)
        yield f"{'    ' * depth}  {word}: {first.strip()}"
        yield from more


def _place_tree(
    tree: TreeNode,
    places: Mapping[int, float],
    depth: int,
    links: list[tuple[float, float] | None],
    words: list[tuple[float, float, str, str, str]],
) -> tuple[float, int]:
    """Collects the links and the texts of a node and of what is below it. Returns its place across, and the deepest
    level.
    """
    if tree.yes is None or tree.no is None:
        x = places[id(tree)]
        (label,) = escape([f"{tree.text} ({tree.support})"])
        words.append((x, depth, label, "bold", label))
        return x, depth
    found = [_place_tree(branch, places, depth + 1, links, words) for branch in (tree.yes, tree.no)]
    x = sum(place for place, _ in found) / 2
    for (place, _), word in zip(found, ("yes", "no"), strict=True):
        links += [(x, depth + 0.5), (place, depth + 1), None]
        words.append(((x + place) / 2, depth + 0.65, word, "normal", word))
    lines = textwrap.wrap(tree.text, 34)
    lines = [*lines[:2], f"{lines[2][:32]}…"] if len(lines) > 3 else lines
    half = LETTER * max(map(len, lines)) / 2 / WIDTH  # the text is kept inside the drawing
    at = min(max(x, half), 1 - half)
    words.append((at, depth, "<br>".join(escape(lines)), "normal", escape([tree.text])[0]))
    return x, max(level for _, level in found)
