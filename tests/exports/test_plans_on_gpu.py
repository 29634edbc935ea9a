"""Plans of exported files on a GPU: CUDA graphs, streams, views, threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from running_exports import ON_GPU, draw_rows, load_wide_linear

pytestmark = ON_GPU


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    module = load_wide_linear(tmp_path_factory.mktemp("linear"), form="kernelbench")
    made = module.ModelNew(128, 512).cuda()
    with torch.no_grad():
        made(draw_rows())
    assert [plan for item in vars(module).values() for plan in getattr(item, "plans", {}).values()] != [None]
    return made


def check(model: Any, found: torch.Tensor, x: torch.Tensor) -> None:
    torch.testing.assert_close(found, torch.nn.functional.gelu(model.linear(x)), rtol=2e-3, atol=2e-3)


@torch.no_grad()
def test_in_a_cuda_graph(model: Any) -> None:
    x = draw_rows()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    for _ in range(3):
        x.copy_(draw_rows())
        model.linear.bias.add_(0.5)
        graph.replay()
        check(model, y, x)


@torch.no_grad()
def test_on_the_current_stream(model: Any) -> None:
    stream, x = torch.cuda.Stream(), draw_rows()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what comes after it on this stream waits; another stream would not
        changed = x * 2
        y = model(changed)
    torch.cuda.synchronize()
    check(model, y, x * 2)


@torch.no_grad()
def test_views_and_other_sizes(model: Any) -> None:
    wide = torch.randn(300, 131, device="cuda")
    for _ in range(2):
        for x in (draw_rows(), wide[1:257, 3:], wide[2:258, :128], wide[3:258, :128], draw_rows(7), draw_rows(0)):
            check(model, model(x), x)


def test_threads(model: Any) -> None:
    found: list[bool] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(50):
                x = draw_rows()
                check(model, model(x), x)
        found.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
