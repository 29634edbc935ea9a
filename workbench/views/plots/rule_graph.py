"""Draws rules on graphs: a rule as highlighted graphs, and a global tree as a tree."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import numpy
from numpy.typing import NDArray

from workbench.structure.extras import require
from workbench.structure.graph import Graph, read_graph
from workbench.structure.rules import Literal, Rule, TreeNode
from workbench.views.plots.colours import readable_ink
from workbench.views.plots.svg import COLOURS, QUIET, WIDTH, draw_svg, draw_text, draw_titled, figure_layout
from workbench.views.text.mime_bundle import MimeBundle

PANEL = 230  # pixels of one graph
MOST_PANELS = 3
MOST_NODES = 200  # a larger graph is drawn without what is not of the pattern
LINE = 60  # characters of a caption
LEVEL = 92  # pixels between levels of a tree
Places = NDArray[numpy.float64]


def draw_rule(rule: Rule, graphs: Sequence[object]) -> MimeBundle:
    """A rule on the graphs that it was learnt from: for each of its first literals an example, with the pattern's nodes
    numbered and coloured by their orbit. The anchor has a double outline.
    """
    literals = [one for one in rule.literals if not one.negated][:MOST_PANELS] or list(rule.literals[:MOST_PANELS])
    panels = [_Panel(one, read_graph(graphs[one.pattern.graph])) for one in literals]
    body = [
        draw_text(8, 18, line, size=13) for line in [f"{rule.label}: support {rule.support}, {rule.confidence:.1%}"]
    ]
    for number, panel in enumerate(panels):
        body += panel.draw(number * PANEL + 10, 30)
    captions = [line for panel in panels for line in textwrap.wrap(str(panel.literal), 2 * LINE)]
    body += [draw_text(8, PANEL + 52 + 15 * n, line) for n, line in enumerate(captions)]
    drawing = draw_svg(PANEL + 60 + 15 * len(captions), f"rule for {rule.label}", str(rule), body)
    shape = figure_layout(
        f"{rule.label}: support {rule.support}, confidence {rule.confidence:.1%}", 320, showlegend=False
    )
    for axis in ("xaxis", "yaxis"):
        shape[axis] = {"visible": False}
    shape["yaxis"] = {"visible": False, "scaleanchor": "x"}
    data = [trace for number, panel in enumerate(panels) for trace in panel.traces(number)]
    return MimeBundle(str(rule), svg=drawing, plotly={"data": data, "layout": shape})


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

    def draw(self, left: float, top: float) -> list[str]:
        """SVG elements."""
        at = {node: (left + 15 + x * (PANEL - 40), top + 15 + y * (PANEL - 30)) for node, (x, y) in self.places.items()}
        body = [self._line(at, edge) for edge in sorted(self.edges, key=lambda edge: frozenset(edge) in self.inner)]
        for node in self.shown:
            if node not in self.nodes:
                body.append(self._circle(at[node], 4, QUIET, f"node {self.graph.node_name(node)}", 0.6))
        for number, (node, orbit) in enumerate(zip(self.nodes, self.literal.pattern.orbits, strict=True)):
            colour = COLOURS[orbit % len(COLOURS)]
            tip = f"node {self.graph.node_name(node)}: {'the node itself' if number == 0 else f'orbit {orbit}'}"
            if number == 0:
                body.append(
                    f'<circle cx="{at[node][0]:.1f}" cy="{at[node][1]:.1f}" r="12" fill="none" '
                    'stroke="currentColor" stroke-width="1.5"/>'
                )
            body.append(self._circle(at[node], 9, colour, tip, 1))
            ink = readable_ink(colour)
            x, y = at[node][0], at[node][1] + 4
            body.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{ink}">{orbit}</text>')
        return body

    def _line(self, at: Mapping[int, tuple[float, float]], edge: tuple[int, int]) -> str:
        (x1, y1), (x2, y2) = at[edge[0]], at[edge[1]]
        style = 'stroke-width="2.5"' if frozenset(edge) in self.inner else 'stroke-opacity=".35"'
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" {style}/>'

    @staticmethod
    def _circle(place: tuple[float, float], radius: int, colour: str, tip: str, opacity: float) -> str:
        shape = f'circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius}" fill="{colour}" fill-opacity="{opacity}"'
        return draw_titled(shape, tip)

    def traces(self, number: int) -> Iterator[dict[str, object]]:
        """Plotly traces: edges outside the pattern, edges inside, nodes outside, nodes inside."""
        at = {node: (x + 1.25 * number, 1 - y) for node, (x, y) in self.places.items()}
        for inner, width in ((False, 1), (True, 3)):
            edges = [edge for edge in self.edges if (frozenset(edge) in self.inner) == inner]
            yield {
                "type": "scatter",
                "mode": "lines",
                "hoverinfo": "skip",
                "line": {"color": QUIET, "width": width},
                "x": [value for a, b in edges for value in (at[a][0], at[b][0], None)],
                "y": [value for a, b in edges for value in (at[a][1], at[b][1], None)],
            }
        outer = [node for node in self.shown if node not in self.nodes]
        yield _dots(outer, at, [QUIET] * len(outer), ["" for _ in outer], self.graph)
        orbits = self.literal.pattern.orbits
        colours = [COLOURS[orbit % len(COLOURS)] for orbit in orbits]
        yield _dots(list(self.nodes), at, colours, [str(orbit) for orbit in orbits], self.graph)


def _dots(
    nodes: Sequence[int],
    at: Mapping[int, tuple[float, float]],
    colours: Sequence[str],
    labels: Sequence[str],
    graph: Graph,
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [at[node][0] for node in nodes],
        "y": [at[node][1] for node in nodes],
        "text": list(labels),
        "hovertext": [f"node {graph.node_name(node)}" for node in nodes],
        "hoverinfo": "text",
        "marker": {"color": list(colours), "size": 20 if any(labels) else 8},
        "textfont": {"color": [readable_ink(colour) for colour in colours]},
    }


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
    step = WIDTH / max(len(leaves), 1)
    body: list[str] = []
    depth = _draw_node(tree, {id(leaf): (n + 0.5) * step for n, leaf in enumerate(leaves)}, 0, body, step)[1]
    return MimeBundle(
        "\n".join(_lines(tree, 0)),
        svg=draw_svg((depth + 1) * LEVEL + 10, "the tree of rules", "\n".join(_lines(tree, 0)), body),
    )


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


def _draw_node(
    tree: TreeNode, places: Mapping[int, float], depth: int, body: list[str], step: float
) -> tuple[float, int]:
    """Draws a node and what is below it. Returns its place across, and the deepest level."""
    top = 10 + depth * LEVEL
    if tree.yes is None or tree.no is None:
        x = places[id(tree)]
        body.append(
            draw_text(x, top + 14, f"{tree.text} ({tree.support})", anchor="middle", more=' font-weight="bold"')
        )
        return x, depth
    found = [_draw_node(branch, places, depth + 1, body, step) for branch in (tree.yes, tree.no)]
    x = sum(place for place, _ in found) / 2
    for (place, _), word in zip(found, ("yes", "no"), strict=True):
        body.append(
            f'<line x1="{x:.1f}" y1="{top + 46}" x2="{place:.1f}" y2="{top + LEVEL}" stroke="currentColor" '
            'stroke-opacity=".5"/>'
        )
        body.append(draw_text((x + place) / 2, top + 48 + LEVEL / 4, word, anchor="middle"))
    lines = textwrap.wrap(tree.text, 34)
    for n, line in enumerate(lines[:3]):
        said = line if n < 2 or len(lines) <= 3 else f"{line[:32]}…"
        body.append(draw_titled_text(x, top + 10 + 13 * n, said, tree.text))
    return x, max(level for _, level in found)


def draw_titled_text(x: float, y: float, words: str, tip: str) -> str:
    """A centred text with a tooltip, kept inside the drawing."""
    half = 3 * len(words)
    x = min(max(x, half), WIDTH - half)
    return draw_text(x, y, words, anchor="middle").replace("</text>", f"<title>{html.escape(tip)}</title></text>")
