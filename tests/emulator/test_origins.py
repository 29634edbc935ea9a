"""Memory that numpy or native code wrote is told from what operations of torch and kernels wrote."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from workbench import problems
from workbench.emulator.host.dlpack import AllocationWatch
from workbench.emulator.origins import Origins, storage_range
from workbench.session import Session

Step = Callable[[torch.Tensor], torch.Tensor]


def count_unseen(step: Step) -> int:
    """The bytes of a result of 400 bytes that were not written in sight."""
    noted: list[int] = []
    watch = AllocationWatch()
    watch.origins = Origins(lambda size, checksum: noted.append(size))
    x = torch.arange(100.0)
    with watch:
        watch.origins.begin_call([x])
        watch.origins.check_results([step(x)])
    return sum(noted)


def write(tensor: torch.Tensor) -> torch.Tensor:
    tensor.numpy()[3:] = 7
    return tensor


def move(tensor: torch.Tensor) -> torch.Tensor:
    ctypes.memset(tensor.data_ptr(), 1, 8)
    return tensor


IN_SIGHT: dict[str, Step] = {
    "an input": lambda x: x,
    "computed": lambda x: (x + 1).relu(),
    "a part of it": lambda x: (x + 1)[10:20],
    "in place": lambda x: x.clone().mul_(2).clamp_(min=0),
    "by out=": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "numpy's memory, filled by torch": lambda x: torch.from_numpy(np.empty(100, np.float32)).copy_(x),
    "a scalar of Python": lambda x: torch.full_like(x, 2.0) * torch.tensor(3.0),
    "several results": lambda x: x.sort()[0],
    "a list of tensors": lambda x: torch._foreach_add([x, x], 1.0)[1],
}
OUT_OF_SIGHT: dict[str, Step] = {
    "numpy's": lambda x: torch.from_numpy(x.numpy() + 1),
    "copied from numpy's": lambda x: torch.from_numpy(x.numpy() + 1).clone(),
    "computed from numpy's": lambda x: x * torch.from_numpy(x.numpy() + 1),
    "numpy in a result": lambda x: write(x + 1),
    "numpy before an operation in place": lambda x: write(x + 1).add_(0),
    "numpy before a part is replaced": lambda x: write(torch.zeros_like(x)).index_fill_(0, torch.tensor([0]), 1),
    "native code": lambda x: move(x + 1),
    "numbers of Python": lambda x: torch.tensor((x + 1).tolist()),
    "by out= of numpy's": lambda x: torch.add(x, torch.from_numpy(x.numpy() + 1), out=torch.empty_like(x)),
}


@pytest.mark.parametrize("name", IN_SIGHT)
def test_in_sight(name: str) -> None:
    assert count_unseen(IN_SIGHT[name]) == 0


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_out_of_sight(name: str) -> None:
    assert count_unseen(OUT_OF_SIGHT[name]) == 400


def test_a_launch_fills_memory_of_any_origin_and_only_reads_what_it_does_not_change() -> None:
    noted: list[int] = []
    origins = Origins(lambda size, checksum: noted.append(size))
    given, filled, known = (torch.from_numpy(np.zeros(100, np.float32)) for _ in range(3))
    origins.begin_call([known])
    ranges = [storage_range(value) for value in (given, filled, known)]
    for _ in range(2):  # counted once
        with origins.follow_launch(ranges):
            filled += 1
    assert noted == [400]
    origins.check_results([filled, known])
    assert noted == [400]
    origins.begin_call([])
    with origins.follow_launch(ranges[:1]):
        pass
    assert noted == [400, 400]


FEW_RESULTS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
    def forward(self, x):
        return self.conv(x).mean((1, 2, 3))
def get_inputs():
    return [torch.randn(2, 3, 12, 14)]
"""


def test_tables_of_a_convolution_are_no_results(tmp_path: Path) -> None:
    """They are larger than the few results here, and the same for other inputs."""
    (tmp_path / "few.py").write_text(FEW_RESULTS)
    problem = problems.load(str(tmp_path / "few.py"), precision="tf32")
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_90a") as session:
        version = session.generate()
        assert version is not None and "torch.tensor(" in version.proposal.candidate.source
        trial = session.version(version.number).trials[-1]
        assert trial.verdict.correct and trial.verdict.suspect == ()
        assert {work.unseen for work in trial.outcome.torch_work} <= {0.0}


SCALED = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(64, 40)]
"""


@pytest.mark.parametrize("rows", ["> 0", "!= 64", "== 64"], ids=["all", "but one", "one"])
def test_results_by_numpy_are_told_in_any_case(rows: str, tmp_path: Path) -> None:
    (tmp_path / "scaled.py").write_text(SCALED)
    with Session.create(str(tmp_path / "scaled.py"), root=tmp_path, executor="emulator", arch="sm_80") as session:
        first = session.generate()
        assert first is not None and session.version(first.number).trials[-1].verdict.suspect == ()
        source = first.proposal.candidate.source
        place = source.index("def forward(self, x)")
        line = source.index("\n", place) + 1
        by_numpy = (
            f"        if x.shape[0] {rows}:\n"
            "            return torch.from_numpy(np.maximum(x.cpu().numpy(), 0) * np.float32(2)).to(x.device)\n"
        )
        made = session.edit("import numpy as np\n" + source[:line] + by_numpy + source[line:])
        verdict = made.trials[-1].verdict
        assert not verdict.correct or verdict.suspect, verdict
