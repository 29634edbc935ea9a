"""What the compiler made of a candidate, kept for its next run: the same source is traced again and not compiled again.

CuTe DSL has a file cache of its own, which `cute.compile` passes by and which keeps no PTX. Here one entry is a compiled MLIR module with its PTX and cubin, under the hash of the traced module, the pipeline
and the versions. An entry is written by the candidate's own confined process and given to runs of the same source only, so that no version can put anything into another's: `Shelf` is the parent's side,
`keeping` the process's.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Protocol

from workbench.wire import content_hash

NAME = re.compile(r"[0-9a-f]{64}\.(mlir|ptx|cubin)")
ENTRY_BYTES, SHELF_BYTES = 64 << 20, 1 << 30  # of one source, of all; the oldest go first
ENTRIES = 64  # files of one source


def root() -> Path:
    """Where compiled kernels are kept: $CUTEGEN_CACHE, else cutegen in the user's cache folder."""
    named = os.environ.get("CUTEGEN_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutegen"


class MlirOperation(Protocol):
    """The operation of a module, as MLIR's Python bindings give it."""

    def write_bytecode(self, file: BinaryIO) -> None:
        """Write MLIR bytecode."""


class MlirModule(Protocol):
    """A module of MLIR."""

    @property
    def operation(self) -> MlirOperation:
        """The operation that holds everything."""


class Shelf:
    """The entries of one source, for one architecture and these versions of the compiler and of torch."""

    def __init__(self, source: str, arch: str) -> None:
        made_by = "/".join(version(name) for name in ("nvidia-cutlass-dsl", "torch"))
        self.folder = root() / "compiled" / content_hash(f"{made_by}\n{arch}\n{source}")

    def give(self, given: Path) -> None:
        """Copy what there is into a job's folder; nothing when it cannot be read."""
        with contextlib.suppress(OSError):
            if self.folder.is_dir():
                shutil.copytree(self.folder, given)
                os.utime(self.folder)

    def take(self, left: Path) -> None:
        """Keep what a process left: plain files of the right names and of bounded size, nothing else."""
        with contextlib.suppress(OSError):
            found = _plain(left)
            if not found:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in found:
                if not (self.folder / path.name).exists():
                    temporary = self.folder / f".{path.name}.{os.getpid()}"
                    shutil.copyfile(path, temporary, follow_symlinks=False)
                    os.replace(temporary, self.folder / path.name)
            _shrink(self.folder.parent, SHELF_BYTES)


def _plain(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    found, size = [], 0
    for path in sorted(folder.iterdir())[:ENTRIES]:
        seen = path.lstat()
        size += seen.st_size
        if NAME.fullmatch(path.name) and stat.S_ISREG(seen.st_mode) and size <= ENTRY_BYTES:
            found.append(path)
    return found


def _shrink(folder: Path, limit: int) -> None:
    """Remove the sources that were not used for longest until the rest is within the limit."""
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in folder.iterdir() if path.is_dir()}
    for path in sorted(sizes, key=lambda one: one.stat().st_mtime):
        if sum(sizes.values()) <= limit:
            return
        shutil.rmtree(path, ignore_errors=True)
        del sizes[path]


@contextlib.contextmanager
def keeping(given: Path, left: Path, own: str) -> Iterator[dict[str, float]]:
    """Within it, CuTe DSL compiles only what is not among `given`, and leaves the rest in `left`; yields how many modules were "found" and how many were "compiled", and the "seconds" that took.

    `own` is the process's own folder: it is part of every location in a traced module, and is left out of the hash.
    """
    import cutlass.base_dsl.compiler as dsl_compiler

    plain, counts = dsl_compiler.Compiler.compile, {"found": 0, "compiled": 0, "seconds": 0.0}

    def compile(self: object, module: MlirModule, pipeline: str, *args: object, **kwargs: object) -> MlirModule:
        paths = _artifacts()
        key = _key(module, pipeline, own, paths)
        for folder in (left, given):
            found = _load(folder / key, own, paths)
            if found is not None:
                counts["found"] += 1
                return found
        counts["compiled"] += 1
        start = time.perf_counter()
        made: MlirModule = plain(self, module, pipeline, *args, **kwargs)
        counts["seconds"] += time.perf_counter() - start
        with contextlib.suppress(OSError):
            _save(left, key, made, own, paths)
        return made

    dsl_compiler.Compiler.compile = compile
    try:
        yield counts
    finally:
        dsl_compiler.Compiler.compile = plain


def _artifacts() -> dict[str, str]:
    """Where the compiler puts the PTX and the cubin of what it compiles now."""
    from cutlass.cutlass_dsl import CuTeDSL

    options = CuTeDSL._get_dsl().compile_options
    paths = {"ptx": options.full_ptx_path, "cubin": options.full_cubin_path}
    return {kind: path for kind, path in paths.items() if path}


def _key(module: MlirModule, pipeline: str, own: str, paths: dict[str, str]) -> str:
    text = io.BytesIO()
    module.operation.write_bytecode(text)
    folders = {str(Path(path).parent) for path in paths.values()}
    for folder in folders:
        pipeline = pipeline.replace(folder, "")
    return hashlib.sha256(text.getvalue().replace(own.encode(), b"") + b"\0" + pipeline.encode()).hexdigest()


def _load(path: Path, own: str, paths: dict[str, str]) -> MlirModule | None:
    """The compiled module, its PTX and cubin put where the compiler would; None when an entry is missing or cannot be read."""
    from cutlass._mlir import ir

    try:
        module: MlirModule = ir.Module.parse(path.with_suffix(".mlir").read_bytes())
        for kind, target in paths.items():
            data = path.with_suffix(f".{kind}").read_bytes()
            Path(target).write_bytes(data.replace(b"$OWN", own.encode()) if kind == "ptx" else data)
    except Exception:  # a file that is half there, or of another build of MLIR: compile
        return None
    return module


def _save(left: Path, key: str, module: MlirModule, own: str, paths: dict[str, str]) -> None:
    if not all(os.path.exists(path) for path in paths.values()):
        return
    left.mkdir(exist_ok=True)
    text = io.BytesIO()
    module.operation.write_bytecode(text)
    for kind, path in paths.items():
        data = Path(path).read_bytes()
        (left / f"{key}.{kind}").write_bytes(data.replace(own.encode(), b"$OWN") if kind == "ptx" else data)
    (left / f"{key}.mlir").write_bytes(text.getvalue())
