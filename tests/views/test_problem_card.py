"""The card of a problem: what was understood of it, as text, HTML and JSON; what the planner can write of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.session import Session
from workbench.views.text.card_page import show_card
from workbench.views.text.problem_card import Card, describe_problem

OWN = Path(__file__).parent.parent / "problems" / "own"


def card_of(name: str) -> Card:
    path = OWN / f"{name}.py"
    with Session.create(str(path) if path.exists() else name, executor="emulator") as session:
        return describe_problem(session)


def section(text: str, title: str) -> list[str]:
    """The lines below a heading."""
    found = re.search(rf"^{title}\n((?:  .*\n?)+)", text, re.MULTILINE)
    return [re.sub(r"\s+", " ", line).strip() for line in found[1].splitlines()] if found else []


def test_every_part_of_a_norm_in_bf16_is_on_its_card() -> None:
    text = str(show_card(card_of("rms_norm_bf16_3d")))
    shape = "[hidden_states_0, hidden_states_1, hidden_states_2]"
    assert text.startswith("problem rms_norm_bf16_3d: norm, ") and "precision bf16, train mode" in text
    operations = section(text, "operations")
    assert operations[0] == f"_to_copy f32 {shape} <- to(hidden_states, f32)"
    assert "mean f32 [hidden_states_0, hidden_states_1, 1] <- mean(pow_1, [-1], True)" in operations
    assert operations[-1].startswith("mul_1 <- returned")
    assert section(text, "tensors") == [
        f"input hidden_states bf16 {shape}",
        "parameter weight bf16 [hidden_states_2]",
        f"output output0 bf16 {shape}",
    ]
    assert "hidden_states_2 4096 = hidden_size hidden_states[2], weight[0] varied" in section(text, "sizes")
    shrunk, odd, *_, full = section(text, "cases")
    assert shrunk.startswith("shrunk hidden_states [4, 128, 128] 1 trial against torch; values: random")
    assert "1 trial against torch; values: zeros and one sign, large" in odd and "not run here" in full
    assert section(text, "counted")[0].startswith("134.2 MFLOP in bfloat16")
    assert section(text, "bound") == ["27.96 µs on H200, limited by memory"]
    assert section(text, "planner")[0].startswith("rowwise(mul(spread(weight), to_bf16(")
    assert "--precision fp32|tf32|fp16|bf16" in text and "--vary NAME" in text and "--mode train|eval" in text


def test_extents_are_sizes_their_multiples_and_products() -> None:
    card = card_of("swiglu_fused")
    shapes = {line.name: line.shape for line in (*card.tensors, *card.operations)}
    assert shapes["gate_up.weight"] == ("2*hidden", "x_2") and shapes["down.weight"] == ("x_2", "hidden")
    assert shapes["mm"] == ("x_0*x_1", "2*hidden") and shapes["output0"] == ("x_0", "x_1", "x_2")


def test_two_sizes_of_one_value_are_not_confused() -> None:
    shapes = {line.name: line.shape for line in card_of("quantise_int8").operations}
    assert shapes["mm"] == ("B", "N") and shapes["mul"] == ("K", "N")


def test_a_size_that_no_case_varies_says_why() -> None:
    (row,) = [row for row in section(str(show_card(card_of("attention_gqa"))), "sizes") if row.startswith("q_1")]
    assert row == "q_1 32 q[1] not varied: the reference does not run with half of it"


def test_an_extent_that_is_shorter_than_its_size_has_its_length(tmp_path: Path) -> None:
    (tmp_path / "stepped.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, starts):\n"
        "        return x[0, starts]\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 4096), torch.arange(0, 4096, 16)]\n"
    )
    rows = section(str(show_card(card_of(str(tmp_path / "stepped.py")))), "sizes")
    assert next(row.split(" varied")[0] for row in rows if "starts[0]" in row).endswith("starts[0] is 256")
    assert not any("x[1] is" in row for row in rows)


def test_a_problem_without_a_kernel_has_the_reason_the_nearest_part_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sorted.py").write_text(
        "import torch\nn = 16\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x @ x.T).sort(-1)[0]\n\n"
        "def get_inputs():\n    return [torch.rand(n, n)]\n\ndef get_init_inputs():\n    return []\n"
    )
    card = card_of(str(tmp_path / "sorted.py"))
    found = card.coverage
    assert "no kernel for" in found.reason and found.part and 0 < found.calls < found.of
    plan = section(str(show_card(card)), "planner")
    assert plan[0].startswith("cannot write this: the planner has no kernel") and "the nearest that it can: " in plan[1]
    assert "%%cutegen edit" in plan[2] and "--by llm" in plan[2]


def test_every_stage_of_a_pipeline_is_in_its_program() -> None:
    assert card_of("mlp_bf16").coverage.program.count("gemm(") == 2


def test_the_page_is_static_themed_and_escaped() -> None:
    card = card_of("mlp_hard_coded")
    page = show_card(card, "own").html
    assert "<script" not in page and "var(--jp-ui-font-color1" in page and "var(--jp-border-color2" in page
    assert "&lt;- relu(addmm)" in page and "own; go on with %cutegen generate" in page
    plain = re.sub(r"<[^>]+>", " ", page)
    assert all(line.name in plain for line in (*card.operations, *card.tensors))


@pytest.mark.parametrize("given", [("softmax",), ("torch.relu(x + b)", "--inputs", "x: bf16[64, 32], b: bf16[32]")])
def test_the_command_line_shows_the_card_and_keeps_nothing(
    given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path / "sessions"))
    monkeypatch.chdir(tmp_path)
    assert main(["problem", *given]) == 0
    assert "planner\n" in capsys.readouterr().out
    assert main(["problem", *given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["coverage"]["program"] and document["bound"]["bound_s"] > 0
    trials = {case["name"]: case["trials"] for case in document["cases"]}
    assert trials.pop("over") == 6 and trials.pop("full") == 0 and {*trials.values()} == {1}
    assert {"shrunk", "odd", "tiny", "empty"} <= {*trials}
    assert not list(tmp_path.rglob("session.sqlite"))


def test_run_without_a_kernel_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import torch\nn = 8\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.linalg.inv(torch.relu(x) + torch.eye(x.shape[0]))\n\n"
        "def get_inputs():\n    return [torch.rand(n, n)]\n\ndef get_init_inputs():\n    return []\n"
    )
    assert main(["run", str(own), "--executor", "emulator"]) == 1
    said = capsys.readouterr().out
    assert "no version: cannot write this: the planner has no kernel for " in said and "no versions yet" not in said
    assert main(["run", str(own), "--executor", "emulator", "--json"]) == 1
    assert any("the nearest that it can" in line for line in json.loads(capsys.readouterr().out)["why"])


CACHE = """import torch


