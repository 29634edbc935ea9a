"""Exceptions of a candidate (Python, CuTe DSL, MLIR) -> a one-line `records.Failure` on the candidate's own line."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

from workbench.records import Failure, Stage

NEEDS_ARCH = "needs_arch"  # the kind of a failure that a newer architecture cures
_OTHER_ARCH = re.compile(r"expects arch to be (sm_\w+), but got (sm_\w+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DETAIL_LENGTH = 10_000
_PACKAGE_FOLDER = re.compile(
    r"(?:/[\w.@+ -]+)+/"
    r"(?:site-packages/(?:nvidia_cutlass_dsl/dsl_packages/)?|lib/python3\.\d+/|(?=workbench/[\w/]+\.py))"
)
_KINDS = {
    "NameError": "name",
    "AttributeError": "attribute",
    "TypeError": "type",
    "MemoryError": "memory",
    "ModuleNotFoundError": "missing_module",
    "ImportError": "missing_module",
}
_HINTS = (
    (r"NameError|is not defined", "name", "define or import the name before it is used"),
    (
        r"No module named",
        "missing_module",
        "only torch, cutlass and the standard library are there for a candidate",
    ),
    (
        r"expects global based memref|address space",
        "address_space",
        "pass tensors through from_dlpack, or make the pointer with the right memory space",
    ),
    (
        r"dynamic expression|Cannot convert dynamic|staged|if_generate|not a compile-time|DSLTreeFlatten",
        "dynamic_value",
        "a Python if or range needs a compile-time value: use cutlass.const_expr, range_constexpr, or "
        "cutlass.dynamic_expr",
    ),
    (
        r"type mismatch|operand type|Type mismatch|must be of type|conversion",
        "type_mismatch",
        "convert explicitly, for example value.to(cutlass.Float32)",
    ),
    (
        r"out of range|crd2idx|coordinate",
        "bad_coordinate",
        "the coordinate has more modes than the layout, or is outside it",
    ),
    (
        r"illegal memory access",
        "exception",
        "an index beyond a tensor, or a tensor on the CPU: make outputs with device=x.device; the emulator "
        "(--executor emulator) names the access",
    ),
    (r"shared memory|smem", "shared_memory", "use smaller tiles or fewer stages"),
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
_MESSAGE = re.compile(
    r"(error(?:\[(\w+)\])?|note|suggestion):\s+(.*?)(?=\n\s*(?:-->|error\b|note:|suggestion:|\||\d+ \|)|\n\s*\n|\Z)",
    re.S,
)
_USELESS_ADVICE = ("report this", "SHOW_STACKTRACE", "TOOLKIT_PATH")
_LOCATION = re.compile(r'^".*?"\("[^"]*":\d+:\d+\):\s*')  # "source text"("file":line:column): message


def _parse_compiler_report(text: str) -> tuple[str, str, str]:
    """(kind, message, advice) from a report of CuTe DSL, MLIR or NVVM; empty strings where the report has none."""
    parts = [(word.split("[")[0], code, " ".join(said.split())) for word, code, said in _MESSAGE.findall(text)]
    errors = [(code, _LOCATION.sub("", said)) for word, code, said in parts if word == "error"]
    suggestions = [said for word, _, said in parts if word == "suggestion"]
    advice = next((said for said in suggestions if not any(phrase in said for phrase in _USELESS_ADVICE)), "")
    if found := re.search(r"extra log: \S+\(\d+\) Error: (.*)", text):
        arch = re.search(r"sm_\w+", text)
        return (
            "backend",
            f"the code generator says: {found[1].strip()}" + (f" (target {arch[0]})" if arch else ""),
            "an instruction that this architecture does not have, or a wrong operand of one",
        )
    if "ptxas log:" in text:
        return _parse_ptxas_log(text)
    if not errors:
        return "", "", ""
    code = errors[0][0]
    said = errors[1][1] if code == "INTERNAL" and len(errors) > 1 else errors[0][1]
    return _CODES.get(code, code.lower()), said, advice


def _parse_ptxas_log(text: str) -> tuple[str, str, str]:
    """(kind, message, advice) from a report that has the log of ptxas."""
    log = " ".join(text.split("ptxas log:", 1)[1].split("suggestion:", 1)[0].split())
    said = re.findall(r"line (\d+); error\s*: (.*?)(?= ptxas |$)", log)
    arch = re.search(r"target architecture: (sm_\w+)", text)
    target = f" for {arch[1]}" if arch else ""
    needed = sorted({found for _, found in re.findall(r"requires (\.target )(sm_\w+) or higher", log)})
    if needed:
        name = re.search(r"Instruction '([^']+)'", log) or re.search(r"(?:Feature|Modifier) '([^']+)'", log)
        advice = f"give --arch, for example --arch {needed[-1]}{'a' if needed[-1] >= 'sm_90' else ''}"
        what = f"{name[1]} needs {needed[-1]}" if name else f"it needs {needed[-1]}"
        return NEEDS_ARCH, f"ptxas refuses the kernel{target}: {what}", advice
    first = f"line {said[0][0]}: {said[0][1]}" if said else log[:200]
    return "backend", f"ptxas refuses the kernel{target}: {first}", "the whole log is in the detail of the failure"


def explain_error(error: BaseException, source_file: str, stage: Stage = "run") -> Failure:
    """Builds the failure for an exception, with the candidate's line when the traceback or the message names one."""
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
    compiling = name.startswith("DSL") or "MLIR" in name or "mlir" in text.lower() or _is_inside_dsl(error)
    kind, message, hint = _classify(name, text, compiling)
    trace = traceback.format_exception(type(error), error, _candidate_traceback(error, source_file))
    return Failure(
        stage="compile" if compiling and stage in ("run", "compile") else stage,
        kind=kind,
        message=f"{name}: {message}",
        line=_candidate_line(error, source_file, text),
        hint=hint,
        detail=_strip_paths(_ANSI.sub("", "".join(trace)))[-_DETAIL_LENGTH:],
    )


