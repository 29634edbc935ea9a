"""A session's folder that somebody else wrote: its prompts reach no code, and its address gets no key."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import KEY
from test_prompts import asked

from workbench import problems, trust
from workbench.cli import main
from workbench.errors import UserError
from workbench.proposers.llm import prompts
from workbench.session import Session
from workbench.views.text import report

ESCAPES = (
    "{{ cycler.__init__.__globals__.os.system('touch PLACE') }}",
    "{{ lipsum.__globals__['os'].popen('touch PLACE').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}",
    "{{ settings.__class__.__base__.__subclasses__() }}",
    "{{ history.append('more') }}",
    "{% for _ in range(10**9) %}x{% endfor %}",
    "{{ examples | map(attribute='__class__.__init__.__globals__') | list }}",
)


def folder_with(tmp_path: Path, text: str, name: str = "system.jinja2") -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("text", ESCAPES)
def test_a_template_reaches_no_code(tmp_path: Path, text: str) -> None:
    place = tmp_path / "reached"
    folder = folder_with(tmp_path, text.replace("PLACE", str(place)))
    try:
        said = str(prompts.messages("synthesis", asked(), folder)[0]["content"])
    except UserError as error:
        assert "system.jinja2" in str(error) and "\n" not in str(error)
    else:
        assert "environ" not in said and "subclass" not in said and "module" not in said
    assert not place.exists()


@pytest.mark.parametrize("text", ["{{ 1 / 0 }}", "line\n{% if %}", "{{ nothing }}", "{% include 'absent.jinja2' %}"])
def test_an_error_of_a_template_names_its_file(tmp_path: Path, text: str) -> None:
    folder = folder_with(tmp_path, text, "reference.jinja2")  # included by another
    with pytest.raises(UserError) as caught:
        prompts.messages("synthesis", asked(), folder)
    assert str(folder / "reference.jinja2") in str(caught.value) and "\n" not in str(caught.value)


def test_a_link_and_a_bad_menu_are_named(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    folder = folder_with(tmp_path, "matmul = 3", "menus.toml")
    with pytest.raises(UserError, match=r"menus\.toml"):
        prompts.menu("matmul", folder)
    (folder / "system.jinja2").symlink_to(secret)
    with pytest.raises(UserError, match=r"system\.jinja2 is a link out of its folder"):
        prompts.messages("synthesis", asked(), folder)


def forget_addresses(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As in a new process of a user who keeps what they trust in this folder."""
    monkeypatch.setenv("CUTEGEN_TRUST", str(folder))
    monkeypatch.setattr(trust, "_addresses", set())


@pytest.fixture
def session(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose log holds an address that nobody named."""
    forget_addresses(monkeypatch, tmp_path / "trusted")
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        made.log.store.set_meta({"llm": {"base_url": server.base, "model": "scripted"}})
        yield made


def test_the_key_goes_only_to_an_address_that_was_named(
    server: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.play("class Nothing: pass")
    with pytest.raises(UserError) as caught:
        session.generate("llm")
    assert server.base in str(caught.value) and "--base-url" in str(caught.value) and KEY not in str(caught.value)
    assert server.requests == []
    assert session.client().key is None

    session.model(base_url=server.base)  # the person names it
    with pytest.raises(UserError, match="could not be used"):
        session.generate("llm")
    assert [one["authorization"] for one in server.requests] == [f"Bearer {KEY}"]


def test_an_address_that_was_named_stays_named(
    server: Any, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.model(base_url=server.base)
    forget_addresses(monkeypatch, tmp_path / "trusted")
    assert session.client().key is not None
    forget_addresses(monkeypatch, tmp_path / "of another user")
    session.model(model="another")  # a new client
    assert session.client().key is None


def test_a_redirection_gets_no_key(server: Any, session: Session) -> None:
    elsewhere = server.base.replace("127.0.0.1", "localhost")
    session.model(base_url=server.base)
    server.play({"status": 307, "headers": {"Location": f"{elsewhere}/chat/completions"}}, "class Nothing: pass")
    with pytest.raises(UserError):
        session.generate("llm")
    first, *others = [one["authorization"] for one in server.requests]
    assert first == f"Bearer {KEY}" and others and KEY not in str(others)


def test_an_address_of_the_environment_is_named(server: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base)
    assert session.client().key is not None


def test_without_a_key_an_address_of_the_log_is_used(
    server: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.play("class Nothing: pass")
    with pytest.raises(UserError, match="could not be used"):
        session.generate("llm")
    assert [one["authorization"] for one in server.requests] == ["Bearer none"]


def test_it_is_said_whose_prompts_are_used(server: Any, session: Session) -> None:
    folder = session.folder / "prompts"
    folder.mkdir()
    (folder / "system.jinja2").write_text("Write a kernel.")
    session.model(base_url=server.base)
    server.play("class Nothing: pass")
    for _ in range(2):
        with pytest.raises(UserError):
            session.generate("llm")
    notes = [event.message for event in session.events() if event.kind == "note"]
    assert [note for note in notes if "prompts" in note] == [
        f"prompts of the session's own folder {folder} are used: system.jinja2"
    ]
    assert server.requests[-1]["body"]["messages"][0]["content"] == "Write a kernel."


def test_a_hostile_reply_is_shown_as_text(
    server: Any, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Control characters and scripts in prose, title, code and answer; a path that it names is not written."""
    session.model(base_url=server.base)
    bad = "\x1b]0;owned\x07<script>alert(1)</script>"
    source = f"# {bad}\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    server.play(f"{bad}\n```python ../../outside.py\n{source}```", bad)
    version = session.generate("llm")
    assert version is not None and session.ask("why?")
    session.reject(reason=bad)
    monkeypatch.setenv("CUTEGEN_ROOT", str(session.folder.parent))
    for command in (["history"], ["diff", "v1", "v1"], ["verify"]):
        main([*command, "--session", session.name])
    said = capfd.readouterr()
    assert "owned" in said.out and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.out + said.err)
    assert "<script" not in report.html_page(session) and "<script" not in str(
        [cell.source for cell in report.make_notebook(session, tmp_path).cells]
    )
    assert not list(tmp_path.rglob("outside*"))


def test_the_key_is_in_no_file_of_the_session(server: Any, session: Session, tmp_path: Path) -> None:
    """The canary: logs, recording, report, notebook, export, traceback."""
    session.model(base_url=server.base)
    source = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
    server.play(
        f"```python\n{source}```",
        {"status": 401, "error": f"Incorrect API key provided: {KEY}"},
        {"status": 400, "error": f"no such key {KEY}"},
    )
    session.generate("llm")
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            session.ask("which key?")
        assert KEY not in "".join(traceback.format_exception(caught.value))
    assert [one["authorization"] for one in server.requests] == [f"Bearer {KEY}"] * 3
    session.save_recording(tmp_path / "recording.json", "a canary")
    session.export("latest", tmp_path / "export.py")
    (tmp_path / "report.html").write_text(report.html_page(session))
    (tmp_path / "notebook.ipynb").write_text(str(report.make_notebook(session, tmp_path)))
    (tmp_path / "repr.txt").write_text(f"{session!r} {session.client()!r} {vars(session.client())}")
    searched = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(searched) >= 7
    assert not [path for path in searched if KEY.encode() in path.read_bytes()]
