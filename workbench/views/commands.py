"""The sub-commands of %cutegen: their arguments (argparse, so that help and errors are one line) and what each does.

Every command takes the parsed arguments, the cell's text or None, and the `Desk` of the magics; it returns something to show or None.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from workbench import problems
from workbench.analysis import devices
from workbench.errors import UserError
from workbench.records import Scalar
from workbench.session import Session
from workbench.views import conversation, plots, profiling, tables
from workbench.views import diff as diff_view
from workbench.views.shown import Shown

ARCHES = ("sm_80", "sm_90a")


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


def setting(text: str) -> tuple[str, Scalar]:
    """`name=value` with a number or a bool."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    raise argparse.ArgumentTypeError(f"{value!r} is not a number, true or false")


def size(text: str) -> tuple[int, ...]:
    """`4096,4096,4096`."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: whole numbers over 0, as in 4096,4096,4096")
    return tuple(int(part) for part in parts)


def indices(text: str) -> list[int]:
    """`1,3` or `2-4`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdigit() or (dash and not last.strip().isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of hunk numbers such as 1,3 or 2-4")
        found += range(int(first), int(last or first) + 1)
    return found


def problem_arguments(parser: argparse.ArgumentParser) -> None:
    """What names a problem; shared with the command line."""
    parser.add_argument("--set", dest="settings", action="append", type=setting, default=[], metavar="NAME=VALUE", help="override a module-level size of the problem")
    parser.add_argument("--precision", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32", help="what inputs and parameters are cast to")
    parser.add_argument("--mode", choices=["train", "eval"], default="train", help="KernelBench runs in train mode")
    parser.add_argument("--executor", choices=["auto", "emulator", "gpu", "replay"], default="auto", help="where candidates run; replay answers from recorded measurements")
    parser.add_argument("--arch", choices=ARCHES, default="", help="what the kernel is compiled for")
    parser.add_argument("--l2", choices=["cold", "warm"], default=None, help="what timed calls on a GPU find in L2: nothing of theirs (the default), or what the same call left there")
    parser.add_argument("--device", default=None, help="whose rates and limits are used for the bound: A100, H100, H200, B200, RTX4090")


def explain_arguments(parser: argparse.ArgumentParser) -> None:
    """On what a program is explained; shared with the command line."""
    parser.add_argument("--device", choices=devices.names(), default=None, help="whose limits are used (default: the session's, else H200)")
    parser.add_argument("--size", type=size, metavar="M,N,K", help="of a product: how many tiles and waves there are")
    parser.add_argument("--compile", action="store_true", help="compile it too, for registers and spills")


def load_problem(arguments: argparse.Namespace, cell: str | None) -> Any:
    """A problem from a cell, an expression with --inputs, a shipped name or a path."""
    options = {"settings": tuple(arguments.settings), "precision": arguments.precision, "mode": arguments.mode}
    inputs = getattr(arguments, "inputs", None)
    body = (cell or "").strip()
    if inputs:
        expression = body or arguments.spec
        if not expression:
            raise UserError("--inputs needs an expression, for example: %cutegen problem \"torch.relu(x)\" --inputs \"x: f32[1024, 1024]\"")
        return problems.from_expression(expression, inputs, **options)
    if body:
        return problems.load(body + "\n", name=arguments.spec or "cell", **options)
    if not arguments.spec:
        raise UserError(f"which problem? a shipped name ({', '.join(problems.shipped())}), a file, or a cell")
    return problems.load(arguments.spec, **options)


def choose_l2(session: Any, arguments: argparse.Namespace) -> None:
    """Cold or warm, where the person said which."""
    if arguments.l2 is not None:
        session.cold_l2 = arguments.l2 == "cold"


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
    from workbench.views.landscape import heat_map

    place = landscapes.find(state.session.problem)
    if place is None:
        raise UserError(f"nothing was recorded of {state.session.problem.name} at these sizes in {state.session.problem.precision}; recorded are {', '.join(landscapes.landscapes()) or 'no problems'}")
    return heat_map(place, arguments.x, arguments.y, dict(item.partition("=")[::2] for item in arguments.where))


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


def _version(parser: argparse.ArgumentParser, default: str = "latest") -> None:
    parser.add_argument("version", nargs="?", default=default, help=f"v1, v2, ..., latest, best, baseline or pending (default {default})")


def _arguments() -> dict[str, tuple[str, Callable[[Parser], None], Handler]]:
    """Name -> (help, what fills its parser, what it does)."""

    def problem(p: Parser) -> None:
        p.add_argument("spec", nargs="?", default="", help="a shipped name, a file, an expression (with --inputs), or the name of the cell's problem")
        p.add_argument("--inputs", help='declared inputs of an expression: "x: f32[4096, 4096]"')
        p.add_argument("--session", default=None, help="name of the session")
        problem_arguments(p)

    def generate(p: Parser) -> None:
        p.add_argument("--by", default="planner", help="planner (built in), llm, or another proposer")
        p.add_argument("--from", dest="start", default=None, help="branch from this version instead of the baseline")
        p.add_argument("words", nargs="*", help="your words for the next step")

    def test(p: Parser) -> None:
        _version(p)
        p.add_argument("--l2", choices=["cold", "warm"], default=None, help="what timed calls on a GPU find in L2, from now on in this session")

    def refine(p: Parser) -> None:
        p.add_argument("--until", metavar="sol|N", default=None, help="sol: until the best version beats torch and is near the bound, or nothing helps any more; N: that many refinements")
        p.add_argument("--epsilon", type=float, default=None, help="with --until sol: how far above the bound is near enough (default 0.25)")
        p.add_argument("--patience", type=int, default=None, help="with --until sol: attempts in a row without a gain (default 4)")
        generate(p)

    def accept(p: Parser) -> None:
        _version(p, "pending")
        p.add_argument("--hunks", type=indices, help="only these changes to the parent: 1,3 or 2-4; they become a new version, which is tested first")
        p.add_argument("--force", action="store_true", help="even though it is not correct, or faster than the device can be")
        p.add_argument("--reason", nargs="*", default=[], help="why")

    def run(p: Parser) -> None:
        p.add_argument("--steps", type=int, default=3, help="how many refinements")
        p.add_argument("--by", default="planner")

    def export(p: Parser) -> None:
        p.add_argument("path", help="where to write it")
        p.add_argument("--version", default="best")

    def diff(p: Parser) -> None:
        p.add_argument("old", nargs="?", default="")
        p.add_argument("new", nargs="?", default="")

    def panel(p: Parser) -> None:
        p.add_argument("--by", default="planner", help="who writes when you press Generate, Refine or Run: planner, llm, ...")

    def profile(p: Parser) -> None:
        _version(p)
        profiling.profile_arguments(p)

    def words(p: Parser) -> None:
        p.add_argument("words", nargs="*")

    def explain(p: Parser) -> None:
        p.add_argument("words", nargs="*", help="a muCUTLASS program, or an operation's name for its settings (default: the latest version's program)")
        p.add_argument("--list", action="store_true", help="all operations of the language")
        explain_arguments(p)

    def title(p: Parser) -> None:
        p.add_argument("title", nargs="*")

    def named(p: Parser) -> None:
        p.add_argument("name")

    def landscape(p: Parser) -> None:
        p.add_argument("x", nargs="?", default="", help="a setting (default tile)")
        p.add_argument("y", nargs="?", default="", help="another (default cluster)")
        p.add_argument("--where", action="append", default=[], metavar="SETTING=VALUE", help="only configurations that have it: schedule=pingpong, tile=128x256x64")

    nothing: Callable[[Parser], None] = lambda p: None  # noqa: E731
    return conversation.fill({
        "problem": ("open a session on a problem", problem, _problem), "generate": ("write and test the next version", generate, _generate),
        "refine": ("one more change to the baseline, with your words; or several, --until sol", refine, _refine),
        "edit": ("your own version: the cell is the whole file", title, _edit),
        "show": ("the source of a version", _version, _show), "test": ("compile, run and check a version again", test, _test),
        "profile": ("counters, stalls, timeline or energy: on each source line and as plots", profile, _profile), "diff": ("two versions side by side, or one with its parent", diff, _diff),
        "accept": ("make a version, or some hunks of it, the baseline", accept, _accept), "reject": ("say no, and why: reject [v2] reads A twice", words, _reject),
        "undo": ("take the last decision back", nothing, _undo), "run": ("several steps; accepts what is correct and faster", run, _run),
        "landscape": ("what was recorded on a GPU for every configuration of this problem, as a heat map over two settings", landscape, _landscape),
        "roofline": ("the trajectory of the versions", nothing, lambda a, c, s: plots.roofline(s.session)), "history": ("the version tree", nothing, lambda a, c, s: tables.history(s.session)),
        "compare": ("a pandas table of all versions", nothing, lambda a, c, s: tables.frame(s.session)), "status": ("where the session stands", nothing, lambda a, c, s: tables.status(s.session)),
        "panel": ("everything in one widget", panel, _panel), "export": ("write a version as a file that KernelBench loads", export, _export),
        "explain": ("what each setting of a muCUTLASS program means and costs; --list: all operations", explain, _explain),
        "pin": ("words that hold for every proposal", words, _pin), "open": ("open a stored session", named, _open),
        "sessions": ("the stored sessions", nothing, lambda a, c, s: Shown("\n".join(Session.names()) or "no sessions yet")),
        "unpin": ("remove pinned words", words, _unpin),
    }, words)  # fmt: skip


COMMANDS = _arguments()


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
        if name in ("refine", "reject", "generate", "pin", "unpin", "edit", "ask", "choices", "search"):
            return name, rest.split()
        raise Refused(f"%cutegen {name}: {str(error).lower()} in {rest!r}; put text with an apostrophe in double quotes") from None


def overview() -> str:
    """All commands, a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {said}" for name, (said, _, _) in COMMANDS.items()]
    return "\n".join(["%cutegen COMMAND ... (or %%cutegen problem / %%cutegen edit with a cell); %cutegen help COMMAND explains one", *lines])


def run(line: str, cell: str | None, state: Any) -> Any:
    """Carry out one magic line; raises `UserError` for anything the person can mend."""
    name, words = split(line)
    if name in ("", "help", "--help", "-h"):
        return Shown(parser_of(words[0]).format_help().strip() if words and words[0] in COMMANDS else overview())
    if name not in COMMANDS:
        raise Refused(f"no command {name!r}; %cutegen help lists them" + _near(name, tuple(COMMANDS)))
    if "-h" in words or "--help" in words:
        return Shown(parser_of(name).format_help().strip())
    if cell is not None and name not in ("problem", "edit"):
        raise Refused(f"%cutegen {name} takes no cell: use one % and put nothing below it")
    return COMMANDS[name][2](parser_of(name).parse_args(words), cell, state)


def _near(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
