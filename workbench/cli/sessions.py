"""`cutegen problem`, `alike`, `diff`, `export`, `history` and `verify`. `create_session` is for all commands."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.output import NOT_CORRECT, OK, echo, print_error, print_json, print_text, wants_json
from workbench.errors import UserError
from workbench.wire import to_plain

if TYPE_CHECKING:
    from workbench.records import Event, Facts, Problem
    from workbench.session import Session


def start_workers(arguments: argparse.Namespace, *roles: str) -> None:
    """Start the worker server before anything else is imported, because its own imports take longer.

    It goes on with what jobs of `roles` need.
    """
    from workbench.executors.jobs.client import server

    if arguments.executor != "replay":
        workers = server()
        for role in roles:
            workers.prepare(role)


def create_session(
    arguments: argparse.Namespace,
    problem: Problem | None = None,
    *,
    root: str | Path | None = None,
    facts: Facts | None = None,
) -> Session:
    """Create a session with the executor, arch and device of the arguments; `problem` defaults to theirs.

    The problem is inspected unless its `facts` are given.
    """
    from workbench.session import Session
    from workbench.views.commands.problems import load_problem

    session = Session.create(
        problem or load_problem(arguments, None),
        root=root,
        executor=arguments.executor,
        arch=arguments.arch,
        device=arguments.device,
        facts=facts,
        calibrate=not arguments.no_calibrate,
    )
    session.subscribe(print_wait)
    return session


def print_wait(event: Event) -> None:
    """Print that a person waits for another session's turn on the GPU."""
    if event.kind == "waiting":
        print_error(event.message)


def problem(arguments: argparse.Namespace) -> int:
    """Print what was understood of a problem. Nothing is kept."""
    start_workers(arguments, "inspect")
    from workbench.views.text.card_page import show_card
    from workbench.views.text.problem_card import describe_problem
    from workbench.wire import to_plain

    with tempfile.TemporaryDirectory() as root, create_session(arguments, root=root) as session:
        card = describe_problem(session)
    if wants_json():
        print_json(to_plain(card))
    else:
        echo(str(show_card(card)))
    return OK


def diff(arguments: argparse.Namespace) -> int:
    """Compare two files or versions of a session."""
    from workbench.analysis.hunks import hunks
    from workbench.views.commands.problems import read_source
    from workbench.views.text.diff import unified_diff
    from workbench.wire import to_plain

    paths = [Path(arguments.old), Path(arguments.new)]
    missing = [str(path) for path in paths if not path.is_file()]
    if absent := [name for name in missing if Path(name).suffix]:
        raise UserError(f"there is no file {absent[0]!r}")
    if not missing:
        old, new = (read_source(path) for path in paths)
    else:
        with _open_stored(arguments.session) as session:
            old, new = (
                read_source(path) if path.is_file() else session.version(str(path)).proposal.candidate.source
                for path in paths
            )
    found = hunks(old, new)
    if wants_json():
        print_json([to_plain(hunk) for hunk in found])
    else:
        print_text(unified_diff(old, new, arguments.old, arguments.new) if found else "no difference")
    return OK


def export(arguments: argparse.Namespace) -> int:
    """Write a version as a file for KernelBench, or in another form."""
    from workbench.codegen.exports import describe_export
    from workbench.views.text import tables

    with _open_stored(arguments.session) as session:
        version = session.version(arguments.version)
        source = session.export(version.number, arguments.path, arguments.form)
        chosen = tables.describe_choice(session, version, arguments.version)
        if wants_json():
            print_json({"path": arguments.path, "source": source})
        echo("; ".join(filter(None, (describe_export(version, arguments.path), chosen))))
    return OK


def history(arguments: argparse.Namespace) -> int:
    """Print the version tree of a session, or a list of the stored sessions."""
    from workbench.analysis.version_rows import version_rows
    from workbench.folders import sessions_root
    from workbench.session import Session
    from workbench.views.text import tables
    from workbench.views.text.sessions_page import list_sessions

    if arguments.session is None and not arguments.html and len(Session.names()) != 1:
        if wants_json():
            print_json(Session.names())
        else:
            print_text(str(list_sessions(sessions_root())))
        return OK
    with _open_stored(arguments.session) as session:
        if wants_json():
            print_json(version_rows(session.versions))
        else:
            print_text(str(tables.history(session)))
        if arguments.html:
            _write_report(session, Path(arguments.html))
    return OK


