"""Counts of configurations of the landscapes on the emulator, at full size: what a model of times is fitted to.

    python tests/bench/landscape_counts.py --out counts.jsonl [--rows 30] [--part 0/2] [--limit-s 30] [--only softmax]

Draws rows of every landscape in the order of a hash, runs a few CTAs of each launch and writes a line for each row: the
problem, the program, the measured seconds with their interval, and launches and builds without source lines. A row that
cannot be counted says why. What a file has already is not counted again.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from full_size import Measured, facts_of, sample

from workbench.codegen import compile_program
from workbench.landscapes import Landscape, landscapes
from workbench.landscapes.table import Row
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise


def draw_rows(place: Landscape, number: int) -> list[Row]:
    """`number` correct rows of a landscape, in the order of the programs' hashes."""
    return sorted(place.correct, key=lambda row: hashlib.sha256(row.program.encode()).hexdigest())[:number]


def count_row(place: Landscape, row: Row, limit_s: float) -> dict[str, Any]:
    """The counts of one row, as plain data."""
    problem = place.problem()
    facts = facts_of(problem)
    source = compile_program(row.program, binding_of(problem, facts, recognise(facts)))
    assert row.median_s is not None
    found = sample(Measured(row.program, problem, source, row.median_s), limit_s)
    return {name: found[name] for name in ("work", "launches", "builds")}


def draw_turns(number: int, only: str) -> Iterator[tuple[str, Landscape, Row]]:
    """(problem, landscape, row), the first row of every problem before the second of any."""
    wanted = only.split(",")
    places = [
        (name, place, draw_rows(place, number))
        for name, place in landscapes().items()
        if any(part in name for part in wanted)
    ]
    for turn in range(number):
        yield from ((name, place, rows[turn]) for name, place, rows in places if turn < len(rows))


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--part", default="0/1", help="I/N: rows I, I + N, ...")
    parser.add_argument("--limit-s", type=float, default=30.0, help="seconds for the CTAs of a launch")
    parser.add_argument("--only", default="", help="parts of problems' names, separated by commas")
    arguments = parser.parse_args()
    done = set()
    if arguments.out.exists():
        done = {(line["problem"], line["program"]) for line in map(json.loads, arguments.out.read_text().splitlines())}
    mine, parts = map(int, arguments.part.split("/"))
    with arguments.out.open("a") as out:
        for number, (name, place, row) in enumerate(draw_turns(arguments.rows, arguments.only)):
            if number % parts != mine or (name, row.program) in done:
                continue
            start = time.process_time()
            line = {
                "problem": name,
                "program": row.program,
                "seconds": row.median_s,
                "low_s": row.low_s,
                "high_s": row.high_s,
                "registers": row.registers,
            }
            try:
                line |= count_row(place, row, arguments.limit_s)
            except Exception as error:
                line["left_out"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            line["cpu_s"] = round(time.process_time() - start, 2)
            out.write(json.dumps(line) + "\n")
            out.flush()
            gc.collect()
            print(name, row.program[:70], line.get("left_out", ""), line["cpu_s"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
