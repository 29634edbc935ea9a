"""Whether two versions of the workbench make the same kernels of the same programs.

    python tests/bench/compare_ptx.py emit --out DIR                        the candidates' texts
    python tests/bench/compare_ptx.py compare --old DIR --new DIR --cache DIR [--family gemm_sm90] [--sample 12]
        [--jobs 2] [--seconds 3600] [--results tests/bench/results/ptx_library.json]
    python tests/bench/compare_ptx.py compare --old DIR --new DIR --cache DIR --show NAME      the whole difference

`emit` takes the workbench on PYTHONPATH, else the one around this file. `compare` compiles each program from both texts
and compares the PTX. Names, numbers of registers and labels, and debug information make no difference. What the host
does around a launch (grids, shared memory, descriptors), the order of launches and the outputs' shapes are compared as
well; the column `also` names those that differ. What a text compiles to is kept in the cache, so that a run that was
cut short goes on where it stopped, and a text that did not change is not compiled again.

The programs are those of draw_programs.py. Nothing is launched, so no GPU is needed. Each program has a process of its
own: one that fails is a row. On a machine with a GPU (--gpu), candidates whose PTX differs are also run on the same
inputs, one at a time: outputs are compared bit for bit, and times in turn (CUDA events, L2 flushed before each call).
Operands that both versions refuse with the same message are "refused". The exit status is 0 only if no PTX differs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import difflib
import gc
import gzip
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "ptx_programs.jsonl.gz"
FAMILIES = ("gemm_sm90", "elementwise", "conv", "attention", "scan", "pool", "gather", "gemm", "pipeline", "rows")
TITLE = re.compile(r'\A""".*?"""', re.DOTALL)
OPCODE = re.compile(r"^\s*(?:@!?%p\d+ )?([a-z][\w.:]*)[ ;]")

if not any((Path(part) / "workbench").is_dir() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part):
    sys.path.insert(0, str(HERE.parents[1]))
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for a GPU must not start the driver before a fork


def language() -> tuple[Any, Any, Callable[[str, Any], str]]:
    """Binding, Operand and compile_program of the version at hand; before the kernel library they were in `dsl`."""
    try:
        from workbench.codegen import compile_program
        from workbench.language import Binding
        from workbench.language.ir import Operand
    except ImportError:
        old = importlib.import_module("workbench.dsl")
        return old.Binding, importlib.import_module("workbench.dsl.ir").Operand, old.compile_program
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
            print(f"{entry['name']}: {entry['program']}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(f"{len(entries) - failed} emitted, {failed} failed")
    return failed


def key_of(entry: dict[str, Any], text: str) -> str:
    """A name for all that a text's PTX depends on; the program at the text's head is not part of it."""
    parts = [version("nvidia-cutlass-dsl"), entry["arch"], entry["dtype"], json.dumps(entry["cases"]["full"])]
    return hashlib.sha256("\n".join([*parts, TITLE.sub("", text)]).encode()).hexdigest()[:24]


def compiled(entry: dict[str, Any], path: Path, cache: Path) -> dict[str, list[Any]]:
    """What a text compiles to, from the cache if it is there."""
    from candidate_ptx import built

    kept = cache / f"{key_of(entry, path.read_text())}.json.gz"
    if not kept.exists():
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(gzip.compress(json.dumps(built(path, entry, "full")).encode(), 6))
        os.replace(temporary, kept)
    found: dict[str, list[Any]] = json.loads(gzip.decompress(kept.read_bytes()))
    return found


def compared(entry: dict[str, Any], old: Path, new: Path, cache: Path) -> dict[str, Any]:
    """The row of a program."""
    made, failures = {}, {}
    for side, path in (("old", old), ("new", new)):
        try:
            made[side] = compiled(entry, path, cache)
        except Exception as error:
            failures[side] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if len(failures) == 2 and failures["old"] == failures["new"]:
        return {"state": "refused", "why": failures["old"]}
    if failures:
        return {"state": "failed", "why": "; ".join(f"{side}: {why}" for side, why in failures.items())}
    before, after = made["old"], made["new"]
    other = [key for key in after if after[key] != before[key]]
    row = {
        "state": "differs" if "ptx" in other else "equal",
        "kernels": len(after["ptx"]),
        "also": [key for key in other if key != "ptx"],
    }
    if "ptx" in other:
        row["reason"] = reason_of(before["ptx"], after["ptx"])
    if other:
        texts = [
            [line for key in ("ptx", "host") for text in found[key] for line in text.splitlines()]
            + [str(found["calls"]), str(found["outputs"])]
            for found in (before, after)
        ]
        row["diff"] = list(difflib.unified_diff(texts[0], texts[1], "old", "new", lineterm="", n=2))
    return row


def instructions_of(texts: list[str]) -> collections.Counter[str]:
    """How often each opcode stands in the kernels."""
    found = (OPCODE.match(line) for text in texts for line in text.splitlines())
    return collections.Counter(match[1] for match in found if match is not None)


def reason_of(old: list[str], new: list[str]) -> str:
    """The class of a difference, from how many instructions each side has of each opcode."""
    before, after = instructions_of(old), instructions_of(new)
    if before == after:
        return "the same instructions in another order or with other operands"
    less, more = before - after, after - before
    if not more:
        return f"fewer instructions: {', '.join(f'{count} {name}' for name, count in sorted(less.items()))} left out"
    change = after.total() - before.total()
    kind = "as many" if change == 0 else f"{abs(change)} {'more' if change > 0 else 'fewer'}"
    parts = [f"-{count} {name}" for name, count in less.most_common(6)]
    parts += [f"+{count} {name}" for name, count in more.most_common(6)]
    return f"{kind} instructions of {before.total()}: {', '.join(parts)}"


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
    work: Callable[..., dict[str, Any]],
    tasks: dict[str, tuple[Any, ...]],
    *,
    jobs: int,
    limit_s: float,
    until: float = float("inf"),
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, row) of each task as it ends, `jobs` of them at once; one that crashes or takes too long has a row too.

    No task begins after `until` on the monotonic clock.
    """
    context, waiting = multiprocessing.get_context("fork"), collections.deque(tasks.items())
    busy = dict[Any, tuple[str, Any, float]]()
    while busy or (waiting and time.monotonic() < until):
        while waiting and len(busy) < jobs and time.monotonic() < until:
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


