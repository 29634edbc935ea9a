"""The card of a problem as text and as HTML: sections with a heading, static, for light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Sequence

from workbench.records import NOTHING, Size, record
from workbench.session import Session
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds
from workbench.views.text.operations import OperationLine, clip, join_shape, shorten
from workbench.views.text.problem_card import Card, CaseLine, describe_problem

EDIT = (
    "options of problem, run and test: --set NAME=VALUE, --tie A=B, --vary NAME, --keep NAME, "
    "--precision fp32|tf32|fp16|bf16, --mode train|eval"
)
STYLE = "font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;color:var(--jp-ui-font-color1,#333)"
CODE = "font-family:var(--jp-code-font-family,monospace);font-size:12px"
CELL = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;background:transparent;border:0"
QUIET = "color:var(--jp-ui-font-color2,#616161)"
LONGEST_LINE = 60  # characters of a cell that is not wrapped, so that shapes stay whole
RULE = "1px solid var(--jp-border-color2,#ddd)"
GOOD, BAD = "var(--jp-success-color1,#2e7d32)", "var(--jp-error-color1,#c62828)"


@record
class Section:
    """A heading and rows of cells. `mark` colours the section's edge: good, bad or none."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    code: bool = False
    mark: str = ""


def show_card(card: Card, session: str = "") -> MimeBundle:
    """The card of a problem, with the name of the session that was opened on it."""
    sections = [section for section in _list_sections(card) if section.rows]
    if session:
        go_on = "%cutegen generate" if card.coverage.program else "%%cutegen edit"
        sections.append(Section(title="session", rows=((f"{session}; go on with {go_on}",),)))
    return MimeBundle(_as_text(card, sections), html=_as_page(card, sections))


def plan_lines(card: Card) -> tuple[str, ...]:
    """What the planner can write, or what it cannot and the nearest thing that it can; and then what to do."""
    found = card.coverage
    if found.program:
        return (found.program,)
    part = (
        f"the nearest that it can: {clip(found.part)}, which gives {found.result} "
        f"({found.calls} of the {found.of} calls that compute)"
        if found.part
        else ""
    )
    return (
        f"cannot write this: {found.reason}",
        *([part] if part else []),
        "write the kernel yourself (%%cutegen edit, or cutegen test PROBLEM FILE), "
        "or let a language model do it (--by llm)",
    )


def explain_no_version(session: Session, note: str) -> tuple[str, ...]:
    """Why a loop made no version, and what to do. `note` is what the proposer said last."""
    card = describe_problem(session)
    said = (note,) if note else ()
    return said if card.coverage.program else plan_lines(card)


def _list_sections(card: Card) -> tuple[Section, ...]:
    plan = plan_lines(card)
    return (
        Section(title="operations", rows=_operation_rows(card), code=True),
        Section(
            title="tensors",
            rows=(
                *((line.role, line.name, line.dtype, join_shape(line.shape)) for line in card.tensors),
                *(("argument", name, kind, f"= {value}", said) for name, kind, value, said in card.arguments),
            ),
            code=True,
        ),
        Section(title="sizes", rows=tuple(map(_size_row, card.sizes)), code=True),
        Section(title="cases", rows=tuple(map(_case_row, card.cases))),
        Section(title="counted", rows=_work_rows(card)),
        Section(title="bound", rows=_bound_rows(card)),
        Section(
            title="planner",
            rows=tuple((line,) for line in plan),
            code=len(plan) == 1,
            mark=GOOD if card.coverage.program else BAD,
        ),
        Section(title="warnings", rows=tuple((line,) for line in card.warnings), mark=BAD),
        Section(title="notes", rows=tuple((line,) for line in card.notes)),
        Section(title="change it", rows=((EDIT,),)),
    )


def _operation_rows(card: Card) -> tuple[tuple[str, ...], ...]:
    first, left_out, last = shorten(card.operations)
    more = ((f"... {left_out} more ...", "", "", ""),) if left_out else ()
    form = f"  as {card.form}" if card.form not in ("", NOTHING) else ""
    what = "changed in place; nothing is returned" if card.form == NOTHING else "returned"
    returned = (", ".join(card.returned) + form, "", "", f"<- {what} (numbers are those of the case {card.traced})")
    return (*map(_operation_row, first), *more, *map(_operation_row, last), returned)


