"""Emitted files read as if written by hand: lint, format, and nothing that is not used. One program of each kernel."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruff.__main__ import find_ruff_bin

from workbench.codegen import compile_program
from workbench.language import OPERATIONS, Binding, parse

INIT = "def __init__(self):\n    super().__init__()\n"
SM80, SM90 = ".arch(sm_80)", ".arch(sm_90a)"
WGMMA = f"{SM90} .mma(bf16) .schedule(cooperative)"
NORMALISED = "div(exp(sub(x, max(x))), sum(exp(sub(x, max(x)))))"
PROGRAMS = {  # name of the file -> program
    "elementwise": f"elementwise(gelu(add(x, y))) {SM80} .vector(4)",
    "elementwise_unrolled": f"elementwise(mul(x, sigmoid(b))) {SM90} .vector(8) .unroll(2)",
    "softmax": f"softmax(x) {SM80} .threads_per_row(256) .vector(4) .kept()",
    "softmax_cluster": f"softmax(x) {SM90} .threads_per_row(256) .vector(4) .kept() .cluster(2)",
    "log_softmax": f"log_softmax(x, axis=1) {SM90} .split(4) .vector(4)",
    "layernorm": f"layernorm(x) {SM80} .threads_per_row(128) .vector(4)",
    "rmsnorm": f"rmsnorm(x) {SM90} .threads_per_row(64) .vector(4) .parts(4)",
    "reduce": f"reduce(x, op=argmax, keepdim=1) {SM80} .threads_per_row(64)",
    "reduce_all": f"reduce(x, op=sum, axis=all) {SM90} .vector(4) .parts(128)",
    "reduce_bulk": f"reduce(x, op=sum, axis=middle) {SM90} .through(shared)",
    "rowwise": f"rowwise({NORMALISED}) {SM90} .threads_per_row(64) .vector(4)",
    "crossentropy": f"crossentropy(x, target) {SM80} .threads_per_row(128)",
    "matvec": f"matvec(x, vector) {SM90} .threads_per_row(64) .rows(4) .vector(4) .unroll(2)",
    "batchnorm": f"batchnorm(x, running=1) {SM90} .threads_per_row(128) .vector(4) .parts(8)",
    "batch_norm_stats": f"batch_norm_stats(x, running=1, axis=first) {SM90} .split(4) .vector(4) .parts(8)",
    "groupnorm": f"groupnorm(x, groups=8) {SM80} .parts(32)",
    "instancenorm": f"instancenorm(x, affine=0) {SM90} .threads_per_row(128) .vector(4)",
    "scan_rows": f"scan(mul(x, mask)) {SM80} .schedule(rows)",
    "scan_lookback": f"scan(x, exclusive=2) {SM90} .schedule(lookback) .threads(128)",
    "pool": f"pool(x, window=3, stride=2, ceil=1) {SM80} .schedule(direct)",
    "groupnorm_means": f"groupnorm_means(x, groups=8) {SM80} .threads_per_row(64)",
    "poolwise": f"poolwise(tanh(mean(x)), op=max, window=size(2, 2)) {SM90} .unroll(2)",
    "pool_cells": f"pool(x, window=size(2, 2)) {SM90} .schedule(cells) .rows(2)",
    "gemm_map": f"gemm(a, b) {SM80} >> map(mul(value(), add(value(), spread(bias))))",
    "pool_strip": f"pool(x, op=avg, window=size(3, 3), padding=1) {SM90} .schedule(strip)",
    "gather": f"gather(x, index, axis=1, layers=1) {SM80}",
    "aggregate": f"aggregate(x, indptr, indices, op=mean) {SM90} .rows(2) .split(4) .threads_per_row(32)",
    "aggregate_merge_path": f"aggregate(x, indptr, indices, op=mean) {SM90} .rows(4) .merge_path(64)",
    "aggregate_weighted": f"aggregate(x, indptr, indices, weighted=1, empty=identity) {SM80} .split(2) "
    ".threads_per_row(16)",
    "sddmm": f"sddmm(q, k, indptr, indices) {SM90} .split(2) .unroll(2)",
    "sddmm_add": f"sddmm(q, k, indptr, indices, op=add) {SM80}",
    "segment_softmax": f"segment_softmax(x, indptr) {SM90} .split(4)",
    "scatter_add": f"scatter_add(out, index, src, axis=1) {SM90}",
    "scatter_max": f"scatter_max(out, index, src, layers=1) {SM90}",
    "parts": f"h = view(x, chunk=(1, 0, 2)) {SM80} |> g = concat(h, h, axis=1) {SM80} |> outputs(g, x) {SM80}",
    "state": f"h = store(x, x=y) {SM80} |> g = store(x, add=1) {SM80} |> outputs(x) {SM80}",
    "pad": f"h = pad(x, axes=(-2, -1), before=(1, 1), after=(1, -1), value=2) {SM80} .vector(4) |> "
    f"g = roll(h, axes=-2, shifts=1) {SM80} |> flip(g, axes=(-3, -1)) {SM80} >> relu() >> residual()",
    "interpolate": f"h = interpolate(x, axes=(-2, -1), scale=(2, 2), mode=linear) {SM90} |> pad(h, axes=-1, before=1, "
    f"after=1, mode=reflect) {SM90}",
    "largest": f"h = topk(x, k=3) {SM80} |> g = view(h, item=0) {SM80} |> outputs(g, x) {SM80}",
    "view": f"h = view(x, order=(1, 0, 2)) {SM80} |> elementwise(tanh(h)) {SM80} .vector(2)",
    "gemm_simt": f"gemm(a, b) {SM80} .tile(64, 64, 16) .thread_tile(4, 4) >> bias() >> relu()",
    "gemm_mma_sync": f"gemm(a, b) {SM80} .mma(f16) .tile(128, 128, 32) .stages(3) >> cast(f32)",
    "gemm_sm90": f"gemm(a, b) {WGMMA} .cluster(2, 1) >> residual() >> gelu()",
    "gemm_pingpong": f"gemm(a, b) {SM90} .mma(bf16) .schedule(pingpong) .tile(64, 128, 64)",
    "gemm_split_k": f"gemm(a, b) {WGMMA} .splitk(4) >> bias()",
    "gemm_split_k_cluster": f"gemm(a, b) {WGMMA} .tile(128, 128, 64) .splitk(2, cluster)",
    "gemm_stream_k": f"gemm(a, b) {WGMMA} .streamk(yes)",
    "gemm_stream_k_rowsum": f"gemm(a, b) {WGMMA} .streamk(yes) >> rowsum()",
    "gemm_tf32x3": f"h = gemm(a, b) {SM90} .mma(tf32x3) .schedule(cooperative) |> gemm(h, y) {SM90} .mma(tf32x3) "
    ".schedule(pingpong) .tile(64, 128, 32)",
    "ggemm": f"ggemm(a, b, offsets) {WGMMA} >> scale(0.5)",
    "conv_direct": f"conv(x, w, stride=2, padding=1) {SM80} >> bias()",
    "conv_rows": f"conv(x, w) {SM90} .rows(4)",
    "conv_mma_sync": f"conv(x, w) {SM80} .mma(tf32) .stages(3) >> bias() >> relu()",
    "conv_sm90": f"conv(x, w, padding=1) {SM90} .mma(tf32) .schedule(cooperative)",
    "conv_pointwise": f"conv(x, w) {SM80} .product() .mma(tf32)",
    "convtranspose": f"convtranspose(x, w, stride=2) {SM90} .mma(bf16) .schedule(pingpong)",
    "conv_halo": f"conv(x, w, padding=1) {SM90} .mma(tf32) .schedule(halo) >> bias() >> residual()",
    "convtranspose_patch": f"convtranspose(x, w, stride=2) {SM80} .mma(tf32) .schedule(patch) >> bias() >> residual()",
    "attention_sm80": f"attention(q, k, v, causal=1) {SM80} .mma(f16)",
    "attention_flash": f"attention(q, k, v) {SM90} .mma(bf16) .schedule(flash)",
    "attention_simt_mask": f"attention(q, k, v, mask=mask, hide=nonzero, fill=-1e9) {SM80}",
    "attention_sm80_mask": f"attention(q, k, v, mask=mask, hide=zero, empty=zero) {SM80} .mma(f16)",
    "attention_flash_mask": f"attention(q, k, v, causal=1, mask=mask) {SM90} .mma(bf16) .schedule(flash)",
    "attention_stages": f"attention(q, k, v) {SM90} .mma(f16) .schedule(stages) .tile(128, 64, 64)",
}  # fmt: skip
ARGUMENTS = (
    *("x", "y", "b", "a", "w", "q", "k", "v", "weight", "bias", "mask", "index", "out", "src", "target", "vector"),
    *("offsets", "residual", "running_mean", "running_var", "batches", "indptr", "indices"),
)
RUFF = ("--isolated", "--no-cache", "--line-length", "120")


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of each program."""
    folder = tmp_path_factory.mktemp("emitted")
    paths = {name: folder / f"{name}.py" for name in PROGRAMS}
    for name, path in paths.items():
        path.write_text(compile_program(PROGRAMS[name], Binding(init_source=INIT, forward_arguments=ARGUMENTS)))
    return paths