def _classify(name: str, text: str, compiling: bool) -> tuple[str, str, str]:
    """(kind, message, hint) of an exception by its class name and text; a compiler's report comes before our table."""
    if found := _OTHER_ARCH.search(text):
        return NEEDS_ARCH, f"it needs {found[1]}, and is compiled for {found[2]}", f"give --arch {found[1]}"
    kind = _KINDS.get(name, "compile_error" if compiling else "exception")
    hint = ""
    for pattern, slug, advice in _HINTS:
        if re.search(pattern, text):
            hint, kind = advice, slug if kind in ("exception", "compile_error", "missing_module") else kind
            break
    if not compiling:
        return kind, _first_line(text), hint
    slug, said, advice = _parse_compiler_report(text)
    return slug or kind, _first_line(said or text), advice or ("" if slug else hint)


def _candidate_traceback(error: BaseException, source_file: str) -> TracebackType | None:
    """The traceback from the candidate's first frame on; the whole one if it has no such frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != source_file:
        trace = trace.tb_next
    return trace or error.__traceback__


def _is_inside_dsl(error: BaseException) -> bool:
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


def _candidate_line(error: BaseException, source_file: str, text: str) -> int | None:
    line, current = None, error.__traceback__
    while current is not None:
        if current.tb_frame.f_code.co_filename == source_file:
            line = current.tb_lineno
        current = current.tb_next
    if found := re.findall(re.escape(source_file) + r"[\"']?(?::|, line )(\d+)", text):
        return int(found[-1])
    cause = error.__cause__ or error.__context__
    if cause is not None and cause is not error:
        return _candidate_line(cause, source_file, str(cause)) or line
    return line


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("-=~^|")]
    return _strip_paths(lines[0])[:300] if lines else "no message"


def _strip_paths(text: str) -> str:
    """Removes temporary folders and the folders of packages: they name the user's own folders, and a model reads the
    text.
    """
    text = re.sub(r"(/[\w.-]+)*/(cutegen-[\w-]+)/(?:[\w-]+/)*", "", text)
    return _PACKAGE_FOLDER.sub("", text)
