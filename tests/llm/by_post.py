"""A session here whose versions run on a GPU elsewhere: jobs go out as files, outcomes come back as files.

    python tests/llm/by_post.py serve JOB OUTCOME      on the machine with the GPU: run one job
    python tests/llm/by_post.py step FOLDER SESSION WHAT [VERSION] [--text WORDS] [--base-url URL]
                                                       here: one step (generate, repair, test) of the session by that
                                                       name in FOLDER

What does not even compile is found here; anything else is written to FOLDER/N.job.json, and FOLDER/N.outcome.json is
waited for. This is how
sessions were recorded with a GPU's verdicts and times where the language model was not on the GPU's machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

from workbench import executors, problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Facts, Job, Outcome, Problem
from workbench.session import Session
from workbench.wire import from_plain, to_plain

WAIT_S = 3600.0


class ByPost(Executor):
    """An executor whose GPU is reached through a folder."""

    name = "gpu"
    full_size = True
    default_arch = "sm_90a"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def why_not(self) -> str | None:
        """It always can."""
        return None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Whatever fits there."""

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        """Compile here, run there."""
        compiled = EmulatorExecutor().run(dataclasses.replace(job, cases=("shrunk",), trials=1, timed_calls=0))
        if compiled.failure is not None and compiled.failure.stage in ("source", "import", "compile"):
            return compiled
        number = len(list(self.folder.glob("*.job.json"))) + 1
        (self.folder / f"{number}.job.json").write_text(json.dumps(to_plain(job)))
        answer, deadline = self.folder / f"{number}.outcome.json", time.monotonic() + WAIT_S
        while not answer.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no outcome for job {number}")
            time.sleep(0.5)
        time.sleep(0.5)
        return from_plain(json.loads(answer.read_text()), Outcome)


def serve(job: Path, outcome: Path) -> None:
    """Run one job on this machine's GPU."""
    made = executors.choose("gpu").run(from_plain(json.loads(job.read_text()), Job), PLAIN)
    outcome.write_text(json.dumps(to_plain(made)))
    print(made.failure, [round(1e6 * t, 1) for t in (made.timing.samples_s if made.timing else ())][:5])


def step(arguments: argparse.Namespace) -> None:
    """One step of the session, as a person would ask for it."""
    post = ByPost(arguments.folder)
    place = arguments.folder / arguments.session
    problem = arguments.problem and problems.load(arguments.problem, precision=arguments.precision)
    with (
        Session.open(place, executor=post)
        if place.exists()
        else Session.create(problem, root=arguments.folder, name=arguments.session, executor=post) as session
    ):
        session.subscribe(
            lambda event: print(event.kind, event.message) if event.kind != "token" and event.message else None
        )
        if arguments.base_url:
            session.model(
                base_url=arguments.base_url, model="recorded-language-model", first_s=3500, silence_s=3500, total_s=3500
            )
        if arguments.what == "generate":
            session.generate("llm", arguments.text)
        elif arguments.what in ("accept", "reject"):
            getattr(session, arguments.what)(arguments.version, reason=arguments.text)
        else:
            getattr(session, arguments.what)(arguments.version)
        print(session.versions[-1].trials[-1].verdict if session.versions and session.versions[-1].trials else "")


def main() -> None:
    """Parse and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve")
    serving.add_argument("job", type=Path)
    serving.add_argument("outcome", type=Path)
    stepping = commands.add_parser("step")
    stepping.add_argument("folder", type=Path)
    stepping.add_argument("session")
    stepping.add_argument("what", choices=("generate", "repair", "test", "accept", "reject"))
    stepping.add_argument("version", nargs="?", default="latest")
    stepping.add_argument("--text", default="")
    stepping.add_argument("--base-url", default="")
    stepping.add_argument("--problem", default="")
    stepping.add_argument("--precision", default="fp32")
    arguments = parser.parse_args()
    serve(arguments.job, arguments.outcome) if arguments.command == "serve" else step(arguments)


if __name__ == "__main__":
    main()
