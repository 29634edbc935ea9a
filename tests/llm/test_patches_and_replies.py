"""Line patches against a reference implementation, and what is made of awkward replies."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.proposers.llm.patches import Patch, apply_patches, number_lines, parse_patches
from workbench.proposers.llm.replies import Unusable, extract_code, extract_json

FILE = "import torch\n\n\nclass ModelNew:\n    pass\n"


@st.composite
def files_and_patches(draw: st.DrawFn) -> tuple[list[str], list[Patch]]:
    """A file of distinct lines, and patches that do not overlap, in any order."""
    lines = [f"line {n}" for n in range(draw(st.integers(1, 12)))]
    patches, at = [], 1
    while at <= len(lines) + 1:
        kind = draw(st.sampled_from(["keep", "replace", "delete", "insert", "insert+replace"]))
        new = tuple(draw(st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3)))
        if "insert" in kind:
            patches.append(Patch(action="insert", line_number=at, lines=new))
        if kind in ("replace", "delete", "insert+replace") and at <= len(lines):
            count = draw(st.integers(1, len(lines) - at + 1))
            patches.append(
                Patch(
                    action="delete" if kind == "delete" else "replace",
                    line_number=at,
                    num_lines=count,
                    lines=() if kind == "delete" else new,
                )
            )
            at += count - 1
        at += 1
    return lines, draw(st.permutations(patches))


def reference(lines: list[str], patches: list[Patch]) -> list[str]:
    """Walk the old lines from the top and write the new ones; nothing is changed in place."""
    out: list[str] = []
    at = 1
    while at <= len(lines) + 1:
        for patch in patches:
            if patch.action == "insert" and patch.line_number == at:
                out += patch.lines
        change = next((p for p in patches if p.action != "insert" and p.line_number == at), None)
        if change is not None:
            out += change.lines
            at += change.num_lines
        else:
            out += lines[at - 1 : at]
            at += 1
    return out


@given(files_and_patches())
def test_bottom_up_equals_the_reference(case: tuple[list[str], list[Patch]]) -> None:
    lines, patches = case
    source = "\n".join(lines) + "\n"
    wanted = "\n".join(reference(lines, patches)) + "\n"
    if wanted == source:
        with pytest.raises(Unusable, match="change nothing"):
            apply_patches(source, tuple(patches))
    else:
        assert apply_patches(source, tuple(patches)) == wanted


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "non-empty"),
        ("x", "non-empty"),
        ([1], "patch 1 is not an object"),
        ([{"action": "move", "line_number": 1}], "'move' is not one of"),
        ([{"action": "delete", "line_number": 0}], "integers from 1"),
        ([{"action": "replace", "line_number": True, "new_code": "x"}], "integers from 1"),
        ([{"action": "replace", "line_number": 1}], "needs new_code"),
        ([{"action": "insert", "line_number": 1, "new_code": 5}], "string or a list"),
    ],
)
def test_bad_patches_say_why(value: object, said: str) -> None:
    with pytest.raises(Unusable, match=said):
        parse_patches(value)


@pytest.mark.parametrize(
    ("patches", "said"),
    [
        ([{"action": "delete", "line_number": 9}], "outside the file, which has 5"),
        (
            [
                {"action": "delete", "line_number": 2, "num_lines": 2},
                {"action": "replace", "line_number": 3, "new_code": "x"},
            ],
            "both change line 3",
        ),
        (
            [
                {"action": "delete", "line_number": 1, "num_lines": 2},
                {"action": "insert", "line_number": 2, "new_code": "x"},
            ],
            "inside the lines",
        ),
        ([{"action": "replace", "line_number": 5, "new_code": "    pass"}], "change nothing"),
    ],
)
def test_patches_that_do_not_fit(patches: list[object], said: str) -> None:
    with pytest.raises(Unusable, match=said):
        apply_patches(FILE, parse_patches(patches))


def test_numbered_lines_are_those_that_patches_mean() -> None:
    assert number_lines(FILE).splitlines()[3] == "   4| class ModelNew:"
    assert (
        apply_patches(
            FILE,
            parse_patches([{"action": "replace", "line_number": 4, "new_code": "class ModelNew(torch.nn.Module):"}]),
        )
        .splitlines()[3]
        .endswith("Module):")
    )


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{FILE}```",
        f"Here it is:\n\n```py\n{FILE}```\nEnjoy!",
        f"```\n{FILE}```",
        f"~~~python\n{FILE}~~~",
        f"```bash\nls\n```\n```python\nimport os\n```\n```python\n{FILE}```",
        FILE,
        f"````python\n{FILE}````",
    ],
)
def test_code_is_found(text: str) -> None:
    assert extract_code(text) == FILE


@pytest.mark.parametrize(
    ("text", "finish", "said"),
    [
        ("", "stop", "empty"),
        ("  \n", "stop", "empty"),
        ("I cannot help with that.", "stop", "no Python code block"),
        (f"```python\n{FILE}", "length", "cut off at its length limit"),
        (f"```python\n{FILE}", "stop", "ends inside"),
        ("```python\nx = 1\n```", "stop", "defines class ModelNew"),
        (f"```python\n{FILE}```\n```python\n{FILE}# two\n```", "stop", "2 different code blocks"),
    ],
)
def test_unusable_replies_say_why(text: str, finish: str, said: str) -> None:
    with pytest.raises(Unusable, match=said):
        extract_code(text, finish)


def test_the_same_block_twice_is_one() -> None:
    assert extract_code(f"```python\n{FILE}```\nAgain:\n```python\n{FILE}```") == FILE


def test_thinking_is_no_answer() -> None:
    assert extract_code(f"<think>\n```python\nclass ModelNew: pass\n```\n</think>\n```python\n{FILE}```") == FILE
    assert extract_json('<think>[{"a": 0}]</think>[{"a": 1}]') == [{"a": 1}]
    with pytest.raises(Unusable, match="before the answer began"):
        extract_code("<think> it goes on and on", "length")


def test_half_a_character_is_no_code() -> None:
    with pytest.raises(Unusable, match="no JSON"):
        extract_json('[{"new_code": "\\ud83d"}]')


def test_json_is_found_and_large_replies_are_linear() -> None:
    assert extract_json('Because.\n```json\n[{"a": 1}]\n```') == [{"a": 1}]
    assert extract_json('[{"new_code": "a\nb"}]') == [{"new_code": "a\nb"}]
    with pytest.raises(Unusable, match="no JSON"):
        extract_json("nothing here")
    start = time.monotonic()
    for text in ("```python\n" * 100_000, "[" * 1_000_000, "`" * 1_000_000, "x\n" * 500_000):
        for read_it in (extract_code, extract_json):
            with pytest.raises(Unusable):
                read_it(text)
    assert time.monotonic() - start < 40