def hash_of(name: str) -> str:
    """What programs are drawn by."""
    return hashlib.sha256(name.encode()).hexdigest()


def chosen(entries: list[dict[str, Any]], families: list[str], sample: int, only: list[str]) -> list[dict[str, Any]]:
    """The programs that are asked for: each family in the order of a hash, `sample` of it at most."""
    order = []
    for family in families:
        mine = [entry for entry in entries if entry["family"] == family and (not only or entry["name"] in only)]
        mine.sort(key=lambda entry: hash_of(entry["name"]))
        order += mine[: sample or None]
    return order


def described(row: dict[str, Any]) -> str:
    """What is printed of a row."""
    return " ".join([row.get("why", ""), row.get("reason", ""), *row.get("also", ())]).strip()


def compare(asked: argparse.Namespace, entries: list[dict[str, Any]]) -> int:
    """Compare all, print and write what was found; how many programs are not equal."""
    import torch
    from candidate_ptx import on_gpu  # imported once, before processes are forked

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    asked.cache.mkdir(parents=True, exist_ok=True)
    tasks = {
        entry["name"]: (entry, asked.old / f"{entry['name']}.py", asked.new / f"{entry['name']}.py", asked.cache)
        for entry in entries
    }
    found, start = dict[str, dict[str, Any]](), time.monotonic()
    for name, row in rows(compared, tasks, jobs=asked.jobs, limit_s=asked.limit, until=start + asked.seconds):
        entry = tasks[name][0]
        found[name] = {key: entry[key] for key in ("family", "operations", "arch", "program")} | row
        if row["state"] != "equal" or row.get("also"):
            print(f"{row['state']:8} {name} {described(row)}", flush=True)
    if asked.gpu:
        lock = multiprocessing.get_context("fork").Lock()
        differing = [name for name, row in found.items() if row["state"] == "differs"]
        differing.sort(key=hash_of)
        pairs = {name: (*tasks[name][:3], lock) for name in differing}
        until = time.monotonic() + asked.gpu
        for name, row in rows(on_gpu, pairs, jobs=asked.gpu_jobs, limit_s=asked.limit, until=until):
            found[name]["gpu"] = row
            bits = row.get("why") or ("same bits" if row["same_bits"] else "OTHER BITS")
            print(f"on the GPU {name}: {bits}, {row.get('ratio', 0):.3f} of the old time", flush=True)
    if asked.show:
        print("\n".join(found[asked.show].get("diff", ["no difference"])))
    summary = summarised(found)
    for name, counts in summary.items():
        print(f"{name:14}", ", ".join(f"{count} {state}" for state, count in counts.items()))
    also = sum(bool(row.get("also")) for row in found.values())
    seconds = time.monotonic() - start
    print(f"{len(found)} of {len(tasks)} programs, {also} with other host code, launches or outputs; {seconds:.0f} s")
    if asked.rows:
        kept = {name: {**row, "diff": row.get("diff", [])[:80]} for name, row in sorted(found.items())}
        asked.rows.write_text(json.dumps(kept, indent=1))
    if asked.results:
        asked.results.write_text(json.dumps(result_of(found, summary, asked.note), indent=1) + "\n")
    return sum(row["state"] in ("differs", "failed") for row in found.values())


