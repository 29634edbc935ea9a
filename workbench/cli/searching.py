"""`cutegen run --search`: a search among the versions of a session, printed as it goes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from workbench.cli.output import echo
from workbench.plugins import DEFAULTS

if TYPE_CHECKING:
    from workbench.policies.search import SearchTree
    from workbench.records import Event
    from workbench.session import Session

GPU = "gpu"  # the executor
SCRIPTED = "scripted"  # the proposer that gives out a recording's sources


def check_search(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for arguments of a search that exclude each other, before a session is created."""
    from workbench.executors.gpu.presence import why_no_gpu
    from workbench.policies.search import load_strategy
    from workbench.session.searching.live import check_budget
    from workbench.views.commands.searching import handlers

    handlers.check_search(arguments)
    if arguments.search is None:
        return
    handlers.read_how(arguments, arguments.search)
    load_strategy(arguments.search)
    budget, expander = handlers.read_budget(arguments), SCRIPTED if arguments.recording else arguments.by
    if budget is not None and not arguments.resume:
        has_gpu = arguments.executor in (None, "auto", GPU) and why_no_gpu() is None
        check_budget(budget, expander, has_gpu=has_gpu)


def search(session: Session, arguments: argparse.Namespace) -> None:
    """Search, and print each event and at the end the tree."""
    from workbench.session import recording
    from workbench.views.commands.searching.handlers import run_search
    from workbench.views.search import draw_search_tree
    from workbench.views.text.mime_bundle import format_joules, format_seconds

    how: dict[str, object] = {}
    if arguments.recording:  # each child is a recorded proposal, in their order
        steps = recording.load(arguments.recording).steps
        sources = [step.proposal.candidate.source for step in steps]
        titles = [step.proposal.title for step in steps]
        how = {"by": SCRIPTED, "options": {"sources": sources, "titles": titles}}
    forget = session.subscribe(_print_event)
    try:
        tree = run_search(session, arguments, **how)
    finally:
        forget()
    echo("\n" + str(draw_search_tree(tree, versions=session.versions, in_shell=True)))
    joules = f", {format_joules(tree.joules)} of the GPU" if tree.joules else ""
    echo(f"spent: {tree.trials} trials, {format_seconds(tree.seconds)} of judging{joules}")
    if arguments.by == DEFAULTS.model_proposer:
        echo(f"spent: {session.client().budget.describe()}")


def _print_event(event: Event) -> None:
    if event.kind == "search" and not event.message.startswith("added"):
        echo(f"  {event.message}")


def summarise(tree: SearchTree) -> dict[str, object]:
    """A search as plain values for --json."""
    best = tree.best.result if tree.best is not None else None
    return {
        "nodes": len(tree.nodes) - 1,
        "trials": tree.trials,
        "screened": tree.screened,
        "seconds": tree.seconds,
        "tokens": tree.tokens,
        "usd": tree.usd,
        "joules": tree.joules,
        "best": best.version if best is not None else None,
        "stopped": tree.stopped,
    }
