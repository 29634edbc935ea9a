"""The maps over mix and p show what the results say, in every form, from the command and from the magic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.errors import UserError
from workbench.graphs.datasets import save
from workbench.graphs.study import Studied, Study, make_study, read_recorded, run_study
from workbench.graphs.sweep import read_rows
from workbench.views.plots.knob_map import draw_knobs

SMALL = Study(nodes=1200, features=8, mix=(0.0, 1.0), p=(0.5, 1.0), epochs=0, batch=128, fanouts=(4, 4), cache_kib=16)
OPTIONS = [
    "--nodes",
    "1200",
    "--features",
    "8",
    "--mix",
    "0,1",
    "--p",
    "0.5,1",
    "--epochs",
    "0",
    "--batch",
    "128",
    "--fanouts",
    "4,4",
]


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Studied:
    study = dataclasses.replace(SMALL, baselines=("labor", "norand"), epochs=1, seeds=2)
    return run_study(study, tmp_path_factory.mktemp("rows") / "rows.jsonl")


def test_each_cell_is_the_mean_of_its_seeds(studied: Studied) -> None:
    maps = draw_knobs(studied).plotly["data"][::2]  # each with a trace that writes on its cells
    assert len(maps) == 5
    rows = maps[0]
    assert (rows["x"], rows["y"]) == (["0", "1"], ["0.5", "1"])
    for j, p in enumerate((0.5, 1.0)):
        for i, mix in enumerate((0.0, 1.0)):
            own = [r for r in studied.results if r.policy.name == "comm-rand" and r.policy.knobs == (mix, p)]
            assert len(own) == 2
            mean = sum(one.locality.unique_rows for one in own) / 2
            written = rows["hovertext"][j][i].split(": ")[1].split(" at mix")[0]
            assert float(written.removesuffix(" k")) * (1000 if written.endswith(" k") else 1) == pytest.approx(
                mean, rel=1e-3
            )
    assert rows["z"][1][0] == 1 and min(map(min, rows["z"])) == 0  # fewest rows at mix 0 and p 1: the best
    hits = maps[2]
    assert hits["z"][1][0] == 1 and hits["z"][0][1] == 0  # and the most hits


def test_every_form_has_every_number(studied: Studied) -> None:
    shown = draw_knobs(studied)
    assert shown.text.count("comm-rand") == 8 and "labor" in shown.text and "norand" in shown.text
    for trace in shown.plotly["data"][1::2]:
        assert len(trace["text"]) == 4 and all(f">{written}</text>" in shown.svg for written in trace["text"])
    assert shown.svg.count("<rect") == 5 * 4 and "currentColor" in shown.svg


def test_without_training_there_are_no_times_and_accuracies(tmp_path: Path) -> None:
    shown = draw_knobs(run_study(SMALL, tmp_path / "rows.jsonl"))
    assert len(shown.plotly["data"]) == 2 * 3 and "—" in shown.text
    only = run_study(dataclasses.replace(SMALL, mix=(), baselines=("labor",)), tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match="no pair of mix and p was measured"):
        draw_knobs(only)


def test_the_command_measures_once_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, picture = tmp_path / "rows.jsonl", tmp_path / "knobs.svg"
    call = ["minibatch", *OPTIONS, "--rows", str(rows), "--svg", str(picture)]
    assert main(call) == 0
    first = capsys.readouterr().out
    assert "4 of 4: comm-rand mix=1 p=1" in first and picture.read_text().startswith("<svg")
    kept = rows.read_text()
    assert main([*call, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "of 4" not in err and rows.read_text() == kept
    assert json.loads(out)["text"] in first
    for options, said in (
        (["--mix", "2"], "mix=2.0: it goes from 0 to 1"),
        (["--seeds", "0"], "one seed is the least"),
        (["--epochs", "-1"], "epochs=-1"),
        (["nowhere"], "no graph 'nowhere': name a generator"),
        (["--cache-kib", "0"], "holds no row"),
    ):
        assert main(["minibatch", *OPTIONS, "--rows", str(rows), *options]) == 2
        assert said in capsys.readouterr().err


def test_a_study_has_the_options_of_the_command(tmp_path: Path) -> None:
    made = make_study({"mix": (0.5,), "p": None, "graph": "ba", "rows": "x", "cache_kib": 64})
    assert made == Study(graph="ba", mix=(0.5,), cache_kib=64)
    for name, nodes in (("ba", 500), ("rmat", 512)):
        graph = dataclasses.replace(SMALL, graph=name, nodes=nodes).make_graph()
        assert graph.nodes <= nodes and graph.features.shape[1] == 8


def test_the_default_file_is_beside_the_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path))
    assert main(["minibatch", *OPTIONS, "--mix", "0", "--p", "1"]) == 0
    assert len((tmp_path / "minibatch/sbm.jsonl").read_text().splitlines()) == 1


def test_the_recorded_maps_name_their_device_and_day(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = read_recorded()
    first = recorded.results[0]
    pairs = {one.policy.knobs for one in recorded.results if one.policy.name == "comm-rand"}
    assert len(pairs) == len({mix for mix, _ in pairs}) * len({p for _, p in pairs}) >= 9
    assert {one.device for one in recorded.results} == {first.device}
    assert all(len(one.curve) == first.training.epochs for one in recorded.results)  # a fixed number of epochs
    assert main(["minibatch", "--recorded", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    title = shown["text"].splitlines()[0]
    assert [one["locality"]["unique_rows"] for one in shown["results"]] == [
        result.locality.unique_rows for result in recorded.results
    ]
    assert f"epochs on {first.device}" in title and recorded.recorded in title and "recorded on 20" in title
    assert f"cache of {recorded.study.cache_kib >> 10} MiB" in title or f"{recorded.study.cache_kib} KiB" in title
    assert len(draw_knobs(recorded).plotly["data"]) == 2 * 5


def test_a_study_says_where_features_lie_and_what_counted_hits(tmp_path: Path) -> None:
    study = dataclasses.replace(SMALL, place="host", epochs=1, mix=(0.5,), p=(0.9,), cache_kib=32)
    studied = run_study(study, tmp_path / "rows.jsonl")
    training = studied.results[0].training
    assert (training.features, training.prefetch) == ("host", 2)
    assert "on CPU, features in the host's memory: mix and p" in draw_knobs(studied).text
    row = next(read_rows(tmp_path / "rows.jsonl"))
    assert row.cache is not None and row.cache.capacity_bytes == 32 << 10


def test_a_list_of_edges_gets_features_and_a_file_with_labels_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{n} {(n + step) % 200}\n" for n in range(200) for step in (1, 2)))
    study = dataclasses.replace(SMALL, graph=str(path), epochs=1, mix=(1.0,), p=(0.5,))
    made = study.make_graph()
    assert made.features.shape == (200, 8) and made.train.any() and made.labels.min() >= 0
    assert "mine.txt with drawn features" in draw_knobs(run_study(study, tmp_path / "rows.jsonl")).text
    save(made, tmp_path / "own.npz")
    kept = dataclasses.replace(study, graph=str(tmp_path / "own.npz"), features=3).make_graph()
    assert kept.features.shape == (200, 8)
