"""Source locations of traced operations, looked up once for each place in the code.

CuTe DSL asks for the caller's file, line and column at every operation that it traces, and each time walks up the stack
and the table of positions of the code object: a quarter of the time of tracing a kernel. A place is a code object and
an offset in its bytecode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FrameType

from cutlass._mlir_helpers import op


def memoise_source_locations(replace: Callable[[object, str, object], object]) -> None:
    """Let CuTe DSL's two functions that look at a frame memoise what they found, by `replace(owner, name, value)`."""
    replace(op, "_is_framework_stack_frame", _memoise_by_code(op._is_framework_stack_frame))
    replace(op, "_fast_frameinfo", _memoise_by_place(op._fast_frameinfo))


def _memoise_by_code(is_framework: Callable[[FrameType], bool]) -> Callable[[FrameType], bool]:
    found: dict[int, tuple[CodeType, bool]] = {}  # the code object is held, so that its identity stays its own

    def lookup(frame: FrameType) -> bool:
        code = frame.f_code
        entry = found.get(id(code))
        if entry is None:
            entry = found[id(code)] = (code, is_framework(frame))
        return entry[1]

    return lookup


def _memoise_by_place(describe: Callable[[FrameType], inspect.Traceback]) -> Callable[[FrameType], inspect.Traceback]:
    found: dict[tuple[int, int], tuple[CodeType, inspect.Traceback]] = {}

    def lookup(frame: FrameType) -> inspect.Traceback:
        code = frame.f_code
        place = (id(code), frame.f_lasti)
        entry = found.get(place)
        if entry is None:
            entry = found[place] = (code, describe(frame))
        return entry[1]

    return lookup
