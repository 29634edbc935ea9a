"""References that write in place: to inputs, which is told and planned for whole ones, and to their own values."""

from __future__ import annotations

import re

import pytest

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection
from workbench.proposers.binding import plain_program
from workbench.proposers.coverage import find_coverage
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Facts

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F

n = 32
d = 64


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.rand(n, d), torch.rand(n, d)]


def get_init_inputs():
    return [d]
"""


def facts(body: str) -> Facts:
    return inspection.inspect(problems.load(FILE.format(body=body)))


def names_of_changed(found: Facts) -> list[str]:
    return [item.message.split(" in place")[0] for item in found.degeneracies if item.kind == "input_modified"]


@pytest.mark.parametrize(
    "body",
    [
        "x.add_(1); return torch.relu(x)",
        "torch.add(x, 1, out=x); return torch.relu(x)",
        "z = torch.relu(x); x.mul_(2); return z",
        "return F.relu(x, inplace=True)",
        "x.addcmul_(x, x, value=2); x.sub_(1)",
    ],
)
def test_a_whole_input_that_a_reference_changes_is_told_and_stored(body: str) -> None:
    found = facts(body)
    assert names_of_changed(found) == ["forward changes its input x"]
    stages = plain_program(recognise(found)).split("|>")
    assert len([stage for stage in stages if "= store(x, x=" in stage]) == 1


@pytest.mark.parametrize(
    "body",
    [
        "torch._foreach_add_([x], 1.0); return torch.relu(x)",
        "x.data.mul_(2); return torch.relu(x)",
    ],
)
def test_a_reference_that_changes_an_input_in_a_way_that_is_not_understood_is_told_and_not_planned(body: str) -> None:
    found = facts(body)
    assert names_of_changed(found) == ["forward changes its input x"]
    with pytest.raises(Unrecognised, match=r"changes its input x in place.*x = x.clone\(\)"):
        recognise(found)


@pytest.mark.parametrize(
    "body",
    [
        "x = x.clone(); x.add_(1); return torch.relu(x)",
        "z = torch.relu(x); z += y; return F.relu_(z)",
        "z = x * 2; z = z.view(-1); z.relu_(); return z * 2",
    ],
)
def test_a_value_of_its_own_may_be_written_to(body: str) -> None:
    found = facts(body)
    assert not [item for item in found.degeneracies if item.kind == "input_modified"]
    recognise(found)


@pytest.mark.parametrize(
    "body",
    [
        "z = x * 2; torch._foreach_add_([z], 1.0); return z",
        "z = x * 2; v = z.view(-1); z.add_(1); return v",
    ],
)
def test_a_value_that_is_read_under_another_name_than_it_was_written_to_is_left(body: str) -> None:
    with pytest.raises(Unrecognised, match="writes to a view of a value and reads the value after it"):
        recognise(facts(body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x[:, 0] = 0; return torch.relu(x)", "its input x (line 15); .*, and write all of it: x.copy_(...);"),
        ("x.chunk(2, 1)[0].add_(3); return torch.relu(x)", "its input x (line 15); .*: x.copy_(...);"),
        ("x[:, 1:] = x[:, :-1].clone(); return x + y", "its input x (line 15); .*: x.copy_(...);"),
        ("self.w[:3] = 2; return x * self.w", "its own w (line 15); .*: self.w.copy_(...);"),
        ("z = x * 2; z[:, 0] = 0; return torch.relu(z)", "a tensor (line 15); .* by torch.cat or torch.where;"),
        ("z = x * 2; z.chunk(2, 1)[0].add_(3); return F.relu(z)", "a tensor (line 15); .* or torch.where;"),
    ],
)
def test_a_write_into_a_part_says_which_and_what_to_do(body: str, said: str) -> None:
    pattern = re.escape(said).replace(r"\.\*", ".*").replace(r"\ ", " ")
    with pytest.raises(Unrecognised, match=f"writes into a part of {pattern}") as refused:
        recognise(facts(body))
    assert "clone" not in str(refused.value)


def test_what_a_write_into_a_part_is_told_to_do_is_planned() -> None:
    found = facts("x.copy_(torch.cat([y[:, :1], x[:, :-1]], 1)); return torch.relu(x + y)")
    assert "= store(x, x=" in plain_program(recognise(found))


def test_the_nearest_program_leaves_no_write_out() -> None:
    given = problems.load(FILE.format(body="z = torch.exp(x); z[:, 0] = 0; return torch.relu(z + y)"))
    found = find_coverage(given, inspection.inspect(given), arch="sm_80", device="H200")
    assert "writes into a part" in found.reason and "exp" in found.part
    assert "relu" not in found.part and (found.calls, found.result) == (1, "exp")


def test_a_part_that_nothing_reads_as_a_whole_may_be_written_to() -> None:
    recognise(facts("z = (x * 2)[:, :8]; z.relu_(); return z + y[:, :8]"))


def test_a_parameter_that_forward_writes_to_is_named() -> None:
    with pytest.raises(Unrecognised, match="writes to its own w;"):
        recognise(facts("self.w.add_(1); return x * self.w"))


def test_a_tensor_that_forward_makes_from_numbers_is_traced() -> None:
    found = facts("return x * torch.tensor([1.0, 2.0]).sum()")
    assert any(op.target == "constant" and op.result[0].shape == (2,) for op in found.graph)
    with pytest.raises(Unrecognised, match="no kernel for"):
        recognise(found)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {'y': 'text'}", "forward returns a str in y; let it return tensors"),
        ("x * 2", "forward returns nothing, and changes none of its inputs and buffers"),
        ("return x * 2, object()", "forward returns a object in output1;"),
        ("return ()", "forward returns no tensor"),
    ],
)
def test_a_result_that_is_no_tensor_is_refused_in_a_line(body: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said) as refused:
        facts(body)
    assert len(str(refused.value).splitlines()) == 1
