"""Exceptions of a candidate (Python, CuTe DSL, MLIR) -> a one-line `records.Failure` on the candidate's own line."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

from workbench.records import Failure, Stage

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LIMIT = 10_000
_HINTS = (
    (r"NameError|is not defined", "compile", "name", "define or import the name before it is used"),
    (
        r"No module named",
        "import",
        "missing_module",
        "only torch, cutlass and the standard library are there for a candidate",
    ),
    (
        r"expects global based memref|address space",
        "compile",
        "address_space",
        "pass tensors through from_dlpack, or make the pointer with the right memory space",
    ),
    (
        r"dynamic expression|Cannot convert dynamic|staged|if_generate|not a compile-time|DSLTreeFlatten",
        "compile",
        "dynamic_value",
        "a Python if or range needs a compile-time value: use cutlass.const_expr, range_constexpr, or cutlass.dynamic_expr",
    ),
    (
        r"type mismatch|operand type|Type mismatch|must be of type|conversion",
        "compile",
        "type_mismatch",
        "convert explicitly, for example value.to(cutlass.Float32)",
    ),
    (
        r"out of range|crd2idx|coordinate",
        "compile",
        "bad_coordinate",
        "the coordinate has more modes than the layout, or is outside it",
    ),
    (r"shared memory|smem", "launch", "shared_memory", "use smaller tiles or fewer stages"),
)


_CODES = {
    "PHASE_REQUIRES_CONSTANT": "dynamic_value",
    "ARG_NON_CONSTANT": "dynamic_value",
    "PHASE_DYNAMIC_INDEX": "dynamic_value",
    "UNSUP_EARLY_EXIT": "early_exit",
    "TYPE_UNSTABLE_JOIN": "type_mismatch",
    "CALL_MISSING_ARG": "arguments",
    "ARG_ANNOTATION_MISMATCH": "arguments",
    "INTERNAL": "invalid_ir",
}
_SAID = re.compile(
    r"(error(?:\[(\w+)\])?|note|suggestion):\s+(.*?)(?=\n\s*(?:-->|error\b|note:|suggestion:|\||\d+ \|)|\n\s*\n|\Z)",
    re.S,
)
_USELESS = ("report this", "SHOW_STACKTRACE", "TOOLKIT_PATH")
_LOCATED = re.compile(r'^".*?"\("[^"]*":\d+:\d+\):\s*')  # "source text"("file":line:column): message


def _compiler_says(text: str) -> tuple[str, str, str]:
    """(kind, message, advice) out of a report of CuTe DSL, MLIR or NVVM; empty where it says nothing."""
    parts = [(word.split("[")[0], code, " ".join(said.split())) for word, code, said in _SAID.findall(text)]
    errors = [(code, _LOCATED.sub("", said)) for word, code, said in parts if word == "error"]
    advice = next(
        (said for word, _, said in parts if word == "suggestion" and not any(phrase in said for phrase in _USELESS)), ""
    )
    if found := re.search(r"extra log: \S+\(\d+\) Error: (.*)", text):
        arch = re.search(r"sm_\w+", text)
        return (
            "backend",
            f"the code generator says: {found[1].strip()}" + (f" (target {arch[0]})" if arch else ""),
            "an instruction that this architecture does not have, or a wrong operand of one",
        )
    if not errors:
        return "", "", ""
    code = errors[0][0]
    said = errors[1][1] if code == "INTERNAL" and len(errors) > 1 else errors[0][1]
    return _CODES.get(code, code.lower()), said, advice


def explain_error(error: BaseException, source_file: str, stage: Stage = "run") -> Failure:
    """What went wrong, in one line, with the candidate's own line when the traceback or message names one."""
    if isinstance(error, SyntaxError) and (error.filename == source_file or error.filename is None):
        return Failure(
            stage="source",
            kind="syntax",
            message=f"not Python: {error.msg}",
            line=error.lineno,
            hint="fix the syntax and test again",
        )
    text = _ANSI.sub("", str(error))
    name = type(error).__name__
    line = _line(error, source_file, text)
    compiling = name.startswith("DSL") or "MLIR" in name or "mlir" in text.lower() or _inside_dsl(error)
    kind = {
        "NameError": "name",
        "AttributeError": "attribute",
        "TypeError": "type",
        "MemoryError": "memory",
        "ModuleNotFoundError": "missing_module",
        "ImportError": "missing_module",
    }.get(name, "exception")
    found: Stage = "compile" if compiling and stage in ("run", "compile") else stage
    hint = ""
    if compiling and kind == "exception":
        kind = "compile_error"
    for pattern, _, slug, advice in _HINTS:
        if re.search(pattern, text):
            hint, kind = advice, slug if kind in ("exception", "compile_error", "missing_module") else kind
            break
    message = _first_line(text)
    if compiling:
        slug, said, advice = _compiler_says(text)
        kind, message = slug or kind, _first_line(said) if said else message
        hint = advice or ("" if slug else hint)
    detail = _ANSI.sub("", "".join(traceback.format_exception(type(error), error, _from_candidate(error, source_file))))
    return Failure(
        stage=found, kind=kind, message=f"{name}: {message}", line=line, hint=hint, detail=_clean(detail)[-_LIMIT:]
    )


def _from_candidate(error: BaseException, source_file: str) -> TracebackType | None:
    """The traceback from the candidate's first frame on; the whole one where it has none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != source_file:
        trace = trace.tb_next
    return trace or error.__traceback__


def _inside_dsl(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if "/cutlass/base_dsl/" in trace.tb_frame.f_code.co_filename and trace.tb_frame.f_code.co_name in (
            "generate_mlir",
            "generate_original_ir",
            "compile_and_cache",
            "_func",
            "jit_runner",
        ):
            return True
        trace = trace.tb_next
    return False


def _line(error: BaseException, source_file: str, text: str) -> int | None:
    line, current = None, error.__traceback__
    while current is not None:
        if current.tb_frame.f_code.co_filename == source_file:
            line = current.tb_lineno
        current = current.tb_next
    if found := re.findall(re.escape(source_file) + r"[\"']?(?::|, line )(\d+)", text):
        return int(found[-1])
    cause = error.__cause__ or error.__context__
    if cause is not None and cause is not error:
        return _line(cause, source_file, str(cause)) or line
    return line


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("-=~^|")]
    return _clean(lines[0])[:300] if lines else "no message"


def _clean(text: str) -> str:
    """Without the names of temporary folders, and of the folders in which packages lie: they are the person's own, and a model is sent this."""
    text = re.sub(r"(/[\w.-]+)*/(cutegen-[\w-]+)/(?:[\w-]+/)*", "", text)
    return re.sub(
        r"(?:/[\w.@+ -]+)+/(?:site-packages/(?:nvidia_cutlass_dsl/dsl_packages/)?|lib/python3\.\d+/|(?=workbench/[\w/]+\.py))",
        "",
        text,
    )
