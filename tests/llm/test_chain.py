"""CuTeGen's loop with a scripted model and everything else real: compiler, emulator, store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.codegen import compile_program
from workbench.errors import BudgetExceeded, NoUsableReply, Stopped, UserError
from workbench.language import Binding
from workbench.policies.chain import ChainSettings, NodeTrial, furthest_version, next_action
from workbench.records import Event
from workbench.session import Session

GOOD = compile_program(
    "elementwise(relu(x)) .threads(128)",
    Binding(
        init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("x",), operands=(("x", "x"),)
    ),
)
WRONG = GOOD.replace("cutlass.Float32(0.0)", "cutlass.Float32(1.0)")
BROKEN = GOOD.replace("cute.arch.fmax", "cute.arch.no_such_function")
LINE = next(n for n, line in enumerate(GOOD.splitlines(), 1) if "fmax" in line)


def whole(source: str) -> str:
    return f"A kernel.\n\n```python\n{source}```\n"


def change(line: int, new: str, words: str = "Change one line.") -> str:
    return f"{words}\n\n```json\n{json.dumps([{'action': 'replace', 'line_number': line, 'new_code': new}])}\n```\n"


def comment(text: str) -> str:
    """A patch that leaves the kernel as wrong as it was, and yet another text."""
    return (
        "Try again.\n\n```json\n"
        f"{json.dumps([{'action': 'insert', 'line_number': LINE, 'new_code': f'    # {text}'}])}\n```\n"
    )


@pytest.fixture
def session(server: Any, tmp_path: Path) -> Iterator[Session]:
    with Session.create(
        problems.load("relu", settings={"batch_size": 8, "dim": 64}), root=tmp_path, executor="emulator"
    ) as made:
        made.model(base_url=server.base, model="scripted", max_tokens=4000)
        yield made


def purposes(session: Session) -> list[str]:
    return [exchange.purpose for exchange in session.exchanges().values()]


def test_synthesis_then_one_change_a_step(server: Any, session: Session) -> None:
    tokens: list[str] = []
    session.subscribe(lambda event: tokens.append(event.message) if event.kind == "token" else None)
    server.play(whole(GOOD), change(LINE, GOOD.splitlines()[LINE - 1] + "  # the larger of both", "Say what it does."))
    first = session.generate("llm")
    assert (
        first is not None
        and first.trials[-1].verdict.correct
        and first.proposal.candidate.source == GOOD
        and "```python" in "".join(tokens)
    )
    session.accept(first.number)
    session.pin("keep 128 threads")
    second = session.refine("explain the maximum", by="llm")
    assert (
        second is not None
        and second.parent == first.number
        and second.proposal.depth == 1
        and "the larger of both" in second.proposal.candidate.source
    )
    asked = server.requests[1]["body"]["messages"][1]["content"]
    assert (
        "keep 128 threads" in asked
        and "explain the maximum" in asked
        and f"{LINE:4d}| " in asked
        and "128-bit accesses" in asked
    )
    kept = session.exchanges()
    assert [kept[number].purpose for number in (*first.proposal.exchanges, *second.proposal.exchanges)] == [
        "synthesis",
        "optimise",
    ]
    assert kept[1].reply == whole(GOOD) and (
        first.proposal.tokens_in,
        first.proposal.tokens_out,
        first.proposal.cost_usd,
    ) == (100, 50, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow), 5]
)
def test_repair_succeeds_after_k_rounds(server: Any, session: Session, rounds: int) -> None:
    script = [whole(WRONG)]
    for number in range(1, rounds):
        script += ["The constant is suspicious.", comment(f"round {number}")]
    fixed = GOOD.splitlines()[LINE - 1]
    script += ["The constant must be zero.", change(LINE + rounds - 1, fixed)]
    server.play(*script)
    made = session.run_chain(depth="0")
    assert [version.trials[-1].verdict.correct for version in session.versions] == [False] * rounds + [True]
    assert len(made) == 1 and session.baseline is not None and session.baseline.number == rounds + 1
    assert purposes(session) == ["synthesis", *["diagnosis", "patch"] * rounds]
    assert all(version.decision is not None for version in session.versions)
    assert "wrong" in server.requests[1]["body"]["messages"][1]["content"]


def test_repair_stops_after_five_rounds_and_the_furthest_is_restored(server: Any, session: Session) -> None:
    fall_back = change(
        LINE, BROKEN.splitlines()[LINE - 1].replace("no_such_function", "nor_this_one"), "Use another function."
    )
    script = [
        whole(BROKEN),
        "It names a missing function.",
        change(LINE, WRONG.splitlines()[LINE - 1]),
    ]  # compiles now, but is wrong
    script += ["Perhaps.", fall_back]  # and is worse again
    for number in range(3):
        script += ["Hm.", comment(f"still broken {number}")]
    server.play(*script)
    made = session.run_chain(depth="3", regenerate="1")
    kinds = [
        version.trials[-1].verdict.failure.stage for version in session.versions if version.trials[-1].verdict.failure
    ]
    assert len(session.versions) == 6 and kinds[1] == "check" and kinds.count("check") == 1
    assert [version.number for version in made] == [2] and session.baseline is None
    assert any("restored v2" in event.message for event in session.events())
    assert len(server.requests) == len(script)


@pytest.mark.slow
def test_an_endpoint_that_takes_a_schema_is_held_to_it_and_another_is_not_asked_again(
    server: Any, session: Session
) -> None:
    step = {"action": "insert", "line_number": 1, "num_lines": 1, "new_code": "# first"}
    server.play(
        whole(GOOD),
        json.dumps({"change": "Add a comment.", "why": "It reads better", "patches": [step]}),
        {"status": 400, "error": "response_format is not supported"},
        comment("two"),
        comment("three"),
    )
    session.accept(session.generate("llm").number)  # type: ignore[union-attr]
    made = session.refine(by="llm")
    assert (
        made is not None
        and made.proposal.title == "Add a comment"
        and made.proposal.reason == "Add a comment. It reads better."
        and made.proposal.candidate.source.startswith("# first\n")
    )
    for _ in range(2):
        assert session.refine(by="llm") is not None
    sent = [request["body"] for request in server.requests]
    assert ["response_format" in body for body in sent] == [False, True, True, False, False]
    schema = sent[1]["response_format"]["json_schema"]
    assert schema["strict"] and set(schema["schema"]["properties"]) == {"change", "why", "patches"}


@pytest.mark.slow
def test_a_useless_answer_is_told_to_the_model_and_uses_a_round(server: Any, session: Session) -> None:
    server.play(
        whole(WRONG),
        "The constant.",
        "no patch here",
        "still none",
        "The constant.",
        change(LINE, GOOD.splitlines()[LINE - 1]),
    )
    made = session.run_chain(depth="0", repair_rounds="2")
    assert made[0].trials[-1].verdict.correct and len(session.versions) == 2
    assert "could not be used" in server.requests[3]["body"]["messages"][-1]["content"]
    assert [exchange.unusable != "" for exchange in session.exchanges().values()] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.slow
def test_the_model_may_write_mucutlass(server: Any, session: Session) -> None:
    session.model(language="mucutlass")
    server.play(
        "Try.\n```mucutlass\nelementwise(relu(x)) .threads(100)\n```",
        "Fewer.\n```mucutlass\nelementwise(relu(x)) .threads(128)\n```",
        "Use vectors.\n```mucutlass\nelementwise(relu(x)) .threads(128) .vector(4)\n```",
    )
    first = session.generate("llm")
    assert (
        first is not None
        and first.trials[-1].verdict.correct
        and first.proposal.candidate.program == "elementwise(relu(x)) .threads(128)"
    )
    assert (
        "elementwise(relu(x))" in server.requests[0]["body"]["messages"][1]["content"]
        and "threads=100" in server.requests[1]["body"]["messages"][-1]["content"]
    )
    session.accept(first.number)
    second = session.refine(by="llm")
    assert (
        second is not None
        and second.parent == 1
        and second.proposal.title == "Use vectors"
        and ".vector(4)" in (second.proposal.candidate.program or "")
    )
    with pytest.raises(UserError, match="legal: cute, mucutlass"):
        session.model(language="cuda")


def test_the_model_searches_and_reads_before_it_answers(server: Any, session: Session) -> None:
    calls = [
        {"name": "search", "arguments": '{"query": "make_tiled_tma_atom"}'},
        {"name": "read", "arguments": '{"path": "/etc/passwd"}'},
    ]
    server.play({"text": "Let me look.", "tool_calls": calls}, whole(GOOD))
    version = session.generate("llm")
    assert version is not None and version.trials[-1].verdict.correct
    answered = server.requests[1]["body"]["messages"][-2:]
    assert (
        [message["role"] for message in answered] == ["tool", "tool"]
        and "cpasync/helpers.py" in answered[0]["content"]
        and "not among the files" in answered[1]["content"]
    )
    assert [tool[0] for tool in session.exchanges()[1].tools] == ["search", "read"]


def test_the_same_source_again_is_refused(server: Any, session: Session) -> None:
    server.play(whole(GOOD), change(LINE, GOOD.splitlines()[LINE - 1]))
    session.accept(session.generate("llm").number)  # type: ignore[union-attr]
    with pytest.raises(NoUsableReply, match="change nothing"):
        session.refine(by="llm")
    assert len(session.versions) == 1 and len(session.exchanges()) == 3


@pytest.mark.parametrize(("workload", "start"), dict(ChainSettings().profile_from).items())
def test_the_profile_is_shown_exactly_from_its_start_depth(workload: str, start: int) -> None:
    shown = [ChainSettings().shows_profile(workload, depth) for depth in range(11)]
    assert shown == [depth > start for depth in range(11)]
    assert all(ChainSettings(profile="always").shows_profile(workload, depth) for depth in range(11))
    assert not any(ChainSettings(profile="never").shows_profile(workload, depth) for depth in range(11))


@pytest.mark.slow
def test_the_directives_appear_in_the_prompt(server: Any, session: Session) -> None:
    server.play(whole(GOOD), *[comment(f"step {n}") for n in range(4)])
    session.run_chain(depth="4", accept="correct")
    texts = [request["body"]["messages"][1]["content"] for request in server.requests]
    assert ["Probes looked at the profile" in text for text in texts] == [
        False,
        False,
        False,
        True,
        True,
    ]  # element-wise: after depth 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feedback", "said"), [("tools", "A tool `probe` looks at the profile"), ("raw", "What the profile shows")]
)
def test_another_feedback_appears_in_the_prompt(server: Any, session: Session, feedback: str, said: str) -> None:
    session.model(feedback=feedback)
    server.play(whole(GOOD), comment("a step"))
    session.run_chain(depth="1", accept="correct", profile="always")
    texts = [request["body"]["messages"][1]["content"] for request in server.requests]
    assert [said in text for text in texts] == [False, True]


@pytest.mark.few(1)
@pytest.mark.parametrize("rules", ["on", "off"])
def test_rules_on_recorded_times_appear_in_the_prompt_unless_they_are_off(
    server: Any, session: Session, rules: str
) -> None:
    session.model(rules=rules)
    server.play(whole(GOOD), comment("a step"))
    session.run_chain(depth="1", accept="correct", profile="always")
    texts = [request["body"]["messages"][1]["content"] for request in server.requests]
    assert ["Rules on recorded times" in text for text in texts] == [False, rules == "on"]
    assert ("- threads <= 96: 1.51x the time (45 rows in 5 landscapes" in texts[1]) is (rules == "on")


@pytest.mark.slow
def test_a_model_may_be_shown_nothing_and_a_wrong_word_is_told(server: Any, session: Session) -> None:
    session.model(feedback="none")
    server.play(whole(GOOD), comment("a step"))
    session.run_chain(depth="1", accept="correct", profile="always")
    assert not any("profile" in request["body"]["messages"][1]["content"] for request in server.requests)
    with pytest.raises(UserError, match="legal: directives, tools, raw, none"):
        session.model(feedback="some")


@pytest.mark.slow
def test_a_model_chooses_which_probes_look(server: Any, session: Session) -> None:
    session.model(feedback="tools")
    call = {"id": "1", "name": "probe", "arguments": json.dumps({"name": "underfilled"})}
    server.play(whole(GOOD), {"tool_calls": [call]}, comment("what the probe says"))
    session.run_chain(depth="1", accept="correct", profile="always")
    offered = [tool["function"]["name"] for tool in server.requests[1]["body"]["tools"]]
    assert offered == ["search", "read", "probe"]
    (served,) = [exchange.tools for exchange in session.exchanges().values() if exchange.tools]
    assert served[0][0] == "probe" and "CTAs for 132 SMs" in served[0][2] and "Do: split the work" in served[0][2]


@pytest.mark.slow
def test_a_model_follows_an_advice_where_no_setting_does(server: Any, session: Session) -> None:
    mine = session.edit(GOOD)
    found = session.diagnose(mine.number)
    server.play(comment("as advised"))
    made = session.apply_advice(mine.number, found.advice[0].probe)
    assert made is not None and made.proposal.by == "llm" and made.parent == mine.number
    assert made.proposal.advice == found.advice[0].probe
    (request,) = server.requests
    assert found.advice[0].action in request["body"]["messages"][1]["content"]


def test_the_budget_stops_before_the_call_that_would_exceed_it(server: Any, session: Session) -> None:
    session.model(budget_tokens=30_000, max_tokens=4000)
    server.play(
        {"text": whole(GOOD), "usage": {"prompt_tokens": 9000, "completion_tokens": 4000, "total_tokens": 13_000}},
        comment("a"),
    )
    session.accept(session.generate("llm").number)  # type: ignore[union-attr]
    with pytest.raises(BudgetExceeded, match="of 30000 are left"):
        for number in range(5):
            server.play(
                {
                    "text": comment(str(number)),
                    "usage": {"prompt_tokens": 5000, "completion_tokens": 500, "total_tokens": 5500},
                }
            )
            session.refine(by="llm")
    assert sum(e.tokens_in + e.tokens_out for e in session.exchanges().values()) <= 30_000
    session.close()
    with Session.open(session.folder) as again, pytest.raises(BudgetExceeded):  # what was spent is still counted
        again.refine(by="llm")


def test_stop_leaves_a_whole_session(server: Any, session: Session) -> None:
    server.play({"text": whole(GOOD), "cut": [30], "pace": 0.2})
    stop = session.subscribe(lambda event: session.stop() if event.kind == "token" and event.message else None)
    with pytest.raises(Stopped):
        session.generate("llm")
    stop()
    assert session.versions == () and session.exchanges() == {}
    session.model(max_tokens=4000)  # a new client: what the stopped call may have cost is still counted
    assert session.client().budget.estimated and session.client().budget.tokens_out == 4000
    server.play(whole(GOOD))
    version = session.generate("llm")
    assert version is not None and version.trials[-1].verdict.correct


def test_a_question_changes_nothing(server: Any, session: Session) -> None:
    server.play(whole(GOOD), "Because each thread handles one element only.")
    session.generate("llm")
    assert session.ask("why is this slow?") == "Because each thread handles one element only."
    assert (
        len(session.versions) == 1
        and purposes(session) == ["synthesis", "ask"]
        and "why is this slow?" in server.requests[1]["body"]["messages"][1]["content"]
    )


@pytest.mark.slow
def test_several_proposals_to_choose_from(server: Any, session: Session) -> None:
    server.play(whole(GOOD), comment("one"), comment("two"), comment("three"))
    session.accept(session.generate("llm").number)  # type: ignore[union-attr]
    found = session.choices(3)
    assert (
        [version.parent for version in found] == [1, 1, 1]
        and session.baseline is not None
        and session.baseline.number == 1
        and all(version.decision is None for version in found)
    )


@pytest.mark.slow
def test_a_reason_for_rejecting_steers_the_next_step(server: Any, session: Session) -> None:
    server.play(whole(GOOD), comment("one"), comment("two"))
    session.accept(session.generate("llm").number)  # type: ignore[union-attr]
    second = session.refine(by="llm")
    session.reject(second.number, "a comment is no improvement")  # type: ignore[union-attr]
    session.refine(by="llm")
    assert "a comment is no improvement" in server.requests[2]["body"]["messages"][1]["content"]


def test_time_outs_use_no_round() -> None:
    settings = ChainSettings()
    slow = NodeTrial(version=1, rank=2, timed_out=True)
    assert [next_action(settings, ((slow,) * n,)) for n in (1, 2, 3, 4)] == ["retest", "retest", "retest", "repair"]
    assert (
        next_action(settings, ()) == "generate" and next_action(settings, ((NodeTrial(version=1, rank=3),),)) == "done"
    )
    failed = tuple(NodeTrial(version=n + 1, rank=1, round=n) for n in range(6))
    assert next_action(settings, (failed,)) == "generate" and next_action(settings, (failed,) * 3) == "failed"
    assert (
        furthest_version(
            (
                (
                    NodeTrial(version=1, rank=1),
                    NodeTrial(version=2, rank=2, round=1),
                    NodeTrial(version=3, rank=1, round=2),
                ),
            )
        )
        == 2
    )


def test_without_address_and_key_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with Session.create(
        problems.load("relu", settings={"batch_size": 8, "dim": 64}), root=tmp_path, executor="emulator"
    ) as session:
        session.model(model="gpt-5")
        with pytest.raises(UserError, match="no model is set"):
            session.generate("llm")


def test_settings_are_checked(session: Session) -> None:
    for options, said in (
        ({"depht": "3"}, "no setting 'depht'"),
        ({"accept": "all"}, "legal: faster, correct"),
        ({"depth": "x"}, "not a number"),
        ({"regenerate": "0"}, "at least 1"),
    ):
        with pytest.raises(UserError, match=said):
            session.run_chain(**options)
    with pytest.raises(UserError, match="no model setting"):
        session.model(modle="x")


def test_no_key_in_anything_that_a_session_leaves(server: Any, session: Session, tmp_path: Path) -> None:
    key = b"sk-planted-9f8e7d6c5b4a"
    server.play(whole(GOOD), {"status": 401}, {"status": 400, "error": f"echo {key.decode()}"})
    session.generate("llm")
    said: list[Event] = []
    session.subscribe(said.append)
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            session.repair("v1") if session.versions[0].trials[-1].verdict.failure else session.generate("llm")
        assert key.decode() not in str(caught.value)
    reader = "import os\n" + GOOD.replace(
        "def forward(self, x):", "def forward(self, x):\n        raise RuntimeError(str(dict(os.environ)))"
    )
    crashed = session.edit(reader)
    assert (
        crashed.trials[-1].verdict.failure is not None and "RuntimeError" in crashed.trials[-1].verdict.failure.message
    )
    session.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3 and not [path for path in files if key in path.read_bytes()]
    assert key.decode() not in str(said)
