"""`cutegen test`: judge one or several candidates of a problem."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import queue
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from workbench.analysis import devices, integrity
from workbench.cli.output import DOUBTFUL, NOT_CORRECT, OK, USAGE, echo, print_json, wants_json
from workbench.cli.sessions import create_session
from workbench.errors import Stopped, UserError
from workbench.records import Verdict, Version
from workbench.session import Session
from workbench.toolchain.explain import NEEDS_ARCH
from workbench.views.commands.problems import candidate_version, check_candidate, choose_testing
from workbench.views.commands.validation import check_order
from workbench.views.text import tables
from workbench.wire import to_plain

Judged = Version | UserError


def test(arguments: argparse.Namespace) -> int:
    """Test files or programs, and print each verdict. The exit status is that of the worst candidate."""
    candidates: list[str] = arguments.candidates
    check_order("test", arguments.spec, candidates[0])
    if len(candidates) == 1:
        check_candidate(candidates[0])  # before anything is started
    statuses, documents = list[int](), list[object]()
    try:
        _judge_and_print(arguments, candidates, statuses, documents)
    except (KeyboardInterrupt, Stopped):
        if documents and wants_json():
            print_json(documents)
        raise Stopped(f"stopped; {len(documents)} of {len(candidates)} candidates were judged") from None
    if wants_json():
        print_json(documents if len(candidates) > 1 else documents[0])
    return max(statuses, key=(OK, DOUBTFUL, NOT_CORRECT, USAGE).index)


def find_status(verdict: Verdict, *, lenient: bool) -> int:
    """The exit status for a verdict. `lenient` lets doubts pass, but no refusal."""
    if not verdict.correct or verdict.refused:
        return NOT_CORRECT
    return DOUBTFUL if (verdict.suspect or verdict.doubts) and not lenient else OK


def _judge_and_print(
    arguments: argparse.Namespace, candidates: list[str], statuses: list[int], documents: list[object]
) -> None:
    """Print each verdict, and collect exit statuses and documents."""
    for number, (candidate, found) in enumerate(_judge_all(arguments, candidates), start=1):
        if isinstance(found, UserError):
            if len(candidates) == 1:
                raise found
            echo(f"{candidate}\n  cannot be used: {found}")
            statuses.append(USAGE)
            documents.append({"candidate": candidate, "error": str(found)})
            continue
        found = dataclasses.replace(found, number=number)  # sessions that work side by side number their own versions
        echo(str(tables.verdict(found)))
        verdict = found.trials[-1].verdict
        codes = [integrity.find_code(doubt) for doubt in (*verdict.suspect, *verdict.doubts)]
        statuses.append(find_status(verdict, lenient=arguments.lenient))
        document = to_plain(verdict) | {"doubt_codes": codes}
        document["unprotected"] = list(found.trials[-1].outcome.unprotected)
        documents.append(document if len(candidates) == 1 else {"candidate": candidate} | document)


def _judge_all(arguments: argparse.Namespace, candidates: list[str]) -> Iterator[tuple[str, Judged]]:
    """Each candidate with its tested version, or why it cannot be used, in the given order.

    `--jobs` candidates are tested at the same time, each in a session of its own with the same facts.
    """
    with contextlib.ExitStack() as stack:
        newer = _NewerArch(arguments, stack)
        root = stack.enter_context(tempfile.TemporaryDirectory())
        sessions = [stack.enter_context(create_session(arguments, root=root))]
        for _ in range(1, min(arguments.jobs, len(candidates))):
            first = sessions[0]
            more = create_session(arguments, first.problem, root=root, facts=first.facts)
            sessions.append(stack.enter_context(more))
        for session in sessions:
            choose_testing(session, arguments)
        if len(sessions) == 1:
            for candidate in candidates:
                yield candidate, newer.judge_again(sessions[0], candidate, _judge(sessions[0], candidate))
            return
        free: queue.SimpleQueue[Session] = queue.SimpleQueue()
        for session in sessions:
            free.put(session)
        pool = ThreadPoolExecutor(len(sessions), thread_name_prefix="cutegen-test")
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        for session in sessions:
            stack.callback(session.stop)  # before the pool is waited for, also after Ctrl-C
        for candidate, found in zip(candidates, pool.map(_judge_in(free), candidates), strict=True):
            yield candidate, newer.judge_again(sessions[0], candidate, found)


class _NewerArch:
    """Judges candidates again that the executor's default architecture is too old for, unless --arch was given."""

    def __init__(self, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.arguments, self.stack = arguments, stack
        self.session: Session | None = None

    def judge_again(self, first: Session, candidate: str, found: Judged) -> Judged:
        """`found`, or the candidate's version for the device's own architecture."""
        failure = None if isinstance(found, UserError) else found.trials[-1].verdict.failure
        arch = devices.find(first.device).arch
        if failure is None or failure.kind != NEEDS_ARCH or self.arguments.arch or first.arch == arch:
            return found
        echo(f"{failure.message.split(': ', 1)[-1]}; tested for {arch}, as on the {first.device}")
        if self.session is None:
            arguments = argparse.Namespace(**vars(self.arguments) | {"arch": arch})
            root = self.stack.enter_context(tempfile.TemporaryDirectory())
            self.session = self.stack.enter_context(
                create_session(arguments, first.problem, root=root, facts=first.facts)
            )
            choose_testing(self.session, arguments)
        return _judge(self.session, candidate)


def _judge_in(free: queue.SimpleQueue[Session]) -> Callable[[str], Judged]:
    """A function that judges a candidate in a session that is free."""

    def judge(candidate: str) -> Judged:
        session = free.get()
        try:
            return _judge(session, candidate)
        finally:
            free.put(session)

    return judge


def _judge(session: Session, candidate: str) -> Judged:
    try:
        check_candidate(candidate)
        return candidate_version(session, candidate, test=True)
    except UserError as error:
        return error
