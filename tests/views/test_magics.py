"""The magics in a real IPython shell, with the real emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench import landscapes, problems
from workbench.session import Session
from workbench.views.notebook.panel import Panel
from workbench.views.text import report

SMALL = "problem softmax --set batch_size=16 --set dim=64 --executor emulator"


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    made = InteractiveShell.instance()
    yield made
    InteractiveShell.clear_instance()


@pytest.fixture
def ip(shell: Any) -> Iterator[Any]:
    shell.run_line_magic("load_ext", "workbench")
    shell.run_line_magic("reload_ext", "workbench")
    yield shell
    shell.run_line_magic("unload_ext", "workbench")
    assert "cutegen" not in shell.magics_manager.magics["line"]


def test_the_name_of_a_session_runs_nothing(ip: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython would run what stands in braces of a magic's line; a quote would end the name."""
    monkeypatch.chdir(tmp_path)
    ip.user_ns["reached"] = []
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    names = ("{reached.append(1)}", "$reached", "its' --where x")
    for name in names:
        with Session.create(problem, root=tmp_path, name=name, executor="emulator") as made:
            cells = report.make_notebook(made, tmp_path).cells
        (line,) = [cell.source for cell in cells if cell.source.startswith("%cutegen open")]
        ip.run_cell(line)
        assert ip.user_ns["session"].name == name
        panel = Panel(ip.user_ns["session"])
        ip.user_ns["session"].close()
        panel._open_again()
        assert ip.user_ns["session"].name == name and not panel._is_closed
    assert ip.user_ns["reached"] == []


def test_the_whole_loop(ip: Any, tmp_path: Path) -> None:
    def run(line: str, cell: str | None = None) -> str:
        made = ip.run_cell_magic("cutegen", line, cell) if cell else ip.run_line_magic("cutegen", line)
        return str(made)

    opened = run(SMALL)
    assert opened.startswith("problem softmax") and "planner\n  softmax(x)" in opened
    assert "CORRECT" in run("generate")
    assert "accepted" in run("accept")
    heeded = run("refine use 64 threads per row, don't worry")
    assert "as asked" in heeded and "does not read this text" not in heeded
    assert "hunk 1" in run("diff")
    assert "(hunk 1 of v2)" in run("accept v2 --hunks 1")
    assert "rejected: it isn't any faster" in run("reject v2 it isn't any faster")
    assert "v2" in run("history") and "modelled" in run("roofline") and "sectors / ideal" in run("profile v1")
    assert "note: the planner does not read this text" in run("refine make it purple")
    shown = run("diagnose v1")
    assert "v1 is bound by" in shown and "line " in shown and "%cutegen diagnose v1 --apply" in shown
    assert "32 threads share a row" in run("explain softmax(x) .threads_per_row(32)") and "clamp" in run(
        "explain gemm(a, b) >> clamp(-1, 1)"
    )
    bundle = ip.run_line_magic("cutegen", "roofline")._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/svg+xml", "application/vnd.plotly.v1+json"}
    source = ip.user_ns["session"].version("v1").proposal.candidate.source
    assert "NOT CORRECT" in run(
        "edit mine",
        source.replace("row < rows", "row < rows + 9").replace(
            "total = cutlass.Float32(0.0)", "total = cutlass.Float32(7.0)"
        ),
    )
    with pytest.raises(
        UsageError, match=r"is not correct .* accept it all the same: %cutegen accept v5 --force$"
    ) as no:
        run("accept v5")
    assert "v5 mine: accepted; the baseline is v5" in run(str(no.value).rpartition("%cutegen ")[2])
    assert run("undo") == "taken back: v5 accepted"
    assert len(ip.run_line_magic("cutegen", "compare")) == 5
    assert run(f"history --html {tmp_path}/report.html").startswith("written to")
    assert "<h2>History</h2>" in (tmp_path / "report.html").read_text()
    for line in ("export", "history --html"):
        with pytest.raises(UsageError, match=r"No such file or directory: .*/nowhere/x"):
            run(f"{line} {tmp_path}/nowhere/x")
    probe = shown.partition("%cutegen diagnose v1 --apply ")[2].split()[0]
    assert f"why: probe {probe}" in run(f"diagnose v1 --apply {probe}")
    while any(version.decision is None for version in ip.user_ns["session"].versions):
        assert "rejected: not needed" in run("reject not needed")
    with pytest.raises(UsageError, match="no pending version"):
        run("reject not needed")
    assert ip.run_line_magic("cutegen", "status --out kept") is None and "session" in str(ip.user_ns["kept"])


