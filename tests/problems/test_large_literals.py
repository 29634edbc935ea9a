"""Modules whose own `__init__` has large numbers: opened without their weights, with these numbers as sizes."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from workbench import Session, problems
from workbench.errors import ProblemError
from workbench.problems import inspection, module_scalars
from workbench.problems.inputs.init_arguments import fit_candidate, with_init_arguments
from workbench.proposers.coverage import find_coverage

PROJECTION = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4096, 128256)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(8, 4096)]
"""
EMBEDDING = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(128256, 4096)

    def forward(self, ids):
        return self.table(ids)


def get_inputs():
    return [torch.randint(0, 128256, (4, 512))]
"""
LISTED = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim, *, bias=True):
        super().__init__()
        self.fc = nn.Linear(dim, 4 * 1024, bias=bias)
        self.register_buffer("scale", torch.ones(4096))

    def forward(self, x):
        return self.fc(x) * self.scale


def get_inputs():
    return [torch.randn(8, 512)]


def get_init_inputs():
    return [512]
"""


@pytest.mark.parametrize(
    ("text", "wanted", "kind"),
    [
        (PROJECTION, {"x_0": 8, "x_1": 4096, "fc_n1": 128256}, "matmul"),
        (EMBEDDING, {"ids_0": 4, "ids_1": 512, "table_n0": 128256, "table_n1": 4096}, "elementwise"),
    ],
)
def test_large_weights_are_not_drawn(text: str, wanted: dict[str, int], kind: str) -> None:
    """Neither takes two gigabytes or ten seconds, and every number is a size that cases vary."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    opened = inspection.open_problem(problems.load(text))
    assert time.monotonic() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
    facts = opened.facts
    assert {size.name: size.value for size in facts.sizes if size.varied} == wanted
    assert facts.kind == kind
    assert [case.name for case in facts.cases][:2] == ["shrunk", "odd"]
    assert any("a ModelNew has them too" in note for note in facts.notes)


@pytest.mark.slow
def test_kernels_of_a_large_projection(tmp_path: Path) -> None:
    """The planner's kernels are right at all cases, also one whose tiles have many more rows than 8."""
    path = tmp_path / "projection.py"
    path.write_text(PROJECTION)
    with Session.create(str(path), root=tmp_path, executor="emulator") as session:
        for step in range(3):
            version = session.refine() if step else session.generate()
            assert version is not None
            verdict = version.trials[-1].verdict
            assert verdict.correct, verdict
            session.accept(version.number)


def test_numbers_keep_their_lines() -> None:
    """Arguments by position get their names, and a sum of literals is one number."""
    source = problems.complete_source(LISTED)
    text = with_init_arguments(source)
    assert text is not None
    assert 'return {"dim": 512, "fc_n0": 4096, "scale_n0": 4096}' in text
    assert "def __init__(self, dim, *, bias=True, fc_n0=4096, scale_n0=4096):" in text
    assert text.count("\n") == source.count("\n")


NESTED = """import torch
from torch import nn

WIDTH = 768


class Norm(nn.Module):
    def __init__(self, hidden=WIDTH, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class MLP(nn.Module):
    def __init__(self, hidden=3072):
        super().__init__()
        self.norm = Norm(768)
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = MLP()

    def forward(self, x):
        return x + self.mlp(x)


def get_inputs():
    return [torch.randn(512, 768)]
"""


def test_numbers_in_the_classes_of_a_file_are_sizes() -> None:
    """Literals, defaults and names of the file in the `__init__` of nested classes vary, and the planner writes it."""
    opened = inspection.open_problem(problems.load(NESTED))
    sizes = {size.name: (size.value, {*size.tied}, size.varied) for size in opened.facts.sizes}
    assert sizes == {
        "WIDTH": (768, {"x_1", "norm_n0"}, True),
        "x_0": (512, set(), True),
        "hidden": (3072, set(), True),
    }
    assert find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200").program


def test_a_class_that_is_made_twice_gets_one_number_for_both() -> None:
    """Two parts with other numbers get arguments of their own."""
    text = NESTED.replace("self.mlp = MLP()", "self.mlp = nn.Sequential(MLP(), MLP(hidden=1536), MLP())")
    lifted = with_init_arguments(problems.complete_source(text))
    assert lifted is not None
    made = "norm_n0=norm_n0, WIDTH=WIDTH"
    assert (
        f"nn.Sequential(MLP({made}, hidden=hidden), MLP(hidden=mlp_n0, {made}), MLP({made}, hidden=hidden))" in lifted
    )


CANDIDATE = """import torch
from torch import nn
{head}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = {made}

    def forward(self, x):
        return self.fc(x)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("head", "made", "wanted"),
    [
        ("", "nn.Linear(4096, 128256)", "nn.Linear(fc_n0, fc_n1)"),
        ("", "nn.Linear(4096, 128000)", ""),  # another number
        ("", "nn.Linear(4096, int('128256'))", ""),  # one is missing
        ("def broken(:", "nn.Linear(4096, 128256)", ""),
    ],
)
def test_a_candidate_with_the_same_numbers_gets_the_arguments(head: str, made: str, wanted: str) -> None:
    """Only where every number agrees; the text stays as it is otherwise."""
    problem = inspection.open_problem(problems.load(PROJECTION)).problem
    text = CANDIDATE.format(head=head, made=made)
    assert fit_candidate(text, problem) == (
        text.replace(made, wanted).replace("(self):", "(self, *, fc_n0=4096, fc_n1=128256):") if wanted else text
    )


@pytest.mark.slow
def test_a_kernel_by_hand_with_its_own_numbers_is_tested_at_all_sizes(tmp_path: Path) -> None:
    """A planner's kernel, with the numbers back in the text of its `__init__`, is right; with another number it is
    told what to take.
    """
    path = tmp_path / "projection.py"
    path.write_text(PROJECTION)
    with Session.create(str(path), root=tmp_path, executor="emulator") as session:
        first = session.generate()
        assert first is not None
        text = first.proposal.candidate.source.replace(", *, fc_n0=4096, fc_n1=128256", "")
        text = text.replace("nn.Linear(fc_n0, fc_n1)", "nn.Linear(4096, 128256)")
        assert "fc_n0" not in text
        by_hand = session.edit(text)
        assert by_hand.trials[-1].verdict.correct, by_hand.trials[-1].verdict
        other = session.edit(text.replace("128256", "128000"))
        failure = other.trials[-1].verdict.failure
        assert failure is not None and "fc_n0=4096, fc_n1=128256)` as Model has" in failure.message


def test_a_name_makes_a_number_a_size() -> None:
    """Numbers of `__init__` that fit as they are stay unless an option names them."""
    small = PROJECTION.replace("128256", "64").replace("4096", "32")
    assert "fc_n1" not in module_scalars(problems.load(small).source)
    opened = inspection.open_problem(problems.load(small, settings={"fc_n1": 48}))
    assert {size.name: size.value for size in opened.facts.sizes}["fc_n1"] == 48
    with pytest.raises(ProblemError, match="no such size"):
        problems.load(small, vary=("fc_n7",))


def test_where_numbers_cannot_be_arguments() -> None:
    """`get_init_inputs` that computes what it returns cannot have more."""
    assert with_init_arguments(f"{LISTED}\n".replace("return [512]", "return [512] * 1")) is None
