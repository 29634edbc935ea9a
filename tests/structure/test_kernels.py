"""Kernels as graphs: programs that are the same, kernels that are alike, layers that are interchangeable, PTX."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from workbench.errors import ProgramError, UserError
from workbench.records import Operation, TensorSpec
from workbench.structure.kernels.equality import TriedPrograms, is_same_program, program_key
from workbench.structure.kernels.operator_graphs import interchangeable_layers
from workbench.structure.kernels.program_graphs import attributes_of_program, program_graph
from workbench.structure.kernels.ptx_graphs import ptx_graph
from workbench.structure.kernels.retrieval import find_alike, recorded_kernels, sketch_program
from workbench.structure.kernels.sass_graphs import sass_graph
from workbench.structure.kernels.source_graphs import source_graph
from workbench.views.text.alike_page import alike_page, sketch_text

TWO = "p = softmax(x) .arch(sm_90a) .kept() |> q = rmsnorm(y) .arch(sm_90a) |> elementwise(sub(p, q)) .arch(sm_90a)"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (TWO.replace("p = ", "h1 = ").replace("(p,", "(h1,"), True),
        (
            "q = rmsnorm(y) .arch(sm_90a) |> p = softmax(x) .kept() .arch(sm_90a) "
            "|> elementwise(sub(p, q)) .arch(sm_90a)",
            True,
        ),
        (TWO.replace("sub(p, q)", "sub(q, p)"), False),
        (TWO.replace("softmax(x)", "softmax(y)"), False),
        (TWO.replace(".kept()", ".threads_per_row(64)"), False),
        (TWO.replace("rmsnorm(y)", "rmsnorm(y, eps=0.1)"), False),
    ],
)
def test_a_program_is_the_same_but_for_names_and_independent_order(other: str, same: bool) -> None:
    assert is_same_program(TWO, other) is same


def test_a_program_that_was_tried_under_other_names_is_found() -> None:
    tried = TriedPrograms([TWO, None, "nonsense("])
    assert TWO.replace("p = ", "h1 = ").replace("(p,", "(h1,") in tried and "nonsense(" in tried
    assert TWO.replace(".kept()", "") not in tried


def test_which_of_two_operands_is_read_twice_matters() -> None:
    one, other = (f"elementwise(add(mul(x, y), mul({pair}))) .arch(sm_90a)" for pair in ("x, z", "y, z"))
    assert not is_same_program(one, other)
    with pytest.raises(ProgramError):
        program_key("nonsense(")


def test_a_program_graph_has_stages_with_readable_settings() -> None:
    graph = program_graph("gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(128, 256, 64) .schedule(pingpong) >> bias()")
    at = graph.names.index("stage")
    assert graph.node_columns["tile n"][at] == 256 and graph.node_columns["schedule"][at] == "pingpong"
    assert graph.size == 4 and len(graph.edges) == 3
    assert attributes_of_program("softmax(x) .arch(sm_90a)")[0]["schedule"] == "none"


def test_the_nearest_recorded_kernels_are_of_the_same_class_in_nine_of_ten_cases() -> None:
    known = recorded_kernels()
    kinds = [one.about for one in known]
    right = [
        find_alike(one, [other for other in known if other.name != one.name], 1)[0].sketch.about == one.about
        for one in known
        if kinds.count(one.about) > 1
    ]
    assert sum(right) >= 0.9 * len(right)


def test_a_kernel_is_most_like_itself() -> None:
    one = recorded_kernels()[3]
    found = find_alike(sketch_program(one.text, "again"), recorded_kernels())[0]
    assert found.sketch.name == one.name and found.share == pytest.approx(1)


def test_a_page_names_recorded_programs_and_examples() -> None:
    shown = alike_page(sketch_text("softmax(x) .arch(sm_90a) .kept()", "mine"))
    assert "recorded" in shown.text and "softmax" in shown.text and "<table>" in shown.html
    source = Path("workbench/examples/top_k.py")
    path = source if source.exists() else Path(__file__).parents[2] / source
    assert "top_k" in alike_page(sketch_text(path.read_text(), "mine.py")).text
    with pytest.raises(UserError, match="neither a muCUTLASS program"):
        sketch_text("nonsense(", "it")


def layer(number: int, before: str) -> list[Operation]:
    """A linear layer and a ReLU."""
    spec = (TensorSpec(name="", shape=(8, 16), strides=(16, 1), dtype="float32"),)
    return [
        Operation(
            name=f"linear_{number}",
            target="aten.linear.default",
            operands=(before, f"param:layers.{number}.weight", f"param:layers.{number}.bias"),
            result=spec,
        ),
        Operation(name=f"relu_{number}", target="aten.relu.default", operands=(f"linear_{number}",), result=spec),
    ]


def test_equal_layers_of_a_module_are_one_group() -> None:
    graph, before = [], "x"
    for number in range(12):
        graph += layer(number, before)
        before = f"relu_{number}"
    graph.append(Operation(name="sum", target="aten.sum.default", operands=(before,)))
    groups = interchangeable_layers(graph, radius=1)
    largest = {name.split("_")[0] for name in groups[0]}
    assert len(groups[0]) >= 10 and len(largest) == 1
    assert sum(len(group) - 1 for group in groups) >= 20  # of 25 operations this many need no tuning of their own
    assert interchangeable_layers(graph, radius=40) == ()  # exact orbits: in a chain each layer has its own place


def test_parallel_layers_are_orbits() -> None:
    graph = [*layer(0, "x"), *layer(1, "x")]
    graph.append(Operation(name="sum", target="aten.stack.default", operands=("[relu_0, relu_1]",)))
    assert interchangeable_layers(graph, radius=9) == (("linear_0", "linear_1"), ("relu_0", "relu_1"))


PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p) {
  .reg .b64 %rd<4>;
  .reg .b32 %r<6>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  setp.gt.u32 %p1, %r1, 5;
  @%p1 bra DONE;
  ld.global.v2.u32 {%r2, %r3}, [%rd1];
  st.shared.u32 [%r1], %r2;
  bar.sync 0;
  ld.shared.u32 %r4, [%r1];
  st.global.u32 [%rd1], %r4;
DONE:
  ret;
}
"""


