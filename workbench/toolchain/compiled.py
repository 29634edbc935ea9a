"""A cache of compiled kernels: a candidate's next run traces the same source again, but does not compile it again.

CuTe DSL has a file cache of its own, but `cute.compile` bypasses it, and it stores no PTX. Here one entry is a compiled
MLIR module with its PTX and cubin, under the hash of the traced module, the pipeline and the versions. The candidate's
own confined process writes an entry, and only runs of the same source get it, so no version can put anything into
another's. `CompiledCache` is the parent's side, `reuse_compiled` the process's.
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

from workbench.folders import cache_root
from workbench.wire import content_hash

ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.(mlir|ptx|cubin)")
ENTRY_BYTES, CACHE_BYTES = 64 << 20, 1 << 30  # limits for one source and for all; the oldest are removed first
ENTRIES = 64  # largest number of files of one source


class MlirOperation(Protocol):
    """The operation of an MLIR module, as its Python bindings define it."""

    def write_bytecode(self, file: BinaryIO) -> None:
        """Write MLIR bytecode."""


class MlirModule(Protocol):
    """An MLIR module."""

    @property
    def operation(self) -> MlirOperation:
        """The operation that holds the whole module."""


class CompiledCache:
    """The entries of one source, for one architecture and the installed versions of the compiler and of torch."""

    def __init__(self, source: str, arch: str) -> None:
        made_by = "/".join(version(name) for name in ("nvidia-cutlass-dsl", "torch"))
        self.folder = cache_root() / "compiled" / content_hash(f"{made_by}\n{arch}\n{source}")

    def copy_to(self, given: Path) -> None:
        """Copy the entries into a job's folder; copy nothing when they cannot be read."""
        with contextlib.suppress(OSError):
            if self.folder.is_dir():
                shutil.copytree(self.folder, given)
                os.utime(self.folder)

    def add_from(self, produced: Path) -> None:
        """Store the files that a process produced, but only regular files with entry names and of bounded size."""
        with contextlib.suppress(OSError):
            found = _entry_files(produced)
            if not found:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in found:
                if not (self.folder / path.name).exists():
                    temporary = self.folder / f".{path.name}.{os.getpid()}"
                    shutil.copyfile(path, temporary, follow_symlinks=False)
                    os.replace(temporary, self.folder / path.name)
            _evict_oldest(self.folder.parent, CACHE_BYTES)


def _entry_files(folder: Path) -> list[Path]:
    """The regular files of a folder that have entry names, up to ENTRIES files and ENTRY_BYTES."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    found, size = [], 0
    for path in sorted(folder.iterdir())[:ENTRIES]:
        seen = path.lstat()
        size += seen.st_size
        if ENTRY_NAME.fullmatch(path.name) and stat.S_ISREG(seen.st_mode) and size <= ENTRY_BYTES:
            found.append(path)
    return found


def _evict_oldest(folder: Path, limit: int) -> None:
    """Remove the sources that were unused for longest until the rest fits the limit."""
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in folder.iterdir() if path.is_dir()}
    for path in sorted(sizes, key=lambda one: one.stat().st_mtime):
        if sum(sizes.values()) <= limit:
            return
        shutil.rmtree(path, ignore_errors=True)
        del sizes[path]


@contextlib.contextmanager
def reuse_compiled(given: Path, produced: Path, own: str) -> Iterator[dict[str, float]]:
    """Within the block, CuTe DSL loads modules that are in `given`, and compiles and saves the others in `produced`.

    Yields the number of modules "found", of those "compiled", and the "seconds" of their compilation. `own` is the
    process's own folder: every location in a traced module contains it, so the hash leaves it out.
    """
    import cutlass.base_dsl.compiler as dsl_compiler

    plain, counts = dsl_compiler.Compiler.compile, {"found": 0, "compiled": 0, "seconds": 0.0}

    def compile(self: object, module: MlirModule, pipeline: str, *args: object, **kwargs: object) -> MlirModule:
        paths = _artifacts()
        key = _key(module, pipeline, own, paths)
        for folder in (produced, given):
            found = _load(folder / key, own, paths)
            if found is not None:
                counts["found"] += 1
                return found
        counts["compiled"] += 1
        start = time.perf_counter()
        made: MlirModule = plain(self, module, pipeline, *args, **kwargs)
        counts["seconds"] += time.perf_counter() - start
        with contextlib.suppress(OSError):
            _save(produced, key, made, own, paths)
        return made

    dsl_compiler.Compiler.compile = compile
    try:
        yield counts
    finally:
        dsl_compiler.Compiler.compile = plain


def _artifacts() -> dict[str, str]:
    """The paths where the compiler puts the PTX and the cubin of the current module."""
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
    """Reads the compiled module and puts its PTX and cubin where the compiler would; None when a file is missing or
    unreadable.
    """
    from cutlass._mlir import ir

    try:
        module: MlirModule = ir.Module.parse(path.with_suffix(".mlir").read_bytes())
        for kind, target in paths.items():
            data = path.with_suffix(f".{kind}").read_bytes()
            Path(target).write_bytes(data.replace(b"$OWN", own.encode()) if kind == "ptx" else data)
    except Exception:  # an incomplete file, or one of another build of MLIR: compile again
        return None
    return module


def _save(produced: Path, key: str, module: MlirModule, own: str, paths: dict[str, str]) -> None:
    if not all(os.path.exists(path) for path in paths.values()):
        return
    produced.mkdir(exist_ok=True)
    text = io.BytesIO()
    module.operation.write_bytecode(text)
    for kind, path in paths.items():
        data = Path(path).read_bytes()
        (produced / f"{key}.{kind}").write_bytes(data.replace(own.encode(), b"$OWN") if kind == "ptx" else data)
    (produced / f"{key}.mlir").write_bytes(text.getvalue())