def summarised(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Operation -> state -> programs that have the operation in a stage."""
    counts: dict[str, collections.Counter[str]] = {}
    for row in found.values():
        for name in dict.fromkeys(row["operations"]):
            counts.setdefault(name, collections.Counter())[row["state"]] += 1
    return {name: dict(sorted(counts[name].items())) for name in sorted(counts)}


def result_of(found: dict[str, dict[str, Any]], summary: dict[str, dict[str, int]], note: str) -> dict[str, Any]:
    """The file of results: date, versions, counts by operation, and each program whose PTX is not the same."""
    import torch

    def version_of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "unknown"

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    keys = ("operations", "arch", "program", "reason", "why", "gpu")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "script": "tests/bench/compare_ptx.py",
        "note": note,
        "versions": {name: version_of(name) for name in ("nvidia-cutlass-dsl", "torch")},
        "device": device,
        "programs": len(found),
        "states": dict(sorted(collections.Counter(row["state"] for row in found.values()).items())),
        "architectures": dict(sorted(collections.Counter(row["arch"] for row in found.values()).items())),
        "operations": summary,
        "not_equal": [
            {key: row[key] for key in keys if key in row} for _, row in sorted(found.items()) if row["state"] != "equal"
        ],
    }


def read_programs(path: Path) -> list[dict[str, Any]]:
    """The list."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("emit", "compare"))
    parser.add_argument("--programs", type=Path, default=PROGRAMS)
    parser.add_argument("--out", type=Path, help="a folder for the candidates that are emitted")
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path)
    parser.add_argument("--cache", type=Path, help="a folder for what texts compile to")
    parser.add_argument(
        "--family", default=",".join(FAMILIES), help="families, in the order in which they are compared"
    )
    parser.add_argument("--sample", type=int, default=0, help="programs of a family at most")
    parser.add_argument("--only", default="", metavar="NAMES", help="these programs alone")
    parser.add_argument("--show", default="", metavar="NAME", help="print the whole difference of this program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=240, help="seconds for one program")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after so long")
    parser.add_argument("--gpu", type=float, default=0, help="seconds for runs of candidates whose PTX differs")
    parser.add_argument(
        "--gpu-jobs", type=int, default=4, help="processes for these; 1: nothing runs beside a measurement"
    )
    parser.add_argument("--rows", type=Path, help="a file for the rows, with the beginnings of the differences")
    parser.add_argument("--results", type=Path, help="a file for the counts and what differs")
    parser.add_argument("--note", default="", help="which versions were compared, for the file of results")
    asked = parser.parse_args()
    if asked.what == "compare" and not (asked.old and asked.new and asked.cache):
        parser.error("compare takes --old, --new and --cache")
    only = [name for name in (*asked.only.split(","), asked.show) if name]
    entries = chosen(read_programs(asked.programs), asked.family.split(","), asked.sample, only)
    return emit(entries, asked.out) if asked.what == "emit" else compare(asked, entries)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
