"""Verifies a session's log: the hash chain of its rows, the files of its versions, and what they do today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.errors import UserError
from workbench.records import Version, record
from workbench.session.log import Reference
from workbench.session.session import Session
from workbench.wire import content_hash

LEAST_HEAD = 8  # hex digits of a head that is compared


@record
class LogCheck:
    """What is known of a session's log. `problems` says what is not as it was written; it is sound without any."""

    session: str
    entries: int
    head: str  # hash of the last entry; "" if an old workbench wrote the log
    problems: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()  # the versions that were run again


def verify_log(session: Session, *, head: str = "", run: Sequence[Reference] = ()) -> LogCheck:
    """Compare a log with its hash chain, with the files beside it, and with the versions `run` as they do today.

    `head` is a hash that a report of the session showed: the log has to contain what was there at that time. "all" is
    every version that was tested.
    Raises `UserError` for a head that is no hash and for unknown versions.
    """
    store = session.log.store
    if head and (len(head) < LEAST_HEAD or set(head) - set("0123456789abcdef")):
        raise UserError(f"{head!r} is no head: at least {LEAST_HEAD} hexadecimal digits, as reports show them")
    chosen = session.versions if "all" in run else [session.version(reference) for reference in run]
    problems = [one.message for one in store.damage]
    if not store.head():
        problems.append(
            "the log has no hash chain: an old workbench wrote it; it gets one when it is opened to work on"
        )
    elif head and not store.holds_head(head):
        problems.append(f"the log does not contain the entry {head}: entries after or before it were taken away")
    for version in session.versions:
        problems += _find_file_differences(version)
    ran = tuple(f"v{version.number}" for version in chosen if version.trials)
    problems += session.replay(*ran) if ran else ()
    return LogCheck(
        session=session.name, entries=store.count_entries(), head=store.head(), problems=tuple(problems), ran=ran
    )


def _find_file_differences(version: Version) -> Iterator[str]:
    path = Path(version.path)
    if content_hash(version.proposal.candidate.source) != version.source_hash:
        yield f"the source of v{version.number} is not the one that its hash names"
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        yield f"the file {path.name} of v{version.number} is gone; the log has its source, export writes it"
    except (OSError, UnicodeDecodeError) as error:
        yield f"the file {path.name} of v{version.number} cannot be read: {type(error).__name__}"
    else:
        if text != version.proposal.candidate.source:
            yield f"the file {path.name} of v{version.number} holds another text than the log, which counts"
