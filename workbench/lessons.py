"""The user's memory across sessions: which change helped which class of kernel, which failed and how it was repaired.

A line of JSON per lesson in `path()`, which only the user reads. Lessons rank advice and stand in prompts; they are
never a number in a verdict. CUTEGEN_LESSONS=off keeps and uses none, CUTEGEN_LESSONS=FILE keeps them elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from workbench import folders
from workbench.errors import UserError
from workbench.records import Experience, Lesson, LessonOutcome, Version
from workbench.wire import content_hash, from_plain

ENV = "CUTEGEN_LESSONS"
OFF = "off"
MOST = 5000  # lessons that are kept: the oldest go first
PLATEAU = 3  # changes in a row without a gain that make a plateau (chosen)
SIMILAR = 6  # lessons in a prompt

Change = tuple[str, str, str]


def path() -> Path | None:
    """The file of the lessons; None if they are switched off."""
    return None if os.environ.get(ENV) == OFF else folders.lessons_file()


def read() -> tuple[Lesson, ...]:
    """All lessons, oldest first. A damaged line is left out."""
    where = path()
    found: dict[str, Lesson] = {}
    if where is not None and where.is_file():
        for line in where.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(Exception):  # a line may be cut off, or written by hand
                lesson = from_plain(json.loads(line), Lesson)
                found[lesson.id] = lesson
    return tuple(found.values())


def add(lesson: Lesson) -> None:
    """Add a lesson, or replace the one with its id. A folder that cannot be written keeps none."""
    with _locked() as where:
        if where is None:
            return
        kept = {one.id: one for one in read()} | {lesson.id: lesson}
        _write(where, list(kept.values())[-MOST:])


def forget(ids: Sequence[str]) -> int:
    """Forget lessons by id, or all with "all". Returns how many. Raises `UserError` for an unknown id."""
    with _locked() as where:
        if where is None:
            raise UserError(f"there are no lessons to change: they are switched off ({ENV}) or cannot be written")
        known = read()
        if unknown := [one for one in ids if one != "all" and one not in {lesson.id for lesson in known}]:
            raise UserError(f"no lesson has the id {unknown[0]!r}; cutegen lessons lists them")
        kept = [] if "all" in ids else [lesson for lesson in known if lesson.id not in ids]
        _write(where, kept)
    return len(known) - len(kept)


def annotate(identity: str, note: str) -> Lesson:
    """Write a note of the user to a lesson; it stands in prompts too."""
    found = next((lesson for lesson in read() if lesson.id == identity), None)
    if found is None:
        raise UserError(f"no lesson has the id {identity!r}; cutegen lessons lists them")
    changed = replace(found, note=" ".join(note.split())[:200])
    add(changed)
    return changed


@contextlib.contextmanager
def _locked() -> Iterator[Path | None]:
    """The file, while no other process changes it; None if there is none."""
    where = path()
    lock = -1
    try:
        if where is not None:
            where.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(where.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        where = None
    try:
        yield where
    finally:
        if lock >= 0:
            os.close(lock)


def _write(where: Path, lessons: Sequence[Lesson]) -> None:
    """Replace the file as a whole: a kill leaves the old one or the new one, a full disk the old one."""
    number, made = tempfile.mkstemp(dir=where.parent, prefix=".lessons-")
    try:
        with os.fdopen(number, "w") as file:
            file.writelines(json.dumps(asdict(lesson)) + "\n" for lesson in lessons)
        os.replace(made, where)
    except OSError:
        Path(made).unlink(missing_ok=True)


# ---- learning -----------------------------------------------------------------------------------------------------


def identify(session: str, version: Version) -> str:
    """The id of the lesson of a version."""
    return content_hash([session, version.number, version.source_hash])[:12]


def learn(
    version: Version,
    parent: Version,
    *,
    kind: str,
    session: str,
    bottleneck: str,
    probe: str,
    changes: tuple[Change, ...],
) -> Lesson | None:
    """The lesson of a tested version that changed another one, of the class `bottleneck`, on the advice of `probe`.

    None if nothing can be said.
    """
    if not version.trials or not parent.trials:
        return None
    trial = version.trials[-1]
    verdict = trial.verdict
    lesson = Lesson(
        id=identify(session, version),
        at=trial.at,
        session=session,
        version=version.number,
        kind=kind,
        device=trial.outcome.device,
        by=version.proposal.by,
        bottleneck=bottleneck,
        probe=probe,
        changes=changes,
        outcome="failed",
    )
    if not verdict.correct or verdict.refused:
        failure = verdict.failure
        return replace(lesson, failure=f"{failure.stage}/{failure.kind}" if failure else "refused")
    if verdict.speedup is None:
        return None
    told = bool(verdict.distinguishable)
    outcome: LessonOutcome = "helped" if told and verdict.speedup > 1 else "no gain"
    if not told and verdict.time_provenance != "measured":
        outcome = "open"
    return replace(lesson, outcome=outcome, gain=verdict.speedup, provenance=verdict.time_provenance)


def add_repair(failed: Lesson, changes: tuple[Change, ...], attempts: int) -> None:
    """Note at the lesson of a failed version how it was repaired."""
    add(replace(failed, repaired_by=changes, attempts=attempts))


# ---- using --------------------------------------------------------------------------------------------------------


def experience(lessons: Sequence[Lesson]) -> Mapping[str, Experience]:
    """What came of the changes after each probe's advice. Failed changes count as tried."""
    found: dict[str, Experience] = {}
    for lesson in lessons:
        if lesson.probe and lesson.outcome != "open":
            old = found.get(lesson.probe, Experience())
            found[lesson.probe] = Experience(tried=old.tried + 1, helped=old.helped + (lesson.outcome == "helped"))
    return found


