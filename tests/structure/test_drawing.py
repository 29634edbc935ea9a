"""Rules as highlighted graphs and trees: what is drawn, and that texts are escaped."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest

from workbench.structure import datasets
from workbench.structure.estimators import SymGraphClassifier
from workbench.views.plots.rule_graph import draw_rule, draw_rule_tree


@pytest.fixture(scope="module")
def houses() -> tuple[datasets.GraphSet, SymGraphClassifier]:
    found = datasets.ba_2motifs(60)
    return found, SymGraphClassifier(radii=(1,)).fit(found.graphs, found.labels)


def test_a_rule_is_drawn_on_an_example_with_its_pattern_highlighted(houses) -> None:
    found, model = houses
    rule = next(one for one in model.rules() if one.label == "1")
    shown = draw_rule(rule, found.graphs)
    drawing = ET.fromstring(shown.svg)
    circles = [one for one in drawing.iter() if one.tag.endswith("circle")]
    pattern = rule.literals[0].pattern
    assert len(circles) == 25 + 1  # each node, and the outline of the anchor
    assert sum(one.get("r") == "9" for one in circles) == len(pattern.nodes)
    assert shown.text == str(rule) and len(shown.plotly["data"]) == 5
    assert shown.svg == draw_rule(rule, found.graphs).svg


def test_a_tree_is_drawn_with_its_tests_and_labels(houses) -> None:
    shown = draw_rule_tree(houses[1].tree())
    assert "yes: " in shown.text and "no: " in shown.text and "in a ring of 3" in shown.text
    texts = [one.text for one in ET.fromstring(shown.svg).iter() if one.tag.endswith("text")]
    assert "yes" in texts and "1 (30)" in texts and "0 (30)" in texts


def test_texts_are_escaped(houses) -> None:
    found, model = houses
    rule = dataclasses.replace(model.rules()[0], label="<script>")
    shown = draw_rule(rule, found.graphs)
    assert "<script" not in shown.svg and "&lt;script&gt;" in shown.svg