def test_accepting_a_version_that_is_slower_than_one_accepted_before_says_so(ip: Any) -> None:
    def run(line: str, cell: str | None = None) -> str:
        made = ip.run_cell_magic("cutegen", line, cell) if cell else ip.run_line_magic("cutegen", line)
        return str(made)

    run(SMALL)
    run("program", "softmax(x)")
    run("program", "softmax(x) .threads_per_row(32) .vector(4)")
    first, second = ip.user_ns["session"].versions
    times = [one.trials[-1].verdict.time_s for one in (first, second)]
    assert times[1] < times[0]
    assert "is faster" not in run("accept v2")
    assert "the baseline is v1, though v2 is faster (" in run("accept v1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("generate", "there is no problem"),
        ("nonsense", "no command 'nonsense'"),
        ("accep", "did you mean accept"),
        ("help accep", "did you mean accept"),
        ("accept --hunks x", "not a list of hunk numbers"),
        ("problem softmx", "did you mean 'softmax'"),
        ('problem "softmax', "no closing quotation"),
        ("open nowhere", "no session is called"),
        ("accept --nothing", "unrecognized arguments"),
    ],
)
def test_mistakes_are_one_line(ip: Any, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ip.run_line_magic("cutegen", line)
    assert said in str(caught.value) and "\n" not in str(caught.value).strip()


def test_run_goes_on_until_its_goal(ip: Any) -> None:
    ip.run_line_magic("cutegen", "problem row_sum --executor replay")
    shown = str(ip.run_line_magic("cutegen", "run --until sol --patience 1"))
    assert "v1" in shown and "stopped: " in shown
    with pytest.raises(UsageError, match="dawn"):
        ip.run_line_magic("cutegen", "run --until dawn")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "line",
    [
        "problem nope",
        "problem nowhere.py",
        "problem softmax --precision f8",
        "problem relu --set dims=3",
        "problem softmax --device H1000",
        "problem softmax --wat",
        "problem FOLDER/no_python.py",
    ],
)
def test_a_mistake_in_the_line_of_a_problem_leaves_the_session_as_it_is(ip: Any, tmp_path: Path, line: str) -> None:
    (tmp_path / "no_python.py").write_text("class Model(:\n")
    ip.run_line_magic("cutegen", SMALL)
    session = ip.user_ns["session"]
    with pytest.raises(UsageError, match=r"\(session softmax\S* goes on\)"):
        ip.run_line_magic("cutegen", line.replace("FOLDER", str(tmp_path)))
    assert ip.user_ns["session"] is session and "v1" in str(ip.run_line_magic("cutegen", "generate"))


