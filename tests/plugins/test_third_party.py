"""Plug-ins of another package, found by entry points: the proposer gets the session's model and tools like our own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench import plugins
from workbench.cli import main
from workbench.errors import Unavailable, UserError, WorkbenchError
from workbench.probes import load_probes
from workbench.protocols import Executor, Probe, Profiler, Proposer
from workbench.records import Event, Facts, Problem
from workbench.session import Session

SERVER = Path(__file__).parents[1] / "llm" / "server.py"
KERNEL = "class ModelNew:\n    pass\n"
FACTS = Facts(
    problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
)
ENTRY_POINTS = """[workbench.proposers]
acme = acme_kernels:Acme
halfway = acme_kernels:Halfway

[workbench.executors]
always-right = acme_kernels:AlwaysRight

[workbench.probes]
acme_large_blocks = acme_kernels:LargeBlocks
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as pip leaves it: its modules, and a folder of metadata with the entry points."""
    metadata = tmp_path / "site" / "acme_kernels-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(metadata.parent))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    problem = Problem(name="p", source="s")
    with Session.create(problem, root=tmp_path / "sessions", executor="always-right", facts=FACTS) as made:
        yield made


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A function that sets what a model answers, one step a call; gives its address."""
    port = tmp_path / "port"
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    while not (port.exists() and port.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    root = f"http://127.0.0.1:{port.read_text()}"

    def answer_with(*steps: dict[str, Any]) -> str:
        body = json.dumps(steps).encode()
        urllib.request.urlopen(urllib.request.Request(f"{root}/script", data=body, method="POST"), timeout=10).read()
        return f"{root}/v1"

    yield answer_with
    process.terminate()
    process.wait(10)


def test_a_third_partys_proposer_gets_model_tools_and_options(session: Session, endpoint: Callable[..., str]) -> None:
    seen: list[Event] = []
    session.subscribe(seen.append)
    look = {"text": "", "tool_calls": [{"name": "search", "arguments": '{"query": "make_tiled_tma_atom"}'}]}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    session.model(base_url=endpoint(look, {"text": KERNEL, "usage": usage}), model="theirs", max_tokens=500)
    version = session.generate("acme", style="terse")
    assert version is not None and version.proposal.title == "terse kernel" and version.proposal.by == "acme"
    assert version.proposal.candidate.source == KERNEL and version.trials[-1].verdict.correct
    exchange = session.exchanges()[version.proposal.exchanges[0]]
    assert exchange.model == "theirs" and exchange.tools[0][0] == "search" and "terse kernel" in exchange.messages[0][1]
    assert "make_tiled_tma_atom" in exchange.tools[0][2] and exchange.tokens_out == 20
    spent = session.spent()
    assert spent is not None and spent["tokens_out"] >= 20
    assert {"token", "proposed", "judged"} <= {event.kind for event in seen}
    assert session.refine("shorter", by="acme") is not None


def test_its_unusable_answers_are_tried_again_by_the_chain(session: Session, endpoint: Callable[..., str]) -> None:
    session.model(base_url=endpoint({"text": "no kernel"}, {"text": KERNEL}), model="theirs", max_tokens=500)
    made = session.run_chain("acme", depth=0)
    assert [version.number for version in made] == [1] and len(session.exchanges()) == 2


def test_without_a_model_it_is_refused_as_our_own_is(session: Session) -> None:
    with pytest.raises(UserError, match="no model is set"):
        session.generate("acme")


def test_an_option_that_it_does_not_have_is_refused(session: Session) -> None:
    with pytest.raises(UserError, match="acme has no option 'colour'; it has: style"):
        session.generate("acme", colour="red")


def test_its_executor_is_chosen_by_name_and_decides_what_it_takes(session: Session, tmp_path: Path) -> None:
    assert session.arch == "sm_90a" and session.executor_name == "always-right"
    with pytest.raises(UserError, match="does not run this problem"):
        Session.create(Problem(name="refused", source="s"), root=tmp_path / "no", executor="always-right", facts=FACTS)
    assert not (tmp_path / "no").exists()


@pytest.fixture
def looked_up_again() -> Iterator[None]:
    """Probes are looked up once in a process: forget them before and after."""
    load_probes.cache_clear()
    yield
    load_probes.cache_clear()


@pytest.mark.usefixtures("looked_up_again")
def test_its_probe_is_asked_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "probes"))
    from taken import diagnose_taken, planted_profiles

    assert "acme_large_blocks" in [probe.name for probe in load_probes()]
    found = diagnose_taken(planted_profiles()["barrier_in_loop"])  # CTAs of 1024 threads
    ours = next(advice for advice in found.advice if advice.probe == "acme_large_blocks")
    assert (ours.provenance, ours.hit_rate, ours.evidence[0].value) == ("counted", None, 1024.0)
    assert [move.setting for move in ours.moves] == ["threads", "threads_per_row"] and ours.gain > 1.02
    assert found.advice[0].probe == "barrier_stalls"
    other = diagnose_taken(planted_profiles()["no cluster"])  # a compute problem, which the probe does not suit
    assert "acme_large_blocks" in dict(other.skipped)


def test_a_plug_in_that_does_not_follow_the_protocol_is_named() -> None:
    with pytest.raises(WorkbenchError, match=r"acme_kernels:Halfway is no proposer: it has no .*needs_model.*propose"):
        plugins.load("proposer", "halfway")


def test_every_plug_in_of_ours_follows_its_protocol() -> None:
    protocols = {"executor": Executor, "proposer": Proposer, "profiler": Profiler, "probe": Probe}
    for kind, protocol in protocols.items():
        names = [name for name in plugins.names(kind) if name != "halfway"]
        assert names and all(isinstance(plugins.load(kind, name, check=False), protocol) for name in names)
    with pytest.raises(UserError, match="no profiler is called 'crystal ball'"):
        plugins.load("profiler", "crystal ball")


def test_a_plug_in_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="executor 'gpu' cannot run here: no NVIDIA driver"):
        plugins.load("executor", "gpu")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text", ["import no_such_module\n", "def (\n", "class Broken:\n    def __init__(self, x): ...\n"]
)
def test_a_broken_plugin_is_named_and_hinders_no_other(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "broken_kernels", raising=False)
    (tmp_path / "site" / "broken_kernels.py").write_text(text)
    points = tmp_path / "site" / "acme_kernels-1.0.dist-info" / "entry_points.txt"
    points.write_text(
        "[workbench.proposers]\nbroken = broken_kernels:Broken\n[workbench.executors]\nbroken = broken_kernels:Broken\n"
    )
    with pytest.raises(Unavailable, match=r"proposer 'broken' \(broken_kernels:Broken\) cannot be loaded: \w+Error"):
        plugins.load("proposer", "broken")
    assert {one.name for one in plugins.load_usable("proposer")} >= {"planner", "llm"}
    assert main(["doctor"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("no   proposer broken: ") for row in rows)
    assert any(row.startswith("no   executor broken: ") for row in rows)
    assert main(["run", "relu", "--by", "broken", "--steps", "0"]) == 2
    assert "cannot be loaded" in capsys.readouterr().err
