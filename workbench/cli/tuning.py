"""`cutegen tune`: records a landscape of a person's own problem on their own GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.cli.output import OK, as_json, say
from workbench.errors import Stopped, UserError
from workbench.landscapes.table import Row
from workbench.tuning.tune import Progress, Tuned, TuneRequest, tune
from workbench.views.commands.problems import load_problem
from workbench.views.text.mime_bundle import seconds


def carry_out(arguments: argparse.Namespace) -> int:
    """Tune; exit status 0 when a correct configuration was found."""
    request = make_request(arguments)
    with _bar() as progress:
        try:
            found = tune(request, progress)
        except KeyboardInterrupt:
            raise Stopped("stopped; the rows so far are kept, and the same command goes on") from None
    if arguments.export and found.best_source:
        Path(arguments.export).write_text(found.best_source, encoding="utf-8")
    report(found, arguments.export)
    return OK if any(row.correct and row.program for row in found.rows) else 1


def make_request(arguments: argparse.Namespace) -> TuneRequest:
    """What the arguments ask for; raises `UserError` for what does not go together."""
    from workbench.tuning.space import parse_over

    if arguments.program and arguments.file:
        raise UserError("--program and --file exclude each other")
    if arguments.over and not arguments.program:
        raise UserError("--over varies settings of a program: give --program TEXT too")
    if arguments.budget < 1 or arguments.seconds <= 0:
        raise UserError("--budget and --seconds are over 0")
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
def _bar() -> Iterator[Progress]:
    """A progress bar with the best time so far; plain lines where nobody watches."""
    from tqdm.auto import tqdm

    best: list[float] = []
    with tqdm(total=1, unit="configuration", leave=False, disable=None) as bar:

        def progress(done: int, total: int, row: Row | None) -> None:
            bar.total, bar.n = total, done
            if row is not None and row.correct and row.program and row.median_s:
                best[:] = [min([row.median_s, *best])]
                bar.set_postfix_str(f"best {seconds(best[0])}")
            bar.refresh()

        yield progress


def report(found: Tuned, export: str | None) -> None:
    """What was measured, and what to do with it."""
    correct = [row for row in found.rows if row.correct and row.program]
    if as_json():
        best = {"program": found.best.program, "median_s": found.best.median_s} if found.best else None
        print(
            json.dumps(
                {"path": str(found.path), "planned": found.planned, "correct": len(correct), "best": best, "eager_s": found.eager_s}
            )
        )  # fmt: skip
        return
    measured = sum(bool(row.program) for row in found.rows)
    say(
        f"{measured} of {found.planned} configurations are measured, {len(correct)} are correct; "
        f"torch eager {seconds(found.eager_s)}"
    )
    if found.best is not None:
        gain = (
            f", {found.eager_s / found.best.median_s:.2f} times torch eager"
            if found.eager_s and found.best.median_s
            else ""
        )
        say(f"best {seconds(found.best.median_s)}{gain}: {found.best.program}")
    if measured < found.planned:
        say("the same command goes on with the rest")
    if export and found.best_source:
        say(f"best written to {export}")
    if found.best is not None:
        say(f"kept in {found.path}; cutegen landscape and --executor replay read it")
