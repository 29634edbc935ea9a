"""The policy `chain`: one evolving kernel, step after step.

After CuTeGen (arXiv 2604.01489, sections 3 to 5) and the authors' repository.

A node is one depth of the chain: depth 0 writes the first version, each further depth makes one change. Within a node a
failed version is repaired up to `repair_rounds` times; when the rounds run out, the best state by rank is restored
(passes, wrong result, does not compile, nothing) and the node is generated again from scratch, up to `regenerate`
times. A time-out is run again without using a round.
"""

from __future__ import annotations

from typing import Literal

from workbench.errors import UserError
from workbench.records import Failure, Verdict, record

# beyond this depth the profile is shown, by class of computation (the paper's, of 10 steps); softmax and norms count as
# reductions
PROFILE_FROM = (
    ("matmul", 6),
    ("attention", 6),
    ("convolution", 6),
    ("reduction", 5),
    ("loss", 3),
    ("elementwise", 2),
    ("other", 5),
)
RANKS = ("nothing", "compile", "wrong", "pass")
Action = Literal["generate", "repair", "retest", "done", "failed"]


@record
class ChainSettings:
    """Every constant of the paper, with its value as default; `accept` and `after_failure` default to ours."""

    depth: int = 10
    repair_rounds: int = 5
    regenerate: int = 3
    timeouts: int = 3
    profile_from: tuple[tuple[str, int], ...] = PROFILE_FROM
    profile: Literal["late", "always", "never"] = "late"
    accept: Literal["faster", "correct"] = "faster"  # the paper accepts whatever is correct
    continue_from: Literal["latest", "best"] = "latest"

    def __post_init__(self) -> None:
        for name in ("depth", "repair_rounds", "regenerate", "timeouts"):
            if getattr(self, name) < (1 if name == "regenerate" else 0):
                raise UserError(
                    f"chain: {name} is {getattr(self, name)}; it must be at least {1 if name == 'regenerate' else 0}"
                )

    def shows_profile(self, workload: str, depth: int) -> bool:
        """Whether a step to this depth is shown the profile."""
        if self.profile != "late":
            return self.profile == "always"
        return depth > dict(self.profile_from).get(workload, dict(self.profile_from)["other"])


@record
class NodeTrial:
    """One evaluated version of a node: number, rank, the repair round that made it, whether it ran out of time.

    A round whose answer could not be used is the broken version again, with that round's number.
    """

    version: int
    rank: int
    round: int = 0
    timed_out: bool = False


def rank(verdict: Verdict | None) -> int:
    """pass 3, wrong result or failure at run time 2, does not compile 1, nothing 0."""
    if verdict is None:
        return 0
    if verdict.correct:
        return 3
    failure: Failure | None = verdict.failure
    return 1 if failure is not None and failure.stage in ("source", "import", "compile") else 2


def next_action(settings: ChainSettings, attempts: tuple[tuple[NodeTrial, ...], ...]) -> Action:
    """What to do in a node, given its attempts so far.

    An attempt is the versions evaluated, in order; a re-test is another entry.
    """
    if not attempts:
        return "generate"
    now = attempts[-1]
    if any(tried.rank == 3 for tried in now):
        return "done"
    if now and now[-1].timed_out and sum(tried.timed_out for tried in now) <= settings.timeouts:
        return "retest"
    if now and now[-1].round < settings.repair_rounds:
        return "repair"
    return "generate" if len(attempts) < settings.regenerate else "failed"


def furthest_version(attempts: tuple[tuple[NodeTrial, ...], ...]) -> int | None:
    """The version that a failed node is left at: the best by rank, the latest among equals."""
    everything = [tried for attempt in attempts for tried in attempt]
    return max(enumerate(everything), key=lambda item: (item[1].rank, item[0]))[1].version if everything else None
