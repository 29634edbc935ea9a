"""Cases beyond the numbers with which forward compares positions, and what is said where none fits."""

from __future__ import annotations

import pytest
from window_text import WINDOW

from workbench import problems
from workbench.problems import inspection
from workbench.problems.tracing.whole import trace_full
from workbench.records import Facts

BUCKETS = """import math
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Embedding(32, 12)

    def forward(self, scores):
        rows, columns = scores.shape[-2:]
        distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
        buckets = (distance > 0).to(torch.long) * 16
        distance = torch.abs(distance)
        far = 8 + (torch.log(distance.float() / 8) / math.log(128 / 8) * 8).to(torch.long)
        far = torch.min(far, torch.full_like(far, 15))
        buckets += torch.where(distance < 8, distance, far)
        return torch.softmax(scores + self.bias(buckets).permute(2, 0, 1)[None], dim=-1)


def get_inputs():
    return [torch.randn(4, 12, 384, 384)]
"""


def inspect(text: str) -> Facts:
    return inspection.inspect(problems.load(text))


def beyond(facts: Facts) -> dict[str, object]:
    return next((dict(case.settings) for case in facts.cases if case.name == "beyond"), {})


def write(body: str, inputs: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return (
        f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{lines}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


def test_a_window_is_exceeded_by_a_case_of_its_own() -> None:
    facts = inspect(WINDOW)
    assert 128 < facts.size_values("beyond")["scores_1"] <= 144 and facts.size_values("beyond")["scores_0"] <= 2
    assert not facts.unreached


@pytest.mark.slow
def test_a_window_that_only_the_full_size_exceeds() -> None:
    facts = inspect(WINDOW.replace("128", "299").replace("1024", "300"))
    assert facts.size_values("beyond")["scores_1"] == 300


@pytest.mark.slow
def test_the_last_bucket_of_positions_is_reached() -> None:
    found = beyond(inspect(BUCKETS))
    assert max(int(str(found["scores_2"])), int(str(found["scores_3"]))) > 128


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("body", "least", "way"),
    [
        ("return torch.tril(x, diagonal=-150)", 151, "keeps"),
        ("return torch.triu(x, diagonal=-150)", 152, "drops"),
        ("return x[:, :200] * 2", 201, "cut"),
        ("i = torch.arange(x.shape[1])\nreturn x * (i[:, None] // 100 == i // 100)", 101, "false"),
        (
            "i = torch.arange(x.shape[1])\nreturn x * torch.where(i < 10, 1, (i.float() * 0.5).long() - 3 > 40)",
            89,
            "true",
        ),
        ("return x / torch.ones_like(x).cumsum(1).clamp(max=180)", 181, "above"),
        ("return x * torch.arange(x.shape[1]).float().sqrt().clamp(2, 4)", 18, "above"),
        ("i = torch.arange(x.shape[1])\nreturn x * torch.maximum(90 - i, torch.zeros_like(i))", 92, "less"),
    ],
)
def test_the_size_from_which_forward_takes_another_way(body: str, least: int, way: str) -> None:
    ways = [
        {
            (one.call, one.way)
            for one in trace_full(problems.load(write(body, f"torch.randn({n}, {n})"))).list_branches()
        }
        for n in (least - 1, least)
    ]
    assert [way in {one for _, one in ways[1] - ways[0]}, ways[0] - ways[1]] == [True, set()]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "body",
    [
        "return torch.tril(x)",
        "h = x.shape[1] // 2\nreturn torch.cat((-x[:, h:], x[:, :h]), 1)",
        "i = torch.arange(x.shape[1])\nreturn x.masked_fill(i[None] > torch.arange(x.shape[0])[:, None], 0.0)",
    ],
)
def test_no_case_is_added_where_the_others_show_all(body: str) -> None:
    facts = inspect(write(body, "torch.randn(600, 600)"))
    assert not beyond(facts) and not facts.unreached


def test_a_number_that_no_case_can_reach_is_named_with_its_line() -> None:
    facts = inspect(WINDOW.replace("128", "4096").replace("1024", "8192"))
    assert not beyond(facts)
    (said,) = facts.unreached
    assert said.startswith("the constant 4096 in line 3 was never reached: scores_1 is 1 to ")


def test_a_comparison_of_data_has_no_ways() -> None:
    body = "i = torch.arange(x.shape[1])\nreturn torch.where((x < 0.5) & (i * x > 3), x, x * i)"
    assert not trace_full(problems.load(write(body, "torch.randn(64, 64)"))).list_branches()
