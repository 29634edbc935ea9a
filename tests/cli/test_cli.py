"""The command line as a person runs it: exit statuses, JSON, one-line errors."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from workbench import landscapes, problems
from workbench.cli import main
from workbench.errors import UserError
from workbench.session import Session
from workbench.views.commands import validation

Done = subprocess.CompletedProcess[str]
SMALL = ("--set", "batch_size=8", "--set", "dim=64", "--executor", "emulator")


def in_a_process(*arguments: str, cwd: Path) -> Done:
    """A command as a shell starts it."""
    return subprocess.run(
        [sys.executable, "-m", "workbench", *arguments], cwd=cwd, capture_output=True, text=True, timeout=110
    )


@pytest.fixture
def cutegen(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a command in this process, with its packages and its worker server: a start of Python costs seconds."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        status = main(arguments)
        return Done(arguments, status, *capfd.readouterr())

    return run


@pytest.mark.slow
def wait_for_work(pid: int, seconds: float) -> None:
    """Wait until a process has worked for so many seconds: on a busy machine it gets a part of a processor only.

    It may wait itself, for the worker server: not more than 2.5 times as long.
    """
    process, deadline = psutil.Process(pid), time.monotonic() + 2.5 * seconds
    while sum(process.cpu_times()[:2]) < seconds and time.monotonic() < deadline:
        time.sleep(0.01)


def test_the_command_of_an_advice_is_for_the_same_problem(cutegen: Callable[..., Done]) -> None:
    options = ("--set", "n=256", "--precision", "tf32", "--executor", "emulator", "--arch", "sm_80")
    told = cutegen("diagnose", "matmul", "gemm(a, b) .arch(sm_80) .mma(tf32) .stages(2) .tile(64, 64, 32)", *options)
    assert told.returncode == 0, told.stderr
    commands = [line.split("make it  ")[1] for line in told.stdout.splitlines() if "make it  cutegen test" in line]
    assert commands
    program, *words = shlex.split(commands[0])
    done = cutegen(*words)
    assert program == "cutegen" and done.returncode == 0 and "tf32 maths" in done.stdout, done.stdout + done.stderr
    assert sorted(words[3:]) == sorted(options)


def test_run_test_diff_export_history(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    ran = cutegen("run", "relu", "--steps", "2", *SMALL, "--json")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["best"] and len(document["versions"]) == 3
    assert all(
        row["decision"] != "pending" or row["verdict"]["distinguishable"] is False for row in document["versions"]
    )
    exported = cutegen("export", "best.py")
    assert exported.returncode == 0 and "class ModelNew" in (tmp_path / "best.py").read_text()
    exported = cutegen("export", "op.py", "--as", "custom-op")
    assert exported.returncode == 0 and "torch.library.custom_op" in (tmp_path / "op.py").read_text()
    assert "hunk 1" in cutegen("diff", "v1", "v2").stdout
    other = next(row["version"] for row in document["versions"] if row["version"] != document["best"])
    assert cutegen("diff", "best.py", f"v{other}").stdout.startswith(f"--- best.py\n+++ v{other}\n@@ hunk 1")
    assert cutegen("diff", f"v{other}", "nowhere").stderr.startswith("cutegen: no version 'nowhere'")
    told = cutegen("history", "--html", "report.html")
    report = (tmp_path / "report.html").read_text()
    assert "v1" in told.stdout and "<svg" in report and "hunk 1" in report and "one element per thread" in report
    good = cutegen("test", "relu", "best.py", "--set", "batch_size=8", "--set", "dim=64", "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["correct"] is True
    (tmp_path / "bad.py").write_text((tmp_path / "best.py").read_text().replace("Float32(0.0)", "Float32(1.0)"))
    bad = cutegen("test", "relu", "bad.py", "--set", "batch_size=8", "--set", "dim=64")
    assert bad.returncode == 1 and "wrong_result" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "softmx"), "did you mean 'softmax'"),
        (("run", "softmax", "--set", "rows=3"), "batch_size, dim"),
        (("test", "relu", "nowhere.py"), "no candidate file"),
        (
            ("run", "softmax(x)"),
            "'softmax(x)' is a program of muCUTLASS, not a problem: name the problem that it computes, and "
            "the program beside it: cutegen run PROBLEM --program 'softmax(x)'",
        ),
        (("run", "torch.relu(x)"), "'torch.relu(x)' is an expression: say its inputs too"),
        (("run", "--resume", "nothing"), "no session is called"),
        (
            ("run", "relu", "--resume", "nothing", "--set", "dim=64", "--executor", "emulator", "--arch", "sm_90a"),
            "its own problem and executor: leave out relu, --set, --executor, --arch",
        ),
        (
            ("run", "--by", "replay", "--recording", "softmax", "--precision", "fp16"),
            "a recording has its own problem: leave out --precision",
        ),
        (("export", "x.py"), "which session"),
        (("run", "relu", "--executor", "gpu"), "cannot run here"),
    ],
)
def test_mistakes_are_one_line_and_status_two(
    cutegen: Callable[..., Done], arguments: tuple[str, ...], said: str
) -> None:
    done = cutegen(*arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("cutegen:")]) == 1


@pytest.mark.parametrize("arguments", [("run", "no_such_problem"), ("export", "x.py"), ("explain", "tile")])
def test_a_mistake_is_a_document_too(cutegen: Callable[..., Done], arguments: tuple[str, ...]) -> None:
    done = cutegen(*arguments, "--json")
    assert done.returncode == 2 and f"cutegen: {json.loads(done.stdout)['error']}\n" in done.stderr


def test_a_run_that_fails_shows_what_it_has_and_how_to_go_on(
    cutegen: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def spend_all(session: Session, _: object) -> None:
        session.run(0)
        raise UserError("the budget of 5 tokens is used up")

    monkeypatch.setattr("workbench.cli.loop._run_loop", spend_all)
    done = cutegen("run", "relu", *SMALL)
    assert done.returncode == 2 and done.stderr.endswith("cutegen: the budget of 5 tokens is used up\n")
    assert "v1" in done.stdout.partition("✓")[2] and "go on with: cutegen run --resume" in done.stdout


@pytest.mark.slow
def test_run_until_says_why_it_stopped(cutegen: Callable[..., Done]) -> None:
    ran = cutegen(
        "run",
        "relu",
        "--until",
        "sol",
        "--patience",
        "1",
        "--set",
        "batch_size=8",
        "--set",
        "dim=64",
        "--executor",
        "emulator",
    )
    assert ran.returncode == 0 and "stopped: " in ran.stdout, ran.stderr
    wrong = cutegen(
        "run", "relu", "--until", "dawn", "--set", "batch_size=8", "--set", "dim=64", "--executor", "emulator"
    )
    assert wrong.returncode == 2 and "sol" in wrong.stderr


def test_demo_leaves_report_and_notebook(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    done = cutegen("demo", "relu", "--steps", "1")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "cutegen-demo" / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    import nbformat

    notebook = nbformat.read(tmp_path / "cutegen-demo" / "demo.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert any(cell.source == "Accepted: first correct version." for cell in notebook.cells)
    assert "<p>Accepted: first correct version.</p>" in page


def test_doctor_says_what_and_why(tmp_path: Path) -> None:
    done = in_a_process("doctor", "--json", cwd=tmp_path)
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert rows["executor emulator"]["available"] and (rows["executor gpu"]["available"] or rows["executor gpu"]["why"])


def test_profile_and_calibrate_without_a_gpu(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    ran = cutegen("run", "relu", "--steps", "0", "--set", "batch_size=8", "--set", "dim=64", "--executor", "emulator")
    assert ran.returncode == 0 and cutegen("export", "best.py").returncode == 0
    done = cutegen("profile", "relu", "best.py", *SMALL, "--html", "page.html", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kernels"][0]["provenance"] == "counted" and "Source lines by" in done.stderr
    assert "<svg" in (tmp_path / "page.html").read_text()
    done = cutegen("diagnose", "--session", "relu", "--version", "v1", "--html", "why.html", "--json")
    assert done.returncode == 0 and "v1 is bound by" in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["provenance"] == "counted" and found["advice"][0]["evidence"]
    assert "<img" in (tmp_path / "why.html").read_text()
    made = cutegen("diagnose", "--session", "relu", "--version", "v1", "--apply", "luck")
    assert made.returncode == 2 and "the diagnosis has no advice 'luck'" in made.stderr
    done = cutegen("profile", "--session", "relu", "--plot", "occupancy")
    assert done.returncode == 0 and "CTAs of an SM by resource" in done.stdout and "Stalls" not in done.stdout
    shown = cutegen("calibrate", "--show")
    assert shown.returncode == 0 and "matmul bfloat16" in shown.stdout and "h200.json (shipped)" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile",), "nothing to profile"),
        (("profile", "script.py"), "for a script with launches of its own: cutegen emulate --follow SCRIPT.py"),
        (("profile", "relu", "nowhere.py"), "no candidate file"),
        (("profile", "--session", "nothing"), "no session is called"),
        (("diagnose",), "nothing to diagnose: give cutegen diagnose PROBLEM FILE"),
        (("diagnose", "relu", "relu(x)", "--version", "v9"), "--version v9 is a version of a stored session"),
        (("diagnose", "relu", "best.py", "--apply", "1"), "--apply makes a version of a stored session"),
    ],
)
def test_mistakes_in_profiling_are_one_line(
    cutegen: Callable[..., Done], arguments: tuple[str, ...], said: str
) -> None:
    done = cutegen(*arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def kernel(forward: str, body: str = "") -> str:
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n{body}    def forward({forward}):\n        return x\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            kernel("self, x, y"),
            "kernel.py does not fit relu: ModelNew.forward takes x, y, and Model.forward x (inputs of the problem)",
        ),
        (kernel("self"), "ModelNew.forward takes nothing, and Model.forward x"),
        (
            kernel("self, x").replace("ModelNew", "Mine"),
            "kernel.py defines no class ModelNew, which a kernel for relu is; it has Mine",
        ),
        (
            kernel("self, x", "    def __init__(self, dim):\n        super().__init__()\n\n"),
            "ModelNew.__init__ takes dim, and Model.__init__ nothing (get_init_inputs() of the problem)",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_its_problem_is_not_profiled(
    tmp_path: Path, cutegen: Callable[..., Done], source: str, said: str
) -> None:
    (tmp_path / "kernel.py").write_text(source)
    done = cutegen("profile", "relu", "kernel.py")
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("forward", ["self, x", "self, *inputs", "self, x, out=None"])
def test_what_takes_as_many_inputs_fits(forward: str) -> None:
    validation.check_kernel("kernel.py", kernel(forward), problems.load("relu"))
    validation.check_kernel("kernel.py", "from elsewhere import ModelNew", problems.load("relu"))
    validation.check_kernel("kernel.py", "def x(:", problems.load("relu"))  # what the compiler says
    with pytest.raises(UserError, match="does not fit matmul"):
        validation.check_kernel("kernel.py", kernel("self, x"), problems.load("matmul"))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["2", "1"])
def test_several_candidates_are_judged_with_one_start(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = ["softmax(x) .threads_per_row(32)", "softmax(x) .bogus(3)", "softmax(x) .threads_per_row(64)"]
    small = ["--set", "batch_size=8", "--set", "dim=64", "--executor", "emulator", "--jobs", jobs, "--json"]
    assert main(["test", "softmax", *programs, *small]) == 2
    first, refused, last = json.loads(capsys.readouterr().out)
    assert first["correct"] and last["correct"] and "no such setting" in refused["error"]
    assert [one["candidate"] for one in (first, refused, last)] == programs
    assert main(["test", "softmax", programs[0], "missing.py", *small[:-1]]) == 2
    assert "v1 softmax" in (told := capsys.readouterr().out) and "missing.py\n  cannot be used" in told


@pytest.mark.few(1)
@pytest.mark.parametrize("after_s", [0.4, 1.0, 0.7])
def test_a_terminals_interrupt_is_told_in_a_line(tmp_path: Path, after_s: float) -> None:
    """Ctrl-C goes to the whole group of processes of the terminal; also while the worker server starts."""
    running = subprocess.Popen(
        [sys.executable, "-m", "workbench", "test", "softmax", "softmax(x)", "--executor", "emulator"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    wait_for_work(running.pid, after_s)
    os.killpg(running.pid, signal.SIGINT)
    _, told = running.communicate(timeout=100)
    assert running.returncode in (130, -signal.SIGINT) and len(told.splitlines()) == 1, told


@pytest.mark.parametrize("command", ["profile", "test"])
def test_the_problem_comes_before_the_kernel(tmp_path: Path, cutegen: Callable[..., Done], command: str) -> None:
    (tmp_path / "kernel.py").write_text(kernel("self, x"))
    done = cutegen(command, "kernel.py", "relu")
    assert (
        done.returncode == 2
        and done.stderr
        == f"cutegen: kernel.py is a kernel and relu a problem: the problem comes first: cutegen {command} relu "
        "kernel.py\n"
    )


@pytest.mark.parametrize("given", ["mine.txt", pytest.param("softmax(x) .threads_per_row(64)", marks=pytest.mark.slow)])
def test_run_begins_with_a_program(given: str, tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    (tmp_path / "mine.txt").write_text("softmax(x)\n    .threads_per_row(64)\n")
    done = cutegen("run", "softmax", "--program", given, "--steps", "1", *SMALL)
    assert (
        done.returncode == 0
        and "accepted: the first version" in done.stdout
        and "step 1 of 1" in done.stdout
        and "(from v1)" in done.stdout
    ), done


def test_run_begins_with_no_wrong_program(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    (tmp_path / "wrong.py").write_text(kernel("self, x"))
    done = cutegen("run", "softmax", "--program", "wrong.py", "--steps", "3", *SMALL)
    assert (
        done.returncode == 1
        and "NOT CORRECT" in done.stdout
        and "there is nothing to refine" in done.stdout
        and "step 1" not in done.stdout
    )


def test_run_takes_an_expression_with_its_inputs(cutegen: Callable[..., Done]) -> None:
    done = cutegen("run", "torch.relu(x)", "--inputs", "x: f32[8, 64]", "--steps", "0", "--executor", "emulator")
    assert done.returncode == 0 and "full    x [8, 64]" in done.stdout


def test_calibrate_needs_a_gpu_and_says_so_in_a_line(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "calibrate"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (
        done.returncode == 2
        and done.stderr.startswith("cutegen: there is nothing to calibrate here: no NVIDIA driver was found")
        and len(done.stderr.splitlines()) == 1
    )


def test_more_mistakes_are_one_line(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    (tmp_path / "latin.py").write_bytes("x = 'é'\n".encode("latin-1"))
    done = cutegen("test", "relu", "latin.py", "--set", "batch_size=8", "--set", "dim=64")
    assert done.returncode == 2 and "not UTF-8" in done.stderr and "Traceback" not in done.stderr
    done = in_a_process("run", "relu", "--steps", "-1", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (tmp_path / "taken").write_text("a file, not a folder")
    done = cutegen("demo", "relu", "--out", "taken")
    assert done.returncode == 2 and "taken" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_interrupt_keeps_the_session_and_says_how_to_go_on(
    tmp_path: Path, cutegen: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        sys.executable,
        "-m",
        "workbench",
        "run",
        "relu",
        "--set",
        "batch_size=8",
        "--set",
        "dim=64",
        "--executor",
        "emulator",
        "--steps",
        "9",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "CUTEGEN_ROOT"}
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("--- step 2"):
            break
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=100)
    assert running.returncode == 130 and "cutegen run --resume" in said and "Traceback" not in said
    monkeypatch.delenv("CUTEGEN_ROOT")
    history = cutegen("history")
    assert history.returncode == 0 and "v1" in history.stdout and "accept" in history.stdout


def test_history_reads_beside_a_writer(tmp_path: Path) -> None:
    from workbench.records import Facts, Problem
    from workbench.session import Session

    facts = Facts(
        problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
    )
    with Session.create(Problem(name="p", source="s"), executor="emulator", facts=facts) as session:
        session.edit("x = 1\n", test=False)
        done = in_a_process("history", "--session", "p", cwd=tmp_path)
        assert done.returncode == 0 and "v1" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--until", "abc"), "sol (near the speed of light"),
        (("--by", "foo"), "llm, operators, planner, replay"),
        (("--by", "human"), "llm, operators, planner, replay"),
        (("--until", "3", "--patience", "2"), "belong to --until sol"),
        (("--patience", "2"), "belong to --until sol"),
        (("--program", "relu(x"), "relu(x"),
        (("--program", "elementwise(relu(x)) .threads(33)"), "threads=33"),
        (("--program", "nowhere.py"), "no candidate file"),
        (("--program", "elementwise(relu(x))", "--by", "replay", "--recording", "softmax"), "a recording has its own"),
        (("--by", "llm"), "no model is set"),
        (("--by", "llm", "--setting", "deep=3"), "no setting 'deep'"),
        (("--setting", "depth=3"), "--by llm"),
        (("--by", "llm", "--until", "sol"), "--by planner"),
    ],
)
def test_what_run_cannot_do_is_refused_before_anything_is_kept(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "relu", *SMALL, *arguments]) == 2
    told = capsys.readouterr()
    assert (
        said in told.err
        and told.err.startswith("cutegen: ")
        and len(told.err.splitlines()) == 1
        and not told.out
        and not list(tmp_path.iterdir())
    )


def test_a_program_stands_where_a_file_may(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "batch_size=8", "--set", "dim=64", "--executor", "emulator"]
    assert main(["test", "softmax", "softmax(x) .threads_per_row(32)", *small]) == 0
    assert "CORRECT" in capsys.readouterr().out
    assert (
        main(
            [
                "profile",
                "softmax",
                "softmax(x) .threads_per_row(32)",
                "--by",
                "sampled",
                "--set",
                "batch_size=32",
                *small[2:],
            ]
        )
        == 0
    )
    assert "Counted on 4 of 8 CTAs at full size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("ncu", "profile on a machine with an NVIDIA GPU, or here by counters, sampled or sass"),
        ("sass+energy", "counters, sampled or sass"),
        ("nonsense", "counters, energy, ncu, sampled, sass, timeline"),
    ],
)
def test_a_profiler_that_cannot_run_here_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by: str, said: str
) -> None:
    monkeypatch.setattr("workbench.executors.gpu.presence.list_gpus", lambda: "no NVIDIA driver was found")
    (tmp_path / "best.py").write_text("class ModelNew: ...")
    assert main(["profile", "relu", str(tmp_path / "best.py"), "--by", by]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "softmax", "--executor", "emulator"),
        ("explain", "gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(128, 256, 64) .schedule(cooperative)", "--compile"),
    ],
)
@pytest.mark.parametrize("after_s", [0.4, 1.0])
def test_an_interrupt_is_heeded_at_once_and_told_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], after_s: float
) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "workbench", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_work(running.pid, after_s)
    start = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=100)
    assert (
        time.monotonic() - start < 60  # a file cache that is cold makes an import take long
        and running.returncode in (130, -signal.SIGINT)
        and told.startswith("stopped; everything finished is kept")  # of a session also how to go on
        and len(told.splitlines()) == 1
    ), told


def test_landscapes_are_shown_and_what_was_not_recorded_says_what_was(
    tmp_path: Path, cutegen: Callable[..., Done]
) -> None:
    all_of_them = cutegen("landscape")
    assert all_of_them.returncode == 0 and all(name in all_of_them.stdout for name in landscapes.landscapes())
    one = cutegen(
        "landscape", "matmul", "tile", "schedule", "--precision", "bf16", "--where", "splitk=1", "--svg", "map.svg"
    )
    assert (
        one.returncode == 0
        and one.stdout.startswith("matmul_bf16_4096: tile and schedule, splitk 1; ")
        and (tmp_path / "map.svg").read_text().startswith("<svg")
    )
    assert json.loads(cutegen("landscape", "matmul_bf16_8192", "--json").stdout)["text"].startswith(
        "matmul_bf16_8192: tile and cluster"
    )
    (tmp_path / "own.py").write_text(problems.load("relu").source)
    for arguments, said in (
        (
            ("relu", "--set", "dim=7"),
            "nothing was recorded of relu at these sizes in fp32; relu was recorded with --precision fp32",
        ),
        (("matmul", "--set", "n=7"), "--precision bf16 --set n=8192"),
        (("matmul_nowhere",), "no problem or file"),
        (("own.py", "--set", "dim=7"), "recorded are 46 problems, which cutegen landscape lists"),
        (("relu", "threads", "threads"), "named for both axes"),
        (("relu", "--where", "threads"), "SETTING=VALUE"),
        (("--where", "tile=64x64x32", "--set", "n=7"), "name a problem, or leave out --where, --set"),
        (
            ("matmul_bf16_8192", "--precision", "fp16"),
            "recorded with its own sizes and precision: leave out --precision",
        ),
        (("relu", "--mode", "eval"), "in fp32, eval mode"),
    ):
        done = cutegen("landscape", *arguments)
        assert (
            done.returncode == 2
            and said.replace("46", str(len(landscapes.landscapes()))) in done.stderr
            and len(done.stderr.splitlines()) == 1
        ), done.stderr


def test_explain_lists_the_operations_and_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.language import OPERATIONS

    assert main(["explain"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in OPERATIONS)
    for name, operation in OPERATIONS.items():
        assert main(["explain", name]) == 0
        told = capsys.readouterr().out
        assert all(f".{item.name}(" in told for item in operation.settings) and all(
            f"{item.name}=" in told for item in operation.arguments
        )
    assert main(["explain", "softmax(x)", "--device", "A100"]) == 0 and main(["explain", "gemmm"]) == 2
    assert "did you mean gemm?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["explain", "gemm(a, b)", "--size", "12,x,3"])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    [
        "gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(64, 64, 64) .schedule(cooperative) >> bias()",
        "crossentropy(x, y)",
        "gather(x, i)",
        "groupnorm(x, groups=3)",
    ],
)
def test_explain_compiles(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", text, "--compile"]) == 0
    assert "registers a thread" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "usage"), [(["help"], "usage: cutegen "), (["help", "test"], "usage: cutegen test ")]
)
def test_help_is_a_command_too(words: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0 and capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["problem", "softmax", "--set", "h"],
            "cutegen problem: argument --set: 'h' is not name=value; see cutegen problem --help",
        ),
        (["run"], "cutegen run: "),
        (["nothing"], "cutegen: argument COMMAND: invalid choice: 'nothing'"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, *(["--steps", "no"] if words == ["run"] else [])])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("\n") == 1 and told.startswith(said)


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("torch", "cutlass", "numpy", "pandas", "plotly", "IPython", "openai", "workbench.session")
    source = (
        "import sys\nfrom workbench.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]" and "calibrate" in done.stdout, done.stderr


def test_the_command_line_has_every_setting_of_a_model() -> None:
    from workbench.session.model_settings import NAMES
    from workbench.views.commands.shared_arguments import MODEL_SETTINGS

    assert tuple(MODEL_SETTINGS) == NAMES


def test_a_program_is_checked_for_the_architecture_of_the_run(cutegen: Callable[..., Done]) -> None:
    """A schedule is Hopper's: the replay executor answers for that, and the text need not say so."""
    done = cutegen(
        "run",
        "matmul",
        "--precision",
        "bf16",
        "--executor",
        "replay",
        "--program",
        "gemm(a, b) .mma(bf16) .tile(128, 128, 64) .cluster(2, 1) .schedule(pingpong)",
        "--steps",
        "0",
    )
    assert done.returncode == 0 and "184.1 µs (measured, recorded on NVIDIA H200" in done.stdout, done


