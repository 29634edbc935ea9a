"""A language model in three arms: what it is shown of the profile, and what its three steps then gain.

    python tests/bench/feedback_sessions.py run PROBLEM ARM FOLDER --base-url URL
    python tests/bench/feedback_sessions.py sum FOLDER [--out results/feedback_sessions.json]

`run` is one session with no GPU: the first version is given (`FIRST`), then the model makes STEPS steps from the best
version so far, each with at most REPAIRS repairs. ARM is directives, raw, none or tools. FOLDER gets the recording and
a row. The model answers at URL, for example through tests/llm/relay.py. Times are modelled; `sum` tabulates the rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import lessons
from workbench.session import Session

STEPS, REPAIRS, BUDGET_TOKENS = 3, 2, 4_000_000  # a relay states no usage, so calls count at their upper bounds
LABEL = (
    "Recorded: a language model answered the exact prompts that the workbench sent, each in one go; verbatim, never "
    "edited. Without a GPU: times are modelled."
)
FIRST = {  # problem -> the program of the version that is given
    "layer_norm": "layernorm(x, eps=1e-05) .threads_per_row(32)",
    "cross_entropy": "",
    "sum_middle_axis": "reduce(x, op=sum, axis=middle) .cluster(1)",
    "softmax": "softmax(x) .threads_per_row(32)",
    "rms_norm": "rmsnorm(x, eps=1e-05) .threads_per_row(1)",
}
ARMS = ("directives", "raw", "none", "tools")


def run(problem: str, arm: str, folder: Path, base_url: str) -> None:
    """One session of an arm."""
    assert lessons.path() is None, "set CUTEGEN_LESSONS=off: an arm must not learn from another"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{problem}-{arm}"
    with Session.create(problem, root=folder / "sessions", name=name, executor="emulator", arch="sm_90a") as session:
        session.program(FIRST[problem], title="first version") if FIRST[problem] else session.generate("planner")
        session.accept("latest", reason="given")
        session.model(
            base_url=base_url,
            model="recorded-language-model",
            feedback=arm,
            budget_tokens=BUDGET_TOKENS,
            first_s=3500,
            silence_s=3500,
            total_s=3500,
        )
        session.run_chain(
            "llm", depth=STEPS, repair_rounds=REPAIRS, regenerate=1, profile="always", continue_from="best"
        )
        session.save_recording(folder / f"{name}.json", LABEL)
        versions = [
            {
                "number": version.number,
                "title": version.proposal.title,
                "depth": version.proposal.depth,
                "repairs": version.proposal.repairs,
                "correct": version.trials[-1].verdict.correct,
                "modelled_s": version.trials[-1].verdict.time_s,
                "decision": version.decision.kind if version.decision else None,
            }
            for version in session.versions
            if version.trials
        ]
        tools = [call.purpose for call in session.log.store.exchanges().values()]
        row = {"problem": problem, "arm": arm, "versions": versions, "calls": len(tools), **find_gain(versions)}
    (folder / f"{name}.row.json").write_text(json.dumps(row, indent=1) + "\n")
    print(json.dumps(row))


def find_gain(versions: list[dict[str, object]]) -> dict[str, object]:
    """The first version's time over the best correct one's, after each step."""
    first = float(str(versions[0]["modelled_s"]))
    best, after = first, []
    for step in range(1, STEPS + 1):
        times = [v["modelled_s"] for v in versions[1:] if v["depth"] == step and v["correct"] and v["modelled_s"]]
        best = min([best, *(float(str(seconds)) for seconds in times)])
        after.append(first / best)
    wrong = sum(not version["correct"] for version in versions)
    return {"gain_after": after, "gain": after[-1], "wrong": wrong}


def tabulate(folder: Path) -> dict[str, object]:
    """Gains by problem and arm, and their geometric means over the problems that all arms have."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.row.json"))]
    gains = {(row["problem"], row["arm"]): row["gain"] for row in rows}
    arms = [arm for arm in ARMS if any(key[1] == arm for key in gains)]
    common = sorted({p for p, _ in gains if all((p, arm) in gains for arm in arms)})
    means = {arm: math.exp(statistics.fmean(math.log(gains[p, arm]) for p in common)) for arm in arms if common}
    return {"what": __doc__, "problems": common, "geometric_means": means, "rows": rows}


def main() -> None:
    """Parse and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("problem", choices=FIRST)
    running.add_argument("arm", choices=ARMS)
    running.add_argument("folder", type=Path)
    running.add_argument("--base-url", required=True)
    summing = commands.add_parser("sum")
    summing.add_argument("folder", type=Path)
    summing.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.problem, arguments.arm, arguments.folder, arguments.base_url)
        return
    found = tabulate(arguments.folder)
    text = json.dumps(found, indent=1) + "\n"
    arguments.out.write_text(text) if arguments.out else print(text)


if __name__ == "__main__":
    main()
