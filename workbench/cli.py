"""The command line: demo, lab, run, test, emulate, diff, export, history, profile, calibrate, explain, format, doctor. Exit status: 0 fine, 1 not correct, 2 usage or unavailable, 130 stopped."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import Stopped, UserError, WorkbenchError
from workbench.interrupts import after_imports

OK, NOT_CORRECT, USAGE, INTERRUPTED = 0, 1, 2, 130


def say(text: str) -> None:
    """What a person reads, on standard error when --json owns standard output."""
    print(text, file=sys.stderr if _json else sys.stdout, flush=True)


_json = False


def _events(session: Any) -> None:
    session.subscribe(lambda event: say(f"  {event.message}") if event.kind in ("note", "stopped") or (event.kind == "running" and sys.stderr.isatty()) else None)


def _open_problem(arguments: argparse.Namespace) -> Any:
    from workbench.session import Session
    from workbench.views.commands import load_problem

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


def run(arguments: argparse.Namespace) -> int:
    """The loop on a problem."""
    from workbench.views import tables
    from workbench.views.commands import choose_l2

    _check_by(arguments)
    with _open_problem(arguments) as session:
        choose_l2(session, arguments)
        _events(session)
        say(str(tables.status(session)))
        try:
            _run_by(session, arguments)
        except (KeyboardInterrupt, Stopped):
            raise Stopped(f"stopped; everything finished is kept, go on with: cutegen run --resume {session.folder}") from None
        return _finish(session)


def _check_by(arguments: argparse.Namespace) -> None:
    """Refuse what --by, --until and --setting cannot be before a session is kept."""
    from workbench import plugins
    from workbench.session import chain, core
    from workbench.views.conversation import given

    if (arguments.by == "replay") != bool(arguments.recording):
        raise UserError("--by replay and --recording NAME go together")
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

    say("\n" + str(tables.history(session)))
    say("\n" + str(plots.roofline(session)))
    best = session.best
    if _json:
        rows = [{"version": v.number, "title": v.proposal.title, "verdict": to_plain(v.trials[-1].verdict) if v.trials else None, "decision": v.decision.kind if v.decision else None} for v in session.versions]
        print(json.dumps({"session": session.name, "folder": str(session.folder), "best": best.number if best else None, "versions": rows}))
    else:
        say(f"\nsession {session.name} is kept in {session.folder}; go on with: cutegen run --resume {session.folder}")
    return OK if best is not None else NOT_CORRECT


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def test(arguments: argparse.Namespace) -> int:
    """One verdict on one file."""
    import tempfile

    from workbench.session import Session
    from workbench.views import tables
    from workbench.views.commands import choose_l2, load_problem
    from workbench.wire import to_plain

    path = Path(arguments.candidate)
    if not path.is_file():
        raise UserError(f"no candidate file at {path}")
    with tempfile.TemporaryDirectory() as root, Session.create(load_problem(arguments, None), root=root, executor=arguments.executor, arch=arguments.arch, device=arguments.device) as session:
        choose_l2(session, arguments)
        version = session.edit(_text(path), title=path.name)
        say(str(tables.verdict(version)))
        verdict = version.trials[-1].verdict
        if _json:
            print(json.dumps(to_plain(verdict)))
        return OK if verdict.correct else NOT_CORRECT


def emulate(arguments: argparse.Namespace) -> int:
    """An unmodified CuTe DSL program on the emulator."""
    from workbench.emulator import program

    return program.run(arguments.program, arguments.rest, device=arguments.device, arch=arguments.arch, sanitize=arguments.sanitize, counters=arguments.counters, follow=arguments.follow, as_json=_json)


def _stored(name: str | None) -> Any:
    from workbench.session import Session

    known = Session.names()
    if name is None:
        if len(known) != 1:
            raise UserError(f"which session? --session NAME; there are: {', '.join(known) or 'none'}")
        name = known[0]
    return Session.open(name, write=False)


def diff(arguments: argparse.Namespace) -> int:
    """Two files, or two versions of a session."""
    from workbench.analysis.hunks import hunks
    from workbench.views.diff import unified

    paths = [Path(arguments.old), Path(arguments.new)]
    if all(path.is_file() for path in paths):
        old, new = (_text(path) for path in paths)
    else:
        with _stored(arguments.session) as session:
            old, new = (session.version(name).proposal.candidate.source for name in (arguments.old, arguments.new))
    found = hunks(old, new)
    if _json:
        from workbench.wire import to_plain

        print(json.dumps([to_plain(hunk) for hunk in found]))
    else:
        print(unified(old, new, arguments.old, arguments.new) if found else "no difference")
    return OK


def export(arguments: argparse.Namespace) -> int:
    """Write a version as a KernelBench-ready file."""
    with _stored(arguments.session) as session:
        source = session.export(arguments.version, arguments.path)
        if _json:
            print(json.dumps({"path": arguments.path, "source": source}))
        say(f"written to {arguments.path}")
    return OK


def history(arguments: argparse.Namespace) -> int:
    """The version tree of a session, or the sessions there are."""
    from workbench.session import Session
    from workbench.views import tables

    if arguments.session is None and len(Session.names()) != 1:
        print(json.dumps(Session.names()) if _json else "\n".join(Session.names()) or "no sessions yet")
        return OK
    with _stored(arguments.session) as session:
        print(json.dumps(json.loads(tables.frame(session).reset_index().to_json(orient="records"))) if _json else tables.history(session))
    return OK


def demo(arguments: argparse.Namespace) -> int:
    """The loop on a shipped problem, every step printed; leaves an HTML report and a finished notebook."""
    import nbformat

    from workbench.session import Session
    from workbench.views import report

    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    where = {"gpu": " on the GPU", "replay": ": measurements that were recorded on a GPU"}.get(arguments.executor, ": compile, emulate and check with no GPU")
    say(f"problem {arguments.spec}{where}")
    from workbench.views.commands import choose_l2, load_problem

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
    inside = Path(__file__).parent / "tutorials"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "notebooks"


def explain(arguments: argparse.Namespace) -> int:
    """A program of the language in words; an operation's settings; or all operations."""
    from workbench.views import explained

    text = str(explained.answer(arguments.program, arguments))
    print(json.dumps({"text": text}) if _json else text)
    return OK


