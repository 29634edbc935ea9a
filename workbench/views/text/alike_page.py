"""Kernels that are alike in structure: of the session, of the recorded landscapes, and of the worked examples."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from workbench.errors import ProgramError, UserError
from workbench.language import check, parse
from workbench.records import Version
from workbench.structure.kernels.retrieval import (
    Sketch,
    example_kernels,
    find_alike,
    recorded_kernels,
    sketch_program,
    sketch_source,
)
from workbench.views.text.mime_bundle import MimeBundle, render_table

LONGEST = 100  # characters of a program that are shown


def sketch_version(version: Version) -> tuple[Sketch, ...]:
    """The sketches of a version: of its source, and of its program if it has one. Raises `UserError` with its name
    where the source is no Python.
    """
    candidate, name = version.proposal.candidate, f"v{version.number}"
    try:
        found = [sketch_source(candidate.source, name, version.proposal.title)]
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if candidate.program:
        found.append(sketch_program(candidate.program, name, version.proposal.title))
    return tuple(found)


def sketch_text(text: str, name: str) -> tuple[Sketch, ...]:
    """The sketch of a muCUTLASS program, or else of a Python source. Raises `UserError` for a text that is neither, and
    for a program with an operation that there is none of.
    """
    try:
        found = sketch_program(text, name)
    except ProgramError as no_program:
        try:
            return (sketch_source(text, name),)
        except UserError as no_source:
            raise UserError(f"{name} is neither a muCUTLASS program ({no_program}) nor Python ({no_source})") from None
    for rejection in check(parse(text)):
        if rejection.field == "operation":
            raise UserError(f"{name} is no muCUTLASS program: {rejection}")
    return (found,)


def alike_page(wanted: Sequence[Sketch], versions: Sequence[Version] = ()) -> MimeBundle:
    """What is most like a kernel, whose sketches are given: in each of three places up to three kernels."""
    name = wanted[0].name
    own: list[Sketch] = []
    for version in versions:
        with contextlib.suppress(UserError):  # an edit that is no Python is like none
            own += sketch_version(version) if f"v{version.number}" != name else ()
    best = max(wanted, key=lambda one: one.form == "program")  # a program says more than its code
    rows = []
    for place, pool in (("this session", own), ("recorded", recorded_kernels()), ("example", example_kernels())):
        sketch = best if any(one.form == best.form for one in pool) else wanted[0]
        rows += [
            [f"{one.share:.0%}", place, one.sketch.name, _describe(one.sketch)] for one in find_alike(sketch, pool)
        ]
    if not rows:
        return MimeBundle(f"nothing recorded or shipped has a structure in common with {name}")
    text, page = render_table(["in common", "where", "kernel", "what it is"], rows, f"kernels that are like {name}")
    return MimeBundle(text, html=page)


def _describe(sketch: Sketch) -> str:
    said = sketch.text if sketch.form == "program" else sketch.about
    said = " ".join(said.split())
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
