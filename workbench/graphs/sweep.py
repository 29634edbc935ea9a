"""Trains at many points of (mix, p) and for the baselines; results are kept as they come, and found again by content.

A file of results holds one record of JSON a line. A point is done if its key is there: the hash of the graph's arrays,
its communities' method, the policy, the training, the cache model and the device.
"""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from workbench.errors import UserError, WorkbenchError
from workbench.graphs.batches import POLICIES, Policy, PolicyName
from workbench.graphs.communities import Relabelled
from workbench.graphs.locality import CacheModel, EpochLocality
from workbench.graphs.training import Result, Training, train
from workbench.records import record
from workbench.wire import content_hash, dumps, loads

BASELINES: tuple[PolicyName, ...] = ("uniform", "norand", "labor", "cluster-gcn")


@record
class Row:
    """A result under its key. `versions` has its date, torch, and what else the caller says of the machine; `cache` is
    the model that counted its hits.
    """

    key: str
    result: Result
    versions: tuple[tuple[str, str], ...] = ()
    cache: CacheModel | None = None


@record
class Point:
    """What is trained."""

    graph: str  # digest
    method: str
    policy: Policy
    training: Training
    cache: CacheModel

    @property
    def key(self) -> str:
        """The hash under which its result is kept."""
        return content_hash(self)


def list_policies(
    mixes: Sequence[float],
    shares: Sequence[float],
    seeds: Sequence[int] = (0,),
    baselines: Sequence[PolicyName] = (),
    like: Policy | None = None,
) -> list[Policy]:
    """Policies of all pairs of mix and p, then the baselines, for each seed, each once. Raises `UserError` for a bad
    value.
    """
    like = like or Policy()
    found = []
    for seed in seeds:
        points = [("comm-rand", float(mix), float(p)) for mix in mixes for p in shares]  # 0 and 0.0 are one key
        # without randomness in the order, the neighbours follow the structure too
        points += [(name, 1.0, 1.0 if name == "norand" else 0.5) for name in baselines]
        for name, mix, p in points:
            if name not in POLICIES:
                raise UserError(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
            found.append(dataclasses.replace(like, name=name, mix=mix, p=p, seed=seed))
            found[-1].check()
    return list(dict.fromkeys(found))


def sweep(
    prepared: Relabelled,
    policies: Sequence[Policy],
    training: Training,
    path: Path,
    cache: CacheModel | None = None,
    report: Callable[[str], None] | None = None,
    machine: Sequence[tuple[str, str]] = (),
    measured: dict[Policy, EpochLocality] | None = None,
) -> list[Result]:
    """The results of all policies: those that the file has, and the others trained now and appended to it.

    `machine` is written beside each new result, as ("driver", "580.95"), after the date and torch's version;
    `measured` is as in `train`.
    """
    cache = cache or CacheModel()
    done = {row.key: row.result for row in read_rows(path)}
    digest = prepared.graph.digest()
    found = []
    for number, policy in enumerate(policies, 1):
        point = Point(graph=digest, method=prepared.method, policy=policy, training=training, cache=cache)
        if point.key not in done:
            if report is not None:
                report(f"{number} of {len(policies)}: {describe(policy)}")
            done[point.key] = train(prepared, policy, training, cache, measured=measured)
            date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            versions = (("date", date), ("torch", str(torch.__version__)), *machine)
            append_row(path, Row(key=point.key, result=done[point.key], versions=versions, cache=cache))
        found.append(done[point.key])
    return found


def describe(policy: Policy) -> str:
    """The policy in a few words."""
    knobs = f" mix={policy.mix:g} p={policy.p:g}" if policy.name == "comm-rand" else ""
    return f"{policy.name}{knobs}, seed {policy.seed}"


def read_rows(path: Path) -> Iterator[Row]:
    """The results of a file; none if there is no file. A last line that was cut off is left out.

    Raises `UserError` for any other line that is no result.
    """
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield loads(line, Row)
        except WorkbenchError as error:
            if number == len(lines):  # the file does not end with a newline
                return
            raise UserError(f"{path}:{number}: no result of a sweep ({error}); move the file away") from None


def append_row(path: Path, row: Row) -> None:
    """Add a line; several processes may do so at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if text and not text.endswith(b"\n"):  # what was cut off goes
            file.truncate(text.rfind(b"\n") + 1)
        file.write(dumps(row).encode() + b"\n")