def _operation_row(line: OperationLine) -> tuple[str, ...]:
    return line.name, line.dtype, join_shape(line.shape) if line.dtype else "", f"<- {line.call}"


def _size_row(size: Size) -> tuple[str, ...]:
    tied = f"= {' = '.join(size.tied)}" if size.tied else ""
    why = size.why.removeprefix(f"{size.name} stays {size.value}: ")
    varied = "varied" if size.varied else f"not varied{': ' if why else ''}{why}"
    return size.name, str(size.value), tied, ", ".join(size.extents), varied


def _case_row(case: CaseLine) -> tuple[str, ...]:
    if case.trials:
        return (
            case.name,
            case.shapes,
            f"{case.trials} trial{'s' * (case.trials > 1)} against torch; values: {case.values}",
        )
    return case.name, case.shapes, "not run here" + ("; its time is modelled" if case.name == "full" else "")


def _work_rows(card: Card) -> tuple[tuple[str, ...], ...]:
    if card.work is None:
        return ()
    parts = ", ".join(f"{name} {format_amount(flops)}" for name, flops in card.work.parts[:4])
    rate = "matrix products" if card.work.tensor_cores else "no matrix products"
    flops = f"{_with_unit(card.work.flops, 'FLOP')} in {card.work.dtype} ({rate})" + (f": {parts}" if parts else "")
    least = f"{_with_unit(card.work.least_bytes, 'B')} at least, each tensor read or written once"
    return ((flops,), (least,))


def _with_unit(amount: int, unit: str) -> str:
    """1.5 GFLOP, or 12 FLOP"""
    text = format_amount(amount)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def _bound_rows(card: Card) -> tuple[tuple[str, ...], ...]:
    if card.bound is None:
        return ()
    return ((f"{format_seconds(card.bound.bound_s)} on {card.device}, limited by {card.bound.limited_by}",),)


def _as_text(card: Card, sections: Sequence[Section]) -> str:
    lines = [f"problem {card.name}: {card.headline}"]
    for section in sections:
        columns = max(map(len, section.rows))
        widths = [max(len(row[n]) for row in section.rows if n < len(row)) for n in range(columns)]
        lines.append(section.title)
        lines += [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in section.rows
        ]
    return "\n".join(lines)


def _as_page(card: Card, sections: Sequence[Section]) -> str:
    head = (
        f'<div style="padding:2px 0 6px"><strong>{html.escape(card.name)}</strong> '
        f'<span style="{QUIET}">{html.escape(card.headline)}</span></div>'
    )
    body = "".join(map(_draw_section, sections))
    return f'<div class="cutegen-card" style="{STYLE};max-width:75em;border:{RULE};padding:6px 10px">{head}{body}</div>'


def _draw_section(section: Section) -> str:
    """A heading, and beside it the rows as a table."""
    font = CODE if section.code else ""
    rows = "".join(
        '<tr style="background:transparent">'
        + "".join(
            f'<td style="{CELL};{font}{_wrapping(row, n)}">{html.escape(cell)}</td>' for n, cell in enumerate(row)
        )
        + "</tr>"
        for row in section.rows
    )
    edge = f"border-left:3px solid {section.mark};padding-left:7px" if section.mark else "padding-left:10px"
    return (
        f'<div style="display:flex;border-top:{RULE};padding:4px 0">'
        f'<div style="{QUIET};flex:0 0 6.5em">{section.title}</div>'
        f'<div style="{edge};overflow-x:auto"><table style="margin:0;border:0;{STYLE}"><tbody>{rows}</tbody></table>'
        "</div></div>"
    )


def _wrapping(row: tuple[str, ...], n: int) -> str:
    return ";white-space:nowrap" if n < len(row) - 1 and len(row[n]) <= LONGEST_LINE else ""