def test_a_problem_that_fails_leaves_no_session(ip: Any, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.nope()\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    ip.run_line_magic("cutegen", SMALL)
    with pytest.raises(UsageError, match=r"does not run.*session softmax\S* is closed; %cutegen open softmax"):
        ip.run_line_magic("cutegen", f"problem {tmp_path / 'wrong.py'}")
    assert "session" not in ip.user_ns
    with pytest.raises(UsageError, match=r"no session is open; the last problem failed, which closed softmax"):
        ip.run_line_magic("cutegen", "generate")


def test_run_on_a_problem_without_a_kernel_says_why(ip: Any) -> None:
    cell = "\n".join(
        (
            "import torch",
            "class Model(torch.nn.Module):",
            "    def forward(self, x):",
            "        return torch.linalg.inv(x)",
            "def get_inputs():",
            "    return [torch.rand(8, 8) + 8 * torch.eye(8)]",
            "def get_init_inputs():",
            "    return []",
        )
    )
    assert "cannot write this" in str(ip.run_cell_magic("cutegen", "problem inverse --executor emulator", cell))
    said = str(ip.run_line_magic("cutegen", "run"))
    assert "the planner has no kernel for" in said and "%%cutegen edit" in said and "no versions yet" not in said


def test_explain_takes_the_limits_of_the_sessions_architecture(ip: Any) -> None:
    program = "explain gemm(a, b) .mma(bf16) .tile(128, 192, 64) .stages(5)"
    with pytest.raises(UsageError, match="5 stages need 204800 bytes"):
        ip.run_line_magic("cutegen", program)
    ip.run_line_magic("cutegen", "problem matmul --precision bf16 --arch sm_90a")
    assert ".arch(sm_90a)" in ip.run_line_magic("cutegen", program).text


def test_explain_has_what_the_command_line_has(ip: Any) -> None:
    def run(line: str) -> str:
        return str(ip.run_line_magic("cutegen", line))

    program = "explain gemm(a, b) .tile(64, 64, 16) .thread_tile(4, 4)"
    assert "on A100:" in run(f"{program} --device A100") and "4096 tiles" in run(f"{program} --size 4096,4096,512")
    assert "  softmax " in run("explain --list") == run("explain") and ".threads_per_row(" in run("explain softmax")
    with pytest.raises(UsageError, match="not a size"):
        run(f"{program} --size 12,x")
    assert {"--size", "--device", "--compile", "--list"} <= set(ip.complete("--", "%cutegen explain --", 19)[1])
    assert "softmax" in ip.complete("soft", "%cutegen explain soft", 21)[1]
    assert ip.complete("H1", "%cutegen explain --device H1", 28)[1] == ["H100", "H100-NVL", "H100-PCIe"]
    assert ip.complete("b", "%cutegen problem matmul --precision b", 37)[1] == ["bf16"]
    assert ip.complete("re", "%cutegen problem matmul --executor re", 37)[1] == ["replay"]


@pytest.mark.slow
def test_a_program_is_a_version_on_the_line_or_in_the_cell(ip: Any) -> None:
    ip.run_line_magic("cutegen", SMALL)
    assert str(ip.run_line_magic("cutegen", "program")) == "softmax(x)"
    assert "CORRECT" in str(ip.run_line_magic("cutegen", "program softmax(x) .threads_per_row(32)"))
    assert "CORRECT" in str(
        ip.run_cell_magic("cutegen", "program", "softmax(x)\n    .threads_per_row(64)\n    .vector(4)\n")
    )
    assert ip.user_ns["session"].version("latest").proposal.by == "human"
    assert "CORRECT" in str(ip.run_cell_magic("cutegen", "program softmax(x)", ".threads_per_row(128)\n"))
    assert ".threads_per_row(128)" in str(ip.user_ns["session"].version("latest").proposal.candidate.program)
    assert str(ip.run_line_magic("cutegen", "program")).startswith("softmax(x) .arch(")
    with pytest.raises(UsageError, match="threads_per_row"):
        ip.run_line_magic("cutegen", "program softmax(x) .threads_per_row(33)")
    assert "softmax" in ip.complete("soft", "%cutegen program soft", 21)[1]


@pytest.mark.parametrize(
    ("typed", "some", "none"),
    [
        ("soft", "softmax", "reduce"),
        ("softmax(x) .", ".threads_per_row(", ".tile("),
        ("softmax(x) .thr", ".threads(", ".vector("),
        ("softmax(x).vector(4) .", ".kept()", ".vector("),
        ("softmax(x) .threads_per_row(", "128", "33"),
        ("softmax(x) .threads_per_row(1", "1024", "32"),
        ("h = gemm(a, b) .mma(", "bf16", "fp16"),
        ("gemm(a, b) .tile(64, 6", "64, 32", "16, 32"),
        ("gemm(a, b) .tile(64, 64, ", "128", "8"),
        ("gemm(a, b) .splitk(", "2, cluster", "3"),
        ("gemm(a, b) >> ge", "gelu(", "relu("),
        ("reduce(x, ", "op=", "eps="),
        ("reduce(x, op=sum, ", "axis=", "op="),
        ("reduce(x, op=", "argmax", "last"),
        ("reduce(x, op=m", "mean", "sum"),
        ("reduce(mul(x, y), op=sum, axis=", "middle", "a"),
        ("softmax(x, axis=l", "last(", "first"),
        ("h = gemm(a, b) |> pool(h, op=", "avg", "sum"),
        ("h = gemm(a, b) |> soft", "softmax", "gemm"),
        ("h = gemm(a, b) .tile(64, 64, 16) |> softmax(h) .", ".passes(", ".tile("),
    ],
)
def test_settings_and_their_values_are_completed(ip: Any, typed: str, some: str, none: str) -> None:
    for line in (f"%cutegen program {typed}", f"%cutegen explain {typed}"):
        found = ip.complete(None, line, len(line))[1]
        assert some in found and none not in found, found
    cell = f"%%cutegen program\n{typed}"
    with provisionalcompleter():
        found = [item.text for item in ip.Completer.completions(cell, len(cell))]
    assert some in found and none not in found, found


def test_sizes_of_a_problem_and_settings_of_its_landscape_are_completed(ip: Any, tmp_path: Path) -> None:
    def found(line: str) -> list[str]:
        with provisionalcompleter():
            return [item.text for item in ip.Completer.completions(line, len(line))]

    assert {"batch_size=", "dim="} <= set(found("%cutegen problem softmax --set ")) and found(
        "%cutegen problem softmax --precision bf16 --set di"
    ) == ["dim="]
    assert found("%cutegen problem softmax --set batch_size=8 --set dim=") == [
        str(problems.module_scalars(problems.load("softmax").source)["dim"])
    ]
    assert {"batch_size=", "dim="} <= set(found("%cutegen problem softmax --set batch_size=8 --set "))
    assert found("%cutegen refine --until ") == ["sol"]  # a value, and no further option
    own = tmp_path / "own.py"
    own.write_text(problems.load("relu").source.replace("dim", "width"))
    assert "width=" in found(f"%cutegen problem {own} --set ") and "schedule=" not in found(
        "%cutegen landscape --where "
    )  # no session yet
    ip.run_line_magic("cutegen", "problem matmul --precision bf16 --executor replay")
    place = landscapes.find(ip.user_ns["session"].problem, "H200")
    assert (
        place is not None
        and {"schedule=", "tile="} <= set(found("%cutegen landscape tile cluster --where "))
        and found("%cutegen landscape tile cluster --where sched") == ["schedule="]
    )
    assert set(found("%cutegen landscape --where schedule=")) == {"cooperative", "pingpong", "'not set'"}
    assert found("%cutegen landscape tile --where tile=128x256x64 --where schedule=p") == [
        "pingpong"
    ] and "'along_m 8'" in found("%cutegen landscape --where raster='al")
    assert found("%cutegen landscape ti") == ["tile"] and "raster" in found("%cutegen landscape tile ra")
    shown = str(
        ip.run_line_magic("cutegen", "landscape tile cluster --where schedule='not set' --where mma=bf16")
    )  # as it was completed
    assert "schedule not set" in shown and "mma bf16" in shown
    with pytest.raises(UsageError, match="tile is named for both axes"):
        ip.run_line_magic("cutegen", "landscape tile tile")
    with pytest.raises(UsageError, match="write SETTING=VALUE"):
        ip.run_line_magic("cutegen", "landscape tile cluster --where schedule")


def test_help_and_completion(ip: Any) -> None:
    assert "--hunks" in str(ip.run_line_magic("cutegen", "help accept")) and "panel" in str(
        ip.run_line_magic("cutegen", "help")
    )
    assert "--hunks" in str(ip.run_line_magic("cutegen", "accept -h"))
    assert ip.complete("acc", "%cutegen acc", 12)[1] == ["accept"]
    assert "softmax" in ip.complete("soft", "%cutegen problem soft", 21)[1]
    assert "--force" in ip.complete("--", "%cutegen accept --", 18)[1]
    assert "sampled" in ip.complete("sam", "%cutegen profile --by sam", 25)[1]
    assert ip.complete("coal", "%cutegen diagnose --apply coal", 30)[1] == ["coalescing"]


OWN = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, y):
        return self.drop(torch.relu(x) + y[:4])

