"""What becomes of a version that a search tried: accepted, rejected, or open where the order cannot be told."""

from __future__ import annotations

from workbench import evaluate
from workbench.analysis.time_model import compare_times
from workbench.policies.search import SearchTree
from workbench.records import Trial, Version
from workbench.records.proposal import HUMAN
from workbench.records.search import NodeResult
from workbench.session.deciding import Deciding, describe_settled


def settle(deciding: Deciding, version: Version, found: NodeResult) -> None:
    """Accept a version that is surely faster than the baseline, or the first correct one; reject one that failed, was
    screened out, or is surely slower. Others stay open, and so do what a person wrote and what had a quick trial only
    that was faster than the baseline. A decision that was made before stands.
    """
    log, base = deciding.log, deciding.log.baseline
    if version.decision is not None or version.proposal.by == HUMAN:
        return
    if found.screened or found.outcome != "passed":
        log.reject(version.number, found.message)
    elif base is None:
        deciding.accept(version.number, reason="the first correct version of the search")
    elif found.time_s is None:
        log.reject(version.number, "no time to compare")
    else:
        gain, is_sure = compare_trials(deciding, version.trials[-1], base.trials[-1])
        if gain > 1 and version.needs_verdict:
            return
        if is_sure and gain > 1:
            deciding.accept(version.number, reason=f"{gain:.2f}x faster than v{base.number}")
        elif is_sure or version.trials[-1].verdict.time_provenance == "measured":
            log.reject(version.number, f"{gain:.2f}x of v{base.number}, no gain")


def compare_trials(deciding: Deciding, new: Trial, old: Trial) -> tuple[float, bool]:
    """(how many times faster the first trial's time is, whether the order is sure): by both intervals if measured, by
    the time model's comparison if not. (1, False) where they cannot be compared.
    """
    mine, theirs = new.verdict, old.verdict
    if not mine.time_s or not theirs.time_s or mine.time_provenance != theirs.time_provenance:
        return 1.0, False
    gain = theirs.time_s / mine.time_s
    here, there = new.outcome.timing, old.outcome.timing
    if here is not None and there is not None:
        return gain, here.high_s < there.low_s or there.high_s < here.low_s
    job = deciding.testing.job(None)
    estimates = [evaluate.estimate_outcome(job, trial.outcome) for trial in (new, old)]
    if estimates[0] is None or estimates[1] is None:
        return gain, False
    compared = compare_times(estimates[0], estimates[1])
    return compared.speedup, compared.order != "cannot be told"


def crown(deciding: Deciding, tree: SearchTree, search: int) -> str:
    """Accept the best of a search that wants few joules, unless a person wrote it or decided on it; returns what is to
    be said of the best, "" if nothing.
    """
    log, best = deciding.log, tree.best
    base = log.baseline
    if best is None or best.result is None or best.result.version is None:
        return ""
    version = log.version(best.result.version)
    if best.is_given and tree.trials:
        return f"nothing that search {search} tried is better than v{version.number}, which the session had"
    if base is None or base.number == version.number:
        return ""
    is_energy = tree.setup is not None and tree.setup.aim == "energy"
    least = "the fewest joules" if is_energy else "the least time"
    if version.decision is None and version.proposal.by == HUMAN:
        return f"v{version.number}, which a person wrote, has {least} of search {search}; accept it if you want it"
    if is_energy:
        if version.decision is not None and version.decision.by == "person":
            return f"v{version.number}, which a person {version.decision.participle}, has {least} of search {search}"
        reason = f"{least} of search {search} at a time that is not worse than the best"
        return describe_settled(version, deciding.accept(version.number, reason=reason))
    if version.decision is not None:
        return ""
    return (
        f"v{version.number} has the least time of search {search}, but whether it is faster than v{base.number} cannot "
        "be told; accept it if you want it"
    )
