"""`cutegen tune`: records a landscape of the user's problem on the local GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.cli.output import NOT_CORRECT, OK, echo, print_json, wants_json
from workbench.errors import Stopped, UserError, WorkbenchError
from workbench.landscapes.table import Row
from workbench.records.search import SearchEvent
from workbench.tuning.plan import TuningPlan
from workbench.tuning.tune import Progress, Tuned, TuneRequest, tune
from workbench.views.commands.problems import load_problem
from workbench.views.text.mime_bundle import format_seconds


def run_tuning(arguments: argparse.Namespace) -> int:
    """Tune, and print the result. The exit status is 0 if a correct configuration was found."""
    request = make_request(arguments)
    _check_search(arguments)
    if arguments.search:
        return _search(request, arguments)
    with _progress_bar() as progress:
        try:
            found = tune(request, progress)
        except KeyboardInterrupt:
            is_lost = request.dry_run and request.out is None
            kept = (
                "a dry run keeps rows only with --out"
                if is_lost
                else "the rows so far are stored, and the same command continues"
            )
            raise Stopped(f"stopped; {kept}") from None
    if arguments.export and found.best_source:
        Path(arguments.export).write_text(found.best_source, encoding="utf-8")
    print_result(found, arguments.export, dry_run=request.dry_run)
    if not request.dry_run and not arguments.no_refine:
        _refine(found.plan, found.rows)
    return OK if any(row.correct and row.program for row in found.rows) else NOT_CORRECT


def _check_search(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for options of a search without one, and for --dry-run beside it."""
    from workbench.policies.search import load_strategy
    from workbench.views.commands.searching.arguments import TUNE

    if arguments.search:
        load_strategy(arguments.search)
        if arguments.dry_run:
            raise UserError("--search needs times, and --dry-run has none: leave one of them out")
    elif given := [one.flags[0] for one in TUNE if one.is_given(arguments)]:
        raise UserError(f"{', '.join(given)}: only with --search NAME")


def _search(request: TuneRequest, arguments: argparse.Namespace) -> int:
    """Let a strategy choose what is measured, and print the tree."""
    from workbench.tuning.searching import TRIALS, TuneSearch, search_on_gpu, search_recorded
    from workbench.views.search import draw_search_tree

    wanted = TuneSearch(
        strategy=arguments.search,
        trials=arguments.trials or TRIALS,
        seed=arguments.seed,
        priors=not arguments.no_priors,
    )
    search = search_recorded if arguments.recorded else search_on_gpu
    try:
        found = search(request, wanted, _say_try)
    except KeyboardInterrupt:
        raise Stopped("stopped; what was measured is stored, and the same command continues") from None
    echo(f"{found.place}\n{draw_search_tree(found.tree)}")
    if found.best_s is not None and found.tree.best is not None:
        echo(f"{found.best_s / found.tree.best_s:.1%} of the speed of the best of all, {format_seconds(found.best_s)}")
    if arguments.export and found.source:
        Path(arguments.export).write_text(found.source, encoding="utf-8")
        echo(f"best written to {arguments.export}")
    if found.plan is not None and not arguments.no_refine:
        _refine(found.plan, found.rows)
    if wants_json():
        best = found.tree.best
        program = best.candidate.text if best is not None and best.candidate is not None else None
        print_json({"best": program, "median_s": found.tree.best_s if best else None, "trials": found.tree.trials})
    return OK if found.tree.best is not None else NOT_CORRECT


def _refine(plan: TuningPlan, rows: Sequence[Row]) -> None:
    """Let what was measured say how far the time model is off on this GPU."""
    from workbench.tuning.refining import refine_model

    try:
        refine_model(plan, rows, echo)
    except KeyboardInterrupt:
        raise Stopped("stopped; what was measured is stored, and the time model is as it was") from None
    except WorkbenchError as error:
        echo(f"time model: as it was: {error}")


def _say_try(event: SearchEvent) -> None:
    """Print what a try gave."""
    if event.result is not None:
        time = format_seconds(event.result.time_s) if event.result.time_s else event.result.message
        echo(f"  node {event.node}: {event.result.outcome} {time}")


def make_request(arguments: argparse.Namespace) -> TuneRequest:
    """The request of the arguments. Raises `UserError` for arguments that exclude each other."""
    from workbench.tuning.space import parse_over

    if arguments.program and arguments.file:
        raise UserError("--program and --file exclude each other")
    if arguments.over and not arguments.program:
        raise UserError("--over varies settings of a program: give --program TEXT too")
    if arguments.budget < 1 or arguments.seconds <= 0:
        raise UserError("--budget and --seconds must be over 0")
    file = Path(arguments.file) if arguments.file else None
    if file is not None and not file.is_file():
        raise UserError(f"no file at {file}")
    return TuneRequest(
        problem=load_problem(arguments, None),
        program=arguments.program or "",
        over=tuple(parse_over(arguments.over).items()) if arguments.over else (),
        file=file,
        budget=arguments.budget,
        seconds=arguments.seconds,
        out=Path(arguments.out) if arguments.out else None,
        dry_run=arguments.dry_run,
    )


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A progress bar with the best time so far. It is hidden if standard error is not a terminal."""
    from tqdm.auto import tqdm

    best: list[float] = []
    with tqdm(total=1, unit="configuration", leave=False, disable=None) as bar:

        def update(done: int, total: int, row: Row | None) -> None:
            bar.total, bar.n = total, done
            if row is not None and row.correct and row.program and row.median_s:
                best[:] = [min([row.median_s, *best])]
                bar.set_postfix_str(f"best {format_seconds(best[0])}")
            bar.refresh()

        yield update


def print_result(found: Tuned, export: str | None, *, dry_run: bool = False) -> None:
    """Print the counts, the best configuration and the file of the landscape."""
    correct = [row for row in found.rows if row.correct and row.program]
    if wants_json():
        best = {"program": found.best.program, "median_s": found.best.median_s} if found.best else None
        counts = {"planned": found.planned, "correct": len(correct)}
        print_json({"path": str(found.path), **counts, "best": best, "eager_s": found.eager_s})
        return
    done = sum(bool(row.program) for row in found.rows)
    how = "ran on the emulator, without times" if dry_run else "are measured"
    eager = f"; torch eager {format_seconds(found.eager_s)}" if found.eager_s else ""
    echo(f"{done} of {found.planned} configurations {how}, {len(correct)} are correct{eager}")
    if found.best is not None:
        best_s = found.best.median_s
        gain = f", {found.eager_s / best_s:.2f} times torch eager" if found.eager_s and best_s else ""
        echo(f"best {format_seconds(best_s)}{gain}: {found.best.program}")
    if done < found.planned and not dry_run:
        echo("the same command continues with the rest")
    if export and found.best_source:
        echo(f"best written to {export}")
    if found.best is not None:
        echo(f"stored in {found.path}; cutegen landscape and --executor replay read it")