def format_text(arguments: argparse.Namespace) -> int:
    """The canonical text of a program."""
    from workbench.views.explained import formatted

    text = formatted(arguments.program)
    print(json.dumps({"program": text}) if _json else text)
    return OK


def doctor(arguments: argparse.Namespace) -> int:
    """What is available here; why not, and how to get it."""
    import shutil

    from workbench import executors, plugins
    from workbench.errors import Unavailable
    from workbench.toolchain.binary import nvdisasm

    rows: list[tuple[str, bool, str]] = []
    for kind in ("executor", "proposer", "profiler"):
        for name in plugins.names(kind):
            reason = plugins.load(kind, name, check=False).why_not()
            rows.append((f"{kind} {name}", reason is None, reason or ""))
    try:
        nvdisasm()
        rows.append(("nvdisasm (SASS)", True, ""))
    except Unavailable as error:
        rows.append(("nvdisasm (SASS)", False, str(error)))
    ncu = shutil.which("ncu")
    rows.append(("ncu (hardware counters)", ncu is not None, "" if ncu else "not on the path; it comes with the CUDA toolkit"))
    endpoint = os.environ.get("OPENAI_BASE_URL") or ("the default endpoint" if os.environ.get("OPENAI_API_KEY") else "")
    rows.append(("LLM endpoint", bool(endpoint), endpoint or "set OPENAI_BASE_URL or OPENAI_API_KEY; nothing here needs one"))
    rows += [(f"sandbox: {name}", active, why) for name, active, why in executors.protections()]
    if _json:
        print(json.dumps([{"what": name, "available": ok, "why": why} for name, ok, why in rows]))
        return OK
    for name, ok, why in rows:
        print(f"{'yes' if ok else 'no '}  {name}" + (f": {why}" if why else ""))
    return OK


