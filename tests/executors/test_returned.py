"""What a candidate returns is of the reference's kind, and a wrong one of several results is named."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from workbench import evaluate, executors, problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.wrong_result import wrong_result
from workbench.records import Candidate, Check, Failure, Job, Opened
from workbench.session import Session

NAMED = """import dataclasses
from typing import NamedTuple

import torch


class Stats(NamedTuple):
    doubled: torch.Tensor
    negative: torch.Tensor


@dataclasses.dataclass
class Act:
    x: torch.Tensor
    eps: float = 1e-5


class Model(torch.nn.Module):
    def forward(self, x, act: Act):
        RETURN


def get_inputs():
    return [torch.randn(256, 300), Act(torch.randn(256, 300), 0.25)]
"""
FORMS = {
    "named tuple": "return Stats(x + x, -x)",
    "dataclass": "return Act(act.x + x, act.eps)",
    "dict": "return {'y': x + x, 'n': -x}",
    "tuple": "return x + x, -x",
    "tensor": "return x + x",
    "nothing": "x.add_(x)",
}
CANDIDATE = """import collections
import dataclasses

import torch

Stats = collections.namedtuple("Mine", "doubled negative")


@dataclasses.dataclass
class Act:
    x: torch.Tensor
    eps: float


class ModelNew(torch.nn.Module):
    def forward(self, x, act):
        RETURN
"""


@functools.cache
def open_form(form: str) -> Opened:
    """The problem whose result has a form."""
    return WorkerInspector().open(problems.load(NAMED.replace("RETURN", FORMS[form])))


def failure_of(form: str, returned: str) -> Failure | None:
    """The failure of a candidate in torch, which is judged at one case."""
    opened = open_form(form)
    job = Job(
        problem=opened.problem,
        facts=opened.facts,
        candidate=Candidate(source=CANDIDATE.replace("RETURN", returned)),
        cases=("shrunk",),
        trials=1,
        full_sample=False,
    )
    return evaluate.evaluate(job, executors.choose("emulator")).verdict.failure


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("form", "returned"),
    [
        ("named tuple", "return Stats(x + x, -x)"),
        ("dataclass", "return Act(act.x + x, act.eps)"),
        ("dict", "return collections.OrderedDict(n=-x, y=x + x)"),
        ("tuple", "return [x + x, -x]"),
    ],
)
def test_the_same_kind_of_container_is_right(form: str, returned: str) -> None:
    assert failure_of(form, returned) is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("form", "returned", "got", "wanted"),
    [
        (
            "named tuple",
            "return {'doubled': x + x, 'negative': -x}",
            "dict(doubled=tensor, negative=tensor)",
            "NamedTuple Stats(doubled=tensor, negative=tensor)",
        ),
        (
            "named tuple",
            "return x + x, -x",
            "tuple(tensor, tensor)",
            "NamedTuple Stats(doubled=tensor, negative=tensor)",
        ),
        (
            "dataclass",
            "return {'x': act.x + x, 'eps': 0.25}",
            "dict(eps=tensor, x=tensor)",
            "dataclass Act(x=tensor, eps=tensor)",
        ),
        ("dataclass", "return act.x + x", "tensor", "dataclass Act(x=tensor, eps=tensor)"),
        ("dict", "return x + x, -x", "tuple(tensor, tensor)", "dict(n=tensor, y=tensor)"),
        ("tensor", "return (x + x,)", "tuple(tensor)", "tensor"),
        ("tuple", "return x + x", "1 output (output0)", "2 outputs (output0, output1)"),
        ("tuple", "pass", "None", "2 outputs (output0, output1)"),
        ("tensor", "pass", "None", "1 output (output0)"),
        ("nothing", "return x + x", "1 output (output0)", "nothing, and changes x in place"),
    ],
)
def test_another_kind_is_wrong(form: str, returned: str, got: str, wanted: str) -> None:
    failure = failure_of(form, returned)
    assert failure is not None and failure.kind == "wrong_outputs"
    assert failure.message == f"ModelNew.forward returns {got}; the reference returns {wanted}"


@pytest.mark.parametrize(
    ("form", "returned", "which"),
    [
        ("tuple", "return x + x, x * 1", "output 1 (float32)"),
        ("dict", "return {'y': x, 'n': -x}", "output y"),
        ("dataclass", "return Act(act.x + x, 0.5)", "output eps"),
        ("nothing", "x.mul_(3)", "x after the call"),
    ],
)
def test_the_wrong_one_of_several_results_is_named(form: str, returned: str, which: str) -> None:
    failure = failure_of(form, returned)
    assert failure is not None and failure.message.startswith(f"wrong {which} at case shrunk: ")


def test_the_planner_returns_the_class_of_the_reference(tmp_path: Path) -> None:
    with Session.create(NAMED.replace("RETURN", FORMS["named tuple"]), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].verdict.correct
        assert "class Stats(NamedTuple):" in version.proposal.candidate.source


def test_tiny_rows_decide_only_if_the_same_result_is_right_elsewhere() -> None:
    facts = open_form("tuple").facts
    right = Check(case="over", trial=0, timed=False, passed=True, elements=8)
    wrong = Check(case="over", trial=1, timed=False, passed=False, elements=8, output=1, values="tiny rows")
    first = Check(case="shrunk", trial=0, timed=False, passed=False, elements=8, output=1)
    elsewhere = wrong_result([first, right, wrong], facts=facts)
    assert elsewhere is not None and "at case shrunk:" in elsewhere.message and "eps" not in elsewhere.hint
    alike = wrong_result(
        [first, Check(case="over", trial=0, timed=False, passed=True, elements=8, output=1), wrong], facts=facts
    )
    assert alike is not None and "at case over with inputs of tiny rows" in alike.message and "eps" in alike.hint
