"""The %cutegen magic of `%load_ext workbench`: line and cell magic, completion, progress line, one-line errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

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
        self._dropped = ""  # the session that a failed `problem` closed
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def session(self) -> Session:
        """The current session. Raises `UserError` if there is none."""
        if self.current is None:
            last = (
                f"; the last problem failed, which closed {self._dropped}"
                if self._dropped
                else ", so there is no problem"
            )
            name = self._dropped or "NAME"
            raise UserError(f"no session is open{last}: %cutegen problem NAME, or %cutegen open {name}")
        return self.current

    def use(self, session: Session) -> None:
        """Make a session the current one, and close the previous one."""
        self.close_session()
        self.current, self._dropped = session, ""
        self._unsubscribe = session.subscribe(self._keep_note)
        self.shell.user_ns["session"] = session
        labcomm.show_session(session)

    def close_session(self) -> None:
        """Close the current session."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self.current is not None:
            self.current.close()
            self.current = None

    def drop_session(self) -> None:
        """Close the session of an earlier problem, so that no command is for it."""
        if self.current is None:
            return
        self._dropped = self.current.name
        self.close_session()
        self.shell.user_ns.pop("session", None)
        labcomm.show_session(None)

    def _describe_old_session(self) -> str:
        """What a failed `problem` made of the session before it, in brackets."""
        if self.current is not None:
            return f" (session {self.current.name} goes on)"
        if self._dropped:
            return f" (session {self._dropped} is closed; %cutegen open {self._dropped} opens it again)"
        return ""

    def _keep_note(self, event: Event) -> None:
        if event.kind in ("note", "stopped"):
            self.last_note = event.message

    @no_var_expand  # type: ignore[untyped-decorator]  # IPython would run what stands in braces in a session's name
    @line_cell_magic  # type: ignore[untyped-decorator]
    def cutegen(self, line: str, cell: str | None = None) -> object:
        """Step the generate-test-refine loop: %cutegen help lists the commands."""
        out, line = _split_out(line)
        command = line.strip().partition(" ")[0]
        try:
            with contextlib.nullcontext() if _draws_itself(line) else _progress_line(self):
                result = dispatch.run(line, cell, self)
        except WorkbenchError as error:  # also for a stop: the rest of the cell must not run
            old = self._describe_old_session() if command == "problem" else ""
            raise UsageError(f"{error}{old}") from None
        except OSError as error:  # a file that cannot be written or read
            raise UsageError(": ".join(map(str, filter(None, (error.strerror or error, error.filename))))) from None
        if out:
            self.shell.user_ns[out] = result
            return None
        return result


def _split_out(line: str) -> tuple[str, str]:
    """(NAME of `--out NAME`, or "", the rest of the line)."""
    words = line.split()
    if "--out" in words:
        at = words.index("--out")
        if at + 1 < len(words) and words[at + 1].isidentifier():
            return words[at + 1], " ".join(words[:at] + words[at + 2 :])
        raise UsageError("%cutegen: --out needs a variable name")
    return "", line


def is_interactive() -> bool:
    """Whether a person uses the notebook (not nbclient or nbval). CUTEGEN_PROGRESS=0 or 1 overrides it."""
    forced = os.environ.get("CUTEGEN_PROGRESS")
    if forced:
        return forced != "0"
    from IPython import get_ipython

    return bool(getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", False))


def _draws_itself(line: str) -> bool:
    """Whether a command has an output that shows its progress, which clearing the progress line would remove."""
    command, *words = line.split() or [""]
    return command == "search-tree" or (command == "run" and any(word.startswith("--search") for word in words))


@contextlib.contextmanager
def _progress_line(state: CutegenMagics) -> Iterator[None]:
    """Show the progress in one line, and remove it at the end. Nothing is shown without a user."""
    if not is_interactive():
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


def _text_before_cursor(context: CompletionContext) -> str:
    """The text of the magic up to the cursor: its line, or the cell so far."""
    if context.full_text.lstrip().startswith("%%cutegen "):
        *above, line = context.full_text.split("\n")[: context.cursor_line + 1]
        return "\n".join([*above, line[: context.cursor_position]]).lstrip()
    line = (
        context.line_with_cursor[: context.cursor_position]
        if hasattr(context, "line_with_cursor")
        else context.full_text
    )
    return str(line.lstrip())


def _make_matcher(state: CutegenMagics) -> Callable[[CompletionContext], dict[str, object]]:
    @context_matcher()  # type: ignore[untyped-decorator]
    def cutegen_matcher(context: CompletionContext) -> dict[str, object]:
        text = _text_before_cursor(context)
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
    """Register the magics and the completer."""
    unload(ipython)
    magics = CutegenMagics(ipython)
    ipython.register_magics(magics)
    matcher = _make_matcher(magics)
    if ipython.Completer is not None:
        ipython.Completer.custom_matchers.append(matcher)
    setattr(ipython, KEY, (magics, matcher))
    labcomm.load(ipython)


def unload(ipython: InteractiveShell) -> None:
    """Remove magics, completer and comm, and close the current session."""
    held = getattr(ipython, KEY, None)
    if held is None:
        return
    magics, matcher = held
    magics.close_session()
    labcomm.unload(ipython)
    if ipython.Completer is not None and matcher in ipython.Completer.custom_matchers:
        ipython.Completer.custom_matchers.remove(matcher)
    for kind in ("line", "cell"):
        ipython.magics_manager.magics[kind].pop("cutegen", None)
    delattr(ipython, KEY)
