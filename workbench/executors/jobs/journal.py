"""What a candidate's process notes while it runs, line by line in a socket to the worker server.

What was sent cannot be taken back: a candidate that finds the objects which count in its process (through frames, the
garbage collector, torch's stack of modes) can change them, but not what they noted before. It can neither close the
socket nor put another file in its place (seccomp.py), nor open its other end, as it could that of a pipe in
/proc/self/fd. It can add lines: a launch that never was, more work of torch.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workbench.executors.jobs.trials import NOT_FINITE, REFUSABLE, Run, list_runs
from workbench.records import Failure, Job, Launch, TorchWork
from workbench.wire import Json

LINE_BYTES, LAUNCHES, NAMES = 4096, 100_000, 10_000  # limits of what is kept, and of a line that has not ended
KEPT_BYTES = 16 << 20  # limit of all lines that are kept; one of 100,000 launches of a kernel takes about 60
CHUNK = 1 << 16
TABLES_GROW = 4  # how much larger the tables of one case may be than those of another (inferred)
UNREADABLE = "what the candidate's process noted of its launches cannot be read"


class Journal:
    """The candidate's side. `place` is the trial to which the notes belong."""

    def __init__(self, handle: int | None) -> None:
        self.place = ""
        self._write = _writer(handle)

    def note_torch(self, name: str, flops: int, moved: int, copied: int) -> None:
        """Note an operation of torch: its FLOPs, and the bytes that it read and wrote, computing or copying."""
        self._write(["torch", self.place, name, flops, moved, copied])

    def note_unseen(self, size: int, checksum: int) -> None:
        """Note bytes that a kernel read, or forward returned, and that were written out of sight, with a checksum."""
        self._write(["unseen", self.place, size, checksum])

    def note_launch(self, launch: Launch) -> None:
        """Note a launch that was emulated."""
        self._write(["launch", self.place, *describe_launch(launch)])

    def note_fault(self, failure: Failure) -> None:
        """Note a fault, before an exception tells the candidate of it."""
        self._write(["fault", self.place, failure.kind, failure.message[:500], failure.line])


def describe_launch(launch: Launch) -> tuple[str, int, int]:
    """Kernel, FLOPs and bytes of global memory that it moved."""
    total = launch.total
    return launch.kernel[:500], total.flops, total.global_read_bytes + total.global_write_bytes


def _writer(handle: int | None) -> Callable[[Sequence[object]], None]:
    """A function that writes one line. A process that cannot write ends, because what it does next would go unseen."""
    dumps, write, leave = json.dumps, os.write, os._exit  # before a candidate is imported

    def write_line(line: Sequence[object]) -> None:
        if handle is None:
            return
        text = dumps(line).encode() + b"\n"
        try:
            if write(handle, text) != len(text):
                leave(70)
        except OSError:
            leave(70)

    return write_line


@dataclass(slots=True)
class Notes:
    """The server's side: reads the socket `handle`, and sums up what it can trust no more than any text."""

    handle: int
    torch: dict[str, dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    unseen: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # by place and content
    launches: list[list[object]] = field(default_factory=list)
    faults: list[list[object]] = field(default_factory=list)
    broken: bool = False
    _rest: bytes = b""
    _kept: int = 0  # bytes

    def drain(self, chunks: int = 16) -> None:
        """Read what is there, at most so many chunks."""
        with contextlib.suppress(BlockingIOError, OSError):
            for _ in range(chunks):
                chunk = os.read(self.handle, CHUNK)
                if not chunk:
                    return
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)
                if len(self._rest) > LINE_BYTES:
                    self.broken, self._rest = True, b""

    def _take(self, line: bytes) -> None:
        if self.broken:
            return
        try:
            kind, place, *rest = json.loads(line)
            if kind == "torch":
                name, *counts = rest
                is_new = self._add_work(_read_text(place), _read_text(name), counts)
            elif kind == "launch":
                kernel, flops, moved = rest
                self.launches.append([_read_text(place), _read_text(kernel), int(flops), int(moved)])
                is_new = True
            elif kind == "unseen":
                is_new = self._add_unseen(_read_text(place), rest)
            else:
                what, message, number = rest
                texts = [_read_text(one) for one in (place, what, message)]
                self.faults.append([*texts, None if number is None else int(number)])
                is_new = True
            self._kept += len(line) if is_new else 0
            self.broken = len(self.launches) + len(self.faults) > LAUNCHES or self._kept > KEPT_BYTES
        except (ValueError, TypeError, OverflowError, RecursionError):
            self.broken = True

    def _add_work(self, place: str, name: str, counts: Sequence[object]) -> bool:
        """Add work of torch; whether the operation is the first of this name in the trial."""
        flops, moved, copied = (int(str(count)) for count in counts)
        if min(flops, moved, copied) < 0 or len(self.torch) > NAMES or len(self.torch[place]) > NAMES:
            raise ValueError(counts)
        found = self.torch[place]
        is_new = name not in found
        held = found.setdefault(name, [0, 0, 0])
        held[0], held[1], held[2] = held[0] + flops, held[1] + moved, held[2] + copied
        return is_new

    def _add_unseen(self, place: str, rest: Sequence[object]) -> bool:
        """Add bytes that were written out of sight; whether their content is the first of its kind in the trial."""
        size, checksum = (int(str(number)) for number in rest)
        if len(self.unseen) > NAMES or len(self.unseen[place]) > NAMES:
            raise ValueError(rest)
        found, content = self.unseen[place], f"{size} {checksum}"
        is_new = content not in found
        found[content] = found.get(content, 0) + size
        return is_new

    def close(self) -> Json:
        """Read the rest, close the socket, and return everything as plain data."""
        self.drain(1024)
        os.close(self.handle)
        broken = self.broken or bool(self._rest)
        work = {"torch": dict(self.torch), "unseen": dict(self.unseen)}
        return {**work, "launches": self.launches, "faults": self.faults, "broken": broken}


