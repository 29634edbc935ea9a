"""Modules in the styles people have that keep state or draw random numbers: what is said when they are opened."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from workbench import Session, problems
from workbench.problems import inspection
from workbench.problems.reference import run_reference
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Opened

FOLDER = Path(__file__).parent / "stateful"
MEMO = """import torch
import torch.nn as nn

n = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.last_shape = None

    def forward(self, x):
        self.last_shape = tuple(x.shape)
        return torch.relu(x)


def get_inputs():
    return [torch.randn(n, n)]


def get_init_inputs():
    return []
"""


@functools.cache
def opened(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(FOLDER / f"{name}.py")))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kv_ring", "writes to its own at, ring"),
        ("histogram_buffer", "writes to its own usage"),
        ("spectral", "writes to its own u"),
        ("cache_slice", "writes into a part of its own k_cache"),
        ("python_counter", "assigns to its own calls, so later calls differ from the first"),
        ("assigned_buffer", "assigns to its own total"),
        ("plain_attribute", "assigns to its own h"),
        ("stochastic_depth", "bernoulli"),
    ],
)
def test_what_no_kernel_of_the_planner_keeps_is_named(name: str, said: str) -> None:
    with pytest.raises(Unrecognised, match=said):
        recognise(opened(name).facts)


@pytest.mark.parametrize(
    ("name", "stores"),
    [
        ("counter", ["store(into, add=1)"]),
        ("ema", ["store(into, x=h1)"]),
        ("running_max", ["store(into, x=h1)"]),
        ("add_in_place", ["store(x, x=h1)"]),
    ],
)
def test_whole_buffers_are_stored_beside_the_kernels(name: str, stores: list[str]) -> None:
    stages = plain_program(recognise(opened(name).facts)).split("|>")
    assert [stage.split("=", 1)[1].strip() for stage in stages if "store(" in stage] == stores


PART = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(64, 64))

    def forward(self, x):
        self.last[:, 0] = x[:, 0]
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 64)]
"""


def test_a_part_of_a_buffer_that_is_written_is_no_store() -> None:
    with pytest.raises(Unrecognised, match="writes into a part of its own last"):
        recognise(inspection.inspect(problems.load(PART)))


READ_AFTER = PART.replace("self.last[:, 0] = x[:, 0]", "self.steps += 1").replace(
    'register_buffer("last", torch.zeros(64, 64))', 'register_buffer("steps", torch.zeros((), dtype=torch.long))'
)


def test_a_counter_that_is_read_is_no_store() -> None:
    facts = inspection.inspect(problems.load(READ_AFTER.replace("relu(x)", "relu(x) * (1 - 0.9**self.steps)")))
    with pytest.raises(Unrecognised, match="writes to its own steps"):
        recognise(facts)
    recognise(inspection.inspect(problems.load(READ_AFTER)))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["counter", "ema"])
def test_what_is_stored_is_right_after_several_calls(name: str, tmp_path: Path) -> None:
    with Session.create(str(FOLDER / f"{name}.py"), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].verdict.correct
        source = version.proposal.candidate.source
        assert ".add_(" in source or ".copy_(" in source
        forgets = session.edit(source.replace(".add_(1)", ".add_(0)").replace("into.copy_(x)", "into"))
        assert not forgets.trials[-1].verdict.correct


def test_a_module_that_counts_in_python_is_no_identity() -> None:
    assert [item.kind for item in opened("python_counter").facts.degeneracies] == ["state_assigned"]


def test_a_module_that_only_remembers_something_is_planned() -> None:
    facts = inspection.inspect(problems.load(MEMO))
    assert not facts.degeneracies
    recognise(facts)


def test_a_module_that_puts_itself_into_eval_mode_has_no_dropout() -> None:
    found = opened("dropout_eval")
    assert found.problem.mode == "eval"
    assert "eval mode: __init__ calls eval()" in found.facts.notes
    assert not found.facts.degeneracies
    recognise(found.facts)


DRAWING = {
    "randn_like": lambda x: x + torch.randn_like(x),
    "bernoulli": torch.bernoulli,
    "dropout": lambda x: torch.dropout(x, 0.3, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(),
    "normal": lambda x: torch.normal(x, x),
    "multinomial": lambda x: torch.multinomial(x, 3),
    "gumbel": torch.nn.functional.gumbel_softmax,
}


class Called(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return DRAWING[self.name](x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DRAWING)
def test_float64_has_the_random_numbers_of_the_own_precision(name: str, dtype: torch.dtype) -> None:
    x = torch.rand(32, 48, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = run_reference(Called(name), [x], "fp32" if dtype == torch.float32 else "bf16", seed=5)
    assert found.eager is not None
    assert found.exact[0].dtype in (torch.float64, torch.int64)
    limit = 8 * torch.finfo(dtype).eps
    assert torch.allclose(found.exact[0].double(), found.eager[0].double(), atol=limit, rtol=limit)
    other = run_reference(Called(name), [x], "bf16", seed=6)
    assert not torch.equal(other.exact[0], found.exact[0])
