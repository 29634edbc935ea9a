"""What the commands of a search do; the search itself is `Session.search` and `Session.steer_search`."""

from __future__ import annotations

import contextlib
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import Any

from workbench.errors import UserError, WorkbenchError
from workbench.policies.search import SearchTree
from workbench.records import Event
from workbench.records.search import SearchBudget, SearchSetup
from workbench.session import Session
from workbench.session.searching.steering import find_node
from workbench.views.commands.problems import choose_rule, choose_testing
from workbench.views.commands.table import Argument
from workbench.views.notebook.protocol import Notebook
from workbench.views.search import LiveTree, draw_curve, draw_search_tree, find_rows, summarise
from workbench.views.text import tables
from workbench.views.text.mime_bundle import MimeBundle

LIMITS = ("trials", "seconds", "tokens", "usd", "joules")


def read_budget(arguments: Namespace) -> SearchBudget | None:
    """The budget of the arguments; None if they name none."""
    given = {name: getattr(arguments, name) for name in LIMITS if getattr(arguments, name) is not None}
    return SearchBudget(**given) if given else None


def read_how(arguments: Namespace, strategy: str, last: SearchSetup | None = None) -> dict[str, Any]:
    """Seed, aim, priors, screening and who writes, for `Session.search`. Without --seed a search of the same strategy
    as the `last` one has its seed, and so goes on with it.
    """
    if arguments.priors and arguments.no_priors:
        raise UserError("--priors and --no-priors exclude each other")
    known = last.seed if last is not None and last.strategy == strategy and not arguments.fresh else 0
    return {
        "seed": known if arguments.seed is None else arguments.seed,
        "aim": arguments.aim,
        "priors": not arguments.no_priors,
        "screen": arguments.screen,
        "fresh": arguments.fresh,
        "by": arguments.by,
    }


def find_last(session: Session) -> SearchSetup | None:
    """How the last search of a session began; None if there is none."""
    return session.search_tree().setup if any(session.log.store.searches().values()) else None


def write_again(arguments: Namespace, options: Iterable[Argument]) -> str:
    """The options of a command that goes on with a search, with a space before each; "" if it was no search."""
    from workbench.views.commands.searching.arguments import FRESH, SEARCH

    if arguments.search is None:
        return ""
    again = [word for one in (*options, *SEARCH) if one is not FRESH for word in one.write(arguments)]
    return "".join(f" {shlex.quote(word)}" for word in again)


def check_search(arguments: Namespace) -> None:
    """Raise `UserError` for options of a search without --search, and for those of refining with it."""
    from workbench.views.commands.searching.arguments import SEARCH
    from workbench.views.commands.shared_arguments import STEPS, UNTIL

    if arguments.search is None:
        given = [one.flags[0] for one in SEARCH if one.is_given(arguments)]
        if given:
            raise UserError(f"{', '.join(given)}: only with --search NAME")
        return
    given = [one.flags[0] for one in (STEPS, *UNTIL) if one.is_given(arguments)]
    if given or getattr(arguments, "setting", None):
        raise UserError(f"--search has its own end (--trials, --seconds): leave out {', '.join(given) or '--setting'}")


def run_search(session: Session, arguments: Namespace, **how: object) -> SearchTree:
    """Search as `run --search` asks for."""
    asked = read_how(arguments, arguments.search, find_last(session))
    return session.search(arguments.search, read_budget(arguments), **(asked | how))


def run_in_notebook(arguments: Namespace, state: Notebook) -> MimeBundle:
    """`%cutegen run --search`: the tree is drawn while it grows."""
    session, live = state.session, LiveTree()
    choose_rule(session, arguments)
    choose_testing(session, arguments)
    forget, before = _follow(session, live), session.versions
    try:
        tree = run_search(session, arguments)
    finally:
        forget()
    live.end(tree, session.versions, tables.list_settled(session, before))
    return draw_curve(tree, session.versions) if tree.tried else MimeBundle(summarise(tree, session.versions))


def _follow(session: Session, live: LiveTree) -> Callable[[], None]:
    """Draw the tree with each event of a search; returns what ends that."""

    def show(event: Event) -> None:
        if event.kind == "search":
            live.show(session.search_tree(), session.versions)

    return session.subscribe(show)


def _start(session: Session, arguments: Namespace) -> MimeBundle:
    """Start a search in the background; the cell shows its tree, and at its end as it stays."""
    live = LiveTree()
    live.begin()
    forget, before = _follow(session, live), session.versions

    def end(_: object) -> None:
        forget()
        with contextlib.suppress(WorkbenchError):  # the session was closed, or nothing was searched
            live.end(session.search_tree(), session.versions, tables.list_settled(session, before))

    strategy, how = _choose_start(session, arguments)
    running = session.start_search(strategy, read_budget(arguments), **how)
    running.add_done_callback(end)
    return MimeBundle("the search runs in the background; %cutegen search-tree steers it, search-tree stop ends it")


def _choose_start(session: Session, arguments: Namespace) -> tuple[str, dict[str, Any]]:
    """(strategy, how) of a search that starts: as the last one began, if no option but a budget is given."""
    from workbench.views.commands.searching.arguments import HOW, START

    last = find_last(session)
    if last is not None and not any(one.is_given(arguments) for one in (*START, *HOW)):
        how = {"seed": last.seed, "aim": last.aim, "by": last.expander}
        return last.strategy, dict(last.constants) | how
    strategy = arguments.strategy or (last.strategy if last is not None and not arguments.fresh else "tree")
    return strategy, read_how(arguments, strategy, last)


def search_tree(arguments: Namespace, cell: str | None, state: Notebook) -> MimeBundle:
    """`%cutegen search-tree`: start, look and steer."""
    session, action = state.session, arguments.action
    if action == "start":
        return _start(session, arguments)
    if action == "stop":
        session.stop()
        return MimeBundle("stopped: nothing runs now; everything tried is kept, search-tree start goes on")
    number, words = split_words(arguments.words)
    if action == "show":
        return _draw(session, session.search_tree(), number)
    if action == "open":
        return describe_node(session.search_tree(), number)
    budget = read_budget(arguments)
    if action == "budget" and (budget is None or number is not None or words):
        raise UserError("what may the search spend? search-tree budget --trials 50; or --seconds, --tokens, --usd")
    tree = session.steer_search(action, number, words, budget)
    return _draw(session, tree, number)


def _draw(session: Session, tree: SearchTree, opened: int | None) -> MimeBundle:
    return draw_search_tree(tree, opened=() if opened is None else (opened,), versions=session.versions)


def split_words(words: list[str]) -> tuple[int | None, str]:
    """(number of a node, the rest), of "7 too slow" or of words alone."""
    if words and words[0].isdigit():
        return int(words[0]), " ".join(words[1:])
    return None, " ".join(words)


def describe_node(tree: SearchTree, number: int | None) -> MimeBundle:
    """All that is known of a node, and its program."""
    node = find_node(tree, number)
    row = next(one for one in find_rows(tree) if one.number == node.number)
    prior = node.candidate.prior if node.candidate is not None else None
    lines = [row.words, row.text]
    if prior is not None:
        lines.append(
            f"expected: log speed-up {prior.log_speedup:.2f} ({prior.low:.2f} to {prior.high:.2f}), from {prior.source}"
        )
    if node.result is not None and node.result.version is not None:
        lines.append(f"v{node.result.version} of the session")
    return MimeBundle("\n".join(filter(None, lines)))
