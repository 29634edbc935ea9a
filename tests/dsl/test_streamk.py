"""stream-K: shares cover every k tile once and are balanced; exact results on the emulator.

Kernels run with few CTAs, are launched again and replayed from a graph; a planted race is found.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from running import INIT, imported, load
from test_epilogues import tensors_of, wanted
from test_hopper_gemm import DTYPES, matrix

import workbench
from workbench.codegen import compile_program
from workbench.emulator import EmulationFault, emulated
from workbench.kernels.gemm.sm90 import stream_k
from workbench.kernels.gemm.sm90.config import MAX_PEERS as MOST
from workbench.kernels.gemm.sm90.config import MIN_K_TILES as LEAST
from workbench.kernels.gemm.sm90.config import GemmSm90Config
from workbench.language import Binding, check, configurations, format_program, parse
from workbench.language.explain import explain
from workbench.language.operations.gemm.sm90 import config_of

GOLDEN = Path(__file__).parent / "golden"
HOPPER = "gemm(a, b) .arch(sm_90a) "
SMALL = HOPPER + ".mma(f16) .tile(64, 64, 16) .schedule(cooperative) .streamk(yes)"


CONFIG = GemmSm90Config(kind="f16", tile=(64, 64, 16), stream_k=True)


def planned() -> Any:
    """Return the library's scheduling functions as plain Python; they are integer arithmetic."""
    source = Path(stream_k.__file__).read_text()
    wanted = ("share_start", "stream_k_share", "stream_k_work")
    functions = [node for node in ast.parse(source).body if getattr(node, "name", "") in wanted]
    known: dict[str, Any] = {
        "cute": SimpleNamespace(jit=lambda function: function),
        "cutlass": SimpleNamespace(Int32=int, min=min, max=max),
        "Static": GemmSm90Config,
    }
    exec("\n".join(ast.unparse(node) for node in functions), known)
    return SimpleNamespace(**known)


def pieces(plan: Any, clusters: int, works: int, steps: int) -> list[list[tuple[int, int, int]]]:
    """Return, for each cluster in its order, (tile, first k tile, number of k tiles)."""
    found = []
    for cluster in range(clusters):
        share = plan.stream_k_share(CONFIG, cluster, clusters, works, steps)
        schedule = (0, 0, cluster, clusters, *share)
        found.append([plan.stream_k_work(schedule, item, steps) for item in range(share[-1])])
    return found


