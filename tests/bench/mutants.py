"""Judges right kernels, wrong ones made of them, and right ones of odd style on the emulator.

    python tests/bench/mutants.py [--only NAME] [--out tests/bench/results/mutants.json]

Writes the verdict of each: its kind, and the source line and the pattern that it names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "executors"))

import mutants
from mutants import all_mutants, honest, judge, source_of


def describe(subject: str, source: str) -> dict[str, object]:
    """The verdict on a candidate as plain values."""
    start = time.perf_counter()
    failure = judge(subject, source).verdict.failure
    row: dict[str, object] = {"accepted": failure is None, "seconds": round(time.perf_counter() - start, 1)}
    if failure is not None:
        row |= {
            "kind": f"{failure.stage}/{failure.kind}",
            "message": failure.message,
            "line": failure.line,
            "hint": failure.hint,
        }
    return row


def main() -> None:
    """Judge all, print each, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="originals, mutants and files whose name has this text")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mutants.json")
    arguments = parser.parse_args()
    asked = [
        *(("original", name, name, "") for name in mutants.MUTANTS),
        *(("honest", subject, path.stem, "") for subject, path in honest()),
        *(("mutant", name, name, mutant) for name, mutant in all_mutants()),
    ]
    rows = []
    for kind, subject, name, mutant in asked:
        if arguments.only not in f"{kind} {name}.{mutant}":
            continue
        source = (mutants.HONEST / f"{name}.py").read_text() if kind == "honest" else source_of(name, mutant)
        rows.append({"set": kind, "subject": subject, "name": name, "mutant": mutant, **describe(subject, source)})
        print(json.dumps(rows[-1]), flush=True)
    if not arguments.only:
        arguments.out.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    refused = [row for row in rows if row["set"] == "mutant" and not row["accepted"]]
    named = [row for row in refused if row["line"] or "wrong are" in str(row["hint"])]
    right = [row for row in rows if row["set"] in ("original", "honest")]
    tried = sum(row["set"] == "mutant" for row in rows)
    print(f"{len(refused)} of {tried} mutants refused, {len(named)} with a line or where they are wrong")
    print(f"{sum(bool(row['accepted']) for row in right)} of {len(right)} right kernels accepted")


if __name__ == "__main__":
    main()
