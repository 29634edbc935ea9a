"""`cutegen run` and `cutegen demo`: the loop on a problem, each step printed as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.output import NOT_CORRECT, OK, as_json, say
from workbench.errors import Stopped, Unavailable, UserError
from workbench.protocols import Proposer

if TYPE_CHECKING:
    from workbench.session import Session


def run(arguments: argparse.Namespace) -> int:
    """The loop on a problem."""
    from workbench.views.commands.problems import choose_l2
    from workbench.views.text import tables

    _check_by(arguments)
    with _open_problem(arguments) as session:
        choose_l2(session, arguments)
        _events(session)
        say(str(tables.status(session)))
        try:
            if arguments.program is None or _begin(session, arguments.program):
                _run_by(session, arguments)
        except (KeyboardInterrupt, Stopped):
            raise Stopped(
                f"stopped; everything finished is kept, go on with: cutegen run --resume {session.folder}"
            ) from None
        return _finish(session)


def demo(arguments: argparse.Namespace) -> int:
    """The loop on a shipped problem, every step printed; leaves an HTML report and a finished notebook."""
    import nbformat

    from workbench.session import Session
    from workbench.views.text import report

    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    where = {"gpu": " on the GPU", "replay": ": measurements that were recorded on a GPU"}.get(
        arguments.executor, ": compile, emulate and check with no GPU"
    )
    say(f"problem {arguments.spec}{where}")
    from workbench.views.commands.problems import choose_l2, load_problem

    with Session.create(
        load_problem(arguments, None),
        root=folder / "sessions",
        executor=arguments.executor,
        arch=arguments.arch,
        device=arguments.device,
    ) as session:
        choose_l2(session, arguments)
        _events(session)
        _loop(session, arguments.steps, "planner", show_diff=True)
        (folder / "report.html").write_text(report.html_page(session), encoding="utf-8")
        nbformat.write(report.notebook(session), folder / "demo.ipynb")
        best = session.best
        if best is not None:
            (folder / "best.py").write_text(session.export(best.number))
        status = _finish(session)
        say(
            f"\nleft in {folder}/: report.html (open it in a browser), demo.ipynb (the same as a notebook), "
            "best.py (loads in KernelBench)"
        )
        return status


def _events(session: Session) -> None:
    session.subscribe(
        lambda event: (
            say(f"  {event.message}")
            if event.kind in ("note", "stopped") or (event.kind == "running" and sys.stderr.isatty())
            else None
        )
    )


def _open_problem(arguments: argparse.Namespace) -> Session:
    from workbench.session import Session
    from workbench.views.commands.problems import load_problem

    if getattr(arguments, "resume", None):
        return Session.open(arguments.resume)
    if getattr(arguments, "recording", None):
        from workbench.session import recording

        found = recording.load(arguments.recording)
        return Session.create(
            found.problem,
            executor=arguments.executor,
            arch=arguments.arch or found.arch,
            device=arguments.device or found.device,
        )
    if not arguments.spec:
        raise UserError("which problem? a shipped name, or a file in KernelBench's form")
    say(f"looking at {arguments.spec} ...")
    return Session.create(
        load_problem(arguments, None), executor=arguments.executor, arch=arguments.arch, device=arguments.device
    )


def _begin(session: Session, program: str) -> bool:
    """The person's own first version, tested; it becomes the baseline where it is correct."""
    from workbench.views.commands.problems import candidate_version
    from workbench.views.text import tables

    say("\n--- the version to begin with")
    version = candidate_version(session, program, test=True)
    verdict = version.trials[-1].verdict
    if verdict.correct and not verdict.suspect:
        version = session.accept(version.number, reason="the version to begin with")
    say(str(tables.verdict(version)))
    if session.baseline is None:
        say("there is nothing to refine: mend --program, or leave it out for a first version of the planner")
    return session.baseline is not None


def _check_by(arguments: argparse.Namespace) -> None:
    """Refuse what --by, --until and --setting cannot be before a session is kept."""
    from workbench.proposers.llm.settings import why_no_model
    from workbench.session import chain, loops
    from workbench.views.commands.conversation import read_model_settings

    if (arguments.by == "replay") != bool(arguments.recording):
        raise UserError("--by replay and --recording NAME go together")
    if arguments.program is not None:
        _check_program(arguments)
    proposer = None if arguments.by == "replay" else _proposer(arguments.by)
    needs_model = proposer is not None and proposer.needs_model
    if arguments.until is not None and (proposer is None or needs_model):
        why = "a recording has its own end" if proposer is None else "the chain ends after --steps refinements"
        raise UserError(f"--until goes with --by planner; {why}")
    if arguments.until is not None:
        loops.parse_until(arguments.until, arguments.epsilon, arguments.patience)
    elif arguments.epsilon is not None or arguments.patience is not None:
        raise UserError("--epsilon and --patience belong to --until sol")
    if needs_model:
        chain.parse_settings(_chain(arguments))
    elif arguments.setting:
        raise UserError("--setting is of the chain: --by llm")
    if needs_model and not read_model_settings(arguments) and not arguments.resume and (missing := why_no_model()):
        raise Unavailable(f"proposer {arguments.by!r} cannot run here: {missing}")