def clusters_of(resident: int, works: int, steps: int) -> int:
    """Return the number of clusters that are launched."""
    return min(resident, max(works, min(works, resident) * min(steps // LEAST, MOST)))


CASES = [
    (resident, works, steps)
    for resident, works, steps in itertools.product(
        (1, 2, 3, 5, 66, 132), (1, 2, 3, 7, 64, 100, 132, 133, 150, 264, 300), (1, 7, 8, 15, 16, 17, 25, 64, 100)
    )
]


def test_every_step_of_k_is_computed_once_and_handed_on_to_who_waits_for_it() -> None:
    plan = planned()
    for resident, works, steps in CASES:
        clusters = clusters_of(resident, works, steps)
        found, done = pieces(plan, clusters, works, steps), set()
        for cluster, mine in enumerate(found):
            for number, (tile, first, count) in enumerate(mine):
                assert 0 <= tile < works and first >= 0 and count > 0 and first + count <= steps
                assert first + count == steps or number == 0, (
                    "sums are handed on before anything is waited for, and once"
                )
                assert count >= min(LEAST, steps)
                done |= {(tile, step) for step in range(first, first + count)}
                if first + count == steps and first > 0:
                    peer, missing, given = cluster, first, []
                    while missing > 0:  # as the kernel looks for them
                        peer -= 1
                        begun = (
                            plan.share_start(
                                CONFIG,
                                peer,
                                clusters,
                                plan.stream_k_share(CONFIG, cluster, clusters, works, steps)[2],
                                steps,
                            )
                            - tile * steps
                        )
                        given += [peer] if begun < missing else []
                        missing = begun
                    assert given and [found[peer][0][0] for peer in given] == [tile] * len(given)
                    assert sum(found[peer][0][2] for peer in given) == first and len(given) < MOST
        assert len(done) == works * steps == sum(count for mine in found for _, _, count in mine), (
            resident,
            works,
            steps,
        )


def test_shares_are_about_equal() -> None:
    plan = planned()
    for resident, works, steps in CASES:
        if steps < 4 * LEAST:  # too few steps to cut a tile anywhere
            continue
        clusters = clusters_of(resident, works, steps)
        loads = [sum(count for _, _, count in mine) for mine in pieces(plan, clusters, works, steps)]
        assert (
            max(loads) <= -(-works * steps // clusters) + 2 * LEAST - 2
            and max(loads) < -(-works // resident) * steps + 2 * LEAST
        )
    assert max(sum(count for _, _, count in mine) for mine in pieces(plan, 132, 133, 64)) <= 72  # without the cuts 128


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        (HOPPER + ".mma(f16) .tile(64, 64, 64) .schedule(pingpong) .streamk(yes)", "schedule(cooperative)"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .splitk(2) .streamk(yes)", "one of the two"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .splitk(2, cluster) .streamk(yes)", "one of the two"),
        (HOPPER + ".mma(f16) .schedule(cooperative) .streamk(4)", "yes"),
        ("gemm(a, b) .mma(f16) .streamk(yes)", "schedule(cooperative)"),
        ("ggemm(a, b, offsets) .arch(sm_90a) .mma(f16) .schedule(cooperative) .streamk(yes)", ""),
        ("conv(x, w) .arch(sm_90a) .mma(f16) .schedule(cooperative) .streamk(yes)", "product"),
    ],
)
def test_rejections(text: str, legal: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == ["streamk"] and found[0].reason and legal in found[0].legal


def test_it_is_formatted_explained_and_enumerated() -> None:
    assert format_program(parse(SMALL)) == SMALL
    stage = parse(HOPPER + ".mma(bf16) .schedule(cooperative) .streamk(yes) >> rowsum()").stages[0]
    assert not check(parse(SMALL + " >> bias() >> rowsum()"))
    said = next(line.meaning for line in explain(stage) if "streamk" in line.what)
    assert config_of(stage).workspace_bytes == 131072 and "131072 bytes" in said
    legal = list(
        configurations(
            parse(HOPPER + ".mma(bf16) .schedule(cooperative)").stages[0], only=("tile", "splitk", "streamk")
        )
    )
    cut = [{call.name for call in item.settings} for item in legal]
    assert any("streamk" in names and "splitk" not in names for names in cut) and not any(
        {"streamk", "splitk"} <= names for names in cut
    )
    assert not list(
        configurations(parse(HOPPER + ".mma(bf16) .schedule(pingpong) .streamk(yes)").stages[0], only=("tile",))
    )


def test_text_is_as_written_down() -> None:
    program = (
        HOPPER
        + ".mma(bf16) .tile(128, 256, 64) .schedule(cooperative) .cluster(2, 1) .streamk(yes) >> bias() >> relu()"
    )
    text, path = (
        compile_program(program, Binding(init_source=INIT, forward_arguments=("a", "b", "bias"))),
        GOLDEN / "gemm_streamk.txt",
    )
    if os.environ.get("CUTEGEN_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def run(
    module: ModuleType, path: Path, arguments: tuple[torch.Tensor, ...], resident: int, times: int = 1
) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """Return (the result, the product's grid) on a device that runs `resident` clusters at once.

    Repeated launches must give the same bits.
    """
    module.max_active_clusters = lambda: resident  # type: ignore[attr-defined]
    with emulated(arch="sm_90a", device="H200", source_file=str(path)) as emulation:
        got = module.ModelNew()(*arguments)
        for _ in range(times - 1):
            assert torch.equal(got, module.ModelNew()(*arguments))
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
    return got, next(launch.grid for launch in emulation.launches if "gemm_kernel" in launch.kernel)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("resident", "shape", "clusters"),
    [
        (2, (72, 136, 400), 2),
        (3, (130, 100, 390), 3),
        (5, (64, 64, 400), 3),
        (4, (70, 200, 16), 4),
        (1, (72, 72, 136), 1),
    ],
)
def test_one_kernel_for_any_number_of_ctas(resident: int, shape: tuple[int, int, int], clusters: int) -> None:
    m, n, k = shape
    module, path = load(SMALL, ("a", "b"))
    a, b = matrix(m, k, torch.float16, seed=1), matrix(k, n, torch.float16, seed=2)
    got, grid = run(module, path, (a, b), resident, times=2)
    assert torch.equal(got, (a.double() @ b.double()).half()) and grid == (1, 1, clusters)
    kernels = [key for function, key in module.compiled if function is module.launch_gemm]
    assert len(kernels) == len(set(kernels)) <= 2, "the number of CTAs is not compiled in"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "epilogues", "shape", "resident"),
    [
        ("bf16", ".tile(128, 128, 32) .cluster(2, 1)", ">> bias() >> residual() >> relu()", (264, 136, 600), 3),
        (
            "f16",
            ".tile(256, 64, 16) .cluster(1, 2) .launch(early)",
            ">> scale(0.5) >> clamp(-9, 9)",
            (300, 136, 328),
            3,
        ),
        ("bf16", ".tile(128, 32, 16) .swap()", ">> bias() >> mul(s, along=m)", (30, 264, 400), 5),
        ("tf32", ".tile(64, 32, 16) .store(direct)", ">> residual() >> cast(bf16)", (72, 69, 200), 4),
        ("f16", ".tile(64, 64, 16)", ">> bias() >> rowsum() >> cast(f32)", (136, 72, 400), 4),
        ("f16", ".tile(128, 64, 16)", ">> residual() >> colmax()", (136, 72, 400), 3),
        ("tf32", ".tile(64, 64, 16) .swap()", ">> rowmean()", (70, 72, 300), 5),
    ],
)
def test_products_with_epilogues_are_exact(
    kind: str, settings: str, epilogues: str, shape: tuple[int, int, int], resident: int
) -> None:
    text = f"{HOPPER} .mma({kind}) .schedule(cooperative) .streamk(yes) {settings} {epilogues}"
    tensors = tensors_of(text, kind, shape)
    got, grid = run(*load(text, tuple(tensors)), tuple(tensors.values()), resident)
    want = wanted(text, tensors)
    assert got.shape == want.shape and grid[2] == resident
    torch.testing.assert_close(got.double(), want.to(got.dtype).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "settings", "shape", "turned", "batch", "resident"),
    [
        ("bf16", ".tile(64, 64, 16)", (67, 51, 390), "ab", 2, 3),
        ("tf32", ".tile(64, 64, 16) .swap() .through(registers)", (64, 120, 268), "", 0, 3),
        ("tf32x3", ".tile(64, 64, 16)", (40, 100, 131), "b", 0, 3),
    ],
)
def test_layouts_batches_and_kinds(
    kind: str, settings: str, shape: tuple[int, int, int], turned: str, batch: int, resident: int
) -> None:
    m, n, k = shape
    dtype = DTYPES.get(kind, torch.float32)
    a, b = (
        matrix(m, k, dtype, seed=1, turned="a" in turned, batch=batch),
        matrix(k, n, dtype, seed=2, turned="b" in turned, batch=batch),
    )
    got, _ = run(
        *load(f"{HOPPER} .mma({kind}) .schedule(cooperative) .streamk(yes) {settings}", ("a", "b")), (a, b), resident
    )
    assert torch.equal(got, (a.double() @ b.double()).to(dtype))


