"""Verdicts of problems with large tensors on a GPU, with all of its memory or with a part of it.

    python tests/bench/memory_on_gpu.py FILE... [--left 24] [--out tests/bench/results/h100_memory.json]

A row for each file: whether the planner's first version was right, what went wrong, and what the seconds were spent on.
With `--left`, another process holds so much of the device's memory that so many GB are free. Rows are added to those
of other values of `--left`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from workbench.errors import UserError
from workbench.session import Session


def hold_memory(left_gb: float, channel: Connection) -> None:
    """Hold all but `left_gb` GB of the device's memory until the other end says something."""
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(int(free - left_gb * 1e9), 1), dtype=torch.uint8, device="cuda")
    channel.send(held.numel())
    channel.recv()


@contextlib.contextmanager
def filled(left_gb: float | None) -> Iterator[None]:
    """The device with `left_gb` GB of free memory, or as it is."""
    if left_gb is None:
        yield
        return
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold_memory, args=(left_gb, there))
    process.start()
    here.recv()
    try:
        yield
    finally:
        here.send("end")
        process.join()


def judge(path: str, left_gb: float | None) -> dict[str, object]:
    """The row of one problem."""
    start = time.perf_counter()
    row: dict[str, object] = {"problem": "/".join(Path(path).parts[-2:]), "left_gb": left_gb}
    try:
        with Session.create(path, root=Path(tempfile.mkdtemp()), executor="gpu") as session:
            row["opened_s"] = round(time.perf_counter() - start, 2)
            row["least_gb"] = round(next(w.least_bytes for w in session.facts.work if w.case == "full") / 1e9, 2)
            version = session.generate()
            if version is None or not version.trials:
                return row | {"correct": None, "failure": "no version"}
            outcome, verdict = version.trials[-1].outcome, version.trials[-1].verdict
            failure = (
                f"{verdict.failure.stage}/{verdict.failure.kind}: {verdict.failure.message}" if verdict.failure else ""
            )
            timing = {
                name: found and found.median_s
                for name, found in (("time_s", outcome.timing), ("eager_s", outcome.reference_timing))
            }
            phases = {name: round(seconds, 2) for name, seconds in outcome.phases}
            row |= {"correct": verdict.correct, "failure": failure, **timing, "phases": phases}
            row["notes"] = outcome.timing.notes if outcome.timing else ()
    except UserError as error:
        row |= {"correct": None, "failure": f"{type(error).__name__}: {error}"}
    return row | {"seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    """Judge the problems and add their rows to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--left", type=float)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "h100_memory.json")
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    rows = [row for row in known if row["left_gb"] != arguments.left]
    with filled(arguments.left):
        for path in arguments.files:
            rows.append(judge(path, arguments.left))
            print(rows[-1], flush=True)
            about = {"gpu": torch.cuda.get_device_name(0), "date": datetime.now(UTC).date().isoformat()}
            about |= {name: version_of(name) for name in ("torch", "nvidia-cutlass-dsl")}
            arguments.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
