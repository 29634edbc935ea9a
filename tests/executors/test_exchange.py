"""Files of a candidate are read without following links or trusting their description; nothing outlives its job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs import client
from workbench.executors.jobs.client import server
from workbench.executors.jobs.exchange import read_outputs, read_values, write_outputs, write_values
from workbench.executors.jobs.folder import prepare
from workbench.records import Candidate, Job, TensorSpec

SPEC = TensorSpec(name="y", shape=(2, 3), dtype="float32", strides=(3, 1))


def test_outputs_come_back_bit_equal(tmp_path: Path) -> None:
    values = [
        torch.randn(2, 3),
        torch.arange(4),
        torch.randn(5).to(torch.bfloat16),
        torch.tensor(3.0),
        torch.empty(0, 3),
    ]
    specs = [
        TensorSpec(name="y", shape=tuple(v.shape), dtype=str(v.dtype).removeprefix("torch."), strides=tuple(v.stride()))
        for v in values
    ]
    write_outputs(tmp_path / "out" / "a", values)
    for got, value in zip(read_outputs(tmp_path, "out/a", specs), values, strict=True):
        assert got.dtype == value.dtype and torch.equal(got, value)


def test_values_keep_their_layout_and_a_short_file_or_a_link_is_refused(tmp_path: Path) -> None:
    values = [torch.randn(3, 4).T, torch.arange(10)[3:7], 2.5, "text", None, torch.empty(0, 2)]
    write_values(tmp_path / "values", values)
    for got, value in zip(read_values(tmp_path / "values"), values, strict=True):
        if isinstance(value, torch.Tensor):
            assert torch.equal(got, value) and got.stride() == value.stride()
            assert got.storage_offset() == value.storage_offset() or not value.numel()
        else:
            assert got == value
    (tmp_path / "link").symlink_to("values")
    with pytest.raises(OSError):
        read_values(tmp_path / "link")
    (tmp_path / "values").write_bytes((tmp_path / "values").read_bytes()[:-1])
    with pytest.raises(ValueError, match="31 bytes, not 32"):
        read_values(tmp_path / "values")


@pytest.mark.parametrize("link", ["folder", "parent", "file"])
def test_links_are_refused(tmp_path: Path, link: str) -> None:
    write_outputs(tmp_path / "private" / "a", [torch.randn(2, 3)])
    out = tmp_path / "scratch" / "out"
    if link == "parent":
        (tmp_path / "private").rename(tmp_path / "out")
        (tmp_path / "scratch").symlink_to(".")
    elif link == "folder":
        out.parent.mkdir()
        out.symlink_to("../private")
    else:
        out.mkdir(parents=True)
        (out / "a").symlink_to("../../private/a")
    with pytest.raises(OSError):
        read_outputs(tmp_path, "scratch/out/a", [SPEC])


@pytest.mark.parametrize("size", [0, 23, 25, 1 << 20])
def test_other_sizes_are_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"{size} bytes, not 24"):
        read_outputs(tmp_path, "a", [SPEC])


def test_a_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(ValueError):
        read_outputs(tmp_path, "a", [SPEC])


DAEMON = """
import os, time
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("pid", "w") as file:
            file.write(os.readlink("/proc/self"))
        os.write(told, b"x")
        time.sleep(600)
    os._exit(0)
os.read(ready, 1)
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_daemon_does_not_outlive_its_job(tmp_path: Path, device: str) -> None:
    problem = problems.load("relu", settings=(("batch_size", 4), ("dim", 8)))
    job = Job(
        problem=problem, facts=WorkerInspector().inspect(problem), candidate=Candidate(source=DAEMON), cases=("shrunk",)
    )
    folder = prepare(tmp_path, job)
    workers = server()
    workers.wait(workers.start_job("candidate", str(folder), wall_s=20.0, device=device))
    daemon = Path("/proc") / (folder / "scratch" / "pid").read_text()
    deadline = time.monotonic() + 30
    while daemon.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not daemon.exists()


def test_a_running_job_is_ended_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "GONE_LIMIT_S", 60.0)
    problem = problems.load("relu", settings=(("batch_size", 4), ("dim", 8)))
    job = Job(
        problem=problem,
        facts=WorkerInspector().inspect(problem),
        candidate=Candidate(source="import time\nopen('begun', 'w').close()\ntime.sleep(600)"),
        cases=("shrunk",),
    )
    folder = prepare(tmp_path, job)
    workers = server()
    number = workers.start_job("candidate", str(folder), wall_s=60.0)
    deadline = time.monotonic() + 30
    while not (folder / "scratch" / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    start = time.monotonic()
    workers.cancel(number)
    assert time.monotonic() - start < 30  # of the 60 s after which it gives up waiting
    assert not workers.is_running(number)
