"""The files that search covers: finds them, reads their text and cuts it into overlapping pieces of 45 lines."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

DISTRIBUTIONS = ("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-core", "nvidia-cutlass")
OPTIONAL = "nvidia-cutlass"  # headers and examples; an extra
SUFFIXES = (".py", ".pyi", ".h", ".hpp", ".cuh", ".cu", ".inl", ".md", ".rst", ".ipynb")
LARGEST_BYTES = 1_500_000  # larger files are generated tables, which answer no question
PIECE, OVERLAP = 45, 8  # lines
OURS = "workbench"
OUR_FILES = ("problems/shipped/*.py", "examples/*.py", "kernels/**/*.py")
_SYMBOL = re.compile(
    r"^\s*(?:(?:async\s+)?def|class|struct|enum(?:\s+class)?|using|template|#define|namespace)\s+([A-Za-z_]\w*)"
    r"|^\s*(?:CUTE_\w+|CUTLASS_\w+|inline|static|constexpr|auto|void)\b.*?\b([A-Za-z_]\w*)\s*\(",
    re.M,
)
_HEADING = re.compile(r"^#{1,4}\s+(.+)$", re.M)


@dataclass(frozen=True, slots=True)
class File:
    """One searchable file."""

    distribution: str
    path: str  # relative, with forward slashes
    place: Path


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring lines of a file (1-based, inclusive), with the names and headings that they define."""

    first: int
    last: int
    text: str
    symbols: str
    headings: str


def installed_versions() -> dict[str, str]:
    """Version of each installed distribution of DISTRIBUTIONS."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def files() -> tuple[File, ...]:
    """Every searchable file. The list is made once per process."""
    return tuple(_find_files())


def _find_files() -> Iterator[File]:
    seen: set[Path] = set()
    for name in installed_versions():
        for item in metadata.files(name) or ():
            if item.suffix in SUFFIXES and ".." not in item.parts:
                place = Path(str(item.locate()))
                if (
                    place not in seen
                    and place.is_file()
                    and not _leads_away(place, len(item.parts))
                    and place.stat().st_size <= LARGEST_BYTES
                ):
                    seen.add(place)
                    yield File(name, item.as_posix(), place)
    here = Path(__file__).parent.parent
    for place in sorted(path for pattern in OUR_FILES for path in here.glob(pattern)):
        if _leads_away(place, len(place.relative_to(here).parts)):
            continue
        yield File(OURS, place.relative_to(here).as_posix(), place)


def _leads_away(place: Path, depth: int) -> bool:
    """Whether a symbolic link leads out of its distribution's folder, which is `depth` path parts above the file."""
    return not place.resolve().is_relative_to(place.parents[depth - 1].resolve())


def read_text(file: File) -> str:
    """The file's text. A notebook gives the text of its cells."""
    raw = file.place.read_text(encoding="utf-8", errors="replace")
    if file.place.suffix != ".ipynb":
        return raw
    try:
        cells = json.loads(raw)["cells"]
    except (ValueError, KeyError):
        return raw
    return "\n\n".join("".join(cell.get("source", ())) for cell in cells)


def missing_packages_note() -> str:
    """A line that names the optional package when it is not installed; empty otherwise."""
    return (
        ""
        if OPTIONAL in installed_versions()
        else f"(CUTLASS's headers and examples are not installed: pip install --no-deps {OPTIONAL})"
    )


def split_pieces(text: str, suffix: str) -> Iterator[Piece]:
    """Cut a text into pieces of PIECE lines that overlap by OVERLAP lines."""
    lines = text.splitlines()
    for start in range(0, max(len(lines), 1), PIECE - OVERLAP):
        part = "\n".join(lines[start : start + PIECE])
        if not part.strip():
            continue
        symbols = " ".join(dict.fromkeys(name for pair in _SYMBOL.findall(part) for name in pair if name))
        headings = " ".join(_HEADING.findall(part)) if suffix in (".md", ".ipynb") else ""
        yield Piece(start + 1, min(start + PIECE, len(lines)), part, symbols, headings)
        if start + PIECE >= len(lines):
            break
