"""Makes `records.Problem` from shipped names, KernelBench files, source text or expressions. Imports no torch."""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workbench.errors import ProblemError
from workbench.problems.expressions import from_expression
from workbench.problems.inputs.init_arguments import list_defaults, read_whole, with_init_arguments
from workbench.problems.model_class import bound_names, find_method
from workbench.problems.settings import check_settings, check_sizes, declare_precision, module_scalars, with_settings
from workbench.records import Mode, Precision, Problem, Scalar, Settings
from workbench.trust import check_problem_file

__all__ = ["PROBLEM_NAMES", "from_expression", "load", "module_scalars", "shipped", "with_settings"]

_FOLDER = Path(__file__).parent / "shipped"
INSTALLED = ("torch", "numpy", "cutlass", "triton", "workbench")  # never the person's own, whatever lies beside
MOST_BYTES = 1 << 20  # of all modules of a problem together
MOST_LEVELS = 250  # of a syntax tree, which is walked by functions that call themselves
REQUIRED = ("Model", "get_inputs")
PROBLEM_NAMES = (*REQUIRED, "get_init_inputs")


def _files() -> dict[str, Path]:
    return {path.stem.split("_", 1)[1]: path for path in sorted(_FOLDER.glob("[0-9]*.py"))}


def shipped() -> tuple[str, ...]:
    """Names of the problems that come with the workbench."""
    return tuple(_files())


def load(
    spec: str,
    *,
    name: str | None = None,
    settings: Settings | Mapping[str, Scalar] = (),
    precision: Precision = "declared",
    mode: Mode = "train",
    tie: tuple[tuple[str, ...], ...] = (),
    vary: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
) -> Problem:
    """A problem from a shipped name, a path, or KernelBench source text. `settings` override its numbers.

    Dtypes are those of the text unless a `precision` is given. `tie` has groups of sizes that always have one value,
    `vary` sizes that vary on their own, `keep` sizes that stay. Raises `ProblemError` with a message of one line.
    """
    files = _files()
    modules: tuple[tuple[str, str], ...] = ()
    if spec in files:
        source, origin, default = files[spec].read_text(), "shipped", spec
    elif "\n" in spec:
        source, origin, default = spec, "cell", "problem"
    else:
        path = Path(spec)
        if not path.is_file():
            close = difflib.get_close_matches(spec, files, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"shipped problems: {', '.join(files)}"
            raise ProblemError(f"no problem or file is called {spec!r}; {hint}")
        check_problem_file(path)
        source, origin, default = _read_file(path), str(path), path.stem
    check_source(source, origin if origin != "shipped" else spec)
    source = complete_source(source)
    if origin != "shipped":
        modules = read_modules(source, Path(spec).parent if origin != "cell" else Path())
    pairs = tuple(settings.items()) if isinstance(settings, Mapping) else settings
    source = _name_init_numbers(
        source, [name for name, _ in pairs] + [*vary, *keep] + [n for each in tie for n in each]
    )
    check_settings(source, pairs)
    check_sizes(source, pairs, tie=tie, vary=vary, keep=keep)
    return Problem(
        name=name or default,
        source=source,
        origin=origin,
        settings=pairs,
        precision=declare_precision(precision, (source, *(text for _, text in modules))),
        mode=mode,
        tie=tie,
        vary=vary,
        keep=keep,
        modules=modules,
    )


def complete_source(source: str) -> str:
    """The text with a `get_init_inputs()` if it has none: the whole numbers that `Model.__init__` has as defaults.

    They are then sizes like all others.
    """
    body = ast.parse(source).body
    if any(isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs" for node in body):
        return source
    method = find_method(body, "__init__")
    defaults = read_whole(list_defaults(method.args)) if method is not None else {}
    given = ", ".join(f'"{name}": {value}' for name, value in defaults.items())
    made = f"{{{given}}}" if given else "[]"
    return f"{source.rstrip()}\n\n\ndef get_init_inputs():\n    return {made}\n"


def _name_init_numbers(source: str, names: Sequence[str]) -> str:
    """The text with the numbers in `Model.__init__` as its arguments, if only so it has all names."""
    if {*names} <= {*module_scalars(source)}:
        return source
    other = with_init_arguments(source)
    return other if other is not None and {*names} <= {*module_scalars(other)} else source


def _read_file(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise ProblemError(f"{path} has more than {MOST_BYTES >> 20} MiB, the limit of a problem's text")
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path} is no text file ({error.reason} at byte {error.start}); name a Python file"
        ) from None


def check_source(source: str, origin: str) -> None:
    """Raise `ProblemError` if the text is not Python or lacks a class or a function that every problem has."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        line = "" if error.lineno is None else f":{error.lineno}"
        raise ProblemError(f"{origin}{line}: not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte, or expressions too deep for the parser
        raise ProblemError(f"{origin}: not Python: {error or 'it is nested too deeply'}") from None
    if _depth(tree) > MOST_LEVELS:
        raise ProblemError(f"{origin}: its code is nested more than {MOST_LEVELS} levels deep")
    names = bound_names(tree.body)
    missing = [required for required in REQUIRED if required not in names]
    if missing:
        raise ProblemError(
            f"{origin}: defines no {' and no '.join(missing)}; "
            "a problem needs class Model and get_inputs(); get_init_inputs() gives the arguments of Model"
        )


def _depth(tree: ast.AST) -> int:
    """Levels of a syntax tree."""
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def read_modules(source: str, folder: Path) -> tuple[tuple[str, str], ...]:
    """(name, text) of each module in the folder that the text imports, directly or through another.

    `package` is the name of `package/__init__.py`, `package.module` that of `package/module.py`.
    """
    found: dict[str, str] = {}
    _collect_modules(source, folder, "", found)
    if sum(map(len, found.values())) > MOST_BYTES:
        raise ProblemError(f"the modules that it imports from {folder} have more than {MOST_BYTES >> 20} MiB of text")
    return tuple(found.items())


def _collect_modules(source: str, folder: Path, package: str, found: dict[str, str]) -> None:
    for name in _imported_names(ast.parse(source), package):
        parts = name.split(".")
        if name in found or parts[0] in sys.stdlib_module_names or parts[0] in INSTALLED:
            continue
        path = folder.joinpath(*parts)
        file = path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py")
        if not file.is_file():
            continue
        try:
            found[name] = file.read_text()
            for count in range(1, len(parts)):  # folders without a file __init__.py are packages too
                found.setdefault(".".join(parts[:count]), "")
            _collect_modules(
                found[name], folder, name if file.name == "__init__.py" else name.rpartition(".")[0], found
            )
        except (UnicodeDecodeError, SyntaxError) as error:
            raise ProblemError(f"{file}: not Python: {getattr(error, 'msg', error)}") from None


def _imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Full names of modules that a text may import, packages before what is in them."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*filter(None, above), *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{one.name}" if base else one.name for one in node.names)]
        for name in filter(None, names):
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))