def test_a_ptx_graph_has_definitions_flow_memory_and_barriers() -> None:
    graph = ptx_graph(PTX)
    kinds = graph.node_columns["kind"].tolist()
    named = {
        (kinds[a], kinds[b], kind)
        for (a, b), kind in zip(graph.edges.tolist(), graph.edge_columns["kind"].tolist(), strict=True)
    }
    assert ("ld.global.v2", "st.shared", "use") in named
    assert ("st.shared", "ld.shared", "memory") in named
    assert ("bra", "ld.global.v2", "flow") in named and ("bra", "ret", "flow") in named
    assert set(graph.node_columns["block"].tolist()) == {0, 1, 2}


SASS = """//--------------------- .text.add --------------------------
	.section	.text.add,"ax",@progbits
add:
        //## File "/tmp/candidate.py", line 12
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   ISETP.GT.AND P0, PT, R0, 0x5, PT ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0040*/                   STS.128 [R0], R4 ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0060*/                   LDS R8, [R0+0x10] ;
        /*0070*/                   HMMA.16816.F32 R12, R4, R8, R12 ;
        /*0080*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0090*/                   SHFL.BFLY PT, R9, R15, 0x1, 0x1f ;
        /*00a0*/                   STG.E desc[UR4][R2.64], R9 ;
.L_x_1:
        /*00b0*/                   EXIT ;
.L_x_2:
        /*00c0*/                   BRA `(.L_x_2);
        /*00d0*/                   NOP;
"""


def test_a_sass_graph_has_definitions_flow_memory_and_barriers() -> None:
    graph = sass_graph(SASS)
    kinds = graph.node_columns["kind"].tolist()
    assert kinds[3:5] == ["LDG.128", "STS.128"] and kinds[-1] == "EXIT"
    named = {
        (kinds[a], kinds[b], kind)
        for (a, b), kind in zip(graph.edges.tolist(), graph.edge_columns["kind"].tolist(), strict=True)
    }
    uses = {(one, other) for one, other, kind in named if kind == "use"}
    assert uses == {
        ("S2R", "ISETP"),
        ("ISETP", "BRA"),
        ("S2R", "STS.128"),
        ("LDG.128", "STS.128"),
        ("S2R", "LDS"),
        ("LDG.128", "HMMA"),
        ("LDS", "HMMA"),
        ("HMMA", "SHFL"),  # the fourth register of its result
        ("SHFL", "STG"),
    }
    assert {item for item in named if item[2] != "use"} == {
        ("BRA", "LDG.128", "flow"),
        ("BRA", "EXIT", "flow"),
        ("STG", "EXIT", "flow"),
        ("STS.128", "LDS", "memory"),
        ("BAR", "BAR", "barrier"),
    }
    with pytest.raises(UserError, match="no kernel sub; it has add"):
        sass_graph(SASS, "sub")


def test_a_source_graph_has_loops_calls_and_uses() -> None:
    graph = source_graph("def f(x):\n    for i in range(3):\n        y = cute.copy(x)\n        cute.gemm(y, y)\n")
    assert set(graph.node_columns["kind"].tolist()) == {"functiondef", "for", "range", "cute.copy", "cute.gemm"}
    kinds = graph.edge_columns["kind"].tolist()
    assert {"inside", "next", "use"} == set(kinds)
    with pytest.raises(UserError, match="no Python, line 1"):
        source_graph("def f(:")


def test_programs_of_the_corpus_have_keys_of_their_own() -> None:
    path = Path(__file__).parents[1] / "bench" / "ptx_programs.jsonl.gz"
    programs = [json.loads(line)["program"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    distinct = sorted({program for program in programs if program})[:150]
    assert len({program_key(program) for program in distinct}) == len(distinct)
