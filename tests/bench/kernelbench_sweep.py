"""Opens every problem file of a folder and runs the planner's first versions at all cases on the emulator.

    python tests/bench/kernelbench_sweep.py FOLDER [--versions 3] [--limit 60] [--shard 1/2] [--out .cutegen/sweep]

KernelBench's files are not part of this repository: take them from a checkout of it (KernelBench/level1, level2).
A row per version goes to rows.jsonl as it is made. Problems whose text, and whose package, are those of a row are not
run again, so a sweep that was stopped goes on. `--versions 0` only opens and plans. `--table` prints what is there.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import tempfile
import time
from pathlib import Path

import workbench
from workbench.errors import UserError
from workbench.session import Session

Row = dict[str, object]
KERNEL = re.compile(r"no kernel for (.*?)(?:; |$)")


def package_hash() -> str:
    """A hash of the package's sources that decide what the planner writes and whether it is right."""
    root = Path(workbench.__file__).parent
    digest = hashlib.sha256()
    for folder in ("proposers", "kernels", "codegen", "language", "problems", "emulator"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def sweep_problem(path: Path, root: Path, versions: int) -> list[Row]:
    """The rows of one problem: one per version, or one that says why there is none."""
    start = time.perf_counter()
    try:
        session = Session.create(path.as_posix(), root=root, executor="emulator")
    except UserError as error:
        return [{"version": 0, "verdict": "not opened", "message": str(error), "opened_s": time.perf_counter() - start}]
    rows: list[Row] = []
    with session:
        opened = {"opened_s": round(time.perf_counter() - start, 2)}
        if versions == 0:
            made = [version] if (version := session.generate(test=False)) is not None else []
        else:
            made = list(session.run(steps=versions - 1))
        for version in made:
            verdict = version.trials[-1].verdict if version.trials else None
            failure = verdict.failure if verdict is not None else None
            name = "planned" if verdict is None else "right" if verdict.correct else "wrong"
            rows.append(
                {
                    "version": version.number,
                    "title": version.proposal.title,
                    "verdict": name,
                    "message": f"{failure.stage}/{failure.kind}: {failure.message}" if failure is not None else "",
                    **opened,
                }
            )
        notes = [event.message for event in session.events() if event.kind == "note"]
        if not rows:
            said = next((note for note in notes if "no kernel" in note or "planner" in note), "; ".join(notes))
            missing = KERNEL.search(said)
            rows = [
                {
                    "version": 0,
                    "verdict": "no kernel",
                    "message": said,
                    "missing": missing[1] if missing else "",
                    **opened,
                }
            ]
    return rows


def work(paths: list[Path], out: Path, versions: int, key: str) -> None:
    """Sweep problems, in a process of its own; each begins with a row that says so."""
    parent = os.getppid()
    os.setsid()
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            if os.getppid() != parent:  # the sweep was stopped
                return
            write_row(out, {"problem": name_of(path), "begun": time.time(), "key": key_of(path, versions, key)})
            start = time.perf_counter()
            try:
                rows = sweep_problem(path, Path(folder), versions)
            except Exception as error:  # one problem's fault must not end the sweep
                rows = [{"version": 0, "verdict": "error", "message": f"{type(error).__name__}: {error}"}]
            for row in rows:
                wall = round(time.perf_counter() - start, 1)
                write_row(out, {"problem": name_of(path), "key": key_of(path, versions, key), "wall_s": wall, **row})


def name_of(path: Path) -> str:
    """The problem's name: its level and its file."""
    return f"{path.parent.name}/{path.stem}"


def key_of(path: Path, versions: int, key: str) -> str:
    """What a row depends on: the problem's text, the package and the number of versions."""
    return hashlib.sha256(f"{path.read_text()}{key}{versions}".encode()).hexdigest()[:16]


def write_row(out: Path, row: Row) -> None:
    """Append one row."""
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(out: Path) -> list[Row]:
    """The rows so far."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def run_all(paths: list[Path], out: Path, versions: int, limit: float) -> None:
    """Sweep the problems without a row. A problem that takes longer than the limit is ended and gets a row."""
    key = package_hash()
    while True:
        done = {row["key"] for row in read_rows(out) if "verdict" in row}
        left = [path for path in paths if key_of(path, versions, key) not in done]
        if not left:
            return
        worker = multiprocessing.get_context("spawn").Process(target=work, args=(left, out, versions, key))
        worker.start()
        while worker.is_alive():
            worker.join(1)
            last = next((row for row in reversed(read_rows(out)) if "begun" in row), None)
            over = last is not None and time.time() - float(str(last["begun"])) > limit
            open_now = over and not any(
                "verdict" in row and row["key"] == last["key"] for row in read_rows(out) if last is not None
            )
            if last is not None and open_now and worker.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid or 0, signal.SIGKILL)
                worker.join()
                write_row(out, {**last, "version": 0, "verdict": "timed out", "message": f"over {limit:.0f} s"})


def print_table(out: Path) -> None:
    """Print how many problems are right, wrong and so on, the operations that are missing, and each wrong version."""
    latest: dict[str, list[Row]] = {}
    for row in read_rows(out):
        if "verdict" in row:
            rows = latest.setdefault(str(row["problem"]), [])
            if rows and rows[0]["key"] != row["key"]:
                rows.clear()
            rows.append(row)
    order = ("error", "wrong", "not opened", "timed out", "no kernel", "planned", "right")
    worst = {name: min((str(row["verdict"]) for row in rows), key=order.index) for name, rows in latest.items()}
    for verdict, count in collections.Counter(worst.values()).most_common():
        print(f"{verdict:12} {count:4} problems")
    for name, rows in sorted(latest.items()):
        for row in rows:
            if row["verdict"] not in ("right", "planned"):
                print(f"  {name} v{row['version']} {row['verdict']}: {row['message']}")


def main() -> None:
    """Sweep a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="*")
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts")
    parser.add_argument("--out", type=Path, default=Path(".cutegen/sweep"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    first, count = (int(part) for part in arguments.shard.split("/"))
    rows = arguments.out / ("rows.jsonl" if count == 1 else f"rows_{first}_of_{count}.jsonl")
    paths = [
        path for folder in arguments.folder for path in ([folder] if folder.is_file() else sorted(folder.glob("*.py")))
    ]
    if not arguments.table:
        run_all(paths[first - 1 :: count], rows.resolve(), arguments.versions, arguments.limit)
    print_table(rows)


if __name__ == "__main__":
    main()