def _read_text(value: object) -> str:
    """The value as text. Raises `ValueError` for lone surrogates, which no terminal and no file takes."""
    text = str(value)
    text.encode()
    return text


def find_unlike(job: Job, notes: Json, launches: Sequence[Launch]) -> Failure | None:
    """The failure of a process that noted a fault, or other launches than it answered with. None if it is consistent.

    Faults with other inputs than the problem's own may be refusals of these.
    """
    if notes["broken"]:
        return Failure(stage="integrity", kind="bad_reply", message=UNREADABLE)
    strict = {run.place for run in list_runs(job) if _is_strict(run)}
    for place, kind, message, line in notes["faults"]:
        if place in strict:
            return Failure(stage="run", kind=kind, message=" ".join(message.split()), line=line)
    noted = [tuple(rest) for place, *rest in notes["launches"] if place == notes["launches"][0][0]]
    answered = [describe_launch(launch) for launch in launches]
    if noted[: len(answered)] != answered:
        message = "the launches in the answer of the candidate's process are not those that it noted when they ran"
        return Failure(stage="integrity", kind="bad_reply", message=message)
    return None


def sum_torch_work(job: Job, notes: Json) -> tuple[TorchWork, ...]:
    """What torch did in the calls of each trial with the problem's own inputs; trials without any are left out."""
    found, by_place = [], count_unseen(job, notes)
    for run in list_runs(job):
        work, unseen = notes["torch"].get(run.place, {}), by_place.get(run.place, 0)
        if not (work or unseen) or not _is_strict(run):
            continue
        calls = len(run.values)
        results = sum(spec.size_bytes for case in job.facts.cases if case.name == run.case for spec in case.outputs)
        flops, moved = Counter({name: one[0] for name, one in work.items()}), {n: one[1] for n, one in work.items()}
        computing = [name for name in work if moved[name]]
        found.append(
            TorchWork(
                case=run.case,
                flops=flops.total() // calls,
                bytes=sum(moved.values()) // calls,
                copied=sum(one[2] for one in work.values()) // calls,
                operations=tuple(sorted(computing, key=lambda name: (-flops[name], -moved[name]))[:5]),
                unseen=unseen / calls / max(results, 1),
            )
        )
    return tuple(found)


def count_unseen(job: Job, notes: Json) -> dict[str, int]:
    """Bytes that were written out of sight in each trial with the problem's own inputs.

    What held the same with other inputs does not count: no result of them. A case with one trial has nothing to compare
    with; there as much does not count as a few times what was the same in others (TABLES_GROW).
    """
    cases: dict[str, list[dict[str, int]]] = defaultdict(list)
    places: dict[str, list[str]] = defaultdict(list)
    for run in list_runs(job):
        if _is_strict(run):
            cases[run.case].append(notes["unseen"].get(run.place, {}))
            places[run.case].append(run.place)
    same = {case: _find_same(held) for case, held in cases.items()}
    most = TABLES_GROW * max((sum(one.get(content, 0) for content in same[case])
                              for case, held in cases.items() for one in held), default=0)  # fmt: skip
    found = {}
    for case, held in cases.items():
        for place, one in zip(places[case], held, strict=True):
            other = sum(size for content, size in one.items() if content not in same[case])
            found[place] = other if len(held) > 1 or other > most else 0
    return found


def _find_same(held: Sequence[dict[str, int]]) -> set[str]:
    """The contents that several trials of a case had."""
    counts = Counter(content for one in held for content in one)
    return {content for content, count in counts.items() if count > 1}


def _is_strict(run: Run) -> bool:
    return run.values != (NOT_FINITE,) and not run.layout and not run.repeats and run.case not in REFUSABLE
