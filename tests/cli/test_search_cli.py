"""`cutegen run --search` as a person runs it, on recorded times."""

from __future__ import annotations

import _thread
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from workbench.cli import main, searching
from workbench.records import Event

Done = CompletedProcess[str]
RELU = ("run", "relu", "--executor", "replay")


@pytest.fixture
def cutegen(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path / "sessions"))

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        status = main(arguments)
        return Done(arguments, status, *capfd.readouterr())

    return run


def test_a_search_is_run_and_goes_on(cutegen: Callable[..., Done], tmp_path: Path) -> None:
    ran = cutegen(*RELU, "--search", "tree", "--trials", "4", "--seed", "2")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^spent: 4 trials, [0-9.]+ m?s of judging$", ran.stdout, re.MULTILINE), ran.stdout
    assert ": %cutegen" not in ran.stdout.replace("in a notebook: %cutegen", "")
    assert "4 of 4 trials" in ran.stdout and "stopped: the budget of 4 trials is used up" in ran.stdout
    (folder,) = (tmp_path / "sessions").iterdir()
    again = cutegen("run", "--resume", str(folder), "--search", "tree", "--trials", "6", "--seed", "2", "--json")
    document = json.loads(again.stdout)
    assert document["search"]["trials"] == len(document["versions"]) == 6 and document["best"]


def test_the_printed_command_goes_on_with_the_search_that_was_stopped(
    cutegen: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def interrupt(event: Event) -> None:
        seen.append(event.message)
        if len(seen) == 4:
            _thread.interrupt_main()  # as Ctrl-C does

    with monkeypatch.context() as patch:
        patch.setattr(searching, "_print_event", interrupt)
        stopped = cutegen(*RELU, "--search", "random", "--trials", "40", "--seed", "3", "--no-priors")
    assert stopped.returncode == 130, stopped.stderr
    command = shlex.split(stopped.stderr.partition("go on with: cutegen ")[2])
    again = cutegen(*command)
    assert "search random, seed 3;" in again.stdout and "40 of 40 trials" in again.stdout, (command, again.stdout)
    document = json.loads(cutegen(*command, "--json").stdout)
    assert document["search"]["trials"] == 40 == len(document["versions"]), "another search began"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trials", "5"), "--trials: only with --search NAME"),
        (("--search", "deep"), "no search is called 'deep'; there are:"),
        (("--search", "random", "--steps", "3"), "--search has its own end (--trials, --seconds): leave out --steps"),
        (("--seed", "0"), "--seed: only with --search NAME"),
        (("--search", "random", "--steps", "5"), "--search has its own end (--trials, --seconds): leave out --steps"),
        (("--search", "random", "--until", "sol"), "leave out --until"),
        (("--search", "random", "--priors", "--no-priors"), "--priors and --no-priors exclude each other"),
        (("--search", "random", "--joules", "5"), "a budget in joules needs a GPU"),
        (("--search", "random", "--usd", "1"), "planner spends no tokens and no dollars"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    cutegen: Callable[..., Done], arguments: tuple[str, ...], said: str
) -> None:
    done = cutegen(*RELU, *arguments)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_an_amount_is_over_nothing(cutegen: Callable[..., Done], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main((*RELU, "--search", "random", "--usd", "0"))
    assert "'0' is no number over 0" in capfd.readouterr().err
