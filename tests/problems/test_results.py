"""What modules return: names, order, form, and what is refused."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch

from workbench.errors import ProblemError
from workbench.problems.results import describe_form, flatten_result

A, B = torch.zeros(2), torch.ones(3)
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    cache: object = None


@pytest.mark.parametrize(
    ("result", "names", "form"),
    [
        (A, ["output0"], "*"),
        ((A, B), ["output0", "output1"], "(*, *)"),
        ([A, B], ["output0", "output1"], "(*, *)"),
        ((A,), ["output0"], "(*,)"),
        ({"y": A, "mean": B}, ["y", "mean"], "{'y': *, 'mean': *}"),
        (Output(A), ["hidden"], "Output(hidden=*, cache=None)"),
        (Output(A, (B, None)), ["hidden", "cache.0"], "Output(hidden=*, cache=(*, None))"),
        (Pair(A, [B, A]), ["left", "right.0", "right.1"], "Pair(left=*, right=(*, *))"),
        ((A, {"k": B}), ["output0", "output1.k"], "(*, {'k': *})"),
    ],
)
def test_tensors_have_the_names_of_their_places(result: object, names: list[str], form: str) -> None:
    assert list(flatten_result(result)) == names and describe_form(result) == form


def test_numbers_are_tensors_of_no_axes() -> None:
    found = flatten_result((3, 0.5, True))
    assert [str(value.dtype) for value in found.values()] == ["torch.int64", "torch.float32", "torch.bool"]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returns nothing"),
        ((), "no tensor"),
        ("text", "a str"),
        ((A, object()), "a object in output1"),
        (B.to_sparse(), r"layout torch.sparse_coo; return x.to_dense\(\)"),
        ((A, torch.eye(3).to_sparse_csr()), "layout torch.sparse_csr in output1"),
    ],
)
def test_anything_else_is_refused_in_one_line(result: object, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        flatten_result(result)


def test_a_result_that_contains_itself_ends() -> None:
    endless: list[object] = [A]
    endless.append(endless)
    with pytest.raises(ProblemError):
        flatten_result(endless)
