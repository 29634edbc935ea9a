"""`generate --by operators`: the registry's kernels come as versions and are right on the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from real_packages import install
from running_exports import LINEAR
from test_registry import PRODUCT

from workbench.proposers.operators import Design, Operators, sort_designs
from workbench.protocols import PLAIN
from workbench.records import Ask, TensorSpec
from workbench.session import Session

RUN = """
from pathlib import Path
from workbench.proposers.operators import Operators
from workbench.protocols import PLAIN
from workbench.records import Ask, Proposal
from workbench.session import Session

proposer = Operators()
assert proposer.why_not() is None
with Session.create("problem.py", root=Path("sessions"), executor="emulator") as session:
    [first] = proposer.propose(Ask(problem=session.problem, facts=session.facts, arch="sm_80"), PLAIN)
    [hopper] = proposer.propose(Ask(problem=session.problem, facts=session.facts, arch="sm_90a"), PLAIN)
    assert "Sm80" in first.title and "Sm90" in hopper.title, (first.title, hopper.title)
    version = session.edit(first.candidate.source)
    verdict = version.trials[-1].verdict
    assert verdict.correct, verdict
    history = (version,)
    [second] = proposer.propose(
        Ask(problem=session.problem, facts=session.facts, arch="sm_80", history=history), PLAIN)
    assert second.candidate.source != first.candidate.source
with Session.create("single.py", root=Path("sessions"), executor="emulator") as session:
    [note] = proposer.propose(Ask(problem=session.problem, facts=session.facts, arch="sm_80"), PLAIN)
    assert "no kernel for float32" in note.message, note
print("ran")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_versions_of_the_real_registry(tmp_path: Path) -> None:
    environment = install(tmp_path / "package")
    product = PRODUCT.format(operands="a, b")
    (tmp_path / "problem.py").write_text(product)
    (tmp_path / "single.py").write_text(product.replace(".bfloat16()", ""))
    (tmp_path / "run.py").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.stdout.strip().endswith("ran"), done.stdout + done.stderr


def test_other_problem_gets_a_note(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(LINEAR)
    with Session.create(str(tmp_path / "problem.py"), root=tmp_path / "sessions", executor="emulator") as session:
        [note] = Operators().propose(Ask(problem=session.problem, facts=session.facts), PLAIN)
    assert "plain products" in note.message


def test_largest_tile_that_fills_the_gpu_comes_first() -> None:
    a, b = (TensorSpec(name=name, shape=(1024, 1024), dtype="float16", strides=(1024, 1)) for name in "ab")
    small, middle, large = (Design(name="D", tile=(size, size, 32), cluster=(1, 1, 1)) for size in (64, 128, 256))
    assert sort_designs((large, small, middle), a, b, 64) == [middle, small, large]
