"""`cutegen emulate`, `lab`, `explain`, `format` and `doctor`: what needs no session."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from workbench.cli.output import OK, as_json, say
from workbench.errors import UserError


def emulate(arguments: argparse.Namespace) -> int:
    """An unmodified CuTe DSL program on the emulator."""
    from workbench.emulator import run_script

    return run_script.run(
        arguments.program,
        arguments.rest,
        device=arguments.device,
        arch=arguments.arch,
        sanitize=arguments.sanitize,
        counters=arguments.counters,
        follow=arguments.follow,
        as_json=as_json(),
    )


def lab(arguments: argparse.Namespace) -> int:
    """JupyterLab on the first tutorial, on a copy of the tutorials."""
    import shutil

    source = _tutorials()
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.ipynb")):
        if not (folder / path.name).exists():
            shutil.copy(path, folder / path.name)
    first = next(iter(sorted(folder.glob("*.ipynb"))), None)
    if first is None:
        raise UserError(f"no tutorials were found in {source}")
    command = [sys.executable, "-m", "jupyterlab", str(first), *arguments.rest]
    if os.geteuid() == 0 and "--allow-root" not in command:
        command.append("--allow-root")
    os.execv(sys.executable, command)


def _tutorials() -> Path:
    package = Path(__file__).parent.parent
    return inside if (inside := package / "tutorials").is_dir() else package.parent / "notebooks"


def landscape(arguments: argparse.Namespace) -> int:
    """What was recorded of a problem over two settings, or where all problems stand."""
    from workbench import landscapes, problems
    from workbench.views.commands.problems import load_problem
    from workbench.views.plots.heat_map import heat_map, pairs
    from workbench.views.plots.landscape import standing

    known = landscapes.landscapes()
    if not arguments.spec:
        shown = standing(tuple(known.values()))
    else:
        place = (
            known.get(arguments.spec) if arguments.spec not in problems.shipped() else None
        )  # a problem has sizes and a precision
        if place is None:
            problem = load_problem(arguments, None)
            place = landscapes.find(problem)
            if place is None:
                raise UserError(
                    f"nothing was recorded of {problem.name} at these sizes in {problem.precision}; "
                    f"{landscapes.describe_recorded(problem)}"
                )
        shown = heat_map(place, arguments.x, arguments.y, pairs(arguments.where))
    print(json.dumps({"text": shown.text}) if as_json() else shown.text)
    if arguments.svg:
        Path(arguments.svg).write_text(shown.svg, encoding="utf-8")
        say(f"written to {arguments.svg}")
    return OK


def explain(arguments: argparse.Namespace) -> int:
    """A program of the language in words; an operation's settings; or all operations."""
    from workbench.views.commands import explained

    text = str(explained.answer(arguments.program, arguments))
    print(json.dumps({"text": text}) if as_json() else text)
    return OK


def format_text(arguments: argparse.Namespace) -> int:
    """The canonical text of a program."""
    from workbench.views.commands.explained import formatted

    text = formatted(arguments.program)
    print(json.dumps({"program": text}) if as_json() else text)
    return OK


def show_docs(arguments: argparse.Namespace) -> int:
    """A page of the documentation, or which pages there are."""
    from workbench import docs

    text = docs.read(arguments.page) if arguments.page else docs.overview("cutegen docs")
    print(json.dumps({"text": text}) if as_json() else text)
    return OK


def doctor(arguments: argparse.Namespace) -> int:
    """What is available here; why not, and how to get it."""
    import shutil

    from workbench import executors, plugins
    from workbench.errors import Unavailable
    from workbench.proposers.llm.settings import why_no_model
    from workbench.protocols import Proposer
    from workbench.toolchain.binary import nvdisasm

    rows: list[tuple[str, bool, str]] = []
    for kind in plugins.GROUPS:
        for name in plugins.names(kind):
            plugin = plugins.load(kind, name, check=False)
            reason = plugin.why_not() or (
                why_no_model() if isinstance(plugin, Proposer) and plugin.needs_model else None
            )
            rows.append((f"{kind} {name}", reason is None, reason or ""))
    try:
        nvdisasm()
        rows.append(("nvdisasm (SASS)", True, ""))
    except Unavailable as error:
        rows.append(("nvdisasm (SASS)", False, str(error)))
    ncu = shutil.which("ncu")
    rows.append(
        ("ncu (hardware counters)", ncu is not None, "" if ncu else "not on the path; it comes with the CUDA toolkit")
    )
    endpoint = os.environ.get("OPENAI_BASE_URL") or ("the default endpoint" if os.environ.get("OPENAI_API_KEY") else "")
    rows.append(
        ("LLM endpoint", bool(endpoint), endpoint or "set OPENAI_BASE_URL or OPENAI_API_KEY; nothing here needs one")
    )
    rows += [(f"sandbox: {name}", active, why) for name, active, why in executors.protections()]
    if as_json():
        print(json.dumps([{"what": name, "available": ok, "why": why} for name, ok, why in rows]))
        return OK
    for name, ok, why in rows:
        print(f"{'yes' if ok else 'no '}  {name}" + (f": {why}" if why else ""))
    return OK