def find_similar(lessons: Sequence[Lesson], kind: str, bottleneck: str) -> tuple[Lesson, ...]:
    """The lessons for a prompt: of this kind of problem, those of the same class first, newest first."""
    same = [lesson for lesson in reversed(lessons) if lesson.kind == kind and lesson.outcome != "open"]
    return tuple(sorted(same, key=lambda lesson: lesson.bottleneck != bottleneck)[:SIMILAR])


def find_plateaus(lessons: Sequence[Lesson]) -> tuple[tuple[str, str, int], ...]:
    """(session, kind, number of changes) where so many changes in a row brought nothing at the end of a session."""
    found: dict[tuple[str, str], int] = {}
    for lesson in lessons:
        key = (lesson.session, lesson.kind)
        found[key] = 0 if lesson.outcome == "helped" else found.get(key, 0) + 1
    return tuple((session, kind, count) for (session, kind), count in found.items() if count >= PLATEAU)


def describe(lesson: Lesson) -> str:
    """A lesson as one sentence without names of sessions or problems."""
    what = describe_changes(lesson.changes) or f"a change of the source by {lesson.by}"
    where = f"{lesson.kind}, {lesson.bottleneck}" if lesson.bottleneck else lesson.kind
    why = f" on the advice of {lesson.probe}" if lesson.probe else ""
    came = {
        "helped": f"{lesson.gain:.2f}x faster ({lesson.provenance})" if lesson.gain else "faster",
        "no gain": f"no gain ({lesson.gain:.2f}x, {lesson.provenance})" if lesson.gain else "no gain",
        "open": "cannot be told",
        "failed": f"failed: {lesson.failure}",
    }[lesson.outcome]
    repaired = f"; repaired by {describe_changes(lesson.repaired_by)}" if lesson.repaired_by else ""
    noted = f" [{lesson.note}]" if lesson.note else ""
    return f"{where}: {what}{why}: {came}{repaired}{noted}"


def describe_changes(changes: Sequence[Change]) -> str:
    """Changes of settings in words: "vector 1 -> 4"."""
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in changes)
