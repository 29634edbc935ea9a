"""Every kernel is launched on torch's current stream: in all emitted texts and in the emulator's driver calls."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from workbench import emulated
from workbench.codegen import compile_program
from workbench.emulator.hook import Emulation
from workbench.language import Binding, parse
from workbench.language.operation import operands
from workbench.language.registry import OPERATIONS

INIT = "def __init__(self):\n    super().__init__()\n"
WGMMA = ".arch(sm_90a) .mma(bf16) .schedule(cooperative) .tile(64, 64, 64)"
PROGRAMS = (
    "topk(x, k=3)",
    "flip(x, axes=-1)",
    "roll(x, axes=-1, shifts=1)",
    "pad(x, axes=-1, before=1, after=1)",
    "interpolate(x, axes=-1, scale=2, mode=linear)",
    "concat(x, y, axis=1)",  # each text that an emitter has, of each operation
    "elementwise(relu(x))",
    "elementwise(relu(x)) .vector(4)",
    "elementwise(add(x, spread(b))) .vector(4) .unroll(2)",
    "elementwise(add(stream, cuda))",
    "softmax(x)",
    "softmax(x) .threads_per_row(128) .vector(4) .kept()",
    "softmax(x) .parts(32)",
    "softmax(x, axis=first)",
    "softmax(x) .arch(sm_90a) .threads_per_row(128) .cluster(2)",
    "log_softmax(x)",
    "log_softmax(x) .unroll(2)",
    "layernorm(x)",
    "layernorm(x, axis=last(2))",
    "layernorm(x) .parts(8)",
    "rmsnorm(x)",
    "rmsnorm(x) .unroll(2)",
    "crossentropy(x, target)",
    "matvec(x, vector)",
    "matvec(x, vector) .parts(8)",
    "matvec(x, vector) .threads_per_row(64) .rows(4)",
    "reduce(x)",
    "reduce(x, op=max, axis=middle)",
    "reduce(x, op=max, axis=1) .arch(sm_90a) .through(shared)",
    "reduce(x, axis=middle) .split(4)",
    "reduce(x, op=argmax, axis=1) .parts(8)",
    "reduce(x, axis=all) .parts(32)",
    "rowwise(div(x, sqrt(sum(mul(x, x)))))",
    "rowwise(mul(sub(x, mean(x)), spread(b)), axis=1) .split(2)",
    "batchnorm(x) .parts(32)",
    "batchnorm(x, running=1) .parts(32)",
    "batchnorm(x, axis=first) .split(4) .parts(32)",
    "batch_norm_stats(x, running=1) .parts(32)",
    "groupnorm(x, groups=2)",
    "groupnorm(x, groups=2) .parts(8)",
    "groupnorm_means(x, groups=2)",
    "instancenorm(x)",
    "scan(x)",
    "scan(x) .schedule(lookback)",
    "scan(x, axis=0)",
    "scan(x, exclusive=2)",
    "scan(mul(stream, m), reverse=1)",
    "gather(x, index)",
    "gather(x, index, layers=1)",
    "aggregate(x, indptr, indices)",
    "aggregate(x, indptr, indices) .merge_path(32)",
    "sddmm(q, k, indptr, indices)",
    "sddmm(q, k, indptr, indices, op=add)",
    "segment_softmax(x, indptr)",
    "aggregate(x, indptr, indices, weighted=1) .rows(4) .split(8)",
    "scatter_add(out, index, src)",
    "scatter_add(out, index, src, layers=1)",
    "scatter_max(out, index, src)",
    "poolwise(mean(x), window=2)",
    "pool(x, window=2) .schedule(cells) .rows(4)",
    "pool(x, window=size(2, 2))",
    "pool(x, op=avg, window=3, stride=2)",
    "pool(x, window=all)",
    "pool(x, op=avg, window=size(2, 2), padding=1)",
    "gemm(a, b)",
    "gemm(a, b) .tile(64, 64, 16) .thread_tile(4, 4) >> bias() >> relu()",
    "gemm(a, b) .mma(bf16)",
    "gemm(a, b) .mma(f16) .stages(3)",
    "gemm(a, b) .mma(tf32) .stages(3)",
    f"gemm(a, b) {WGMMA}",
    f"gemm(a, b) {WGMMA} .splitk(2)",
    f"gemm(a, b) {WGMMA} .splitk(2, cluster)",
    f"gemm(a, b) {WGMMA} .streamk(yes)",
    f"gemm(a, b) {WGMMA} .swap() .launch(early) >> residual()",
    f"gemm(a, b) {WGMMA} >> rowsum()",
    "gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(128, 128, 64) .schedule(pingpong)",
    "gemm(a, b) .arch(sm_90a) .mma(tf32) .schedule(cooperative) .through(registers)",
    f"ggemm(a, b, offsets) {WGMMA}",
    "conv(x, w)",
    "conv(x, w, padding=1) >> bias()",
    "conv(x, w) .mma(bf16)",
    "conv(x, w) .arch(sm_90a) .mma(bf16) .schedule(cooperative)",
    "convtranspose(x, w)",
    "convtranspose(x, w, stride=2) .arch(sm_90a) .mma(bf16) .schedule(cooperative)",
    "attention(q, k, v)",
    "attention(q, k, v, causal=1) .mma(bf16)",
    "attention(q, k, v) .schedule(stages)",
    "attention(q, k, v) .arch(sm_90a) .mma(bf16) .schedule(flash)",
    "attention(q, k, v) .arch(sm_90a) .mma(bf16) .schedule(stages)",
    "h = gemm(x, w) .tile(64, 64, 16) .thread_tile(4, 4) >> bias(c) |> stream = softmax(h) |> "
    "elementwise(relu(stream))",
)


def emitted(text: str) -> str:
    written = {stage.result for stage in parse(text).stages}
    names = {
        name: name
        for stage in parse(text).stages
        for name in operands(OPERATIONS[stage.operation.name], stage).values()
        if name not in written
    }
    return compile_program(text, Binding(init_source=INIT, forward_arguments=tuple(names)))


def called(node: ast.AST, name: str) -> list[ast.Call]:
    return [
        item
        for item in ast.walk(node)
        if isinstance(item, ast.Call)
        and (
            item.func.attr
            if isinstance(item.func, ast.Attribute)
            else item.func.id
            if isinstance(item.func, ast.Name)
            else ""
        )
        == name
    ]


def test_the_programs_have_every_operation() -> None:
    assert {stage.operation.name for text in PROGRAMS for stage in parse(text).stages} == set(OPERATIONS) - {
        "view",
        "outputs",
        "store",
    }  # which launch nothing


@pytest.mark.few(16)
@pytest.mark.parametrize("text", PROGRAMS)
def test_every_launch_has_the_stream_that_call_passes(text: str) -> None:
    tree = ast.parse(emitted(text))
    launches = [item for item in called(tree, "launch") if isinstance(item.func, ast.Attribute)]
    assert launches
    assert all(
        any(word.arg == "stream" and ast.unparse(word.value) == "stream" for word in launch.keywords)
        for launch in launches
    )
    # `call` launches, and `compile_launch` compiles: nothing else knows which stream is current without TVM FFI
    assert len(called(tree, "CUstream")) == 2
    assert len(called(tree, "current_stream")) == 2 + (".streamk" in text), (
        "and what is kept for each stream is found by it"
    )
    for function in (
        item
        for item in ast.walk(tree)
        if isinstance(item, ast.FunctionDef) and called(item, "launch") and item.name != "call"
    ):
        kinds = [ast.unparse(item.annotation) if item.annotation else "" for item in function.args.args]
        assert kinds.count("cuda.CUstream") == 1
        at = kinds.index("cuda.CUstream")
        assert function.args.args[at].arg == "stream"
        assert "cutlass.Constexpr" not in kinds[:at] and set(kinds[at + 1 :]) <= {"cutlass.Constexpr"}, (
            "after what changes from call to call, before what is compiled in"
        )


def loaded(folder: Path, text: str) -> ModuleType:
    path = folder / "candidate.py"
    path.write_text(emitted(text))
    spec = importlib.util.spec_from_file_location(f"on_streams_{abs(hash(text))}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def halves(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16)


RUN: tuple[tuple[str, Callable[[], tuple[torch.Tensor, ...]], int], ...] = (  # program, operands, launches of one call
    ("elementwise(relu(x))", lambda: (torch.randn(40),), 1),
    ("softmax(x) .threads_per_row(32) .vector(4) .kept()", lambda: (torch.randn(3, 32),), 1),
    ("crossentropy(x, target)", lambda: (torch.randn(3, 8), ints(1, 2, 3)), 2),
    ("reduce(x, axis=middle)", lambda: (torch.randn(2, 3, 8),), 1),
    ("rowwise(div(x, sum(x)))", lambda: (torch.rand(3, 32),), 1),
    (
        "batchnorm(x, running=1) .parts(8)",
        lambda: (torch.randn(2, 3, 8), *(torch.rand(3) for _ in range(4)), ints(0)),
        4,
    ),
    ("scan(x)", lambda: (torch.randn(2, 40),), 1),
    (
        "scatter_add(out, index, src)",
        lambda: (torch.randn(4, 3), torch.zeros(2, 3, dtype=torch.int64), torch.randn(2, 3)),
        2,
    ),
    (
        "scatter_max(out, index, src)",
        lambda: (torch.randn(4, 3), torch.zeros(2, 3, dtype=torch.int64), torch.randn(2, 3)),
        3,
    ),
    ("pool(x, window=size(2, 2))", lambda: (torch.randn(1, 2, 4, 4),), 1),
    ("gemm(a, b)", lambda: (torch.randn(4, 8), torch.randn(8, 6)), 1),
    (f"gemm(a, b) {WGMMA} .splitk(2)", lambda: (halves(20, 100), halves(100, 36)), 4),
    ("conv(x, w)", lambda: (torch.randn(1, 2, 4, 4), torch.randn(2, 2, 3, 3)), 1),
    ("attention(q, k, v) .mma(bf16)", lambda: tuple(halves(1, 1, 8, 16) for _ in range(3)), 1),
)


@pytest.mark.few(2)
@pytest.mark.parametrize(("text", "make", "count"), RUN, ids=[text for text, _, _ in RUN])
def test_the_driver_is_given_the_current_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, make: Callable[[], tuple[torch.Tensor, ...]], count: int
) -> None:
    seen: list[int] = []
    launch = Emulation.launch

    def noted(self: Emulation, name: str, image: bytes, config: Any, arguments: Any) -> None:
        seen.append(config.stream or 0)
        launch(self, name, image, config, arguments)

    monkeypatch.setattr(Emulation, "launch", noted)
    module = loaded(tmp_path, text)
    with emulated(device="H200" if "sm_90a" in text else "A100"):
        tensors = [tensor.cuda() for tensor in make()]
        model = module.ModelNew()
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        for stream in streams:  # compiled on the first, only launched on the second
            stream.wait_stream(streams[0])  # some write a running mean
            with torch.cuda.stream(stream):
                model(*tensors)
        torch.cuda.current_stream().wait_stream(streams[1])
        model(*tensors)
    assert seen == [streams[0].cuda_stream] * count + [streams[1].cuda_stream] * count + [0] * count


def test_a_graph_captures_the_call(tmp_path: Path) -> None:
    module = loaded(tmp_path, "softmax(x)")
    with emulated(device="A100") as emulation:
        x, graph = torch.randn(3, 20).cuda(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module.ModelNew()(x)
        assert not emulation.launches
        x.copy_(torch.randn(3, 20))
        graph.replay()
        assert len(emulation.launches) == 1
        torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))
