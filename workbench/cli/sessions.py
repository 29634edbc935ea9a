"""`cutegen test`, `diff`, `export` and `history`: one file, or what a session has kept."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.output import NOT_CORRECT, OK, as_json, say
from workbench.errors import UserError

if TYPE_CHECKING:
    from workbench.session import Session


def test(arguments: argparse.Namespace) -> int:
    """One verdict on one file, or on a program."""
    import tempfile

    from workbench.session import Session
    from workbench.views.commands.problems import candidate_version, check_candidate, choose_l2, load_problem
    from workbench.views.commands.validation import check_order
    from workbench.views.text import tables
    from workbench.wire import to_plain

    check_order("test", arguments.spec, arguments.candidate)
    check_candidate(arguments.candidate)
    with (
        tempfile.TemporaryDirectory() as root,
        Session.create(
            load_problem(arguments, None),
            root=root,
            executor=arguments.executor,
            arch=arguments.arch,
            device=arguments.device,
        ) as session,
    ):
        choose_l2(session, arguments)
        version = candidate_version(session, arguments.candidate, test=True)
        say(str(tables.verdict(version)))
        verdict = version.trials[-1].verdict
        if as_json():
            print(json.dumps(to_plain(verdict)))
        return OK if verdict.correct else NOT_CORRECT


def diff(arguments: argparse.Namespace) -> int:
    """Two files, or two versions of a session."""
    from workbench.analysis.hunks import hunks
    from workbench.views.commands.problems import text_of
    from workbench.views.text.diff import unified

    paths = [Path(arguments.old), Path(arguments.new)]
    if all(path.is_file() for path in paths):
        old, new = (text_of(path) for path in paths)
    else:
        with _stored(arguments.session) as session:
            old, new = (session.version(name).proposal.candidate.source for name in (arguments.old, arguments.new))
    found = hunks(old, new)
    if as_json():
        from workbench.wire import to_plain

        print(json.dumps([to_plain(hunk) for hunk in found]))
    else:
        print(unified(old, new, arguments.old, arguments.new) if found else "no difference")
    return OK


def export(arguments: argparse.Namespace) -> int:
    """Write a version as a KernelBench-ready file."""
    with _stored(arguments.session) as session:
        source = session.export(arguments.version, arguments.path)
        if as_json():
            print(json.dumps({"path": arguments.path, "source": source}))
        say(f"written to {arguments.path}")
    return OK


def history(arguments: argparse.Namespace) -> int:
    """The version tree of a session, or the sessions there are."""
    from workbench.session import Session
    from workbench.views.text import tables

    if arguments.session is None and len(Session.names()) != 1:
        print(json.dumps(Session.names()) if as_json() else "\n".join(Session.names()) or "no sessions yet")
        return OK
    with _stored(arguments.session) as session:
        print(
            json.dumps(json.loads(tables.frame(session).reset_index().to_json(orient="records")))
            if as_json()
            else tables.history(session)
        )
    return OK


def _stored(name: str | None) -> Session:
    from workbench.session import Session

    known = Session.names()
    if name is None:
        if len(known) != 1:
            raise UserError(f"which session? --session NAME; there are: {', '.join(known) or 'none'}")
        name = known[0]
    return Session.open(name, write=False)
