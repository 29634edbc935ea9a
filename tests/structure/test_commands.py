"""`alike`, and rules under `landscape`, as a person calls them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from workbench.cli import main
from workbench.records import Candidate, Proposal, Version
from workbench.views.commands.all_commands import COMMANDS
from workbench.views.commands.handlers import HANDLERS
from workbench.views.text.alike_page import alike_page, sketch_version

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(arguments)
        return (status, *capfd.readouterr())

    return call


def test_a_program_has_kernels_that_are_like_it(run: Run) -> None:
    status, out, _ = run("alike", "softmax(x) .arch(sm_90a) .kept()")
    assert status == 0 and "softmax_bf16" in out.splitlines()[2]
    status, out, _ = run("alike", "softmax(x) .arch(sm_90a) .kept()", "--json")
    assert status == 0 and "softmax_bf16" in json.loads(out)["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of the two"),
        (("missing.py",), "there is no file missing.py"),
        (("softmax",), "there is no file softmax; give a file, or a muCUTLASS program"),
        (("nonsense(",), "neither a muCUTLASS program"),
        (("softmx(x) .arch(sm_90a)",), "operation=softmx: no such operation; legal: softmax"),
        (("--session", "none"), "none"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    status, _, error = run("alike", *arguments)
    assert status == 2 and said in error and error.count("\n") == 1


def version(number: int, program: str) -> Version:
    source = "import cutlass\n\ndef kernel(x):\n    cute.copy(x, x)\n"
    made = Proposal(candidate=Candidate(source=source, program=program), title="t", reason="", by="test")
    return Version(number=number, parent=None, proposal=made, source_hash="h", path="")


def test_other_versions_of_the_session_are_compared_first() -> None:
    assert "alike" in COMMANDS and "alike" in HANDLERS
    programs = ("softmax(x) .arch(sm_90a) .kept()", "softmax(x) .arch(sm_90a)", "gemm(a, b) .arch(sm_90a)")
    versions = [version(number, program) for number, program in enumerate(programs, 1)]
    lines = str(alike_page(sketch_version(versions[0]), versions)).splitlines()
    own = [line for line in lines if "this session" in line]
    assert "v2" in own[0] and not any(" v1 " in line for line in own)


def test_rules_are_printed_under_a_landscape(run: Run) -> None:
    status, out, _ = run("landscape", "matmul_bf16_4096", "tile", "cluster", "--svg", "map.svg")
    assert status == 0 and "What makes programs slow here" in out and "100% of pairs" in out
