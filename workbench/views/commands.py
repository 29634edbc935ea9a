"""The sub-commands of %cutegen: their arguments (argparse, so that help and errors are one line) and what each does.

Every command takes the parsed arguments, the cell's text or None, and the `Desk` of the magics; it returns something to show or None.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from workbench.errors import UserError
from workbench.session import Session
from workbench.views import conversation, options, plots, profiling, tables
from workbench.views import diff as diff_view
from workbench.views.arguments import choose_l2, load_problem
from workbench.views.shown import Shown


class Refused(UserError):
    """The command line cannot be used; the text is one line."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        """One line with the command's name and where help is."""
        raise Refused(f"{self.prog}: {message}; see %cutegen help {self.prog.rsplit(' ', 1)[-1]}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Help was printed: nothing more to do."""
        raise Refused(message or "")


def _problem(arguments: Any, cell: str | None, state: Any) -> Any:
    problem = load_problem(arguments, cell)
    session = Session.create(problem, executor=arguments.executor, arch=arguments.arch, device=arguments.device, name=arguments.session)
    choose_l2(session, arguments)
    state.use(session)
    return tables.status(session)


def _generate(arguments: Any, cell: str | None, state: Any) -> Any:
    version = state.session.generate(arguments.by, " ".join(arguments.words), start=arguments.start)
    return tables.verdict(version) if version else Shown(state.last_note or "no further idea")


def _refine(arguments: Any, cell: str | None, state: Any) -> Any:
    if arguments.until is None:
        return _generate(arguments, cell, state)
    if arguments.words or arguments.start:
        raise UserError("--until goes on by itself; leave words and --from out")
    state.session.run_until(arguments.until, arguments.by, epsilon=arguments.epsilon, patience=arguments.patience)
    return Shown(f"{tables.history(state.session)}\n{state.last_note or ''}".rstrip())


def _edit(arguments: Any, cell: str | None, state: Any) -> Any:
    if not cell or not cell.strip():
        raise UserError("write the whole kernel file in the cell below %%cutegen edit (start from %cutegen show)")
    version = state.session.edit(cell if cell.endswith("\n") else cell + "\n", title=" ".join(arguments.title))
    return tables.verdict(version)


def _program(arguments: Any, cell: str | None, state: Any) -> Any:
    from workbench.proposers.binding import plain, recognised

    session, text = state.session, "\n".join((" ".join(arguments.words), cell or "")).strip()
    if text:
        return tables.verdict(session.program(text))
    last = next((found for version in reversed(session.versions) if (found := version.proposal.candidate.program)), None)
    return Shown(last or plain(recognised(session.facts)))


def _test(arguments: Any, cell: str | None, state: Any) -> Any:
    choose_l2(state.session, arguments)
    state.session.test(arguments.version)
    return tables.verdict(state.session.version(arguments.version))


def _profile(arguments: Any, cell: str | None, state: Any) -> Any:
    version = state.session.version(arguments.version)
    return profiling.shown(version, state.session.profile(version.number, arguments.by, sections=arguments.sections), arguments.plot)


def _diff(arguments: Any, cell: str | None, state: Any) -> Any:
    session = state.session
    new = session.version(arguments.new or (arguments.old if arguments.old and not arguments.new else "latest"))
    if arguments.old and arguments.new:
        old = session.version(arguments.old)
    elif new.parent is not None:
        old = session.version(new.parent)
    else:
        raise UserError(f"v{new.number} has no parent to compare with; name two versions: %cutegen diff v1 v2")
    sources = (old.proposal.candidate.source, new.proposal.candidate.source)
    return diff_view.render(*sources, old_name=f"v{old.number}", new_name=f"v{new.number}", note=new.proposal.title)


def _accept(arguments: Any, cell: str | None, state: Any) -> Any:
    version = state.session.accept(arguments.version, hunks=arguments.hunks, reason=" ".join(arguments.reason), force=arguments.force)
    return tables.verdict(version)


def _reject(arguments: Any, cell: str | None, state: Any) -> Any:
    words = list(arguments.words)
    version = "latest"
    if words and (words[0] in ("latest", "pending") or (words[0].removeprefix("v").isdigit() and words[0].startswith("v"))):
        version = words.pop(0)
    return tables.verdict(state.session.reject(version, " ".join(words)))


def _undo(arguments: Any, cell: str | None, state: Any) -> Any:
    taken = state.session.undo()
    return Shown(f"taken back: v{taken.version} {taken.kind}")


def _run(arguments: Any, cell: str | None, state: Any) -> Any:
    state.session.run(arguments.steps, arguments.by)
    return tables.history(state.session)


def _landscape(arguments: Any, cell: str | None, state: Any) -> Any:
    from workbench import landscapes
    from workbench.views.heat import heat_map, pairs

    place = landscapes.find(state.session.problem)
    if place is None:
        raise UserError(f"nothing was recorded of {state.session.problem.name} at these sizes in {state.session.problem.precision}; {landscapes.instead(state.session.problem)}")
    return heat_map(place, arguments.x, arguments.y, pairs(arguments.where))


def _show(arguments: Any, cell: str | None, state: Any) -> Any:
    version = state.session.version(arguments.version)
    return Source(version.proposal.candidate.source)


def _export(arguments: Any, cell: str | None, state: Any) -> Any:
    version = state.session.version(arguments.version)
    state.session.export(version.number, arguments.path)
    return Shown(f"v{version.number} written to {arguments.path}")


def _panel(arguments: Any, cell: str | None, state: Any) -> Any:
    from workbench.views.panel import Panel

    return Panel(state.session, by=arguments.by)


def _open(arguments: Any, cell: str | None, state: Any) -> Any:
    state.use(Session.open(arguments.name))
    return tables.status(state.session)


def _explain(arguments: Any, cell: str | None, state: Any) -> Any:
    from workbench.views import explained

    text, session = " ".join(arguments.words), None if arguments.list else state.current
    if not text and session is not None and session.versions:
        text = session.version("latest").proposal.candidate.program
        if not text:
            raise UserError("this version was not written in muCUTLASS; give a program: %cutegen explain softmax(x) .threads_per_row(32)")
    return explained.answer(text, arguments, device=session.device if session is not None else "")


def _pin(arguments: Any, cell: str | None, state: Any) -> Any:
    pins = state.session.pin(" ".join(arguments.words)) if arguments.words else state.session.constraints
    return Shown("pinned: " + ("; ".join(pins) or "nothing"))


def _unpin(arguments: Any, cell: str | None, state: Any) -> Any:
    return Shown("pinned: " + ("; ".join(state.session.unpin(" ".join(arguments.words))) or "nothing"))


class Source(Shown):
    """A version's source: highlighted in a notebook, plain in a terminal."""

    def __init__(self, text: str) -> None:
        import html

        super().__init__(text, html=f'<pre style="line-height:1.35">{html.escape(text)}</pre>')


Handler = Callable[[Any, str | None, Any], Any]


COMMANDS: dict[str, tuple[str, Callable[[Any], None], Handler]] = conversation.fill({  # name -> (help, what fills its parser, what it does)
    "problem": ("open a session on a problem", options.problem, _problem), "generate": ("write and test the next version", options.generate, _generate),
    "refine": ("one more change to the baseline, with your words; or several, --until sol", options.refine, _refine),
    "edit": ("your own version: the cell is the whole file", options.title, _edit),
    "program": ("your own version in muCUTLASS: on the line, or in the cell", options.program, _program),
    "show": ("the source of a version", options.version, _show), "test": ("compile, run and check a version again", options.test, _test),
    "profile": ("counters, stalls, timeline or energy: on each source line and as plots", options.profile, _profile), "diff": ("two versions side by side, or one with its parent", options.diff, _diff),
    "accept": ("make a version, or some hunks of it, the baseline", options.accept, _accept), "reject": ("say no, and why: reject [v2] reads A twice", options.words, _reject),
    "undo": ("take the last decision back", options.nothing, _undo), "run": ("several steps; accepts what is correct and faster", options.run, _run),
    "landscape": ("what was recorded on a GPU for every configuration of this problem, as a heat map over two settings", options.landscape, _landscape),
    "roofline": ("the trajectory of the versions", options.nothing, lambda a, c, s: plots.roofline(s.session)), "history": ("the version tree", options.nothing, lambda a, c, s: tables.history(s.session)),
    "compare": ("a pandas table of all versions", options.nothing, lambda a, c, s: tables.frame(s.session)), "status": ("where the session stands", options.nothing, lambda a, c, s: tables.status(s.session)),
    "panel": ("everything in one widget", options.panel, _panel), "export": ("write a version as a file that KernelBench loads", options.export, _export),
    "explain": ("what each setting of a muCUTLASS program means and costs; --list: all operations", options.explain, _explain),
    "pin": ("words that hold for every proposal", options.words, _pin), "open": ("open a stored session", options.named, _open),
    "sessions": ("the stored sessions", options.nothing, lambda a, c, s: Shown("\n".join(Session.names()) or "no sessions yet")),
    "unpin": ("remove pinned words", options.words, _unpin),
}, options.words)  # fmt: skip


CELLS = ("problem", "edit", "program")  # what takes a cell


def parser_of(name: str) -> Parser:
    """The argument parser of a sub-command."""
    said, fill, _ = COMMANDS[name]
    parser = Parser(prog=f"%cutegen {name}", description=said, add_help=False)
    fill(parser)
    return parser


def split(line: str) -> tuple[str, list[str]]:
    """(sub-command, words) of a magic line. For commands that take a person's words, quotes and apostrophes may be unbalanced."""
    name, _, rest = line.strip().partition(" ")
    try:
        return name, shlex.split(rest)
    except ValueError as error:
        if name in ("refine", "reject", "generate", "pin", "unpin", "edit", "program", "ask", "choices", "search"):
            return name, rest.split()
        raise Refused(f"%cutegen {name}: {str(error).lower()} in {rest!r}; put text with an apostrophe in double quotes") from None


def overview() -> str:
    """All commands, a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {said}" for name, (said, _, _) in COMMANDS.items()]
    return "\n".join([f"%cutegen COMMAND ... (or {' / '.join('%%cutegen ' + name for name in CELLS)} with a cell); %cutegen help COMMAND explains one", *lines])


def run(line: str, cell: str | None, state: Any) -> Any:
    """Carry out one magic line; raises `UserError` for anything the person can mend."""
    name, words = split(line)
    if name in ("", "help", "--help", "-h"):
        return Shown(parser_of(words[0]).format_help().strip() if words and words[0] in COMMANDS else overview())
    if name not in COMMANDS:
        raise Refused(f"no command {name!r}; %cutegen help lists them" + _near(name, tuple(COMMANDS)))
    if "-h" in words or "--help" in words:
        return Shown(parser_of(name).format_help().strip())
    if cell is not None and name not in CELLS:
        raise Refused(f"%cutegen {name} takes no cell: use one % and put nothing below it")
    return COMMANDS[name][2](parser_of(name).parse_args(words), cell, state)


def _near(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
