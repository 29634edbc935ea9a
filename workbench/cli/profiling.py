"""`cutegen profile`, `cutegen diagnose` and `cutegen calibrate`.

Exit status: 0 success, 1 if the profile is empty, or if the version that follows an advice is not correct.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import html
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import plugins
from workbench.analysis import calibration
from workbench.analysis.calibration import Calibration, Rate
from workbench.cli.output import NOT_CORRECT, OK, echo, print_json, wants_json
from workbench.cli.sessions import create_session, print_wait
from workbench.errors import Stopped, UserError
from workbench.protocols import RunContext
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, render_table
from workbench.wire import to_plain

if TYPE_CHECKING:
    from workbench.records import Version
    from workbench.session import Session


def profile(arguments: argparse.Namespace) -> int:
    """Profile a candidate file, or a version of a stored session."""
    from workbench.profilers.recorded import compact
    from workbench.views.text.profile_report import profile_plot, profile_report

    for name in arguments.by.split("+"):  # refused before the problem is inspected, unless a session may keep a profile
        plugins.load("profiler", name, check=not arguments.session)
    with _open_version(arguments) as (session, version):
        options = {"sections": arguments.sections, "case": arguments.case}
        found = session.profile(version.number, arguments.by, again=arguments.again, **options)
        made = profile_plot(version, found, arguments.plot) if arguments.plot else profile_report(version, found)
        echo(str(made))
        if arguments.html:
            _write_page(arguments.html, f"profile of v{version.number}", made)
        if wants_json():
            print_json(to_plain(compact(found)))
        return OK if found.kernels or found.lines or found.timeline or found.energy else NOTHING_PROFILED


def diagnose(arguments: argparse.Namespace) -> int:
    """Diagnose a candidate file, or a version of a stored session; or make the version that follows an advice."""
    from workbench.views.commands.shared_arguments import PROBLEM
    from workbench.views.text.diagnosis import diagnosis_report, file_way, session_way
    from workbench.views.text.rules_page import program_rules

    if arguments.apply is not None and not arguments.session:
        raise UserError("--apply makes a version of a stored session: name it with --session NAME")
    for name in filter(None, arguments.by.split("+")):
        plugins.load("profiler", name, check=not arguments.session)
    with _open_version(arguments) as (session, version):
        if arguments.apply is not None:
            return _apply_advice(session, version, arguments)
        found = session.diagnose(version.number, arguments.by, again=arguments.again)
        version = session.version(version.number)
        command = f"cutegen diagnose --session {session.name} --version v{version.number} --apply"
        way = (
            session_way(version, session.versions, command, has_model=session.has_model, problem=session.problem)
            if arguments.session
            else file_way(version, arguments.spec, [word for one in PROBLEM for word in one.write(arguments)])
        )
        rules = program_rules(version, session.problem)
        made = diagnosis_report(version, found, way, rules, session.versions, in_shell=True)
        echo(str(made))
        if arguments.html:
            _write_page(arguments.html, f"diagnosis of v{version.number}", made)
        if wants_json():
            print_json(to_plain(found))
        return OK


def _apply_advice(session: Session, version: Version, arguments: argparse.Namespace) -> int:
    """Make the version that follows an advice, and print its verdict."""
    from workbench.views.text import tables

    session.subscribe(lambda event: echo(event.message) if event.kind == "note" else None)
    made = session.apply_advice(version.number, arguments.apply, by=arguments.by, again=arguments.again)
    if made is None:
        raise UserError(f"advice {arguments.apply} of v{version.number} could not be made into a version")
    echo(str(tables.verdict(made)))
    if wants_json():
        print_json(to_plain(made))
    return OK if made.trials and made.trials[-1].verdict.correct else NOT_CORRECT


def _write_page(path: str, title: str, made: MimeBundle) -> None:
    """Write what is shown as a page of its own."""
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    Path(path).write_text(f'<!doctype html><html lang="en">{head}<body>{made.html}</body></html>', encoding="utf-8")
    echo(f"written to {path}")


NOTHING_PROFILED = 1
STYLE = (
    ":root{color-scheme:light dark;font-family:system-ui,sans-serif}"
    "body{max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "background:light-dark(#fff,#161616);color:light-dark(#1c1c1c,#e4e4e4)}"
    "table{border-collapse:collapse;font-size:.9rem}td,th{padding:1px 8px}"
)


@contextlib.contextmanager
def _open_version(arguments: argparse.Namespace) -> Iterator[tuple[Session, Version]]:
    """The session and the version of the arguments. For a candidate file the session is temporary."""
    from workbench.views.commands.problems import candidate_version, check_candidate, load_problem, read_source
    from workbench.views.commands.validation import check_kernel, check_order

    if arguments.session:
        with _open_stored(arguments.session) as session:
            session.subscribe(print_wait)
            yield session, session.version(arguments.chosen or arguments.candidate or "best")
        return
    if not arguments.spec or not arguments.candidate:
        raise UserError(
            f"nothing to {arguments.command}: give cutegen {arguments.command} PROBLEM FILE, or "
            f"cutegen {arguments.command} --session NAME [--version v2]; "
            "for a script with launches of its own: cutegen emulate --follow SCRIPT.py"
        )
    if arguments.chosen:
        raise UserError(
            f"--version {arguments.chosen} is a version of a stored session: name it with --session NAME, or leave "
            f"--version out for {arguments.candidate}"
        )
    check_order(arguments.command, arguments.spec, arguments.candidate)
    check_candidate(arguments.candidate)
    problem = load_problem(arguments, None)
    if Path(arguments.candidate).is_file() and arguments.candidate.endswith(".py"):
        check_kernel(arguments.candidate, read_source(Path(arguments.candidate)), problem)
    with tempfile.TemporaryDirectory() as root, create_session(arguments, problem, root=root) as session:
        yield session, candidate_version(session, arguments.candidate, test=False)


def _open_stored(name: str) -> Session:
    """Open a stored session for writing, so that it keeps the profile; for reading if another process works on it."""
    from workbench.session import Session

    try:
        return Session.open(name)
    except UserError:
        return Session.open(name, write=False)


def calibrate(arguments: argparse.Namespace) -> int:
    """Measure the ceilings of this GPU and store them, or list the stored ones."""
    if arguments.show:
        return print_calibrations()
    from workbench.profilers import calibrate as calibrator

    calibrator.require_gpu()
    try:
        with _progress_bar() as progress:
            context = RunContext(progress=print_wait)
            found = calibrator.calibrate(progress, only=arguments.only, context=context)
    except KeyboardInterrupt:
        raise Stopped("stopped; stored calibrations are unchanged") from None
    if not found.rates:
        raise UserError(f"no ceiling could be measured: {'; '.join(found.notes)}")
    if arguments.only and not arguments.out:
        found = _merge_calibrations(calibration.find(found.device), found)
    path = calibration.save(found, Path(arguments.out) if arguments.out else None)
    echo(str(render_calibration(found)))
    echo(f"written to {path}" if arguments.out else f"stored in {path}; bounds on {found.device} use it from now on")
    if wants_json():
        print_json({"path": str(path), "calibration": to_plain(found)})
    return OK


def _merge_calibrations(before: Calibration | None, found: Calibration) -> Calibration:
    """The new rates, and the old ones that were not measured again. A note gives the date of the old ones."""
    new = {rate.name for rate in found.rates}
    old = [rate for rate in before.rates if rate.name not in new] if before else []
    notes = [f"of {before.date[:10]}: {', '.join(rate.name for rate in old)}"] if before and old else []
    return dataclasses.replace(
        found,
        rates=(*found.rates, *old),
        notes=(*found.notes, *notes),
    )


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error. It is hidden if that is not a terminal."""
    from tqdm.auto import tqdm

    with tqdm(total=1, unit="ceiling", leave=False, disable=None) as bar:

        def update(name: str, done: int, total: int) -> None:
            bar.total = total
            bar.set_description(name)
            bar.n = done
            bar.refresh()

        yield update


