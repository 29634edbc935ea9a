"""Renders prompts from jinja2 files. A file in the session's folder replaces the shipped one of that name.

A session's folder may be somebody else's, so its files render in jinja2's sandbox, where they reach no code.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis import devices, speed_of_light
from workbench.codegen import compile_program
from workbench.errors import UserError
from workbench.language import Binding
from workbench.proposers.llm.patches import number_lines
from workbench.records import Ask, Message, Trial, Version

if TYPE_CHECKING:
    import jinja2

SHIPPED = Path(__file__).parent / "templates"
ERROR_CHARACTERS = 10_000  # limit of an error's text (CuTeGen's COMPILE_LOG_CHARS)
CLASSES = {
    "matmul": "matmul",
    "elementwise": "elementwise",
    "reduction": "reduction",
    "softmax": "reduction",
    "norm": "reduction",
    "convolution": "convolution",
    "loss": "loss",
    "attention": "attention",
}
INIT = "def __init__(self):\n    super().__init__()\n"


def workload(kind: str) -> str:
    """The menu's name for a kind of problem (records.Facts.kind)."""
    return CLASSES.get(kind, "other")


@functools.cache
def examples() -> tuple[str, str]:
    """Two example files of our own emitter, which the tests of the small language compile and check."""
    binding = Binding(init_source=INIT, forward_arguments=("x",), operands=(("x", "x"),))
    return compile_program("elementwise(silu(x)) .threads(256) .vector(4)", binding), compile_program(
        "reduce(x, op=max, axis=last) .threads_per_row(256) .vector(4)", binding
    )


def own_files(folder: Path) -> tuple[str, ...]:
    """Names of the templates and menus in a session's folder of prompts, which replace the shipped ones.

    Raises `UserError` for a link that leads out of the folder: its text would be sent to the model.
    """
    found = [path for path in sorted(folder.glob("*")) if path.suffix == ".jinja2" or path.name == "menus.toml"]
    for path in found:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{path} is a link out of its folder; put the text itself there, or remove it")
    return tuple(path.name for path in found)


def _environment(folder: Path | None) -> jinja2.Environment:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def load(name: str) -> tuple[str, str, None] | None:
        path = _find(name, folder)
        return (path.read_text(encoding="utf-8"), str(path), None) if path.is_file() else None

    return ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def _find(name: str, folder: Path | None) -> Path:
    """The session's file of that name, else the shipped one."""
    return folder / name if folder is not None and name in own_files(folder) else SHIPPED / Path(name).name


def menu(kind: str, folder: Path | None = None) -> tuple[str, ...]:
    """The changes to choose from for a class of computation. Raises `UserError` if the session's menus.toml is bad."""
    path = _find("menus.toml", folder)
    try:
        menus = tomllib.loads(path.read_text())
        return tuple(menus.get(workload(kind)) or menus["other"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}; correct it, or remove it") from None


def messages(name: str, ask: Ask, folder: Path | None = None, **values: object) -> list[Message]:
    """System and user message of a template: `synthesis`, `optimise`, `diagnosis`, `patch` or `ask`.

    Raises `UserError` with the file and the line if a template cannot be rendered.
    """
    environment = _environment(folder)
    everything = {**_template_values(ask), **values}
    return [
        {"role": "system", "content": _render(environment, "system.jinja2", everything, folder)},
        {"role": "user", "content": _render(environment, f"{name}.jinja2", everything, folder)},
    ]


def _render(environment: jinja2.Environment, name: str, values: dict[str, object], folder: Path | None) -> str:
    try:
        return environment.get_template(name).render(values)
    except UserError:
        raise
    except Exception as error:  # a template's expressions raise what Python raises
        place = _template_place(error) or str(_find(name, folder))
        text = next(iter(str(error).splitlines()), "")
        raise UserError(f"{place}: {type(error).__name__}: {text}; correct the template, or remove it") from None


def _template_place(error: Exception) -> str:
    """File and line of the innermost template in an exception; "" if there is none."""
    name, line = getattr(error, "filename", None), getattr(error, "lineno", None)
    place, trace = f"{name}:{line}" if name and line else "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".jinja2"):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _template_values(ask: Ask) -> dict[str, object]:
    base = ask.baseline
    trial = base.trials[-1] if base is not None and base.trials else None
    return {
        "arch": ask.arch,
        "device": ask.device,
        "precision": ask.problem.precision,
        "problem_source": ask.problem.source.strip(),
        "settings": ask.problem.settings,
        "cases": ask.facts.cases,
        "varied": [one.name for one in ask.facts.given if one.others],
        "bound": _bound_text(ask),
        "constraints": ask.constraints,
        "instruction": ask.instruction,
        "kind": ask.facts.kind,
        "profile": ask.profile,
        "learnt": ask.learnt,
        "lessons": ask.lessons,
        "rules": ask.rules,
        "directives": ask.directives,
        "questions": ask.questions,
        "examples": examples(),
        "history": [_history_line(version) for version in ask.history if version.trials][-12:],
        "provenance": (trial.verdict.time_provenance if trial else None) or "modelled",
        "time": format_seconds(trial.verdict.time_s) if trial and trial.verdict.time_s else "",
        "numbered": number_lines(base.proposal.candidate.source) if base else "",
    }


def _bound_text(ask: Ask) -> str:
    work = next((work for work in ask.facts.work if work.case == "full"), None)
    if work is None:
        return ""
    bound = speed_of_light.bound(work, devices.find(ask.device))
    return (
        f"At its full size the reference needs at least {work.flops:.3g} FLOPs and {work.least_bytes:.3g} bytes: "
        f"no kernel is faster than {format_seconds(bound.bound_s)} "
        f"({bound.limited_by}-bound, {bound.intensity:.3g} FLOPs per byte against a ridge point of {bound.ridge:.3g})."
    )


def _history_line(version: Version) -> dict[str, object]:
    verdict = version.trials[-1].verdict
    if not verdict.correct:
        said = f"not correct ({verdict.failure.stage}: {verdict.failure.message})" if verdict.failure else "not correct"
    else:
        said = f"correct, {format_seconds(verdict.time_s)}" if verdict.time_s else "correct"
    if version.decision is not None:
        said += f"; {version.decision.participle}" + (
            f" by the {version.decision.by}: {version.decision.reason}" if version.decision.reason else ""
        )
    return {"number": version.number, "parent": version.parent, "title": version.proposal.title, "said": said}


def error_text(trial: Trial) -> str:
    """The text of a failure for a model: message, hint, detail, findings; cut to the paper's length."""
    failure = trial.verdict.failure or trial.outcome.failure
    if failure is None:
        return "no failure was recorded"
    parts = [
        failure.message,
        failure.hint,
        failure.detail,
        *[
            f"line {finding.line}: {finding.message}"
            for finding in trial.outcome.findings
            if finding.severity == "error"
        ],
    ]
    return "\n".join(dict.fromkeys(part for part in parts if part))[:ERROR_CHARACTERS]


def format_seconds(value: float | None) -> str:
    """A time with its unit."""
    if value is None:
        return "unknown"
    for limit, unit, scale in ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3)):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s"