def get_inputs():
    return [torch.randn(4, 256), torch.randn(8, 256)]
"""


@pytest.mark.parametrize(
    ("options", "wanted", "missing"),
    [
        ("", ["precision fp32, train mode", "x_1  256  = y_1", "y_0  8", "bernoulli"], []),
        ("--precision bf16", ["precision bf16", "bf16  [x_0, x_1]"], ["f32 "]),
        ("--mode eval", ["eval mode"], ["bernoulli"]),
        ("--set x_1=64", ["x_1  64  = y_1", "not varied: it was set"], ["[4, 256]"]),
        ("--keep x_1", ["x_1  256  = y_1", "not varied: it is kept"], []),
        ("--set y_0=4 --tie x_0=y_0", ["x_0  4    = y_0", "x [4, 256], y [4, 256]"], ["[8, 256]"]),
    ],
)
def test_what_the_options_of_problem_change(ip: Any, options: str, wanted: list[str], missing: list[str]) -> None:
    card = str(ip.run_cell_magic("cutegen", f"problem {options} --executor emulator", "import torch\n" + OWN))
    assert not [one for one in wanted if one not in card] and not [one for one in missing if one in card], card


def test_a_version_that_is_no_python_disturbs_no_other(ip: Any, tmp_path: Path) -> None:
    ip.run_line_magic("cutegen", SMALL)
    ip.run_line_magic("cutegen", "generate")
    source = ip.user_ns["session"].version("v1").proposal.candidate.source
    ip.run_cell_magic("cutegen", "edit broken", source + "\ndef broken(:\n")
    ip.run_cell_magic("cutegen", "edit wrong", source.replace("return ", "return -1 * ", 50))
    assert "softmax" in str(ip.run_line_magic("cutegen", "alike v1"))
    for line, said in (
        ("alike v2", "v2: the source is no Python"),
        (f"export --version v2 {tmp_path}/broken.py", "this version is no Python"),
    ):
        with pytest.raises(UsageError, match=said):
            ip.run_line_magic("cutegen", line)
    assert "v3 is NOT CORRECT" not in str(ip.run_line_magic("cutegen", f"export --version v1 {tmp_path}/right.py"))
    assert "it is NOT CORRECT: " in str(ip.run_line_magic("cutegen", f"export --version v3 {tmp_path}/wrong.py"))
