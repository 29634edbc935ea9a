"""`cutegen emulate`: unmodified programs, the exit status and the report; some in a process of their own, as a person
runs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.cli import main

PROGRAMS = Path(__file__).parent / "programs"
Done = subprocess.CompletedProcess[str]


def emulate(*arguments: str, program: str = "scale.py", options: tuple[str, ...] = (), cwd: Path | None = None) -> Done:
    command = [sys.executable, "-m", "workbench", "emulate", *options, str(PROGRAMS / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd)


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The same command within this process, which has imported torch and CuTe DSL already."""

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        status = main(["emulate", *arguments])
        return Done(arguments, status, *capfd.readouterr())

    return run


def line_of(program: str, text: str) -> int:
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


@pytest.mark.slow
def test_a_correct_program_runs_to_its_end(tmp_path: Path) -> None:
    done = emulate("--n", "777", options=("--device", "A100", "--counters", str(tmp_path / "out.json")))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("first is") == 2 and "NVIDIA A100 (emulated) (8, 0) 108 54" in done.stdout
    assert "on an emulated A100 (sm_80); no GPU is used" in done.stderr and "ERROR SUMMARY: 0 errors" in done.stderr
    assert "cutegen: modelled, not measured: benchmark =" in done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["device"], found["arch"], len(found["launches"]), found["errors"]) == ("A100", "sm_80", 3, [])
    launch = found["launches"][0]
    assert (
        launch["total"]["global_read_bytes"] == 4 * 777
        and launch["total"]["global_write_bytes"] == 4 * 777
        and launch["modelled_us"] > 0
    )


def test_out_of_bounds_is_reported_with_its_source_line(tmp_path: Path) -> None:
    done = emulate("--over", "100", options=("--counters", str(tmp_path / "out.json")))
    assert done.returncode == 1
    line = line_of("scale.py", "y[i] = x[i] * 2.0")
    assert (
        "ERROR out_of_bounds: read of 4 bytes is out of bounds: 0 bytes past the end of tensor[1000] float32"
        in done.stderr
    )
    assert f"at {PROGRAMS / 'scale.py'}:{line} in kernel" in done.stderr and "        y[i] = x[i] * 2.0" in done.stderr
    assert (
        f"the launch that failed was made at {PROGRAMS / 'scale.py'}:{line_of('scale.py', 'compiled(*arguments)')}"
        in done.stderr
    )
    assert (
        "thread (104, 0, 0) of block (7, 0, 0)" in done.stderr
        and "ERROR SUMMARY: 1 error" in done.stderr
        and "Traceback" not in done.stderr
    )
    (error,) = json.loads((tmp_path / "out.json").read_text())["errors"]
    assert (
        error["failure"]["line"] == line
        and error["files"] == [str(PROGRAMS / "scale.py")]
        and error["finding"]["thread"] == [104, 0, 0]
    )


def test_host_memory_in_a_kernel_is_an_error(here: Callable[..., Done]) -> None:
    done = here(str(PROGRAMS / "scale.py"), "--host")
    assert (
        done.returncode == 1
        and "ERROR host_memory: the kernel touches host memory: tensor[1000] float32 is on the CPU" in done.stderr
    )


def test_an_error_that_the_program_caught_still_counts(here: Callable[..., Done]) -> None:
    done = here(str(PROGRAMS / "scale.py"), "--over", "100", "--catch")
    assert done.returncode == 1 and "caught: read of 4 bytes" in done.stdout and "ERROR SUMMARY: 1 error" in done.stderr


@pytest.mark.slow
def test_a_programs_own_status_is_passed_on() -> None:
    assert emulate("--status", "7").returncode == 7


@pytest.mark.parametrize(
    ("argument", "status", "said"),
    [
        ("", 0, ""),
        (
            "unwritten",
            1,
            "ERROR uninitialised: read of 4 bytes that nothing wrote, at byte 0 of allocation of 256 bytes",
        ),
        ("freed", 1, "ERROR out_of_bounds"),
        ("unknown", 2, "not emulated: cuda.bindings.driver.cuTexObjectCreate is not emulated"),
    ],
)
def test_memory_of_the_driver(here: Callable[..., Done], argument: str, status: int, said: str) -> None:
    done = here(str(PROGRAMS / "driver_memory.py"), argument)
    assert done.returncode == status, done.stderr
    assert said in done.stderr


