"""Holds a session and works: versions are appended, tested by a light double, accepted; each accept is printed after it returned."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.records import Candidate, Check, Decision, Facts, Outcome, Problem, Proposal, Trial, Verdict
from workbench.store import Store


def main() -> None:
    """Append forever; the test kills this process."""
    path = Path(sys.argv[1])
    store = Store(path)
    if not store._rows("SELECT 1 FROM problem"):
        problem = Problem(name="p", source="s")
        store.add_problem(problem, Facts(problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()))
    print("ready", flush=True)
    while True:
        known = store.versions()
        text = f"# version {len(known) + 1}\n" + "x = 1\n" * 50
        version = store.add_version(Proposal(candidate=Candidate(source=text), title="t", reason="r", by="test", parent=known[-1].number if known else None), "now")
        outcome = Outcome(executor="double", arch="sm_80", device="H200", checks=(Check(case="c", trial=0, timed=False, passed=True),))
        store.add_trial(version.number, "job", Trial(outcome=outcome, verdict=Verdict(correct=True), at="now"))
        store.add_decision(Decision(kind="accept", version=version.number, source_hash=version.source_hash, at="now"))
        print(f"accepted {version.number} {version.source_hash}", flush=True)


main()
