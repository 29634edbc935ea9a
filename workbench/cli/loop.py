"""`cutegen run` and `cutegen demo`: the loop on a problem, each step printed as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from workbench.cli.output import NOT_CORRECT, OK, as_json, say
from workbench.errors import Stopped, UserError


def run(arguments: argparse.Namespace) -> int:
    """The loop on a problem."""
    from workbench.views import tables
    from workbench.views.arguments import choose_l2

    _check_by(arguments)
    with _open_problem(arguments) as session:
        choose_l2(session, arguments)
        _events(session)
        say(str(tables.status(session)))
        try:
            if arguments.program is None or _begin(session, arguments.program):
                _run_by(session, arguments)
        except (KeyboardInterrupt, Stopped):
            raise Stopped(f"stopped; everything finished is kept, go on with: cutegen run --resume {session.folder}") from None
        return _finish(session)


def demo(arguments: argparse.Namespace) -> int:
    """The loop on a shipped problem, every step printed; leaves an HTML report and a finished notebook."""
    import nbformat

    from workbench.session import Session
    from workbench.views import report

    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    where = {"gpu": " on the GPU", "replay": ": measurements that were recorded on a GPU"}.get(arguments.executor, ": compile, emulate and check with no GPU")
    say(f"problem {arguments.spec}{where}")
    from workbench.views.arguments import choose_l2, load_problem

    with Session.create(load_problem(arguments, None), root=folder / "sessions", executor=arguments.executor, arch=arguments.arch, device=arguments.device) as session:
        choose_l2(session, arguments)
        _events(session)
        _loop(session, arguments.steps, "planner", show_diff=True)
        (folder / "report.html").write_text(report.html_page(session), encoding="utf-8")
        nbformat.write(report.notebook(session), folder / "demo.ipynb")
        best = session.best
        if best is not None:
            (folder / "best.py").write_text(session.export(best.number))
        status = _finish(session)
        say(f"\nleft in {folder}/: report.html (open it in a browser), demo.ipynb (the same as a notebook), best.py (loads in KernelBench)")
        return status


def _events(session: Any) -> None:
    session.subscribe(lambda event: say(f"  {event.message}") if event.kind in ("note", "stopped") or (event.kind == "running" and sys.stderr.isatty()) else None)


def _open_problem(arguments: argparse.Namespace) -> Any:
    from workbench.session import Session
    from workbench.views.arguments import load_problem

    if getattr(arguments, "resume", None):
        return Session.open(arguments.resume)
    if getattr(arguments, "recording", None):
        from workbench.session import recording

        found = recording.load(arguments.recording)
        return Session.create(found.problem, executor=arguments.executor, arch=arguments.arch or found.arch, device=arguments.device or found.device)
    if not arguments.spec:
        raise UserError("which problem? a shipped name, or a file in KernelBench's form")
    say(f"looking at {arguments.spec} ...")
    return Session.create(load_problem(arguments, None), executor=arguments.executor, arch=arguments.arch, device=arguments.device)


def _begin(session: Any, program: str) -> bool:
    """The person's own first version, tested; it becomes the baseline where it is correct."""
    from workbench.views import tables
    from workbench.views.arguments import candidate_version

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
    from workbench import plugins
    from workbench.session import chain, core
    from workbench.views.conversation import given

    if (arguments.by == "replay") != bool(arguments.recording):
        raise UserError("--by replay and --recording NAME go together")
    if arguments.program is not None:
        _check_program(arguments)
    if arguments.until is not None and arguments.by in ("replay", "llm"):
        raise UserError(f"--until goes with --by planner; {'a recording has its own end' if arguments.by == 'replay' else 'the chain ends after --steps refinements'}")
    if arguments.until is not None:
        core.until_settings(arguments.until, arguments.epsilon, arguments.patience)
    elif arguments.epsilon is not None or arguments.patience is not None:
        raise UserError("--epsilon and --patience belong to --until sol")
    if arguments.by == "llm":
        chain.settings_from(_chain(arguments))
    elif arguments.setting:
        raise UserError("--setting is of the chain: --by llm")
    writers = [name for name in plugins.names("proposer") if name not in ("human", "scripted")]  # those two need a source that no option gives
    if arguments.by != "replay" and arguments.by not in writers:
        raise UserError(f"nobody who writes kernels is called {arguments.by!r}; --by is one of {', '.join((*writers, 'replay'))}")
    if arguments.by != "replay":
        plugins.load("proposer", arguments.by, check=not given(arguments) and not arguments.resume)


