"""Seeds handed to a GPU candidate one call at a time, so that no input and no choice of what is checked can be known ahead.

On a GPU the inputs (gigabytes) are drawn on the device in the candidate's process from a seed, and again in the checking process. The
parent writes the seed of the next call only when the candidate's process asks for it, and says whether that call's output is to be handed
over only when the call is done. Files, because nothing else crosses the confinement: `scratch/ask-*` and `scratch/done-*` from the
candidate, `given/seed-*` and `given/keep-*` from the parent, each renamed into place.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path

from workbench.records import Job

POLL_S = 0.0005
ANSWER_LIMIT_S = 60.0
WARM_UP = 3
KEPT_TIMED = 2  # how many timed calls' outputs are checked, chosen anew for each run
TIMED = "timed"


def trial_places(job: Job) -> list[str]:
    """The calls that are checked and not timed, in order."""
    return [f"{name}-{trial}" for name in job.cases for trial in range(job.trials)]


def timed_places(job: Job, name: str) -> list[str]:
    """The warm-up and timed calls of a case, in order."""
    return [f"{name}-{TIMED}-{number}" for number in range(WARM_UP + job.timed_calls)] if job.timed_calls else []


def draw(job: Job) -> tuple[dict[str, int], set[str]]:
    """A secret seed for every call, and which calls' outputs are to be handed over: all trials and some of the timed calls."""
    kept = set(trial_places(job))
    places = list(trial_places(job))
    for name in job.cases:
        timed = timed_places(job, name)
        places += timed
        kept |= set(secrets.SystemRandom().sample(timed[WARM_UP:], min(KEPT_TIMED, job.timed_calls)))
    return {place: secrets.randbits(48) for place in places}, kept


class Handing(threading.Thread):
    """The parent's side: answers the candidate's process until `finish` is called."""

    def __init__(self, folder: Path, job: Job, seeds: dict[str, int], kept: set[str]) -> None:
        super().__init__(name="cutegen-seeds", daemon=True)
        self.folder, self.seeds, self.kept = folder, seeds, kept
        self.order = [place for name in job.cases for place in (*[p for p in trial_places(job) if p.rpartition("-")[0] == name], *timed_places(job, name))]
        self.ended = threading.Event()

    def run(self) -> None:
        """Hand out seeds in the order of the calls; a candidate that asks out of turn waits in vain."""
        for place in self.order:
            if not self._seen("ask", place):
                return
            _put(self.folder / "given" / f"seed-{place}", str(self.seeds[place]))
            if not self._seen("done", place):
                return
            _put(self.folder / "given" / f"keep-{place}", "1" if place in self.kept else "0")

    def _seen(self, kind: str, place: str) -> bool:
        path = self.folder / "scratch" / f"{kind}-{place}"
        while not self.ended.is_set():
            if os.path.lexists(path):
                return True
            time.sleep(POLL_S)
        return False

    def finish(self) -> None:
        """End the thread; the candidate's process has ended."""
        self.ended.set()
        self.join()


def ask(folder: Path, place: str) -> int:
    """The candidate's side: the seed of a call."""
    _put(folder / "scratch" / f"ask-{place}", "")
    return int(_answer(folder / "given" / f"seed-{place}"))


def done(folder: Path, place: str) -> bool:
    """The candidate's side: the call is over; whether its output is wanted."""
    _put(folder / "scratch" / f"done-{place}", "")
    return _answer(folder / "given" / f"keep-{place}") == "1"


def _put(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _answer(path: Path) -> str:
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer to {path.name}")
        time.sleep(POLL_S)
    return path.read_text()
