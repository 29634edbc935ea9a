"""Whether two versions of the workbench make the same kernels of the same programs: every candidate of a list is compiled from both texts, and the PTX compared.

    python tests/bench/compare_ptx.py emit --programs programs.jsonl --out DIR                    the candidates' texts, by the workbench on PYTHONPATH, else the one around this file
    python tests/bench/compare_ptx.py compare --old DIR --new DIR [--family gemm_sm90] [--sample 12] [--jobs 2] [--out results.json] [--old-cache FILE]
    python tests/bench/compare_ptx.py compare --old DIR --new DIR --show NAME                     one program, with the whole difference
    python tests/bench/compare_ptx.py compare --old DIR --old-cache FILE                          only compile the old texts, for a later comparison

A line of the list is a program with all that is needed to emit it (the fields of its binding) and to call it: what ModelNew and forward take, at a small and at the full size. Names, numbers of registers and
labels, and debug information make no difference; what the host does around a launch (grids, shared memory, descriptors), the order of launches and the outputs' shapes are compared as well, and said beside the state.
Nothing is launched, so no GPU is needed. Each program has a process of its own: one that fails is a row. On a machine with a GPU, candidates whose PTX differs are also run on the same inputs, one at a time: outputs
compared bit for bit, times in turn (CUDA events, median of 20 calls each, L2 flushed). The exit status is 0 only if the PTX of all is equal.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import difflib
import gc
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

if not any((Path(part) / "workbench").is_dir() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part):
    sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault(
    "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
)  # asking for a GPU must not start the driver: processes are forked later


def language() -> tuple[Any, Any, Callable[[str, Any], str]]:
    """Where the code at hand has them: the records of a binding and of an operand's shape, and what makes a candidate's text of a program."""
    from workbench.codegen import compile_program
    from workbench.language import Binding
    from workbench.language.ir import Operand

    return Binding, Operand, compile_program


def emitted(entry: dict[str, Any]) -> str:
    """The candidate's text of a line of the list."""
    binding, operand, compile_program = language()
    fields = {
        name: tuple(tuple(item) if isinstance(item, list) else item for item in value)
        if isinstance(value, list)
        else value
        for name, value in entry["binding"].items()
    }
    fields["tensors"] = tuple(
        (name, operand(shape=tuple(known["shape"]), dtype=known["dtype"])) for name, known in fields["tensors"]
    )
    return compile_program(entry["program"], binding(**fields))


def emit(entries: list[dict[str, Any]], out: Path) -> int:
    """Write every candidate; how many could not be."""
    print(f"emitted by {sys.modules[language()[2].__module__].__file__}")
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for entry in entries:
        try:
            (out / f"{entry['name']}.py").write_text(emitted(entry))
        except Exception as error:  # a program that fails is a row, not an end
            failed += 1
            print(f"{entry['name']}: {type(error).__name__}: {error}")
    print(f"{len(entries) - failed} emitted, {failed} failed")
    return failed


def compared(
    entry: dict[str, Any], old: Path, new: Path | None, case: str, known: dict[str, Any] | None
) -> dict[str, Any]:
    """The row of a program; `known`: what its old text gave before. Without a new text only that is found out."""
    from candidate_ptx import built, hashed

    made, failures = {}, {}
    for side, path in (("old", None if known else old), ("new", new)):
        try:
            made[side] = path and built(path, entry, case)
        except Exception as error:
            failures[side] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if failures:
        return {"state": "failed", "why": "; ".join(f"{side}: {why}" for side, why in failures.items())}
    before, after = made["old"], made["new"]
    known = known or hashed(before)
    if after is None:
        return {"state": "kept", "kernels": len(known["ptx"]), "old": known}
    other = [key for key, found in hashed(after).items() if found != known[key]]
    row = {
        "state": "differs" if "ptx" in other else "equal",
        "kernels": len(after["ptx"]),
        "also": [key for key in other if key != "ptx"],
        "old": known,
    }
    if other:
        texts = [
            [line for key in ("ptx", "host") for text in found[key] for line in text.splitlines()]
            + [str(found["calls"]), str(found["outputs"])]
            for found in (before or built(old, entry, case), after)
        ]
        row["diff"] = list(difflib.unified_diff(*texts, "old", "new", lineterm="", n=2))
    return row


