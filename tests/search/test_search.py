"""The index over the installed packages: built fast, asked fast, and right for the questions of questions.toml."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UserError
from workbench.search import call_tool, corpus, find_example, index, read, search, tool_specs

QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())["question"]
UNSEEN = tomllib.loads(Path(__file__).with_name("unseen.toml").read_text())["question"]
REQUIRED = tuple(name for name in corpus.DISTRIBUTIONS if name != corpus.OPTIONAL)


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No index yet, and no optional package."""
    monkeypatch.setattr(corpus, "DISTRIBUTIONS", REQUIRED)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus.files.cache_clear()
    index._index_key.cache_clear()
    yield
    corpus.files.cache_clear()
    index._index_key.cache_clear()


@pytest.mark.slow
def test_it_is_built_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other tests ask the user's index, which is built where there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    start, seen = time.process_time(), []  # of this process: what else the machine does is not its fault
    search("layout", progress=seen.append)
    assert time.process_time() - start < 30
    assert seen[-1] == 1.0 and seen == sorted(seen)
    assert len(list((tmp_path / "cutegen").iterdir())) == 1


def test_at_least_22_of_25_questions_are_answered_in_the_first_five(slowness: Callable[[], float]) -> None:
    metadata.version("nvidia-cutlass")  # the headers and examples are part of what is asked
    seconds, missed = [], []
    for question in QUESTIONS:
        start = time.process_time()  # of this process, as above
        hits = search(question["ask"])
        seconds.append(time.process_time() - start)
        if not any(hit.path.endswith(answer) for hit in hits for answer in question["answer"]):
            missed.append((question["ask"], [hit.path for hit in hits]))
    assert len(QUESTIONS) == 25 and len(missed) <= 3, missed
    assert statistics.median(seconds) < 0.08 * slowness()  # 0.02 to 0.04 measured on a quiet machine


def test_questions_that_the_ranking_was_not_made_for() -> None:
    """Two further sets, written without a look at any result; 44 of these 50 were answered when they were written."""
    answered = [
        any(hit.path.endswith(answer) for hit in search(question["ask"]) for answer in question["answer"])
        for question in UNSEEN
    ]
    assert len(answered) == 50 and sum(answered) >= 40


def test_every_named_answer_is_a_file() -> None:
    paths = [file.path for file in corpus.files()]
    named = {answer for question in (*QUESTIONS, *UNSEEN) for answer in question["answer"]}
    assert [answer for answer in sorted(named) if not any(path.endswith(answer) for path in paths)] == []


def test_snippets_are_numbered_lines_of_the_file() -> None:
    hit = search("make_tiled_tma_atom")[0]
    number, _, text = hit.snippet.splitlines()[0].partition("| ")
    assert hit.first <= int(number) <= hit.last
    assert (
        f"{int(number):5d}| {text}" in read(f"{hit.distribution}:{hit.path}", int(number), int(number))
        or len(text) >= 159
    )


def test_names_are_found_exactly() -> None:
    assert any("make_tiled_tma_atom" in hit.snippet for hit in search("make_tiled_tma_atom"))
    assert search("zzz_no_such_name_zzz") == []
    assert "LdMatrix8x8x16bOp" in search("LdMatrix8x8x16bOp")[0].snippet


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_text_is_too_odd(text: str) -> None:
    if text.strip():
        assert len(search(text)) <= 5
    assert isinstance(call_tool("search", json.dumps({"query": text})), str)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../../etc/passwd", "nvidia-cutlass:../x.py", "no/such/file.py", ""]
)
def test_only_searched_files_are_read(path: str) -> None:
    with pytest.raises(UserError, match="not among the files"):
        read(path)


def test_reading_is_bounded() -> None:
    path = next(file.path for file in corpus.files() if file.path.endswith("cute/core.py"))
    text = read(path, 1, 100_000)
    assert len(text.splitlines()) <= 201 and len(text) < 16_100 and "lines in all" in text
    with pytest.raises(UserError, match="past its end"):
        read(path, 10_000_000)


@pytest.mark.parametrize(("first", "last"), [(50, 10), (1, -5), (1, 0)])
def test_a_range_without_lines_is_refused(first: int, last: int) -> None:
    path = next(file.path for file in corpus.files() if file.path.endswith("cute/core.py"))
    with pytest.raises(UserError, match="the last is before the first"):
        read(path, first, last)