def print_calibrations() -> int:
    """Print all stored calibrations, those of this machine first, and where the time model's constants come from."""
    from workbench.analysis import devices
    from workbench.analysis.time_model import describe_fit

    known = calibration.load_all()
    if wants_json():
        print_json([{"path": str(path), "calibration": to_plain(found)} for path, found in known])
        return OK
    for path, found in known:
        echo(f"{path}{' (shipped)' if path.parent == calibration.SHIPPED else ''}")
        echo(str(render_calibration(found)) + "\n")
    if not known:
        echo("no calibration is stored; on a machine with a GPU run: cutegen calibrate")
    echo("time model without a GPU:")
    for name in devices.names():
        echo(f"  {name}: {describe_fit(devices.find(name))}")
    return OK


def render_calibration(found: Calibration) -> MimeBundle:
    """A calibration as a table."""
    head = ["ceiling", "median", "95 % interval", "by"]
    rows = [
        [
            rate.name,
            format_rate(rate, rate.value),
            f"{format_rate(rate, rate.low)} to {format_rate(rate, rate.high)}"
            if rate.low is not None and rate.high is not None
            else "—",
            rate.by,
        ]
        for rate in found.rates
    ]
    plain, listed = render_table(head, rows, f"{found.device} ({found.summary}), measured")
    return MimeBundle("\n".join([plain, *(f"note: {note}" for note in found.notes)]), html=listed)


def format_rate(rate: Rate, number: float) -> str:
    """A value of a rate with its unit."""
    return format_seconds(number) if rate.unit == "s" else f"{format_amount(number)}{rate.unit}"
