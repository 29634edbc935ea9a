"""`import workbench` is light, the layers contract holds, an exported file needs nothing of ours."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "cutlass", "IPython", "openai", "pandas", "plotly")


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, workbench; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_what_is_offered_is_completed_and_typed() -> None:
    import workbench

    assert set(workbench.__all__) <= set(dir(workbench)) and {"Session", "Problem", "emulated"} <= set(dir(workbench))
    assert (Path(workbench.__file__).parent / "py.typed").is_file()


def test_session_loads_nothing_heavy() -> None:
    heavy = (*HEAVY, "libcst")  # that writes a kernel's file
    code = f"import sys, workbench.session; print([name for name in {heavy!r} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_import_takes_under_150_ms() -> None:
    """Of processor time, the least of seven: what else the machine does does not count."""

    def seconds(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds("import workbench") for _ in range(7)) - min(seconds("pass") for _ in range(7)) < 0.150


def test_layers_contract() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
