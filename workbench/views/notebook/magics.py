"""`%load_ext workbench`: the %cutegen line and cell magic, its completer, progress, one-line errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class

from workbench.errors import UserError, WorkbenchError
from workbench.records import Event
from workbench.session import Session
from workbench.views.commands import completion, dispatch
from workbench.views.notebook import labcomm

KEY = "_cutegen_magics"


@magics_class
class CutegenMagics(Magics):  # type: ignore[misc]
    """Holds the current session of a notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.current: Session | None = None
        self.last_note = ""
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def session(self) -> Session:
        """The session in use; raises `UserError` when there is none."""
        if self.current is None:
            raise UserError("no session yet: %cutegen problem NAME, or %cutegen open NAME")
        return self.current

    def use(self, session: Session) -> None:
        """Make a session the current one; the one before is closed (its log stays)."""
        self.leave()
        self.current = session
        self._unsubscribe = session.subscribe(self._note)
        self.shell.user_ns["session"] = session
        labcomm.follow(session)

    def leave(self) -> None:
        """Close the current session."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self.current is not None:
            self.current.close()
            self.current = None

    def _note(self, event: Event) -> None:
        if event.kind == "note":
            self.last_note = event.message

    @line_cell_magic  # type: ignore[untyped-decorator]
    def cutegen(self, line: str, cell: str | None = None) -> object:
        """Step the generate-test-refine loop: %cutegen help lists the commands."""
        out, line = _out(line)
        try:
            with _progress(self, line.strip().partition(" ")[0]):
                result = dispatch.run(line, cell, self)
        except WorkbenchError as error:  # a stop too: what follows in the cell does not run, as after any interrupt
            raise UsageError(str(error)) from None
        if out:
            self.shell.user_ns[out] = result
            return None
        return result


def _out(line: str) -> tuple[str, str]:
    """`--out NAME` anywhere in the line, and the rest."""
    words = line.split()
    if "--out" in words:
        at = words.index("--out")
        if at + 1 < len(words) and words[at + 1].isidentifier():
            return words[at + 1], " ".join(words[:at] + words[at + 2 :])
        raise UsageError("%cutegen: --out needs a variable name")
    return "", line


def interactive() -> bool:
    """Whether someone sits in front of the notebook (nbclient and nbval say no); CUTEGEN_PROGRESS=0 or 1 overrides."""
    forced = os.environ.get("CUTEGEN_PROGRESS")
    if forced:
        return forced != "0"
    from IPython import get_ipython

    return bool(getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", False))


@contextlib.contextmanager
def _progress(state: CutegenMagics, command: str) -> Iterator[None]:
    """One line that follows the work and gives way to the result; nothing when nobody watches."""
    if not interactive():
        yield
        return
    from IPython.display import clear_output, display

    line = display({"text/plain": "working ..."}, raw=True, display_id=True)

    def show(event: Event) -> None:
        done = f" {event.fraction:.0%}" if event.fraction is not None else ""
        line.update({"text/plain": f"{event.message}{done}"}, raw=True)

    session = state.current
    unsubscribe = session.subscribe(show) if session else (lambda: None)
    try:
        yield
    finally:
        unsubscribe()
        clear_output(wait=True)


def _before_cursor(context: CompletionContext) -> str:
    """The magic's text up to the cursor: its line, or the cell so far."""
    if context.full_text.lstrip().startswith("%%cutegen "):
        *above, line = context.full_text.split("\n")[: context.cursor_line + 1]
        return "\n".join([*above, line[: context.cursor_position]]).lstrip()
    line = (
        context.line_with_cursor[: context.cursor_position]
        if hasattr(context, "line_with_cursor")
        else context.full_text
    )
    return str(line.lstrip())


def _matcher(state: CutegenMagics) -> Callable[[CompletionContext], dict[str, object]]:
    @context_matcher()  # type: ignore[untyped-decorator]
    def cutegen_matcher(context: CompletionContext) -> dict[str, object]:
        text = _before_cursor(context)
        if not text.startswith(("%cutegen ", "%%cutegen ")):
            return {"completions": [], "suppress": False}
        fragment, found = completion.complete(state.current, text)
        return {
            "completions": [SimpleCompletion(text=option, type="param") for option in found],
            "suppress": bool(found),
            "matched_fragment": context.token if fragment is None else fragment,
            "ordered": True,
        }

    matcher: Callable[[CompletionContext], dict[str, object]] = cutegen_matcher
    return matcher


def load(ipython: InteractiveShell) -> None:
    """Register the magics once."""
    unload(ipython)
    magics = CutegenMagics(ipython)
    ipython.register_magics(magics)
    matcher = _matcher(magics)
    if ipython.Completer is not None:
        ipython.Completer.custom_matchers.append(matcher)
    setattr(ipython, KEY, (magics, matcher))
    labcomm.load(ipython)


def unload(ipython: InteractiveShell) -> None:
    """Take magics, completer and comm away again; the current session is closed."""
    held = getattr(ipython, KEY, None)
    if held is None:
        return
    magics, matcher = held
    magics.leave()
    labcomm.unload(ipython)
    if ipython.Completer is not None and matcher in ipython.Completer.custom_matchers:
        ipython.Completer.custom_matchers.remove(matcher)
    for kind in ("line", "cell"):
        ipython.magics_manager.magics[kind].pop("cutegen", None)
    delattr(ipython, KEY)