def test_every_operation_and_architecture_is_among_the_programs() -> None:
    stages = [stage for text in PROGRAMS.values() for stage in parse(text).stages]
    assert {stage.operation.name for stage in stages} == set(OPERATIONS)
    assert all(sum(arch in text for text in PROGRAMS.values()) > 10 for arch in (SM80, SM90))


@pytest.mark.few(1)
@pytest.mark.parametrize("command", [("check",), ("format", "--check", "--diff")], ids=["check", "format"])
def test_ruff_passes(command: tuple[str, ...], emitted: dict[str, Path]) -> None:
    done = subprocess.run(
        [find_ruff_bin(), *command, *RUFF, *map(str, emitted.values())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


AGAIN = """
import json, sys
from workbench.codegen import compile_program
from workbench.language import Binding
init, arguments, programs = json.load(sys.stdin)
binding = Binding(init_source=init, forward_arguments=tuple(arguments))
json.dump([compile_program(text, binding) for text in programs], sys.stdout)
"""


@pytest.mark.slow
def test_another_process_emits_the_same_text_in_any_order(emitted: dict[str, Path]) -> None:
    names = list(PROGRAMS)[::-4]
    given = json.dumps([INIT, ARGUMENTS, [PROGRAMS[name] for name in names]])
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", AGAIN], input=given, capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(done.stdout) == [emitted[name].read_text() for name in names]


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_definition_is_used(name: str, emitted: dict[str, Path]) -> None:
    tree = ast.parse(emitted[name].read_text())
    assert unused_definitions(tree) == []
    assert unused_parameters(tree) == []


def unused_definitions(tree: ast.Module) -> list[str]:
    """Functions, classes and constants of the module that nothing but themselves reads; a caller wants ModelNew."""
    found = []
    for node in tree.body:
        names = (
            [node.name]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else [item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)]
        )
        read = {
            item.id
            for other in tree.body
            if other is not node
            for item in ast.walk(other)
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)
        }
        found += [name for name in names if name not in read and name != "ModelNew"]
    return found


def unused_parameters(tree: ast.Module) -> list[str]:
    """Parameters that their function does not read, interfaces aside.

    Interfaces are the methods of classes, kernels, which the host passes its tensors and extents to, and the functions
    that launch them.
    """
    return [
        f"{function.name}: {parameter}"
        for function in functions(tree)
        for parameter in (
            item.arg for item in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        )
        if parameter not in {item.id for item in ast.walk(function) if isinstance(item, ast.Name)}
    ]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of the module that are no interfaces."""
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef)
            and not is_kernel(node)
            and "stream" not in [a.arg for a in node.args.args]
        ):
            yield from (item for item in ast.walk(node) if isinstance(item, ast.FunctionDef))


def is_kernel(node: ast.FunctionDef) -> bool:
    """Whether it is the entry of a kernel."""
    return any(isinstance(item, ast.Attribute) and item.attr == "kernel" for item in node.decorator_list)


def test_what_is_not_used_is_found() -> None:
    tree = ast.parse(
        "A = 1\n\n\ndef f(x, y):\n    return f(x, A)\n\n\nclass ModelNew:\n    def forward(self):\n        return 0\n"
    )
    assert unused_definitions(tree) == ["f"]
    assert unused_parameters(tree) == ["f: y"]
