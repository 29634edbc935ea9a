"""`cutegen profile` and `cutegen calibrate`: their arguments and what they print.

Exit status as the command line's: 0 fine, 1 nothing could be seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import plugins
from workbench.analysis import calibration
from workbench.analysis.calibration import Calibration, Rate
from workbench.cli.output import as_json, say
from workbench.errors import Stopped, UserError
from workbench.views.text.mime_bundle import Shown, amount, seconds, table

if TYPE_CHECKING:
    from workbench.records import Version
    from workbench.session import Session


def profile(arguments: argparse.Namespace) -> int:
    """Profile a candidate file, or a version of a stored session."""
    from workbench.profilers.recorded import compact
    from workbench.views.plots import profile as profile_plots
    from workbench.views.plots import roofline
    from workbench.wire import to_plain

    for name in arguments.by.split("+"):
        plugins.load("profiler", name)  # what cannot run here is refused before anything is looked at
    with _version(arguments) as (session, version):
        found = session.profile(version.number, arguments.by, sections=arguments.sections)
        made = profile_plots.plot(found, arguments.plot) if arguments.plot else roofline.profile(version, found)
        say(str(made))
        if arguments.html:
            head = f'<meta charset="utf-8"><title>profile of v{version.number}</title><style>{STYLE}</style>'
            page = f'<!doctype html><html lang="en">{head}<body>{made.html}</body></html>'
            Path(arguments.html).write_text(page, encoding="utf-8")
            say(f"written to {arguments.html}")
        if as_json():
            print(json.dumps(to_plain(compact(found))))
        return 0 if found.kernels or found.lines or found.timeline or found.energy else 1


STYLE = (
    ":root{color-scheme:light dark;font-family:system-ui,sans-serif}"
    "body{max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "background:light-dark(#fff,#161616);color:light-dark(#1c1c1c,#e4e4e4)}"
    "table{border-collapse:collapse;font-size:.9rem}td,th{padding:1px 8px}"
)


@contextlib.contextmanager
def _version(arguments: argparse.Namespace) -> Iterator[tuple[Session, Version]]:
    """The session and version that the arguments name; the session of a candidate file is gone afterwards."""
    import tempfile

    from workbench.session import Session
    from workbench.views.commands.problems import candidate_version, check_candidate, load_problem, text_of
    from workbench.views.commands.validation import check_kernel, check_order

    if arguments.session:
        with Session.open(arguments.session, write=False) as session:
            yield session, session.version(arguments.chosen or arguments.candidate or "best")
        return
    if not arguments.spec or not arguments.candidate:
        raise UserError(
            "what is to be profiled? cutegen profile PROBLEM FILE, or cutegen profile --session NAME [--version v2]"
        )
    check_order("profile", arguments.spec, arguments.candidate)
    check_candidate(arguments.candidate)
    problem = load_problem(arguments, None)
    if Path(arguments.candidate).is_file() and arguments.candidate.endswith(".py"):
        check_kernel(arguments.candidate, text_of(Path(arguments.candidate)), problem)
    with (
        tempfile.TemporaryDirectory() as root,
        Session.create(
            problem, root=root, executor=arguments.executor, arch=arguments.arch, device=arguments.device
        ) as session,
    ):
        yield session, candidate_version(session, arguments.candidate, test=False)


def calibrate(arguments: argparse.Namespace) -> int:
    """Measure this GPU's ceilings and keep them, or list what is kept."""
    if arguments.show:
        return show()
    from workbench.profilers import calibrate as measuring

    measuring.require_gpu()
    try:
        with _bar() as progress:
            found = measuring.calibrate(progress, only=arguments.only)
    except KeyboardInterrupt:
        raise Stopped("stopped; what was kept before is unchanged") from None
    if not found.rates:
        raise UserError(f"nothing could be measured: {'; '.join(found.notes)}")
    if arguments.only and not arguments.out:
        found = _over(calibration.find(found.device), found)
    path = calibration.save(found, Path(arguments.out) if arguments.out else None)
    say(str(rates(found)))
    say(f"kept in {path}; bounds on {found.device} use it from now on" if not arguments.out else f"written to {path}")
    if as_json():
        from workbench.wire import to_plain

        print(json.dumps({"path": str(path), "calibration": to_plain(found)}))
    return 0


def _over(before: Calibration | None, found: Calibration) -> Calibration:
    """What was measured now over what was known; the day is today's for all."""
    import dataclasses

    new = {rate.name for rate in found.rates}
    old = [rate for rate in before.rates if rate.name not in new] if before else []
    return dataclasses.replace(
        found,
        rates=(*found.rates, *old),
        notes=(
            *found.notes,
            *((f"of {before.date[:10]}: {', '.join(rate.name for rate in old)}",) if before and old else ()),
        ),
    )


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error where somebody watches."""
    from tqdm.auto import tqdm

    with tqdm(total=1, unit="ceiling", leave=False, disable=None) as bar:

        def progress(name: str, done: int, total: int) -> None:
            bar.total = total
            bar.set_description(name)
            bar.n = done
            bar.refresh()

        yield progress


def show() -> int:
    """Everything that is kept, this machine's first."""
    known = calibration.load_all()
    if as_json():
        from workbench.wire import to_plain

        print(json.dumps([{"path": str(path), "calibration": to_plain(found)} for path, found in known]))
        return 0
    for path, found in known:
        say(f"{path}{' (shipped)' if path.parent == calibration.SHIPPED else ''}")
        say(str(rates(found)) + "\n")
    if not known:
        say("nothing is kept; on a machine with a GPU: cutegen calibrate")
    return 0


def rates(found: Calibration) -> Shown:
    """A calibration as a table."""
    head = ["ceiling", "median", "95 % interval", "by"]
    rows = [
        [
            rate.name,
            value(rate, rate.value),
            f"{value(rate, rate.low)} to {value(rate, rate.high)}"
            if rate.low is not None and rate.high is not None
            else "—",
            rate.by,
        ]
        for rate in found.rates
    ]
    plain, listed = table(head, rows, f"{found.device} ({found.summary}), measured")
    return Shown("\n".join([plain, *(f"note: {note}" for note in found.notes)]), html=listed)


def value(rate: Rate, number: float) -> str:
    """A rate with its unit."""
    return seconds(number) if rate.unit == "s" else f"{amount(number)}{rate.unit}"