def _proposer(by: str) -> Proposer:
    """The proposer that --by names; refused is one whose source no option of the command line gives."""
    from workbench import plugins

    found = {name: plugins.load("proposer", name, check=False) for name in plugins.names("proposer")}
    writers = [name for name, proposer in found.items() if not proposer.needs_source]
    if by not in writers:
        raise UserError(f"nobody who writes kernels is called {by!r}; --by is one of {', '.join((*writers, 'replay'))}")
    return plugins.load("proposer", by)


def _check_program(arguments: argparse.Namespace) -> None:
    """Refuse what --program cannot be, or cannot go with, before a session is kept."""
    from workbench.errors import ProgramError
    from workbench.landscapes.keys import with_arch
    from workbench.language import check, parse
    from workbench.views.commands.problems import check_candidate

    if arguments.by == "replay" or arguments.resume:
        why = "--resume goes on with one that has versions" if arguments.resume else "a recording has its own"
        raise UserError(f"--program is a session's first version; {why}")
    check_candidate(arguments.program)
    if Path(arguments.program).is_file():
        return
    arches = (
        (arguments.arch,) if getattr(arguments, "arch", "") else ("sm_80", "sm_90a")
    )  # which of the two a session takes, its executor decides
    found = [check(parse(with_arch(arguments.program, arch))) for arch in arches]
    if all(found):
        raise ProgramError("the program is rejected: " + " | ".join(map(str, found[-1])), found[-1])


def _chain(arguments: argparse.Namespace) -> dict[str, str]:
    return {"depth": str(arguments.steps), **dict(item.partition("=")[::2] for item in arguments.setting)}


def _run_by(session: Session, arguments: argparse.Namespace) -> None:
    """A recording played back, CuTeGen's chain for a language model, or the proposer's loop."""
    from workbench.views.commands.conversation import read_model_settings
    from workbench.views.text import tables

    if arguments.by == "replay":
        differences = session.play(arguments.recording)
        for version in session.versions:
            say(str(tables.verdict(version)))
        say("\n".join(differences) or f"all {len(session.versions)} versions came out as recorded")
        return
    if read_model_settings(arguments):
        session.model(**read_model_settings(arguments))
    if _proposer(arguments.by).needs_model:
        session.subscribe(
            lambda event: say(f"  {event.message}") if event.kind in ("proposed", "judged", "decided") else None
        )
        session.run_chain(arguments.by, **_chain(arguments))
        say(f"spent: {session.client().budget.describe()}")
        return
    if arguments.until is not None:
        _until(session, arguments)
        return
    _loop(session, arguments.steps, arguments.by)


def _until(session: Session, arguments: argparse.Namespace) -> None:
    """The loop with a rule to stop, each version printed as it is judged."""
    from workbench.views.text import tables

    session.subscribe(
        lambda event: (
            say(str(tables.verdict(session.version(event.version))))
            if event.kind == "decided" and event.version
            else None
        )
    )
    session.run_until(arguments.until, arguments.by, epsilon=arguments.epsilon, patience=arguments.patience)


def _loop(session: Session, steps: int, by: str, *, show_diff: bool = False) -> None:
    """One step at a time, each printed as it comes."""
    from workbench.views.text import report, tables

    total = steps + (1 if session.baseline is None else 0)
    for number in range(1, total + 1):
        say(f"\n--- step {number} of {total}: {by}")
        made = session.run(0 if session.baseline is None else 1, by)
        if not made:
            break
        version = made[-1]
        parent = session.version(version.parent) if version.parent else None
        if show_diff and parent is not None:
            shown = report.render_change(version, parent)
            say(str(shown) if shown else "")
        say(str(tables.verdict(version)))


def _finish(session: Session) -> int:
    from workbench.views.plots import roofline
    from workbench.views.text import tables
    from workbench.wire import to_plain

    if session.versions:
        say("\n" + str(tables.history(session)))
        say("\n" + str(roofline.roofline(session)))
    best = session.best
    if as_json():
        rows = [
            {
                "version": v.number,
                "title": v.proposal.title,
                "verdict": to_plain(v.trials[-1].verdict) if v.trials else None,
                "decision": v.decision.kind if v.decision else None,
            }
            for v in session.versions
        ]
        print(
            json.dumps(
                {
                    "session": session.name,
                    "folder": str(session.folder),
                    "best": best.number if best else None,
                    "versions": rows,
                }
            )
        )
    else:
        say(f"\nsession {session.name} is kept in {session.folder}; go on with: cutegen run --resume {session.folder}")
    return OK if best is not None else NOT_CORRECT
