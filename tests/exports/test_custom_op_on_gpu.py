"""A custom op on a GPU: inductor, CUDA graphs, streams, threads, gradients."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest
import torch
from running_exports import ON_GPU, draw_rows, gradients, load_wide_linear

pytestmark = ON_GPU


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load_wide_linear(tmp_path_factory.mktemp("linear"))


@pytest.fixture
def pair(module: ModuleType) -> tuple[Any, Any]:
    """The operator's module and the reference, with the same parameters."""
    kernel, reference = module.ModelNew(128, 512).cuda(), module.Model(128, 512).cuda()
    reference.load_state_dict(kernel.state_dict())
    return kernel, reference


def expect_close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"mode": "reduce-overhead"}], ids=str)
def test_under_inductor(pair: tuple[Any, Any], options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    kernel, reference = (torch.nn.Sequential(torch.nn.Tanh(), model, torch.nn.Softmax(-1)) for model in pair)
    compiled = torch.compile(kernel, fullgraph=True, **options)
    for rows in (256, 96, 96, 128) if "mode" not in options else (256, 256, 256):
        x = draw_rows(rows)
        with torch.no_grad():
            expect_close(compiled(x).clone(), reference(x))
        expect_close(gradients(compiled, x), gradients(reference, x))


def test_in_a_cuda_graph(pair: tuple[Any, Any]) -> None:
    kernel, reference = pair
    x = draw_rows()
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                kernel(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = kernel(x)
        for _ in range(3):
            x.copy_(draw_rows())
            kernel.linear.bias.add_(0.5)  # parameters that change in place are read anew
            reference.linear.bias.add_(0.5)
            graph.replay()
            expect_close(y, reference(x))


def test_on_the_current_stream(pair: tuple[Any, Any]) -> None:
    kernel, reference = pair
    stream, x = torch.cuda.Stream(), draw_rows()
    with torch.no_grad():
        kernel(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # what comes after it on this stream waits; another stream would not
            changed = x * 2
            y = kernel(changed)
        torch.cuda.synchronize()
        expect_close(y, reference(x * 2))


def test_gradients_views_and_inference_mode(pair: tuple[Any, Any]) -> None:
    kernel, reference = pair
    wide = torch.randn(300, 131, device="cuda")
    for x in (draw_rows(), wide[1:257, 3:], wide[2:, :128], draw_rows(0)):
        expect_close(gradients(kernel, x), gradients(reference, x))
        with torch.inference_mode():
            expect_close(kernel(x), reference(x))


def test_torch_checks_the_operator(pair: tuple[Any, Any]) -> None:
    kernel, _ = pair
    torch.library.opcheck(kernel.operator, (draw_rows().requires_grad_(), list(kernel.parameters()), kernel.handle))


def test_training_step(pair: tuple[Any, Any]) -> None:
    losses = []
    x = draw_rows()
    for model in pair:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_threads(pair: tuple[Any, Any]) -> None:
    kernel, reference = pair
    found: list[bool] = []

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(20):
                x = draw_rows()
                expect_close(kernel(x), reference(x))
        found.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