def _check_program(arguments: argparse.Namespace) -> None:
    """Refuse what --program cannot be, or cannot go with, before a session is kept."""
    from workbench.dsl import check, parse
    from workbench.errors import ProgramError
    from workbench.landscapes.keys import with_arch
    from workbench.views.arguments import check_candidate

    if arguments.by == "replay" or arguments.resume:
        raise UserError(f"--program is a session's first version; {'--resume goes on with one that has versions' if arguments.resume else 'a recording has its own'}")
    check_candidate(arguments.program)
    if Path(arguments.program).is_file():
        return
    arches = (arguments.arch,) if getattr(arguments, "arch", "") else ("sm_80", "sm_90a")  # which of the two a session takes, its executor decides
    found = [check(parse(with_arch(arguments.program, arch))) for arch in arches]
    if all(found):
        raise ProgramError("the program is rejected: " + " | ".join(map(str, found[-1])), found[-1])


def _chain(arguments: argparse.Namespace) -> dict[str, str]:
    return {"depth": str(arguments.steps), **dict(item.partition("=")[::2] for item in arguments.setting)}


def _run_by(session: Any, arguments: argparse.Namespace) -> None:
    """A recording played back, CuTeGen's chain for a language model, or the proposer's loop."""
    from workbench.views import tables
    from workbench.views.conversation import given

    if arguments.by == "replay":
        differences = session.play(arguments.recording)
        for version in session.versions:
            say(str(tables.verdict(version)))
        say("\n".join(differences) or f"all {len(session.versions)} versions came out as recorded")
        return
    if given(arguments):
        session.model(**given(arguments))
    if arguments.by == "llm":
        session.subscribe(lambda event: say(f"  {event.message}") if event.kind in ("proposed", "judged", "decided") else None)
        session.run_chain("llm", **_chain(arguments))
        say(f"spent: {session.client().budget.said()}")
        return
    if arguments.until is not None:
        _until(session, arguments)
        return
    _loop(session, arguments.steps, arguments.by)


def _until(session: Any, arguments: argparse.Namespace) -> None:
    """The loop with a rule to stop, each version printed as it is judged."""
    from workbench.views import tables

    session.subscribe(lambda event: say(str(tables.verdict(session.version(event.version)))) if event.kind == "decided" and event.version else None)
    session.run_until(arguments.until, arguments.by, epsilon=arguments.epsilon, patience=arguments.patience)


def _loop(session: Any, steps: int, by: str, *, show_diff: bool = False) -> None:
    """One step at a time, each printed as it comes."""
    from workbench.views import report, tables

    total = steps + (1 if session.baseline is None else 0)
    for number in range(1, total + 1):
        say(f"\n--- step {number} of {total}: {by}")
        made = session.run(0 if session.baseline is None else 1, by)
        if not made:
            break
        version = made[-1]
        parent = session.version(version.parent) if version.parent else None
        if show_diff and parent is not None:
            shown = report._diff(version, parent)
            say(str(shown) if shown else "")
        say(str(tables.verdict(version)))


def _finish(session: Any) -> int:
    from workbench.views import plots, tables
    from workbench.wire import to_plain

    if session.versions:
        say("\n" + str(tables.history(session)))
        say("\n" + str(plots.roofline(session)))
    best = session.best
    if as_json():
        rows = [{"version": v.number, "title": v.proposal.title, "verdict": to_plain(v.trials[-1].verdict) if v.trials else None, "decision": v.decision.kind if v.decision else None} for v in session.versions]
        print(json.dumps({"session": session.name, "folder": str(session.folder), "best": best.number if best else None, "versions": rows}))
    else:
        say(f"\nsession {session.name} is kept in {session.folder}; go on with: cutegen run --resume {session.folder}")
    return OK if best is not None else NOT_CORRECT