class Model(torch.nn.Module):
    def __init__(self, maxlen=4096, heads=8, dim=128):
        super().__init__()
        self.register_buffer("k_cache", torch.zeros(2, maxlen, heads, dim))

    def forward(self, k, pos: int, scale: float = 0.5, causal: bool = True):
        self.k_cache[:, pos : pos + k.shape[1]] = k * scale
        return self.k_cache[:, : pos + k.shape[1]]


def get_inputs():
    return [torch.randn(2, 16, 8, 128), 1000, 0.25]
"""


def test_the_card_of_a_cache_has_numbers_of_one_case_and_all_arguments(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text(CACHE)
    with Session.create(str(tmp_path / "cache.py"), root=tmp_path, executor="emulator") as session:
        card = describe_problem(session)
    assert card.traced == "full"
    assert "slice(k_cache, 1, 1000, 1016)" in [line.call for line in card.operations]
    assert [line[:3] for line in card.arguments] == [
        ("pos", "int", "1000"),
        ("scale", "float", "0.25"),
        ("causal", "bool", "True"),
    ]
    others = [case.values for case in card.cases if case.name.startswith("numbers")]
    assert others == ["pos = 625, scale = 0.109375", "pos = 1007, scale = -0.25"]
    assert [line[3] for line in card.arguments] == ["varied: also 625, 1007", "varied: also 0.109375, -0.25", ""]
    sizes = {size.name: size for size in card.sizes}
    lengths = {case.name: dict(case.sizes)["maxlen"] for case in card.cases if case.name != "full"}
    assert lengths.pop("odd") == 1280 and set(lengths.values()) == {1024}  # the reference writes from row 1000 on
    assert sizes["maxlen"].varied
    assert sizes["k_1"].varied
    text = show_card(card).text
    assert [line.split()[0] for line in section(text, "tensors")] == ["input", "buffer", "output", *["argument"] * 3]


def test_calls_of_a_long_scan_are_clipped(tmp_path: Path) -> None:
    (tmp_path / "scan.py").write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        h, out = x[:, 0], []\n"
        "        for t in range(x.shape[1]):\n            h = h * 0.5 + x[:, t]\n            out.append(h)\n"
        "        return torch.stack(out, 1)\n\ndef get_inputs():\n    return [torch.rand(8, 48, 32)]\n"
    )
    text = str(show_card(card_of(str(tmp_path / "scan.py"))))
    assert "more characters" in text and max(map(len, section(text, "operations"))) < 300
