"""Runs unmodified programs: `with workbench.emulated():` in Python, `cutegen emulate FILE` on the command line."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from workbench.analysis import devices
from workbench.emulator import hook, report
from workbench.emulator.compiled.tiering import resolve_engine
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.hook import Emulation
from workbench.errors import NotEmulated, UserError

STANDARD = sysconfig.get_paths()["stdlib"]
OK, FAILED, UNSUPPORTED, INTERRUPTED = 0, 1, 2, 130
EXACT = {"sm_90": "sm_90a", "sm_100": "sm_100a"}  # CuTe DSL compiles for the exact architecture


@contextmanager
def emulated(
    *,
    device: str = "H200",
    arch: str | None = None,
    counters: bool = True,
    sanitize: bool = False,
    follow: bool = False,
) -> Iterator[Emulation]:
    """Run CuTe DSL programs as on a machine with one GPU `device`, without a GPU.

    Torch tensors on "cuda", streams, events and cuda.bindings work. `arch` is the architecture that CuTe DSL compiles
    for (default: the device's own). Every launch is checked; one that goes wrong raises `EmulationFault` with the
    source line. With `sanitize`, reading shared memory that nothing wrote raises too (otherwise it is advice), and
    register fragments are compiled so that a read before the first write is found. With `follow`, the first CTAs of
    each launch are followed in time: this sets `Launch.paced` and gives a better modelled time (analysis/time_model).
    The value has `launches`, `findings` and `faults`. Raises `UserError` for an unknown device or when an emulation is
    active.
    """
    known = devices.find(device)
    chosen = EXACT.get(arch or "", arch) or known.arch
    if not chosen.startswith("sm_") or chosen not in hook.SHARED_LIMITS:
        raise UserError(f"no architecture is called {arch!r}; there are: {', '.join(hook.SHARED_LIMITS)}")
    with hook.emulated(
        arch=chosen, device=known.name, counters=counters, cuda=True, strict=sanitize, sanitize=sanitize, follow=follow
    ) as emulation:
        yield emulation


def run(
    file: str,
    arguments: Sequence[str],
    *,
    device: str,
    arch: str | None,
    sanitize: bool,
    counters: str | None,
    follow: bool = False,
    as_json: bool = False,
) -> int:
    """Run a script or notebook and return the exit status. The report goes to standard error, counters to a JSON file.

    With `as_json`, the counters go to standard output, and the program's own output to standard error.

    0: the program ended well and nothing was found. 1: it raised, or a kernel did something wrong (even if the program
    caught the error). 2: it needs a feature that the emulator does not have; the report names it. An exit status of the
    program itself is passed on.
    """
    path = Path(file)
    if not path.is_file():
        raise UserError(f"no program at {path}")
    if path.suffix not in (".py", ".ipynb"):
        raise UserError(f"{path} is no program: a .py or .ipynb file is needed")
    if counters and (Path(counters).is_dir() or not Path(counters).resolve().parent.is_dir()):
        raise UserError(f"--counters {counters}: not a file that can be written")
    resolve_engine(None)  # raises now for an unknown engine in the environment
    with emulated(device=device, arch=arch, sanitize=sanitize, follow=follow) as emulation:
        print(report.heading(path.name, emulation), file=sys.stderr, flush=True)
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            status = _execute(path, arguments, emulation)
    sys.stdout.flush()
    if status == OK and emulation.faults:
        status = FAILED
    if any(fault.failure.kind == "unknown_instruction" for fault in emulation.faults):
        status = UNSUPPORTED
    print(report.text(emulation, advice=sanitize, status=status), file=sys.stderr, flush=True)
    document = json.dumps(report.document(path.name, emulation), indent=1) + "\n" if counters or as_json else ""
    if counters:
        Path(counters).write_text(document, encoding="utf-8")
    if as_json:
        print(document, end="")
    return status


def _execute(path: Path, arguments: Sequence[str], emulation: Emulation) -> int:
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.resolve().parent)
    try:
        if path.suffix == ".ipynb":
            _run_notebook(path)
        else:
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return _exit_status(end)
    except EmulationFault as fault:
        place = _program_frame(fault.__traceback__)
        if place:
            emulation.notes.append(f"the launch that failed was made at {place}")
        return FAILED
    except NotEmulated as error:
        emulation.notes.append(
            f"not emulated: {error}"
            + (f" (called at {place})" if (place := _program_frame(error.__traceback__)) else "")
        )
        return UNSUPPORTED
    except KeyboardInterrupt:
        place = _program_frame(sys.exc_info()[2])
        emulation.notes.append("stopped" + (f" at {place}" if place else ""))
        return INTERRUPTED
    except Exception as error:
        traceback.print_exception(type(error), error, _program_traceback(error.__traceback__))
        return FAILED
    finally:
        sys.argv, sys.path[0] = before
    return OK


def _exit_status(end: SystemExit) -> int:
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
        return FAILED
    return end.code or OK


def _run_notebook(path: Path) -> None:
    """Run the code cells in order, as Jupyter does; the first error ends the run. The caller shows it."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for name in ("showtraceback", "showsyntaxerror", "showindentationerror"):
        setattr(shell, name, lambda *_, **__: None)
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            result: Any = shell.run_cell("".join(cell["source"]), store_history=True)
            result.raise_error()


def _is_ours(file: str) -> bool:
    return (
        "nvidia_cutlass_dsl" in file
        or file.startswith((STANDARD, "<frozen", str(Path(__file__).parent.parent)))
        or "/IPython/" in file
        or "/torch/" in file
    )


def _program_frame(trace: TracebackType | None) -> str | None:
    """file:line of the innermost frame of the program's own code."""
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_ours(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _program_traceback(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the outer frames that only started the program."""
    at = trace
    while at is not None and _is_ours(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    return at or trace
