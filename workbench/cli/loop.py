"""`cutegen run` and `cutegen demo`: run the loop on a problem and print each step."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli import searching
from workbench.cli.output import NOT_CORRECT, OK, echo, print_json, wants_json
from workbench.cli.sessions import create_session, print_wait, start_workers
from workbench.errors import Stopped, Unavailable, UserError, WorkbenchError
from workbench.plugins import DEFAULTS
from workbench.protocols import Proposer

if TYPE_CHECKING:
    from workbench.session import Session

PLAYBACK = "replay"  # the value of --by that plays a recording instead of running a proposer


def run(arguments: argparse.Namespace) -> int:
    """Run the loop on a problem, or continue a stored session."""
    start_workers(arguments, "inspect", "candidate")
    from workbench.views.commands.loop_commands import RUN_BY
    from workbench.views.commands.problems import choose_rule, choose_testing
    from workbench.views.commands.searching.handlers import write_again
    from workbench.views.text import tables
    from workbench.views.text.card_page import show_card
    from workbench.views.text.problem_card import describe_problem

    _check_arguments(arguments)
    with _open_session(arguments) as session:
        choose_testing(session, arguments)
        choose_rule(session, arguments)
        _print_events(session)
        echo(str(tables.status(session) if arguments.resume else show_card(describe_problem(session))))
        try:
            if arguments.program is None or _add_first_version(session, arguments.program):
                _run_loop(session, arguments)
        except (KeyboardInterrupt, Stopped):
            again = write_again(arguments, RUN_BY)
            raise Stopped(
                f"stopped; everything finished is kept, go on with: cutegen run --resume {session.folder}{again}"
            ) from None
        except WorkbenchError:  # of a model, such as a budget that is used up
            if session.versions:
                echo("\n" + str(tables.history(session)))
            _say_kept(session)
            raise
        return _print_summary(session)


def demo(arguments: argparse.Namespace) -> int:
    """Run the loop on a problem of the package, and write an HTML report and a finished notebook."""
    start_workers(arguments, "inspect", "candidate")
    from workbench import executors
    from workbench.views.commands.problems import choose_testing

    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = executors.choose(arguments.executor)
    how = "full sizes" if chosen.full_size else "compile, emulate and check with no GPU"
    echo(f"problem {arguments.spec} on the executor {chosen.name}: {how}")
    with create_session(arguments, root=folder / "sessions") as session:
        choose_testing(session, arguments)
        _print_events(session)
        _run_steps(session, arguments.steps, DEFAULTS.proposer, show_diff=True)
        _write_report(session, folder)
        status = _print_summary(session)
        echo(
            f"\nwritten to {folder}/: report.html (open it in a browser), demo.ipynb (the same as a notebook), "
            "best.py (loads in KernelBench)"
        )
        return status


def _write_report(session: Session, folder: Path) -> None:
    """Write report.html, demo.ipynb and the best version of a session into a folder."""
    from workbench.views.text import report, tables

    (folder / "report.html").write_text(report.html_page(session), encoding="utf-8")
    try:
        report.write_notebook(session, folder / "demo.ipynb")
    except Unavailable as missing:
        echo(str(missing))
    if session.best is not None:
        (folder / "best.py").write_text(session.export(session.best.number))
        if faster := tables.describe_faster(session):
            echo(f"best.py is v{session.best.number}, the best accepted version; {faster}")


def _print_events(session: Session) -> None:
    """Print notes and stops of the session; in a terminal also what runs."""
    kinds = ("note", "stopped", "running") if sys.stderr.isatty() else ("note", "stopped")
    session.subscribe(lambda event: echo(f"  {event.message}") if event.kind in kinds else None)


def _open_session(arguments: argparse.Namespace) -> Session:
    """The session to resume, a new one for a recording, or a new one for the problem of the arguments."""
    from workbench.session import Session, recording

    if arguments.resume:
        session = Session.open(arguments.resume, trusted=arguments.trust)
        if session.refusal:
            session.close()
            raise UserError(session.refusal)
        session.subscribe(print_wait)
        return session
    if arguments.recording:
        recording.check_trust(arguments.recording, given=arguments.trust)
        found = recording.load(arguments.recording)
        arguments.arch, arguments.device = arguments.arch or found.arch, arguments.device or found.device
        return create_session(arguments, found.problem)
    if not arguments.spec:
        raise UserError("which problem? name a problem of the package, or a file in KernelBench's form")
    echo(f"looking at {arguments.spec} ...")
    return create_session(arguments)


def _add_first_version(session: Session, program: str) -> bool:
    """Add and test the user's first version. Returns whether the session has a baseline then."""
    from workbench.views.commands.problems import candidate_version
    from workbench.views.text import tables

    echo("\n--- the first version")
    version = candidate_version(session, program, test=True)
    verdict = version.trials[-1].verdict
    if verdict.correct and not verdict.suspect:
        version = session.accept(version.number, reason="the first version")
    echo(str(tables.verdict(version)))
    if session.baseline is None:
        echo("there is nothing to refine: correct --program, or omit it to let the planner write the first version")
    return session.baseline is not None


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for arguments that exclude each other, before a session is created."""
    from workbench.proposers.llm.settings import why_no_model
    from workbench.session import chain
    from workbench.views.commands.conversation import read_model_settings

    if (arguments.by == PLAYBACK) != bool(arguments.recording):
        raise UserError(f"--by {PLAYBACK} and --recording NAME go together")
    _check_ignored(arguments)
    searching.check_search(arguments)
    if arguments.program is not None:
        _check_program(arguments)
    proposer = None if arguments.by == PLAYBACK else _load_proposer(arguments.by)
    _check_until(arguments, proposer)
    needs_model = proposer is not None and proposer.needs_model
    if needs_model:
        chain.parse_settings(_chain_settings(arguments))
    elif arguments.setting:
        raise UserError(f"--setting changes the chain, which needs --by {DEFAULTS.model_proposer}")
    if needs_model and not read_model_settings(arguments) and not arguments.resume and (missing := why_no_model()):
        raise Unavailable(f"proposer {arguments.by!r} cannot run here: {missing}")


def _check_ignored(arguments: argparse.Namespace) -> None:
    """Refuse a problem and its options beside --resume or --recording, which would ignore them."""
    from workbench.views.commands.shared_arguments import SIZES, TARGET

    given = [arguments.spec] if arguments.spec else []
    given += [option.flags[0] for option in SIZES if option.is_given(arguments)]
    if arguments.recording and given:
        raise UserError(f"a recording has its own problem: leave out {', '.join(given)}")
    given += [option.flags[0] for option in TARGET if option.is_given(arguments)]
    if arguments.resume and given:
        raise UserError(f"--resume continues a session with its own problem and executor: leave out {', '.join(given)}")


def _check_until(arguments: argparse.Namespace, proposer: Proposer | None) -> None:
    """Check --until, --epsilon and --patience against each other and the proposer (None for a recording)."""
    from workbench.session import loops

    if arguments.until is None:
        if arguments.epsilon is not None or arguments.patience is not None:
            raise UserError("--epsilon and --patience belong to --until sol")
        return
    if proposer is None or proposer.needs_model:
        why = "a recording has its own end" if proposer is None else "the chain ends after --steps refinements"
        raise UserError(f"--until needs --by {DEFAULTS.proposer}; {why}")
    loops.parse_until(arguments.until, arguments.epsilon, arguments.patience)


def _load_proposer(by: str) -> Proposer:
    """The proposer of --by. One that needs the source as an option is refused: no argument gives it."""
    from workbench import plugins

    found = {one.name: one for one in plugins.load_usable("proposer") if isinstance(one, Proposer)}
    writers = [name for name, proposer in found.items() if not proposer.needs_source]
    if by not in writers and (by in found or by not in plugins.names("proposer")):
        raise UserError(f"no proposer is called {by!r}; --by is one of {', '.join((*writers, PLAYBACK))}")
    return plugins.load("proposer", by)


def _check_program(arguments: argparse.Namespace) -> None:
    """Check --program: the options beside it, the file, or the text of the program."""
    from workbench.analysis import devices
    from workbench.errors import ProgramError
    from workbench.landscapes.keys import with_arch
    from workbench.language import check, parse
    from workbench.views.commands.problems import check_candidate

    if arguments.by == PLAYBACK or arguments.resume:
        why = "--resume continues a session that has versions" if arguments.resume else "a recording has its own"
        raise UserError(f"--program is a session's first version; {why}")
    check_candidate(arguments.program)
    if Path(arguments.program).is_file():
        return
    arches = (arguments.arch,) if arguments.arch else devices.ARCHES  # the executor will choose one of them
    found = [check(parse(with_arch(arguments.program, arch))) for arch in arches]
    if all(found):
        raise ProgramError("the program is rejected: " + " | ".join(map(str, found[-1])), found[-1])


def _chain_settings(arguments: argparse.Namespace) -> dict[str, str]:
    return {"depth": str(arguments.steps), **dict(item.partition("=")[::2] for item in arguments.setting)}


def _run_loop(session: Session, arguments: argparse.Namespace) -> None:
    """Play a recording, run the chain of a language model, or run the steps of another proposer."""
    from workbench.views.commands.conversation import read_model_settings

    if arguments.by == PLAYBACK and not arguments.search:
        _play_recording(session, arguments.recording)
        return
    if read_model_settings(arguments):
        session.model(**read_model_settings(arguments))
    if arguments.search:
        searching.search(session, arguments)
    elif _load_proposer(arguments.by).needs_model:
        kinds = ("proposed", "judged", "decided")
        session.subscribe(lambda event: echo(f"  {event.message}") if event.kind in kinds else None)
        try:
            session.run_chain(arguments.by, **_chain_settings(arguments))
        finally:
            echo(f"spent: {session.client().budget.describe()}")
    elif arguments.until is not None:
        _run_until(session, arguments)
    else:
        _run_steps(session, arguments.steps, arguments.by)


def _play_recording(session: Session, name: str) -> None:
    """Play a recording and print the verdicts and their differences from the recorded ones."""
    from workbench.views.text import tables

    differences = session.play(name)
    for version in session.versions:
        echo(str(tables.verdict(version)))
    echo("\n".join(differences) or f"all {len(session.versions)} versions came out as recorded")


def _run_until(session: Session, arguments: argparse.Namespace) -> None:
    """Run the loop with a stop rule, and print each version after its decision."""
    from workbench.views.text import tables

    session.subscribe(
        lambda event: (
            echo(str(tables.verdict(session.version(event.version))))
            if event.kind == "decided" and event.version
            else None
        )
    )
    session.run_until(arguments.until, arguments.by, epsilon=arguments.epsilon, patience=arguments.patience)


def _run_steps(session: Session, steps: int, by: str, *, show_diff: bool = False) -> None:
    """Run a number of steps, and print each version."""
    from workbench.views.text import report, tables

    total = steps + (1 if session.baseline is None else 0)
    for number in range(1, total + 1):
        echo(f"\n--- step {number} of {total}: {by}")
        made = session.run(0 if session.baseline is None else 1, by)
        if not made:
            break
        version = made[-1]
        parent = session.version(version.parent) if version.parent else None
        if show_diff and parent is not None:
            shown = report.render_change(version, parent)
            echo(str(shown) if shown else "")
        echo(str(tables.verdict(version)))


def _print_summary(session: Session) -> int:
    """Print history and roofline, or one JSON document. Returns the exit status."""
    from workbench.views.plots import roofline
    from workbench.views.text import tables
    from workbench.views.text.card_page import explain_no_version

    why = () if session.versions else explain_no_version(session, "")
    if session.versions:
        echo("\n" + str(tables.history(session)))
        echo("\n" + str(roofline.roofline(session)))
    elif why:
        echo("\nno version: " + "\n  ".join(why))
    if wants_json():
        print_json(_summary(session) | ({"why": list(why)} if why else {}))
    else:
        _say_kept(session)
    return OK if session.best is not None else NOT_CORRECT


def _say_kept(session: Session) -> None:
    echo(f"\nsession {session.name} is kept in {session.folder}; go on with: cutegen run --resume {session.folder}")


def _summary(session: Session) -> dict[str, object]:
    """The session as plain values for --json."""
    from workbench.wire import to_plain

    rows = [
        {
            "version": v.number,
            "title": v.proposal.title,
            "verdict": to_plain(v.trials[-1].verdict) if v.trials else None,
            "decision": v.standing,
        }
        for v in session.versions
    ]
    best = session.best.number if session.best else None
    found = {"session": session.name, "folder": str(session.folder), "best": best, "versions": rows}
    has_search = any(session.log.store.searches().values())
    return found | ({"search": searching.summarise(session.search_tree())} if has_search else {})
