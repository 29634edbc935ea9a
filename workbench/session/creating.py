"""Creates and finds sessions on disk: their folders, the checks before creation, the executor of a stored one."""

from __future__ import annotations

import re
from pathlib import Path

from workbench import executors, problems, trust
from workbench.analysis import devices
from workbench.errors import Unavailable, UserError
from workbench.executors.inspector import WorkerInspector
from workbench.folders import sessions_root
from workbench.protocols import Executor
from workbench.records import Facts, Problem
from workbench.session.device import choose_device
from workbench.session.log import DATABASE
from workbench.store import Meta, Store

NAME = re.compile(r"[^\s./\\\x00-\x1f\x7f-\x9f][^/\\\x00-\x1f\x7f-\x9f]*")
LONGEST_NAME = 200  # bytes; file systems take 255, and a number may be added

EIGHT_BITS = "sm_90a"  # the architecture for floats of 8 bits, which sm_80 cannot convert


def session_names(root: str | Path | None) -> tuple[str, ...]:
    """Names of the sessions under `root`."""
    base = Path(root) if root is not None else sessions_root()
    return tuple(sorted(path.parent.name for path in base.glob(f"*/{DATABASE}"))) if base.is_dir() else ()


def make_store(
    problem: Problem | str,
    executor: Executor,
    *,
    root: str | Path | None,
    name: str | None,
    arch: str,
    device: str | None,
    facts: Facts | None,
) -> tuple[Store, Path]:
    """Create the store of a new session in a new folder. The problem is inspected and admitted before that."""
    if name:
        check_name(name)
    found = problems.load(problem) if isinstance(problem, str) else problem
    device = choose_device(executor, device)
    devices.check_arch(device, arch or devices.default_arch(executor.default_arch, device))
    if facts is None:
        opened = WorkerInspector().open(found)
        found, facts = opened.problem, opened.facts
    arch = arch or devices.default_arch(EIGHT_BITS if facts.has_eight_bits else executor.default_arch, device)
    executor.admit(found, facts, device)
    base = Path(root) if root is not None else sessions_root()
    folder = _new_folder(base, name or re.sub(r"\W+", "-", found.name))
    store = Store(folder / DATABASE)
    values: Meta = {"arch": arch, "device": device, "executor": executor.name}
    store.begin(values, found, facts, lambda head: trust.trust(folder, head, growing=True))
    return store, folder


def find_folder(path: str | Path, root: str | Path | None) -> Path:
    """The folder of a stored session, given its name or its folder."""
    folder = Path(path)
    if not (folder / DATABASE).exists():
        folder = (Path(root) if root is not None else sessions_root()) / str(path)
    if not (folder / DATABASE).exists():
        known = ", ".join(session_names(root)) or "none"
        raise UserError(f"no session is called {str(path)!r}; there are: {known}")
    return folder


def load_stored_executor(name: str) -> Executor:
    """The executor that created a session, or the default one if that cannot run here."""
    try:
        return executors.choose(name)
    except (Unavailable, UserError):  # a session from a machine with a GPU or with other plug-ins opens too
        return executors.choose()


def check_name(name: str) -> None:
    """Raise `UserError` for a name that is not that of one folder: "..", one with a slash or a control character."""
    if not NAME.fullmatch(name) or len(name.encode()) > LONGEST_NAME:
        raise UserError(
            f"{name[:80]!r} is no name of a session: up to {LONGEST_NAME} bytes of letters, digits, spaces and signs "
            "without / and \\, not beginning with a dot"
        )


def _new_folder(root: Path, name: str) -> Path:
    """Create ROOT/NAME, or NAME-2, NAME-3, ... if that exists."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise UserError(f"too many sessions are called {name}; remove some from {root}")
