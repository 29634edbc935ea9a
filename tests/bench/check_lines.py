"""Whether every instruction has the line of a statement of its own kernel: in the emulator's PTX and in the SASS.

    python tests/bench/check_lines.py [--out tests/bench/results/lines.json] [--only softmax] [--jobs 1]

Of every landscape the fastest row, the middle one, the slowest one and the fastest of each family are compiled at
full size; nothing is launched. Rows that the language refuses today are passed over. The worked examples run on the
emulator with small sizes. Each landscape and each example has a process of its own. A statement belongs to a kernel
if it is in the body of the kernel's function or of one that this function may call. Lines of decorators and of `def`,
docstrings, comments and blank lines do not belong to it. The exit status is 0 only if no instruction is on another
line and nothing failed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import datetime
import gc
import importlib
import inspect
import io
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "compatibility"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import workbench
from workbench.emulator.hook import CompiledModule
from workbench.emulator.ptx.parser import DSL_PACKAGE, parse
from workbench.landscapes import Landscape, landscapes
from workbench.landscapes.keys import settings_of, strip_settings
from workbench.profilers import sass
from workbench.toolchain import describe_module

LIMIT_S = 1800.0  # for one landscape
Json = dict[str, Any]


@dataclass(frozen=True)
class Outside:
    """Instructions of one kernel on one line that is not in it; `text` is the first of them."""

    kernel: str
    code: str  # "PTX" or "SASS"
    file: str
    line: int | None
    count: int
    text: str


class Sources:
    """The functions of source files, and the lines of the statements in them."""

    def __init__(self, files: Iterable[str]) -> None:
        self.lines = {file: Path(file).read_text(encoding="utf-8").splitlines() for file in files}
        self.named = collections.defaultdict[str, list[tuple[str, ast.FunctionDef]]](list)
        for file, lines in self.lines.items():
            for node in ast.walk(ast.parse("\n".join(lines))):
                if isinstance(node, ast.FunctionDef):
                    self.named[node.name].append((file, node))

    def statements_of(self, kernel: str) -> set[tuple[str, int]]:
        """(file, line) of each line that may have instructions of a kernel of the PTX.

        Raises LookupError if no source has the kernel's function.
        """
        names = [name for name, found in self.named.items() if any(_is_kernel(node) for _, node in found)]
        matching = [name for name in names if kernel.startswith(f"kernel_cutlass_{name}_")]
        if not matching:
            raise LookupError(f"no function of {kernel} among {', '.join(names) or 'no kernels'}")
        waiting = [found for found in self.named[max(matching, key=len)] if _is_kernel(found[1])]
        reached = dict[int, tuple[str, ast.FunctionDef]]()
        while waiting:
            file, function = waiting.pop()
            if id(function) not in reached:
                reached[id(function)] = file, function
                for name in _names_in(function):
                    waiting += (found for found in self.named.get(name, ()) if not _is_kernel(found[1]))
        return {(file, line) for file, function in reached.values() for line in self._body(file, function)}

    def _body(self, file: str, function: ast.FunctionDef) -> Iterator[int]:
        """Lines of the statements in a function, without those of the heads of functions inside it."""
        inner = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef)]
        heads = {
            line
            for node in inner
            for line in range(
                min([node.lineno, *(one.lineno for one in node.decorator_list)]), _body_of(node)[0].lineno
            )
        }
        for statement in _body_of(function):
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                text = self.lines[file][line - 1].strip()
                if text and not text.startswith("#") and line not in heads:
                    yield line


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("kernel" in ast.unparse(one).split("(")[0].split(".") for one in function.decorator_list)


def _names_in(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _body_of(function: ast.FunctionDef) -> list[ast.stmt]:
    """The body without a docstring, unless that is all."""
    return function.body[1:] if ast.get_docstring(function) is not None and function.body[1:] else function.body


def check_module(
    module: CompiledModule, arch: str, source_file: str | None = None
) -> tuple[collections.Counter[str], list[Outside]]:
    """Numbers of kernels and instructions of a module, and what is on lines outside its kernels.

    With `source_file`, lines are those of this file, as in a candidate's verdict, and the SASS is checked as well.
    """
    parsed = parse(module.ptx, source_file)
    sources = Sources([source_file] if source_file else _files_of(module))
    counts, found = collections.Counter[str](), list[Outside]()
    machine = dict[str, list[sass.Instruction]]()
    if source_file:
        builds = describe_module(module.ptx, module.cubin, arch, want_sass=True)
        machine = sass.listings(builds, Path(source_file).name)
    for kernel in parsed.kernels.values():
        allowed = sources.statements_of(kernel.name)
        listing = machine.get(kernel.name, ())
        counts.update(kernels=1, ptx_instructions=len(kernel.instructions), sass_instructions=len(listing))
        plain = [(ins.file, ins.line, ins.text) for ins in kernel.instructions]
        found += _find_outside(kernel.name, "PTX", plain, allowed)
        found += _find_outside(kernel.name, "SASS", [(source_file or "", i.line, i.text) for i in listing], allowed)
    return counts, found


def _files_of(module: CompiledModule) -> list[str]:
    return sorted({file for file in parse(module.ptx).files.values() if DSL_PACKAGE not in file})


def _find_outside(
    kernel: str, code: str, instructions: Sequence[tuple[str, int | None, str]], allowed: set[tuple[str, int]]
) -> list[Outside]:
    groups = collections.defaultdict[tuple[str, int | None], list[str]](list)
    for file, line, text in instructions:
        if line is None or (file, line) not in allowed:
            groups[file, line].append(text)
    return [Outside(kernel, code, file, line, len(texts), texts[0]) for (file, line), texts in groups.items()]


def family_of(program: str) -> tuple[object, ...]:
    """What chooses the kernels of a program: operations, epilogues, schedule, kind of product, parts."""
    settings = settings_of(program)
    return strip_settings(program), settings.get("schedule"), settings.get("mma"), "parts" in settings


def choose_entries(place: Landscape) -> Iterator[Json]:
    """Lines of draw_programs.py: of the fastest row of a landscape, the middle one, the slowest, and the fastest of
    each family."""
    from draw_programs import entry_of_problem

    problem, programs = place.problem(), [row.program for row in place.correct]
    families = collections.defaultdict[tuple[object, ...], list[str]](list)
    for program in programs:
        families[family_of(program)].append(program)
    seen = set[str]()
    for wanted in (programs, programs[len(programs) // 2 :], programs[::-1], *families.values()):
        entry = next(filter(None, (entry_of_problem(problem, program) for program in wanted)), None)
        if entry is not None and entry["program"] not in seen:
            seen.add(entry["program"])
            yield entry


def check_modules(modules: Iterable[CompiledModule], arch: str, source_file: str | None = None) -> Json:
    """What check_module finds in several modules, as plain data."""
    counts, found = collections.Counter[str](), list[Outside]()
    for module in modules:
        mine, outside = check_module(module, arch, source_file)
        counts += mine
        found += outside
    return {"counts": counts, "outside": [vars(one) for one in found]}


def check_landscape(place: Landscape) -> Json:
    """The row of a landscape."""
    from candidate_ptx import compile_candidate
    from compare_ptx import emitted

    counts, outside = collections.Counter[str](), []
    for entry in choose_entries(place):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / sass.CANDIDATE
            path.write_text(emitted(entry))
            compiler, _ = compile_candidate(path, entry, "full")
            row = check_modules(compiler.modules, entry["arch"], str(path))
        counts += row["counts"] + collections.Counter(programs=1)
        outside += [{"program": entry["program"], **one} for one in row["outside"]]
    return {"counts": counts, "outside": outside}


def check_example(command: str) -> Json:
    """The row of a worked example, which runs on the emulator; lines of counters and findings are checked too."""
    name, *arguments = shlex.split(command)
    main = importlib.import_module(name.removesuffix(".py").replace("/", ".")).main
    with (
        workbench.emulated(device="H200") as emulation,
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.object(sys, "argv", [name, *arguments]),
    ):
        main(*([arguments] if inspect.signature(main).parameters else []))
        row = check_modules(emulation.modules, emulation.arch)
        allowed = dict[str, set[int]]()
        for module in emulation.modules:
            sources = Sources(_files_of(module))
            for kernel in parse(module.ptx).kernels:
                allowed[kernel] = {line for _, line in sources.statements_of(kernel)}
        counted = [(launch.kernel, one.line) for launch in emulation.launches for one in launch.lines]
        named = [(finding.kernel, finding.line) for finding in emulation.findings]
    row["counts"].update(programs=1, launches=len(emulation.launches))
    for kernel, line in (*counted, *named):
        if line not in allowed[kernel]:
            row["outside"].append(vars(Outside(kernel, "counters or findings", "", line, 1, "")))
    return row


def find_tasks(only: str) -> dict[str, tuple[Any, ...]]:
    """Name -> (function, argument) of all that is checked."""
    from test_emulator_counters import CASES, EXAMPLES

    places = {name: (check_landscape, place) for name, place in landscapes().items()}
    examples = {case: (check_example, case) for case in CASES if case.startswith(EXAMPLES)}
    return {name: task for name, task in (places | examples).items() if only in name}


def run_task(function: Callable[[Any], Json], argument: Any) -> Json:
    """The row of a task, in its own process."""
    return {"state": "checked", **function(argument)}


def summarise(found: dict[str, Json]) -> Json:
    """The file of results."""
    kinds = {name: "examples" if name.endswith(".py") or ".py " in name else "landscapes" for name in found}
    counted = {name: row["counts"] for name, row in found.items() if row["state"] == "checked"}
    total = {
        kind: sum((counted[name] for name in counted if kinds[name] == kind), collections.Counter[str]())
        for kind in ("landscapes", "examples")
    }
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "script": "tests/bench/check_lines.py",
        "versions": {"nvidia-cutlass-dsl": version("nvidia-cutlass-dsl")},
        "checked": collections.Counter(kinds[name] for name in counted),
        "total": total,
        "rows": counted,
        "failed": {name: row["why"] for name, row in found.items() if row["state"] != "checked"},
        "violations": [{"of": name, **one} for name, row in found.items() for one in row.get("outside", ())],
    }


def main() -> int:
    """See the module's text."""
    from compare_ptx import rows

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="a part of the problems' or examples' names")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    import candidate_ptx  # noqa: F401 (imported once, before processes are forked)
    import draw_programs  # noqa: F401
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    found = dict[str, Json]()
    for name, row in rows(run_task, find_tasks(asked.only), jobs=asked.jobs, limit_s=LIMIT_S):
        found[name] = row
        said = row.get("why") or f"{dict(row['counts'])} {row['outside'][:3] or ''}"
        print(f"{row['state']} {row['seconds']:.0f} s {name}: {said}", flush=True)
    made = summarise(dict(sorted(found.items())))
    print(f"{made['total']}, {len(made['violations'])} violations, {len(made['failed'])} failed")
    if asked.out:
        asked.out.write_text(json.dumps(made, indent=1) + "\n")
    return 1 if made["violations"] or made["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
