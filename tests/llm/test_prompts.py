"""What the model is sent, as golden files: a change of a template, or of what fills it, shows up as a diff.

CUTEGEN_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.executors.inspector import WorkerInspector
from workbench.language import OPERATIONS, grammar_text
from workbench.proposers.llm import catalogue, patches, prompts
from workbench.records import Ask, Candidate, Decision, Failure, Outcome, Proposal, Trial, Verdict, Version

GOLDEN = Path(__file__).parent / "golden"
SOURCE = '"""A stand-in for a kernel file."""\n\n\ndef forward(x):\n    return x\n'
DIRECTIVES = (
    "[high] each warp access touches 8.0x the 32-byte sectors that its bytes need at line 5 (`return x`) "
    "(sectors over the least 8.0x, limit 1.2x). Do: let consecutive threads take consecutive elements",
    "[low] a thread moves 4 bytes with an access of at most 16. Do: use vector accesses of 16 bytes",
)
RULES = (
    "parts > 80: 2.45x the time (93 rows in 5 landscapes, 99% of pairs): the kernel above is such a one",
    "unroll <= 3: 1.21x the time (61 rows in 5 landscapes, 89% of pairs)",
)
QUESTIONS = ("coalescing: Do the threads of a warp access neighbouring addresses?", "divergence: Are they together?")


def version(
    number: int, parent: int | None, verdict: Verdict, decision: Decision | None = None, title: str = "a change"
) -> Version:
    trial = Trial(
        outcome=Outcome(executor="emulator", arch="sm_80", device="H200"),
        verdict=verdict,
        at="2026-11-21T00:00:00+00:00",
    )
    proposal = Proposal(candidate=Candidate(source=SOURCE), title=title, reason="because", by="llm", parent=parent)
    return Version(
        number=number,
        parent=parent,
        proposal=proposal,
        source_hash="h",
        path="v.py",
        trials=(trial,),
        decision=decision,
    )


@cache
def asked() -> Ask:
    problem = problems.load("row_sum")
    failure = Failure(
        stage="check",
        kind="wrong_result",
        message="wrong result at case odd: 3 of 9 elements are wrong; the worst is [1]: got 0, expected 2",
    )
    first = version(
        1,
        None,
        Verdict(correct=True, time_s=2e-3, time_provenance="modelled"),
        Decision(kind="accept", version=1, source_hash="h", by="person", reason="a start"),
        "first version",
    )
    second = version(
        2,
        1,
        Verdict(correct=False, failure=failure),
        Decision(kind="reject", version=2, source_hash="h", by="person", reason="it reads past the row"),
    )
    return Ask(
        problem=problem,
        facts=WorkerInspector().inspect(problem),
        history=(first, second),
        baseline=first,
        instruction="use fewer barriers",
        constraints=("keep 256 threads",),
        arch="sm_80",
        device="H200",
        depth=1,
    )


def rendered(name: str, ask: Ask, **values: Any) -> str:
    return "\n\n".join(
        f"=== {message['role']} ===\n{message['content']}" for message in prompts.messages(name, ask, **values)
    )


def cases() -> dict[str, str]:
    ask = asked()
    failure = ask.history[1].trials[0].verdict.failure
    assert failure is not None
    compile_failure = Failure(
        stage="compile",
        kind="early_exit",
        message="DSLUserCodeError: Early exit (return) is not allowed",
        line=4,
        hint="turn the condition round",
    )
    shown = {
        "stage": "check",
        "failure": failure,
        "error": failure.message,
        "numbered": patches.number_lines(SOURCE),
        "guides": catalogue.select(failure, SOURCE),
    }
    compiled = {
        **shown,
        "stage": "compile",
        "failure": compile_failure,
        "error": compile_failure.message,
        "guides": catalogue.select(compile_failure, SOURCE),
    }
    fresh = dataclasses.replace(ask, baseline=None, history=(), instruction="")
    menu = "\n".join(f"- {item}" for item in prompts.menu(ask.facts.kind))
    return {
        "synthesis": rendered("synthesis", fresh),
        "optimise": rendered("optimise", ask, menu=menu),
        "optimise-with-profile": rendered(
            "optimise", dataclasses.replace(ask, profile="- line 3: 4.0x the sectors it needs"), menu=menu
        ),
        "optimise-with-directives": rendered("optimise", dataclasses.replace(ask, directives=DIRECTIVES), menu=menu),
        "optimise-with-rules": rendered("optimise", dataclasses.replace(ask, rules=RULES), menu=menu),
        "optimise-with-probes": rendered("optimise", dataclasses.replace(ask, questions=QUESTIONS), menu=menu),
        "diagnosis-wrong": rendered("diagnosis", ask, **shown),
        "diagnosis-compile": rendered("diagnosis", ask, **compiled),
        "patch": rendered("patch", ask, **shown, diagnosis="The last row is left out."),
        "ask": rendered("ask", ask, question="why is v2 wrong?"),
        "mucutlass": rendered(
            "mucutlass",
            fresh,
            grammar=grammar_text(),
            operations=OPERATIONS.values(),
            start="reduce(x, op=sum, axis=last)",
            program="",
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        "synthesis",
        "optimise",
        "optimise-with-profile",
        "optimise-with-directives",
        "optimise-with-probes",
        "optimise-with-rules",
        "diagnosis-wrong",
        "diagnosis-compile",
        "patch",
        "ask",
        "mucutlass",
    ],
)
def test_prompts_are_as_written_down(name: str) -> None:
    text, path = cases()[name], GOLDEN / f"{name}.md"
    if os.environ.get("CUTEGEN_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_a_file_of_the_session_wins(tmp_path: Path) -> None:
    (tmp_path / "ask.jinja2").write_text("Briefly: {{ question }}")
    (tmp_path / "menus.toml").write_text('reduction = ["only this"]\nother = ["nothing"]\n')
    made = prompts.messages("ask", asked(), tmp_path, question="why?")
    assert made[1]["content"] == "Briefly: why?" and made[0]["content"].startswith("You write GPU kernels")
    assert prompts.menu("reduction", tmp_path) == ("only this",) and prompts.menu("matmul", tmp_path) == ("nothing",)


def test_every_class_has_a_menu() -> None:
    assert {
        prompts.workload(kind)
        for kind in (
            "matmul",
            "elementwise",
            "reduction",
            "softmax",
            "norm",
            "convolution",
            "loss",
            "attention",
            "other",
            "new",
        )
    } == {"matmul", "elementwise", "reduction", "convolution", "loss", "attention", "other"}
    assert all(
        len(prompts.menu(kind)) >= 4
        for kind in ("matmul", "elementwise", "reduction", "convolution", "loss", "attention", "other")
    )


def test_long_errors_are_cut() -> None:
    failure = Failure(stage="compile", kind="x", message="short", detail="y" * 50_000)
    trial = Trial(
        outcome=Outcome(executor="emulator", arch="sm_80", device="H200", failure=failure),
        verdict=Verdict(correct=False, failure=failure),
        at="",
    )
    assert len(prompts.error_text(trial)) == prompts.ERROR_CHARACTERS