def test_eight_bit_floats() -> None:
    a, b = matrix(72, 600, torch.float8_e4m3fn, seed=1), matrix(600, 100, torch.float8_e4m3fn, seed=2, turned=True)
    got, _ = run(
        *load(HOPPER + ".mma(e4m3) .tile(64, 64, 32) .schedule(cooperative) .streamk(yes)", ("a", "b")), (a, b), 3
    )
    assert torch.equal(got, (a.double() @ b.double()).bfloat16())


def test_sums_are_added_in_one_order() -> None:
    draw = torch.Generator().manual_seed(1)
    a, b = torch.randn(72, 400, generator=draw).half(), torch.randn(400, 64, generator=draw).half()
    got, _ = run(*load(SMALL, ("a", "b")), (a, b), 5, times=3)
    assert float((got.double() - a.double() @ b.double()).norm() / (a.double() @ b.double()).norm()) < 5e-4


def test_a_graph_is_replayed_and_streams_have_flags_of_their_own() -> None:
    module, _ = imported(compile_program(SMALL, Binding(init_source=INIT, forward_arguments=("a", "b"))))
    module.max_active_clusters = lambda: 3
    a, b = matrix(72, 400, torch.float16, seed=1), matrix(400, 64, torch.float16, seed=2)
    kept, make = [], module.make_workspace

    def pooled(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep the workspace alive, as a graph's memory pool does; the emulator has no such pool."""
        kept.append(make(device))
        return kept[-1]

    module.make_workspace = pooled
    with workbench.emulated(device="H200"):
        on_gpu, model, graph, stream = (
            (a.cuda(), b.cuda()),
            module.ModelNew(),
            torch.cuda.CUDAGraph(),
            torch.cuda.Stream(),
        )
        model(*on_gpu)
        with torch.cuda.stream(stream):
            model(*on_gpu)
        assert len([key for key in module.flag_arrays if len(key) == 4]) == 2
        with torch.cuda.graph(graph):
            got, again = model(*on_gpu), model(*on_gpu)
        assert len([key for key in module.flag_arrays if len(key) == 4]) == 3, "both calls of a capture take the same"
        for _ in range(3):
            on_gpu[0].add_(1)
            graph.replay()
            assert torch.equal(got.cpu(), again.cpu()) and torch.equal(
                got.cpu(), (on_gpu[0].cpu().double() @ b.double()).half()
            )


def test_kernels_of_one_file_share_no_flags_of_another_number() -> None:
    first, second = (
        SMALL.replace("gemm(a, b)", "h = gemm(a, b)").replace("tile(64, 64, 16)", "tile(128, 64, 16)"),
        SMALL.replace("gemm(a, b)", "gemm(h, c)"),
    )
    module, path = imported(
        compile_program(f"{first} |> {second}", Binding(init_source=INIT, forward_arguments=("a", "b", "c")))
    )
    for name in [name for name in vars(module) if name.startswith("max_active_clusters")]:
        setattr(module, name, lambda: 3)
    a, b, c = (
        matrix(40, 400, torch.float16, seed=1) * 0.25,
        matrix(400, 400, torch.float16, seed=2),
        matrix(400, 72, torch.float16, seed=3),
    )
    with emulated(arch="sm_90a", device="H200", source_file=str(path)) as emulation:
        got = module.ModelNew()(a, b, c)
    want = (a.double() @ b.double()).half().double() @ c.double()
    assert float((got.double() - want).norm() / want.norm()) < 1e-3 and not [
        finding for finding in emulation.findings if finding.severity == "error"
    ]
    assert sorted(key[1] for key in module.flag_arrays if len(key) == 4) == [3, 6]


def test_reading_sums_that_nobody_waited_for_is_found() -> None:
    source = compile_program(SMALL, Binding(init_source=INIT, forward_arguments=("a", "b")))
    hasty = source.replace("while there == 0:", "while there > 0:")
    assert len(re.findall("while there > 0:", hasty)) == 1
    module, path = imported(hasty)
    with pytest.raises(EmulationFault, match="race"):
        run(module, path, (matrix(64, 400, torch.float16, seed=1), matrix(400, 64, torch.float16, seed=2)), 2)