def test_a_link_out_of_the_package_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "secret.py").write_text("key = 1\n")
    inside = tmp_path / "package" / "own.py"
    inside.write_text("key = 2\n")
    (tmp_path / "package" / "link.py").symlink_to(tmp_path / "secret.py")
    (tmp_path / "package" / "near.py").symlink_to(inside)
    assert corpus._leads_away(tmp_path / "package" / "link.py", 1)
    assert not corpus._leads_away(tmp_path / "package" / "near.py", 1)
    assert not corpus._leads_away(inside, 1)


def test_a_quoted_phrase_must_be_there() -> None:
    assert search('"no such phrase anywhere" layout') == []
    hits = search('"tiled copy" shared memory')
    assert hits
    for hit in hits:
        words = index.split_words(read(f"{hit.distribution}:{hit.path}", hit.first, hit.last)).lower()
        assert "tiled" in words and "cop" in words  # the index stems: copy, copies


@pytest.mark.slow
def test_a_damaged_index_is_built_again(smaller: None) -> None:
    index.index_path().parent.mkdir()
    index.index_path().write_bytes(b"no database")
    assert search("layout")


def test_a_cache_folder_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set XDG_CACHE_HOME to a folder that can be written"):
        search("layout")
    assert "\n" not in call_tool("search", '{"query": "layout"}')


def test_only_what_nobody_uses_any_more_is_removed(tmp_path: Path) -> None:
    now = time.time()
    for name, days in (
        ("search-mine", 90),
        ("search-other", 2),
        ("search-old", 31),
        ("a.building", 0),
        ("b.building", 1),
    ):
        place = tmp_path / (name if name.endswith("ing") else f"{name}.sqlite")
        place.touch()
        os.utime(place, (now - days * 86_400,) * 2)
    index._remove_unused(tmp_path / "search-mine.sqlite")
    assert {path.name for path in tmp_path.iterdir()} == {"search-mine.sqlite", "search-other.sqlite", "a.building"}


def test_tools_answer_in_text_whatever_they_are_given() -> None:
    assert [spec["function"]["name"] for spec in tool_specs()] == ["search", "read"]
    assert "helpers.py" in call_tool("search", '{"query": "make_tiled_tma_atom"}')
    for name, arguments in (
        ("search", "{}"),
        ("search", "not json"),
        ("read", '{"path": "/etc/passwd"}'),
        ("read", '{"path": 5, "first": "x"}'),
        ("write", "{}"),
        ("search", '{"query": ""}'),
        ("search", "[]"),
        ("search", "[" * 100_000),
        ("read", '{"path": "x", "first": Infinity}'),
    ):
        answer = call_tool(name, arguments)
        assert answer and "\n" not in answer


@pytest.mark.slow
def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    # fewer files are quicker
    program = (
        f"from workbench.search import corpus, search; corpus.DISTRIBUTIONS = {REQUIRED}; "
        "print(len(search('tiled copy')))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=110)[0].strip() for process in both] == ["5", "5"]
    assert [path.suffix for path in (tmp_path / "cutegen").iterdir()] == [".sqlite"]


@pytest.mark.slow
def test_without_the_optional_package_the_rest_is_searched(smaller: None) -> None:
    hits = search("persistent tile scheduler")
    assert hits and all(hit.distribution != corpus.OPTIONAL for hit in hits)
    assert (
        call_tool("search", '{"query": "layout"}').endswith(corpus.missing_packages_note())
        and "pip install" in corpus.missing_packages_note()
    )


def test_a_pattern_has_an_example_in_a_kernel_of_ours_that_can_be_read() -> None:
    found = find_example("coalesced copy shared memory transpose")
    assert found is not None and "transpose" in found.symbol and found.path.startswith("workbench:kernels/")
    assert len(found.lines) == found.last - found.first + 1 <= 6 and any("cute." in line for line in found.lines)
    assert read(found.path, found.first, found.last).splitlines()[0].startswith(found.lines[0][:60])
    assert find_example("zyxwv qqqq") is None and find_example("") is None


def test_most_advised_patterns_have_an_example() -> None:
    probes = (Path(index.__file__).parents[1] / "probes").glob("*.py")
    patterns = {text for path in probes for text in re.findall(r'pattern="([^"]+)"', path.read_text())}
    assert len(patterns) >= 20 and sum(find_example(text) is not None for text in patterns) >= len(patterns) * 0.8


def test_an_example_never_waits_for_an_index(smaller: None, tmp_path: Path) -> None:
    assert find_example("swizzled shared memory layout atom") is None and not list(tmp_path.iterdir())
