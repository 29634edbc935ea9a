"""The L2 of the device: least recently used out, order of requests, re-use between CTAs by tensor and by line."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from workbench.emulator import emulated
from workbench.emulator.emulation import Emulation
from workbench.emulator.timing.device_cache import WAYS, find_missing, find_missing_by_half, spread_over_sets
from workbench.emulator.timing.l2_trace import order_requests
from workbench.records import L2Traffic, Profile
from workbench.views.text.l2_report import describe_l2, l2_tables

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from running import load  # programs of the language as modules

NODES, ROWS, DEGREE, COLUMNS = 2048, 256, 8, 64


def count_one_by_one(lines: list[int], masks: list[int], capacity: int) -> list[int]:
    """The same cache, request by request."""
    sets = max(capacity // (128 * WAYS), 1)
    content: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(sets)]
    missing = []
    for line, mask in zip(lines, masks, strict=True):
        own = content[int(spread_over_sets(np.array([line]), sets)[0])]
        before = own.pop(line, 0)
        missing.append(mask & ~before)
        own[line] = before | mask
        if len(own) > WAYS:
            own.popitem(last=False)
    return missing


@pytest.mark.parametrize(("capacity", "different"), [(16_384, 300), (65_536, 300), (131_072, 3000), (2048, 20)])
def test_least_recently_used_lines_go_first(capacity: int, different: int) -> None:
    draw = np.random.default_rng(3)
    lines = (draw.pareto(1.0, 5000) * 10).astype(np.int64) % different
    masks = draw.integers(1, 16, 5000).astype(np.uint8)
    assert find_missing(lines, masks, capacity).tolist() == count_one_by_one(lines.tolist(), masks.tolist(), capacity)


def test_ctas_in_flight_take_turns_and_the_next_starts_when_one_ends() -> None:
    ctas = np.array([0, 0, 0, 1, 2, 2])
    assert ctas[order_requests(ctas, 1)].tolist() == [0, 0, 0, 1, 2, 2]
    assert ctas[order_requests(ctas, 2)].tolist() == [0, 1, 0, 2, 0, 2]
    assert ctas[order_requests(ctas, 9)].tolist() == [0, 1, 2, 0, 2, 0]
    assert order_requests(np.array([1, 0, 1, 0]), 2).tolist() == [1, 0, 3, 2]


def test_a_line_is_missed_by_each_half_that_asks_for_it_after_its_home() -> None:
    lines, masks = np.repeat(np.arange(64), 3), np.full(192, 15, dtype=np.uint8)
    home = np.repeat(spread_over_sets(np.arange(64), 2), 3)
    assert 0 < home.sum() < len(home)
    for halves in ([0, 0, 0], [0, 1, 1], [1, 0, 1]):
        far = np.tile(np.array(halves), 64)
        missing = find_missing_by_half(lines, masks, far, 1 << 20)
        begins = np.arange(0, 192, 3)
        assert (missing[begins] == 15).all()  # the first of all
        crosses = far[1::3] != far[::3]  # the second comes from the other half: it hits if that is the line's home
        assert ((missing[1::3] == 0) == (~crosses | (far[1::3] == home[1::3]))).all()
        assert (missing[2::3] == 0).all()  # both halves have asked, or the same one again


def follow(local: bool, share: float) -> L2Traffic:
    """What an aggregation asks of L2."""
    found = follow_all(local, share).launches[0].l2
    assert found is not None
    return found


def follow_all(local: bool, share: float) -> Emulation:
    """An emulated aggregation; with `local` the rows of neighbouring CTAs have the same neighbours."""
    generator = torch.Generator().manual_seed(0)
    communities = NODES // 8
    start = torch.arange(ROWS)[:, None] // 32 * communities if local else torch.zeros(ROWS, 1, dtype=torch.int64)
    indices = start + torch.randint(0, communities if local else NODES, (ROWS, DEGREE), generator=generator)
    x, indptr = torch.randn(NODES, COLUMNS), torch.arange(ROWS + 1) * DEGREE
    text = "aggregate(x, indptr, indices) .arch(sm_90a) .threads_per_row(16) .rows(8)"
    module, path = load(text, ("x", "indptr", "indices"), ())
    with emulated(arch="sm_90a", device="H200", source_file=str(path), l2_share=share) as emulation:
        emulation.names = {x.data_ptr(): "x", indices.data_ptr(): "indices"}
        module.ModelNew()(x, indptr, indices.reshape(-1))
    return emulation


def test_reuse_between_ctas_follows_the_order_of_data() -> None:
    random, local, whole = follow(False, 0.0006), follow(True, 0.0006), follow(False, 1.0)
    x = {name: next(use for use in found.tensors if use.name == "x") for name, found in (("r", random), ("l", local))}
    assert x["l"].hit_rate > 0.2 > 0.1 > x["r"].hit_rate and random.loaded > 2 * ROWS * DEGREE
    assert local.touched <= local.fetched < 1.1 * local.touched  # a community fits
    assert random.fetched > 1.3 * random.touched  # the graph does not
    assert whole.fetched == whole.touched < whole.missed < 2 * whole.touched and whole.capacity == 60 << 20
    assert sum(use.missed for use in whole.tensors) == sum(use.missed for use in whole.lines) == whole.missed
    assert whole.stored == ROWS * COLUMNS // 8
    source = next(use for use in random.lines if use.loaded == max(one.loaded for one in random.lines))
    assert (source.loaded, source.missed) == (x["r"].loaded, x["r"].missed)


def test_a_scaled_cache_is_said_in_words() -> None:
    wanted = "of the device's, as the inputs of this case have that share of the full case's bytes"
    assert wanted in describe_l2(follow(True, 0.0006))
    assert "of the device's" not in describe_l2(follow(True, 1.0))


def test_a_tensor_without_a_name_is_shown_by_its_shape() -> None:
    launch = follow_all(False, 1.0).launches[0]
    profile = Profile(launches=(launch,), builds=(), occupancy=(), limits=(), findings=(), summary="")
    [(text, _)] = l2_tables(profile, "")
    rows = [line.split() for line in text.splitlines() if line.startswith("tensor")]
    assert ["tensor", "x"] in [row[:2] for row in rows]
    assert ["tensor", "[257]", "int64"] in [row[:3] for row in rows]