def _steps(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps (0, 1, 2, ...)")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    from workbench.views import profiling
    from workbench.views.commands import explain_arguments, problem_arguments
    from workbench.views.conversation import model_arguments

    parser = argparse.ArgumentParser(prog="cutegen", description="Step a generate-test-refine loop for CuTe DSL kernels, with or without a GPU.",
                                     epilog="exit status: 0 fine, 1 not correct, 2 usage or unavailable, 130 stopped")  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], said: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=said, description=said, epilog=f"example: {example}")
        made.add_argument("--json", action="store_true", help="one JSON document on standard output, everything else on standard error")
        made.set_defaults(function=function)
        return made

    one = add("demo", demo, "the loop on a shipped problem; leaves a report and a notebook", "cutegen demo")
    one.add_argument("spec", nargs="?", default="softmax", help="a shipped problem or a file")
    one.add_argument("--steps", type=_steps, default=3, help="refinements after the first version (default 3)")
    one.add_argument("--out", default="cutegen-demo", help="folder for what is left behind")
    problem_arguments(one)
    one = add("lab", lab, "JupyterLab on the first tutorial", "cutegen lab -- --no-browser")
    one.add_argument("--folder", default="cutegen-tutorials", help="where the tutorials are copied to")
    one.add_argument("rest", nargs="*", help="options for JupyterLab, after --")
    one = add("run", run, "the planner's loop on a problem", "cutegen run softmax --steps 3 --set dim=4096")
    one.add_argument("spec", nargs="?", default="", help="a shipped problem or a file")
    one.add_argument("--by", default="planner", help="planner (built in), llm (CuTeGen's chain; see --model), or replay (see --recording)")
    one.add_argument("--recording", metavar="NAME", help="with --by replay: a recorded session, by name or file")
    one.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the chain: depth, repair_rounds, regenerate, timeouts, profile, accept, continue_from")
    model_arguments(one.add_argument_group("language model"))
    one.add_argument("--steps", type=_steps, default=3, help="refinements after the first version (default 3)")
    one.add_argument("--until", metavar="sol|N", help="sol: until the best version beats torch and is near the bound, or nothing helps any more; N: that many refinements")
    one.add_argument("--epsilon", type=float, help="with --until sol: how far above the bound is near enough (default 0.25)")
    one.add_argument("--patience", type=int, help="with --until sol: attempts in a row without a gain (default 4)")
    one.add_argument("--resume", metavar="SESSION", help="go on with a stored session")
    problem_arguments(one)
    one = add("test", test, "one verdict; exit status 0 only if correct", "cutegen test softmax best.py")
    one.add_argument("spec", help="a shipped problem or a file")
    one.add_argument("candidate", help="a file with class ModelNew")
    problem_arguments(one)
    one = add("emulate", emulate, "an unmodified CuTe DSL script or notebook, with no GPU; exit status 0 only if nothing was found", "cutegen emulate --device A100 --sanitize my_gemm.py --m 512")
    one.add_argument("--device", default="H200", help="the GPU that the program finds: A100, H100, H200, RTX4090 (default H200)")
    one.add_argument("--arch", help="what CuTe DSL compiles for, sm_80 to sm_90a (default: the device's own)")
    one.add_argument("--sanitize", action="store_true", help="report advice too (uncoalesced access, bank conflicts), and take a read of unwritten shared memory for an error; other errors are always reported")
    one.add_argument("--follow", action="store_true", help="follow the first CTAs of each launch in time: cycles, the lines at which warps wait, cache hits, and a better modelled time")
    one.add_argument("--counters", metavar="FILE", help="write everything counted and found to a JSON file")
    one.add_argument("program", help="a .py or .ipynb file; options of ours come before it")
    one.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the program")
    for name, function, said, example in (("diff", diff, "two versions of a session, or two files", "cutegen diff v1 v2"), ("export", export, "a version as a file for KernelBench", "cutegen export best.py"),
                                          ("history", history, "the version tree, or the sessions there are", "cutegen history")):  # fmt: skip
        one = add(name, function, said, example)
        one.add_argument("--session", help="name of the session (needed when there are several)")
        if name == "diff":
            one.add_argument("old")
            one.add_argument("new")
        if name == "export":
            one.add_argument("path")
            one.add_argument("--version", default="best")
    profiling.add(add, problem_arguments, say, lambda: _json)
    one = add("explain", explain, "what each setting of a muCUTLASS program means and costs; without a program: all operations", 'cutegen explain "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative)" --size 4096,4096,4096')
    one.add_argument("program", nargs="?", default="", help="the program's text, or an operation's name for its settings (default: all operations)")
    explain_arguments(one)
    one = add("format", format_text, "the canonical text of a muCUTLASS program", 'cutegen format "gemm(a,b).tile(64,64,16)"')
    one.add_argument("program", help="the program's text")
    add("doctor", doctor, "what is available here, why not, and how to get it", "cutegen doctor")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `cutegen`."""
    global _json
    try:
        arguments = _parser().parse_args(argv)
        _json = arguments.json
        with after_imports():
            return int(arguments.function(arguments))
    except (KeyboardInterrupt, Stopped) as error:
        print(str(error) or "stopped; everything finished is kept", file=sys.stderr)
        return INTERRUPTED
    except WorkbenchError as error:
        print(f"cutegen: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes at exit
        return OK
    except OSError as error:
        print(f"cutegen: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), file=sys.stderr)
        return USAGE
    finally:
        from workbench import executors

        executors.shutdown()


if __name__ == "__main__":
    sys.exit(main())