def _write_report(session: Session, path: Path) -> None:
    """Write the report of a session as a page that needs nothing else."""
    from workbench.views.text import report

    echo(report.write_page(session, path))


def show_lessons(arguments: argparse.Namespace) -> int:
    """Show, forget or annotate the lessons of earlier sessions."""
    from workbench.views.text import lessons_page

    done, found = lessons_page.change_lessons(arguments), lessons_page.select_lessons(arguments.kind)
    if wants_json():
        print_json({"done": done, "lessons": [to_plain(lesson) for lesson in found]})
    else:
        print_text(done or lessons_page.format_lessons(found))
    return OK


def trust(arguments: argparse.Namespace) -> int:
    """Trust a session or a recording."""
    from workbench.views.commands.handlers import trust_path

    said = trust_path(arguments.path)
    if wants_json():
        print_json({"trusted": said})
    else:
        print_text(said)
    return OK


def energy(arguments: argparse.Namespace) -> int:
    """Print energy against time of a session's versions; with --svg also write the picture."""
    from workbench.views.plots.energy import find_front, find_points, plot_energy
    from workbench.wire import to_plain

    with _open_stored(arguments.session) as session:
        shown = plot_energy(session)
        points = find_points(session.versions, session.device)
    echo(str(shown))
    if arguments.svg:
        if not shown.svg:
            raise UserError(f"{arguments.svg} is not written: {shown}")
        Path(arguments.svg).write_text(shown.svg, encoding="utf-8")
        echo(f"written to {arguments.svg}")
    if wants_json():
        front = {point.version for point in find_front(points)}
        print_json([{**to_plain(point), "on_front": point.version in front} for point in points])
    return OK


def find_alike(arguments: argparse.Namespace) -> int:
    """Print the kernels that are like a file, a program, or a version of a stored session in structure."""
    from workbench.views.text.alike_page import alike_page, sketch_text, sketch_version

    if bool(arguments.candidate) == bool(arguments.session):
        raise UserError("give a file or a program, or --session NAME [--version v2]: one of the two")
    if arguments.candidate:
        path = Path(arguments.candidate)
        is_file = "\n" not in arguments.candidate and "(" not in arguments.candidate and path.is_file()
        text = path.read_text(encoding="utf-8", errors="replace") if is_file else arguments.candidate
        if not is_file and (path.suffix == ".py" or "(" not in arguments.candidate):
            raise UserError(f"there is no file {path}; give a file, or a muCUTLASS program in quotes")
        shown = alike_page(sketch_text(text, path.name if is_file else "the program"))
    else:
        with _open_stored(arguments.session) as session:
            version = session.version(arguments.chosen or "best")
            shown = alike_page(sketch_version(version), session.versions)
    if wants_json():
        print_json({"text": str(shown)})
    else:
        print_text(str(shown))
    return OK


def verify(arguments: argparse.Namespace) -> int:
    """Verify the log of a session. The exit status is 1 if something is not as it was written."""
    from workbench.session.verifying import verify_log
    from workbench.views.text import tables
    from workbench.wire import to_plain

    with _open_stored(arguments.session) as session:
        found = verify_log(session, head=arguments.head, run=arguments.run)
    if wants_json():
        print_json(to_plain(found))
    else:
        print_text(str(tables.log_check(found)))
    return NOT_CORRECT if found.problems else OK


def _open_stored(name: str | None) -> Session:
    """Open a stored session for reading; without a name the only one there is."""
    from workbench.session import Session

    known = Session.names()
    if name is None:
        if len(known) != 1:
            raise UserError(f"which session? --session NAME; there are: {', '.join(known) or 'none'}")
        name = known[0]
    return Session.open(name, write=False)
