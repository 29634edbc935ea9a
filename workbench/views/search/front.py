"""Joules against time of the nodes of a search, with the Pareto front."""

from __future__ import annotations

from workbench.errors import UserError
from workbench.policies.search import SearchTree
from workbench.records import Provenance
from workbench.views.plots.energy import EnergyPoint, draw_points
from workbench.views.search.outline import summarise
from workbench.views.text.mime_bundle import MimeBundle


def draw_front(tree: SearchTree, provenance: Provenance = "modelled") -> MimeBundle:
    """The correct nodes that have joules; `provenance`: where their numbers are from, which the log does not say.

    Raises `UserError` where no node has joules.
    """
    points = [
        EnergyPoint(
            version=node.number,
            title=node.candidate.title,
            seconds=node.result.time_s,
            joules=node.result.joules,
            low_joules=node.result.joules,
            high_joules=node.result.joules,
            provenance=provenance,
            standing="best" if node is tree.best else "correct",
        )
        for node in tree.walk()
        if node.passed
        and node.candidate is not None
        and node.result is not None
        and node.result.time_s is not None
        and node.result.joules is not None
    ]
    if not points:
        raise UserError("no node of this search has joules: there is no front; look at the curve instead")
    return draw_points(points, f"Energy against time: {summarise(tree)}", "v: the number of the node; filled: the best")
