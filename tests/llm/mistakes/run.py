"""Makes mistakes for real, many in one process: python run.py NAMES REPLIES (JSON files). Each is compiled, emulated and checked as a worker
does it, without the confinement; one that takes the process down gets a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from workbench import problems
from workbench.executors.jobs.folder import prepare
from workbench.executors.workers import candidate, trusted
from workbench.executors.wrong_result import wrong_result
from workbench.problems import inspection
from workbench.records import Candidate, Check, Failure, Job
from workbench.wire import from_plain, to_plain

FOLDER = Path(__file__).parent
LARGE_ROWS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [100.0 + 10.0 * torch.rand(3, 100)]
def get_init_inputs():
    return []
"""
NEGATIVE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.max(x, 1).values
def get_inputs():
    return [-1.0 - torch.rand(3, 20, 75)]
def get_init_inputs():
    return []
"""
PROBLEMS: dict[str, tuple[str, dict[str, int], str]] = {
    "elementwise": ("relu", {"batch_size": 8, "dim": 75}, "fp32"),
    "vectors": ("relu", {"batch_size": 20, "dim": 100}, "fp32"),
    "staged": ("relu", {"batch_size": 8, "dim": 75}, "fp16"),
    "rows": ("row_sum", {"rows": 70, "columns": 150}, "fp32"),
    "handed": ("row_sum", {"rows": 70, "columns": 150}, "fp32"),
    "softmax": (LARGE_ROWS, {}, "fp32"),
    "largest": (NEGATIVE, {}, "fp32"),
    "local": ("matmul", {"n": 48}, "fp32"),
    "tiles": ("matmul", {"n": 48}, "fp16"),
}


@cache
def mistakes() -> dict[str, dict[str, Any]]:
    """`base.name` -> what mistakes.toml says of it."""
    return {
        f"{base}.{name}": entry
        for base, entries in tomllib.loads((FOLDER / "mistakes.toml").read_text()).items()
        for name, entry in entries.items()
    }


def source_of(base: str, changes: list[list[str]]) -> str:
    """The correct file with these changes; each place occurs once."""
    source = (FOLDER / "bases" / f"{base}.py").read_text()
    for find, replace in changes:
        assert source.count(find) == 1, (base, find, source.count(find))
        source = source.replace(find, replace)
    return source


@cache
def job_of(base: str) -> tuple[Job, Path]:
    """The job of a base, its folder laid out and its references computed."""
    name, settings, precision = PROBLEMS[base]
    problem = problems.load(name, settings=settings, precision=precision)
    job = Job(
        problem=problem,
        facts=inspection.inspect(problem),
        candidate=Candidate(source=""),
        cases=("shrunk",),
        trials=1,
        full_sample=False,
    )
    folder = prepare(Path(tempfile.mkdtemp(prefix="cutegen-mistakes-")), job)
    trusted.make_reference(folder)
    return job, folder


def failure_of(base: str, source: str) -> Failure | None:
    """What the workbench says of the file."""
    job, folder = job_of(base)
    (folder / "scratch" / "candidate.py").write_text(source)
    reply = candidate.attempt(dataclasses.replace(job, candidate=Candidate(source=source)), folder)
    (folder / "scratch" / "reply.json").write_text(json.dumps(reply))
    if reply["failure"]:
        return from_plain(reply["failure"], Failure)
    return wrong_result(tuple(from_plain(item, Check) for item in trusted.check_outputs(folder)["checks"]))


def main(names: list[str], replies: Path) -> None:
    """One JSON line a name: [name, failure or null]."""
    os.environ["CUTE_DSL_CACHE_DIR"] = tempfile.mkdtemp(prefix="cutegen-mistakes-")
    with replies.open("w") as out:
        for name in names:
            base, _, rest = name.partition(".")
            entry = mistakes()[name.removesuffix(".cured")] if rest else {}
            changes = [] if not rest else entry["cured"] if name.endswith(".cured") else entry["wrong"]
            failure = failure_of(base, source_of(base, changes))
            print(json.dumps([name, to_plain(failure) if failure else None]), file=out, flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
