"""`cutegen emulate`, `lab`, `landscape`, `explain`, `format`, `docs` and `doctor`: the commands without a session."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.output import OK, echo, print_json, print_text, wants_json
from workbench.errors import Stopped, Unavailable, UserError

if TYPE_CHECKING:
    from workbench.landscapes import Landscape


def emulate(arguments: argparse.Namespace) -> int:
    """Run an unmodified CuTe DSL program on the emulator."""
    from workbench.emulator import run_script

    return run_script.run(
        arguments.program,
        arguments.rest,
        device=arguments.device,
        arch=arguments.arch,
        sanitize=arguments.sanitize,
        counters=arguments.counters,
        follow=arguments.follow,
        as_json=wants_json(),
    )


def lab(arguments: argparse.Namespace) -> int:
    """Copy the tutorials and start JupyterLab on the first one."""
    import importlib.util
    import shutil

    if importlib.util.find_spec("jupyterlab") is None:
        raise Unavailable("JupyterLab is not installed: pip install jupyterlab")
    source = _tutorial_folder()
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


def _tutorial_folder() -> Path:
    """The tutorials in the installed package, or in a checkout."""
    package = Path(__file__).parent.parent
    return inside if (inside := package / "tutorials").is_dir() else package.parent / "notebooks"


def landscape(arguments: argparse.Namespace) -> int:
    """Print the recorded landscape of a problem as a heat map, or a summary of all problems."""
    from workbench import landscapes
    from workbench.views.plots.heat_map import heat_map, parse_where
    from workbench.views.plots.landscape import landscape_summary
    from workbench.views.text.rules_page import with_rules

    if arguments.spec:
        place = _find_landscape(arguments)
        shown = heat_map(place, arguments.x, arguments.y, parse_where(arguments.where))
        shown = shown if arguments.where else with_rules(shown, place)  # rules are on all rows
    else:
        _refuse_given(arguments, "the summary of all problems has no settings: name a problem, or leave out")
        shown = landscape_summary(tuple(landscapes.landscapes().values()))
    _print_text(shown.text)
    if arguments.svg:
        Path(arguments.svg).write_text(shown.svg, encoding="utf-8")
        echo(f"written to {arguments.svg}")
    return OK


def minibatch(arguments: argparse.Namespace) -> int:
    """Measure mini-batches over the two knobs and print the results."""
    from workbench.views.commands.handlers import run_minibatches

    try:
        shown, studied = run_minibatches(arguments, echo)
    except KeyboardInterrupt:
        raise Stopped("stopped; the results so far are stored, and the same command continues") from None
    if wants_json():
        print_json({"text": shown.text, "results": [dataclasses.asdict(result) for result in studied.results]})
    else:
        print_text(shown.text)
    echo(f"results are in {studied.path}")
    if arguments.svg:
        Path(arguments.svg).write_text(shown.svg, encoding="utf-8")
        echo(f"written to {arguments.svg}")
    return OK


def _find_landscape(arguments: argparse.Namespace) -> Landscape:
    """The landscape of the problem, or the one with that name. Raises `UserError` if nothing was recorded."""
    from workbench import landscapes, problems
    from workbench.executors.gpu.presence import device_at_hand
    from workbench.views.commands.problems import load_problem

    named = landscapes.landscapes().get(arguments.spec)
    if named is not None and arguments.spec not in problems.shipped():
        _refuse_given(arguments, f"{arguments.spec} was recorded with its own sizes and precision: leave out")
        return named
    problem = load_problem(arguments, None)
    if problem.precision == "declared":
        from workbench.executors.inspector import WorkerInspector

        problem = WorkerInspector().open(problem).problem
    here = device_at_hand()
    found = landscapes.find_near(problem, here.name if here is not None else "")
    if found is None:
        raise UserError(landscapes.not_recorded(problem))
    return found


def _refuse_given(arguments: argparse.Namespace, reason: str) -> None:
    """Raise `UserError` for --where and the options of a problem, where they would be ignored."""
    from workbench.views.commands.shared_arguments import SIZES, WHERE

    options = SIZES if arguments.spec else (WHERE, *SIZES)
    given = [option.flags[0] for option in options if option.is_given(arguments)]
    if given:
        raise UserError(f"{reason} {', '.join(given)}")


def _print_text(text: str, key: str = "text") -> None:
    """Print a text, or with --json a document that holds it."""
    if wants_json():
        print_json({key: text})
    else:
        print_text(text)


def explain(arguments: argparse.Namespace) -> int:
    """Explain a program, list the settings of an operation, or list all operations."""
    from workbench.views.commands import explanation

    _print_text(str(explanation.explain_text(arguments.program, arguments)))
    return OK


def format_text(arguments: argparse.Namespace) -> int:
    """Print the canonical text of a program."""
    from workbench.language import format_program, parse

    _print_text(format_program(parse(arguments.program)), key="program")
    return OK


def show_docs(arguments: argparse.Namespace) -> int:
    """Print a page of the documentation, or the list of pages."""
    from workbench import docs

    _print_text(docs.read(arguments.page) if arguments.page else docs.overview("cutegen docs"))
    return OK


def doctor(arguments: argparse.Namespace) -> int:
    """Print what is available here, and for the rest why not and how to get it."""
    from workbench import executors

    rows = [*_gpu_rows(), _time_model_row(), *_plugin_rows(), *_tool_rows()]
    rows += [(f"sandbox: {name}", active, why) for name, active, why in executors.protections()]
    if wants_json():
        print_json([{"what": name, "available": ok, "why": why} for name, ok, why in rows])
        return OK
    for name, ok, why in rows:
        print_text(f"{'yes' if ok else 'no '}  {name}" + (f": {why}" if why else ""))
    return OK


AvailabilityRow = tuple[str, bool, str]  # (name, whether it is available, why not)


def _gpu_rows() -> list[AvailabilityRow]:
    """The visible GPUs: the one that is worked on first, with what its rates are from, then the others."""
    from workbench.analysis import devices
    from workbench.executors.gpu.presence import device_at_hand, find_gpu, list_gpus

    found, used, here = list_gpus(), find_gpu(), device_at_hand()
    if here is None or isinstance(found, str) or isinstance(used, str):
        return [("GPU", False, str(found))]
    rates = devices.find(here.name).rates
    offer = "" if "measured" in rates else "; its ceilings are not measured: cutegen calibrate does it in about 20 s"
    rows = [(f"GPU {used}", True, f"device {here.name}, rates: {rates}{offer}")]
    others = [one for one in found if one != used]
    return rows + [(f"GPU {one}", True, f"not used; --gpu {one.number} takes it") for one in others]


def _time_model_row() -> AvailabilityRow:
    """What modelled times rest on: on the GPU at hand, else on the devices where programs were measured."""
    from workbench.analysis import devices
    from workbench.analysis.time_model import FITTED_ON, describe_fit, find_refinement
    from workbench.executors.gpu.presence import device_at_hand

    here = device_at_hand()
    if here is not None:
        return ("time model", True, describe_fit(devices.find(here.name)))
    refined = [(name, find_refinement(devices.find(name)).problems) for name in devices.names()]
    known = [f"its intervals for {name} rest on {problems} measured problems" for name, problems in refined if problems]
    return ("time model", True, "; ".join([f"fitted to kernels measured on one {FITTED_ON}", *known]))


def _plugin_rows() -> list[AvailabilityRow]:
    from workbench import plugins
    from workbench.errors import WorkbenchError
    from workbench.proposers.llm.settings import why_no_model
    from workbench.protocols import Proposer

    rows: list[AvailabilityRow] = []
    for kind in plugins.GROUPS:
        for name in plugins.names(kind):
            try:
                plugin = plugins.load(kind, name, check=False)
            except WorkbenchError as error:
                rows.append((f"{kind} {name}", False, str(error)))
                continue
            needs_model = isinstance(plugin, Proposer) and plugin.needs_model
            reason = plugin.why_not() or (why_no_model() if needs_model else None)
            rows.append((f"{kind} {name}", reason is None, reason or ""))
    return rows


def _tool_rows() -> list[AvailabilityRow]:
    """The rows of nvdisasm, ncu and the endpoint of a language model."""
    import shutil

    from workbench.toolchain.binary import nvdisasm

    try:
        nvdisasm()
        disassembler = ("nvdisasm (SASS)", True, "")
    except Unavailable as error:
        disassembler = ("nvdisasm (SASS)", False, str(error))
    found = shutil.which("ncu") is not None
    counters = ("ncu (hardware counters)", found, "" if found else "not on the path; it comes with the CUDA toolkit")
    default = "the default endpoint" if os.environ.get("OPENAI_API_KEY") else ""
    endpoint = os.environ.get("OPENAI_BASE_URL") or default
    model = (
        "LLM endpoint",
        bool(endpoint),
        endpoint or "set OPENAI_BASE_URL or OPENAI_API_KEY; nothing here needs one",
    )
    return [disassembler, counters, model]