@pytest.mark.slow
def test_a_function_of_tvm_ffi_launches() -> None:
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    done = emulate(program="tvm_ffi_scale.py")
    assert (
        done.returncode == 0
        and "refused: Mismatched Tensor" in done.stdout
        and "expected device_type=cuda" in done.stdout
    )


def test_tensors_in_a_named_tuple_reach_a_function_of_tvm_ffi(here: Callable[..., Done]) -> None:
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    done = here(str(PROGRAMS / "tvm_ffi_named_tuple.py"))
    assert done.returncode == 0, done.stderr


def test_a_benchmark_without_a_kernel_takes_more_than_no_time(here: Callable[..., Done]) -> None:
    done = here(str(PROGRAMS / "torch_benchmark.py"))
    assert done.returncode == 0, done.stderr
    assert "no CuTe DSL kernel was launched" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such_program.py",), "no program at {path}"),
        (("--device", "V100", "scale.py"), "no device is called 'V100'; there are: A100"),
        (("--arch", "sm_50", "scale.py"), "no architecture is called 'sm_50'; there are: sm_80"),
    ],
)
def test_usage_errors_are_one_line_and_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    path = str(PROGRAMS / arguments[-1])
    assert main(["emulate", *arguments[:-1], path]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cutegen: ") and said.format(path=path) in error and error.count("\n") == 1


def test_a_crash_of_the_program_shows_its_own_traceback(tmp_path: Path, here: Callable[..., Done]) -> None:
    path = tmp_path / "crash.py"
    path.write_text("import torch\nx = torch.ones(3, device='cuda')\nx.numpy()\n")
    done = here(str(path))
    assert (
        done.returncode == 1
        and f'File "{path}", line 3' in done.stderr
        and "runpy" not in done.stderr
        and "can't convert cuda:0 device type tensor to numpy" in done.stderr
    )


def test_advice_is_shown_on_request(tmp_path: Path, here: Callable[..., Done]) -> None:
    path = tmp_path / "strided.py"
    path.write_text(
        "import torch, cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack\n\n"
        "@cute.kernel\ndef k(x: cute.Tensor):\n    x[cute.arch.thread_idx()[0] * 8] = 1.0\n\n"
        "@cute.jit\ndef go(x: cute.Tensor):\n    k(x).launch(grid=(1, 1, 1), block=(128, 1, 1))\n\n"
        "go(from_dlpack(torch.zeros(1024, device='cuda')))\n"
    )
    plain, advised = here(str(path)), here("--sanitize", str(path))
    assert plain.returncode == advised.returncode == 0
    assert "1 piece of advice (shown with --sanitize)" in plain.stderr and "ADVICE" not in plain.stderr
    assert (
        "ADVICE uncoalesced: global access touches 8.0x the sectors" in advised.stderr
        and f"at {path}:6 in kernel" in advised.stderr
    )


@pytest.mark.slow
def test_torch_compile_runs_eagerly_and_says_so() -> None:
    done = emulate(program="compiled.py")
    assert done.returncode == 0 and "right True" in done.stdout, done.stderr
    assert "torch.compile: what it was given runs eagerly" in done.stderr


@pytest.mark.slow
def test_a_program_that_fails_is_not_summed_up_as_without_errors() -> None:
    done = emulate("--fail", program="compiled.py")
    assert done.returncode == 1 and "ValueError: the program's own error" in done.stderr
    assert "ERROR SUMMARY: the program failed (exit status 1); 0 errors in kernels" in done.stderr


def test_a_finding_in_a_notebook_has_no_traceback(here: Callable[..., Done]) -> None:
    done = here(str(PROGRAMS / "out_of_bounds.ipynb"))
    assert done.returncode == 1 and "ERROR out_of_bounds" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr and "\x1b[" not in done.stdout + done.stderr
