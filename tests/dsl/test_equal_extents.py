"""Extents that are equal at the sizes of the trace and differ at others are not taken for one."""

from __future__ import annotations

import dataclasses

import pytest
from test_row_recognition import computes, problem

from workbench.problems.inspection import inspect
from workbench.proposers.recognition import recognise

SQUARES = ("torch.randn(24, 24)",) * 2  # four sizes, all shrunk to one number
THREE = ("torch.randn(3, 16, 16)",) * 3


def test_reductions_of_other_tensors_are_stages_of_their_own() -> None:
    text = computes(problem("x - y.mean() + y.sum() * x.sum()", SQUARES), "sm_80")
    assert "reduce(y, op=mean, axis=all)" in text and "sum(x)" in text


def test_sums_of_two_tensors_are_two_stages() -> None:
    assert computes(problem("x.sum() + y.sum()", SQUARES), "sm_80").count("op=sum") == 2


@pytest.mark.slow
def test_values_of_another_head_dimension_are_multiplied_by_a_product() -> None:
    forward = "torch.softmax(x @ y.transpose(-1, -2) * 0.3, -1) @ z"
    assert "attention" not in computes(problem(forward, THREE), "sm_80")


def test_groups_of_several_channels_at_full_size_are_no_depthwise_convolution() -> None:
    given = problem("self.m(x)", ("torch.randn(2, 8, 6, d)",), "self.m = nn.Conv2d(8, 16, 3, groups=8)")
    facts = inspect(given)
    assert dict(recognise(facts).operation.named)["groups"] == "channels"
    wider = [
        dataclasses.replace(spec, shape=(16, 4, 3, 3)) if spec.name == "param:m.weight" else spec for spec in facts.full
    ]
    assert dict(recognise(dataclasses.replace(facts, full=tuple(wider))).operation.named)["groups"] == 8