def test_a_file_that_is_no_text_or_missing_is_named(tmp_path: Path, cutegen: Callable[..., Done]) -> None:
    (tmp_path / "binary.py").write_bytes(b"\x80\x04kernel")
    done = cutegen("run", "binary.py", "--steps", "0")
    assert done.returncode == 2 and done.stderr.startswith("cutegen: binary.py is no text file")
    (tmp_path / "a.py").write_text("x = 1\n")
    done = cutegen("diff", "a.py", "b.py")
    assert done.returncode == 2 and done.stderr == "cutegen: there is no file 'b.py'\n"


DEPENDENT = """
import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def relu(x: cute.Tensor, y: cute.Tensor):
    cute.arch.griddepcontrol_wait()
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        y[i] = x[i] * Float32(x[i] > 0.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    relu(x, y).launch(grid=(cute.ceil_div(x.shape[0], 128), 1, 1), block=(128, 1, 1), use_pdl=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(from_dlpack(x.view(-1)), from_dlpack(y.view(-1)))
        return y
"""


def test_a_kernel_of_a_newer_architecture_is_tested_for_that_of_the_device(
    tmp_path: Path, cutegen: Callable[..., Done]
) -> None:
    """Without --arch; with it, the failure names what is needed."""
    (tmp_path / "dependent.py").write_text(DEPENDENT)
    done = cutegen("test", "relu", "dependent.py", *SMALL, "--lenient")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ptxas refuses the kernel for sm_80: griddepcontrol needs sm_90; tested for sm_90a" in done.stdout
    named = cutegen("test", "relu", "dependent.py", *SMALL, "--arch", "sm_80")
    assert named.returncode == 1 and "give --arch, for example --arch sm_90a" in named.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("minibatch", "sbm", "--device", "cuda:99"), "device 'cuda:99' cannot be used here"),
        (("minibatch", "sbm", "--svg", "nowhere/map.svg"), "--svg nowhere/map.svg: there is no folder nowhere"),
        (("minibatch", "sbm", "--svg", "."), "--svg .: a folder"),
        (("tune", "softmax", "--dry-run", "--export", "nowhere/best.py"), "there is no folder nowhere"),
    ],
)
def test_a_device_and_files_that_cannot_be_used_are_refused_before_any_work(
    arguments: tuple[str, ...], said: str, cutegen: Callable[..., Done]
) -> None:
    done = cutegen(*arguments)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr and len(done.stderr.splitlines()) == 1
