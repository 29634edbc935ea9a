"""Titles, reasons and names that somebody else wrote: a notebook shows them, a terminal prints them, nothing more."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import nbconvert
import nbformat
import pytest

from workbench import problems
from workbench.analysis import hunks
from workbench.cli import main
from workbench.cli.output import echo
from workbench.errors import UserError
from workbench.printing import make_printable
from workbench.records import Candidate, Event, Exchange, Proposal
from workbench.session import Session
from workbench.views.text import diff, report

HOSTILE = (
    "<script>document.title='OWNED'</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) ![b](http://127.0.0.1:9/x.png) <http://127.0.0.1:9>",
    "$\\href{javascript:alert(1)}{x}$ \\(x\\) \\[y\\]",
    "# a heading\n\n    <svg onload=alert(1)>\n\n```\n</script><script>alert(2)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "a title\n=====\n- http://127.0.0.1:9/x\n1. <a@b.c> | x |\n| - |",
    '\'" onmouseover=alert(1) x="</title></style></textarea></pre><iframe src=javascript:alert(1)>',
)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        for text in HOSTILE:
            made.log.add_version(Proposal(candidate=Candidate(source="x = 1\n"), title=text, reason=text, by="llm"))
            made.reject(reason=text)
        yield made


def test_a_notebook_shows_them_as_text(session: Session, tmp_path: Path) -> None:
    made = report.make_notebook(session, tmp_path)
    made.cells = [cell for cell in made.cells if cell.cell_type == "markdown"]
    page, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(made)
    tags = {tag.lower() for tag in re.findall(r"<(\w+)", page)}
    assert tags <= {"div", "h1", "h2", "p", "a", "code", "br"}, tags
    links = re.findall(r'<a [^>]*href="([^"]*)"', page)
    assert all(link.startswith("#") for link in links), links  # the anchors of headings
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert "<script>document.title='OWNED'</script>" in text and "&lt;script&gt;" in text
    assert "$" not in text and "\\(" not in text and "\\[" not in text  # MathJax finds no formula


def test_characters_that_reorder_a_line_are_shown(tmp_path: Path) -> None:
    """What is read in a diff, a report or a notebook is what is run."""
    bad = "if x \u202e and \u2066 y: \x1b[2J \x07 pass"
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        for source in ("x = 1\n", f"x = 1  # {bad}\ny = '{bad}'\n"):
            made.log.add_version(
                Proposal(candidate=Candidate(source=source), title=bad, reason=bad, by="llm", parent=1)
            )
        cells = [cell.source for cell in report.make_notebook(made, tmp_path).cells if cell.cell_type == "markdown"]
        for page in (report.html_page(made), diff.render("x = 1\n", f"x = {bad}\n").html, *cells):
            assert make_printable(page) == page
        assert "\\u202e" in report.html_page(made) and "202e" in "".join(cells)


@pytest.mark.parametrize("old", ["+-*/, ()" * 4000 + "\n", "x\ny\nz\n" * 4000])
def test_texts_of_many_like_parts_are_compared_in_seconds(old: str) -> None:
    """Word by word and line by line they would take hours."""
    new = f"a = 1\n{old[:9000]}b{old[9000:]}z = 1\n"
    start = time.process_time()
    shown = diff.render(old, new)
    assert time.process_time() - start < 20
    assert shown.html and hunks.apply(old, new, [one.index for one in hunks.hunks(old, new)]) == new


class Elements(HTMLParser):
    """What a browser would run or load of a page: names of elements, handlers of events, addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.handlers: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.names.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]


def find_elements(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    return found


@pytest.fixture
def hostile_session(tmp_path: Path) -> Iterator[Session]:
    """Its problem's name, titles, reasons, sources, a model's replies and a version's exception are hostile."""
    problem = problems.load("relu", name=HOSTILE[0], settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path / "made", executor="emulator") as made:
        for text in HOSTILE[:4]:
            source = f"# {' '.join(text.split())}\nraise ValueError({text!r})\n"
            made.edit(source, text, text, test=text == HOSTILE[0])
            made.reject(reason=text)
            made.log.add_exchange(Exchange(purpose="ask", model=text, messages=(("user", text),), reply=text))
            made.log.add_event(Event(kind="note", message=text))
        yield made


def test_a_report_and_a_whole_notebook_run_nothing(hostile_session: Session, tmp_path: Path) -> None:
    found = find_elements(report.html_page(hostile_session))
    assert not found.handlers and not {"script", "img", "iframe", "object", "embed"} & set(found.names)
    assert all(address.startswith("#") for address in found.addresses)

    report.write_notebook(hostile_session, tmp_path / "x.ipynb")
    plain = find_elements(
        nbconvert.HTMLExporter(template_name="basic").from_notebook_node(nbformat.v4.new_notebook())[0]
    )
    page, _ = nbconvert.HTMLExporter(template_name="basic").from_filename(str(tmp_path / "x.ipynb"))
    found = find_elements(page)
    assert not found.handlers and not {"iframe", "object", "embed"} & set(found.names)
    assert found.names.count("script") == plain.names.count("script")
    pictures = [address for address in found.addresses if address.startswith("data:image/svg+xml;base64,")]
    assert found.names.count("img") == len(pictures)  # in an <img>, SVG runs no script
    assert all(address.startswith("#") or address in pictures for address in found.addresses), found.addresses
    assert "OWNED" in page  # it is shown


def test_a_cell_of_a_notebook_is_one_command(session: Session, tmp_path: Path) -> None:
    moved = tmp_path / "a\nimport os\n!true"
    session.log.folder = moved
    made = report.make_notebook(session, tmp_path)
    assert all("\n" not in cell.source for cell in made.cells if cell.cell_type == "code")


def test_no_control_character_reaches_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    echo("\x1b]0;owned\x07 title\n\tline\r\nnext \x9b31m \u202e \x00 µ")
    assert capfd.readouterr().out == "\\x1b]0;owned\\x07 title\n\tline\nnext \\x9b31m \\u202e \\x00 µ\n"
    assert make_printable("every µs\tof 3 × 3\n") == "every µs\tof 3 × 3\n"


def test_the_command_line_prints_titles_and_errors_harmlessly(
    session: Session, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "\x1b]0;owned\x07\x1b[2J"
    candidate = Candidate(source="print('\x1b[31m')\n")
    session.log.add_version(Proposal(candidate=candidate, title=title, reason=title, by="llm"))
    monkeypatch.setenv("CUTEGEN_ROOT", str(session.folder.parent))
    assert main(["history"]) == 0
    assert main(["diff", "v1", "latest"]) == 0
    assert main(["problem", title]) == 2
    said = capfd.readouterr()
    assert "owned" in said.out and "31m" in said.out and "owned" in said.err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.out + said.err)


@pytest.mark.parametrize(
    "name", ["../../outside", "/outside", "..", ".", "a/b", "a\\b", "a\x1b", "a\n", " ", "x" * 300]
)
def test_a_name_does_not_leave_the_root(tmp_path: Path, name: str) -> None:
    root = tmp_path / "one" / "two"
    with pytest.raises(UserError, match="no name of a session") as caught:
        Session.create("relu", root=root, name=name, executor="emulator")
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    assert not list(tmp_path.rglob("*"))