def answer(connection: Connection, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    """In a process of its own: do the work, and say what came of it. Ends without tidying up, which could fail too."""
    try:
        row = work(*arguments)
    except Exception as error:
        row = {"state": "failed", "why": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    connection.send(row)
    connection.close()
    os._exit(0)


def rows(
    work: Callable[..., dict[str, Any]], tasks: dict[str, tuple[Any, ...]], jobs: int, limit_s: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, row) of each task as it ends, `jobs` of them at once; one that crashes or takes too long has a row too."""
    context, waiting, busy = (
        multiprocessing.get_context("fork"),
        collections.deque(tasks.items()),
        dict[Any, tuple[str, Any, float]](),
    )
    while waiting or busy:
        while waiting and len(busy) < jobs:
            name, arguments = waiting.popleft()
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=answer, args=(theirs, work, arguments))
            process.start()
            theirs.close()
            busy[mine] = (name, process, time.monotonic())
        ready = wait(list(busy), timeout=1)
        for connection in list(busy):
            name, process, start = busy[connection]
            late = time.monotonic() - start > limit_s
            if connection not in ready and not late:
                continue
            row = {"state": "failed", "why": f"took over {limit_s:.0f} s" if late else "its process ended"}
            with contextlib.suppress(EOFError):
                row = connection.recv() if connection in ready else row
            process.kill()
            process.join()
            connection.close()
            del busy[connection]
            yield name, {**row, "seconds": round(time.monotonic() - start, 2)}


def chosen(entries: list[dict[str, Any]], family: str, sample: int, show: str) -> list[dict[str, Any]]:
    """The programs that are asked for; a sample takes one of each family in turn."""
    ranks: collections.Counter[str] = collections.Counter()
    order = []
    for entry in sorted(entries, key=lambda entry: hashlib.sha256(entry["name"].encode()).hexdigest()):
        if (not family or entry["family"] == family) and (not show or entry["name"] == show):
            order.append((ranks[entry["family"]], entry["family"], entry))
            ranks[entry["family"]] += 1
    order.sort(key=lambda item: item[:2])
    return [entry for _, _, entry in order[: sample or None]]


def key_of(entry: dict[str, Any], old: Path, case: str) -> str:
    """What the PTX of an old text depends on; "" where there is none."""
    if not old.exists():
        return ""
    return hashlib.sha256(
        "\n".join(
            [version("nvidia-cutlass-dsl"), case, entry["arch"], json.dumps(entry["cases"][case]), old.read_text()]
        ).encode()
    ).hexdigest()[:24]


def keep(path: Path, cache: dict[str, Any]) -> None:
    """Add to a file what is known of old texts; another process may be adding to it too."""
    known = json.loads(path.read_text()) if path.exists() else {}
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(known | cache))
    os.replace(temporary, path)


def compare(asked: argparse.Namespace, entries: list[dict[str, Any]]) -> int:
    """Compare all, print and write what was found; how many programs are not equal."""
    import torch
    from candidate_ptx import on_gpu  # imported once, before processes are forked

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    cache: dict[str, Any] = (
        json.loads(asked.old_cache.read_text()) if asked.old_cache and asked.old_cache.exists() else {}
    )
    files = {
        entry["name"]: (asked.old / f"{entry['name']}.py", asked.new and asked.new / f"{entry['name']}.py")
        for entry in entries
    }
    keys = {entry["name"]: key_of(entry, files[entry["name"]][0], asked.case) for entry in entries}
    tasks = {
        entry["name"]: (entry, *files[entry["name"]], asked.case, cache.get(keys[entry["name"]])) for entry in entries
    }
    found, start = dict[str, dict[str, Any]](), time.monotonic()
    for name, row in rows(compared, tasks, asked.jobs, asked.limit):
        if "old" in row:
            cache[keys[name]] = row.pop("old")
        found[name] = {"family": tasks[name][0]["family"], "program": tasks[name][0]["program"], **row}
        if row["state"] in ("differs", "failed") or row.get("also"):
            print(f"{row['state']:8} {name} {row.get('why', '')}{', '.join(row.get('also', ()))}", flush=True)
        if asked.old_cache and (len(found) % 50 == 0 or len(found) == len(tasks)):
            keep(asked.old_cache, cache)
    if torch.cuda.is_available():
        for name, row in rows(
            on_gpu, {name: tasks[name][:4] for name, row in found.items() if row["state"] == "differs"}, 1, asked.limit
        ):
            found[name]["gpu"] = row
            print(
                f"on the GPU {name}: {row.get('why') or ('same bits' if row['same_bits'] else 'OTHER BITS')}, {row.get('ratio', 0):.3f} of the old time",
                flush=True,
            )
    if asked.show:
        print("\n".join(found[asked.show].get("diff", ["no difference"])))
    states = collections.Counter((row["family"], row["state"]) for row in found.values())
    for family in sorted({row["family"] for row in found.values()}):
        print(
            f"{family:10}",
            ", ".join(f"{number} {state}" for (of, state), number in sorted(states.items()) if of == family),
        )
    print(
        f"{len(found)} programs, {sum(row.get('kernels', 0) for row in found.values())} compilations, {sum(bool(row.get('also')) for row in found.values())} with other host code, launches or outputs; {time.monotonic() - start:.0f} s"
    )
    if asked.out:
        asked.out.write_text(
            json.dumps(
                {name: {**row, "diff": row.get("diff", [])[:80]} for name, row in sorted(found.items())}, indent=1
            )
        )
    return sum(row["state"] in ("differs", "failed") for row in found.values())


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("emit", "compare"))
    parser.add_argument(
        "--programs", type=Path, help="the list; when comparing, programs.jsonl beside the old folder unless given"
    )
    parser.add_argument("--out", type=Path, help="a folder of candidates, or the file of results")
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path)
    parser.add_argument("--old-cache", type=Path)
    parser.add_argument("--family", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--show", default="", metavar="NAME")
    parser.add_argument("--case", choices=("small", "full"), default="full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=240, help="seconds for one program")
    asked = parser.parse_args()
    lines = (asked.programs or asked.old.parent / "programs.jsonl").read_text().splitlines()
    entries = chosen([json.loads(line) for line in lines], asked.family, asked.sample, asked.show)
    return emit(entries, asked.out) if asked.what == "emit" else compare(asked, entries)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
