"""Recognises a traced reference (ATen calls) as a computation of the language: operation, operands, epilogues.

A matcher takes the facts, the operations by the name of their result, and the name of the output. It returns a
`Computation` or None.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses

from workbench.language import Call
from workbench.proposers.recognition import expressions, pipelines
from workbench.proposers.recognition.arguments import name_inputs
from workbench.proposers.recognition.forms import draws
from workbench.proposers.recognition.forms.leading import name_leading
from workbench.proposers.recognition.forms.numbers import write_numbers
from workbench.proposers.recognition.forms.parts import decompose_to_cat, name_parts
from workbench.proposers.recognition.forms.repeats import name_repeats
from workbench.proposers.recognition.forms.shape_derived import name_shape_derived
from workbench.proposers.recognition.forms.state import write_stores
from workbench.proposers.recognition.graph import (
    YOURSELF,
    Computation,
    UnknownCalls,
    Unrecognised,
    aten_name,
    list_torch_names,
)
from workbench.proposers.recognition.mutations import (
    drop_copies,
    list_written_state,
    reads_overwritten,
    remove_noop_expands,
    why_not,
)
from workbench.proposers.recognition.patterns import (
    attention,
    channels,
    convolutions,
    gathers,
    graph_attention,
    graphs,
    losses,
    moves,
    pools,
    products,
    rows,
    scans,
)
from workbench.proposers.recognition.patterns.einsums import fold_views
from workbench.proposers.recognition.rewrites import distances
from workbench.proposers.recognition.rewrites.bags import split_bags
from workbench.proposers.recognition.rewrites.class_axis import move_classes_last
from workbench.proposers.recognition.rewrites.diagonal_labels import write_labels
from workbench.proposers.recognition.rewrites.gated import split_gates
from workbench.proposers.recognition.rewrites.masked_attention import split_masked
from workbench.proposers.recognition.rewrites.means import divide_by_counts
from workbench.proposers.recognition.rewrites.multihead import write_multihead
from workbench.proposers.recognition.rewrites.remaps import write_remaps
from workbench.proposers.recognition.simplify import simplify
from workbench.proposers.recognition.types import mark_roundings, settle_types
from workbench.records import Facts, TensorSpec

__all__ = ["Computation", "UnknownCalls", "Unrecognised", "recognise"]

MATCHERS = (
    attention.match_attention,
    scans.match_scan,
    pools.match_pool,
    pools.match_poolwise,
    gathers.match_gather,
    graphs.match_rows,
    graphs.match_scatter,
    moves.match_concat,
    moves.match_top_k,
    moves.match_remap,
    losses.match_crossentropy,
    rows.match_softmax,
    rows.match_layernorm,
    rows.match_rmsnorm,
    rows.match_reduction,
    products.match_gemm,
    products.match_grouped_gemm,
    convolutions.match_convolution,
    channels.match_batchnorm,
    channels.match_groupnorm_means,
    channels.match_statistics,
    channels.match_groupnorm,
    channels.match_instancenorm,
    expressions.match_expressions,
)


MOST_OPERATIONS = 300


def recognise(facts: Facts) -> Computation:
    """The computation of a graph: the result of one matcher, else a pipeline of such results.

    Raises `Unrecognised` with the names of the operations.
    """
    facts = write_remaps(name_inputs(facts))
    stored = facts if reads_overwritten(facts.graph) else write_stores(facts)
    if (reason := why_not(stored)) is not None:
        raise Unrecognised(reason)
    facts, stored = write_numbers(facts), write_numbers(stored)
    try:
        return _recognise_forms(stored)
    except Unrecognised as error:
        if stored == facts:
            raise
        kept = ", ".join(list_written_state(facts.graph))
        raise Unrecognised(f"{error}; its forward also writes to its own {kept}") from None


def _recognise_forms(facts: Facts) -> Computation:
    """The computation of one of the forms in which a graph can be written."""
    if (reason := why_not(facts) or draws.why_not(facts.graph) or distances.why_not(facts.graph)) is not None:
        raise Unrecognised(reason)
    if len(facts.graph) > MOST_OPERATIONS:  # matchers follow a graph by recursion
        raise Unrecognised(
            f"the planner has no kernel for a module of {len(facts.graph)} operations; it takes up to "
            f"{MOST_OPERATIONS}; {YOURSELF}"
        )
    if numbers_of_file := sorted(_read_in_init(facts) & {name for case in facts.cases for name, _ in case.settings}):
        raise Unrecognised(
            f"Model.__init__ reads {', '.join(numbers_of_file)} of the problem's file, which other sizes change; "
            "give it to __init__ through get_init_inputs, so that one kernel serves all sizes"
        )
    facts = write_multihead(split_gates(split_bags(facts)))
    facts = distances.write_distances(write_labels(move_classes_last(facts)))
    joined = decompose_to_cat(name_repeats(facts))
    named = name_parts(name_leading(remove_noop_expands(joined)))
    made = name_shape_derived(named)
    apart = split_masked(made)
    more = [*([made] if made != named else []), *([apart] if apart != made else [])]
    forms = [*divide_by_counts(named), *(one for form in more for one in (form, drop_copies(form)))]
    for form in (facts, *([joined] if joined.graph != facts.graph else []), named, *forms):
        with contextlib.suppress(Unrecognised):
            return _recognise_at_all_sizes(form)
    return _recognise_at_all_sizes(drop_copies(named))


def _recognise_at_all_sizes(facts: Facts) -> Computation:
    """The computation at the emulated sizes, which is that at full size too."""
    found = _recognise_folded(facts)
    if facts.full_graph and not _are_same(_kernel_contents(found), _kernel_contents(_recognise_at_full(facts))):
        raise Unrecognised(
            "the planner has no kernel for a module whose forward does something else at full size than at the sizes "
            f"that are emulated (numbers made of sizes, parts of tensors, branches); {YOURSELF}"
        )
    return found


def _recognise_folded(facts: Facts) -> Computation:
    facts = fold_views(mark_roundings(graph_attention.fold_graphs(simplify(facts))))
    try:
        return _match_single(facts)
    except Unrecognised:
        found = pipelines.match_pipeline(facts, _match_single)
        if found is None:
            raise
        return found


def _read_in_init(facts: Facts) -> set[str]:
    """Module-level names that `__init__` reads."""
    nodes = list(ast.walk(ast.parse(facts.init_source)))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)} - own


def _recognise_at_full(facts: Facts) -> Computation | None:
    """The computation of the graph at full size; None if it is not recognised."""
    try:
        return _recognise_folded(
            dataclasses.replace(
                facts,
                graph=facts.full_graph,
                cases=(facts.cases[-1],),
                full_graph=(),
                parameters=_parameters_at_full(facts),
            )
        )
    except Unrecognised:
        return None


def _parameters_at_full(facts: Facts) -> tuple[TensorSpec, ...]:
    """Specs of parameters, buffers and their rows at full size, as far as they are known there."""
    state = {spec.name: spec for spec in facts.full if ":" in spec.name}
    state |= {op.operands[0]: op.result[0] for op in facts.full_graph if op.operands and aten_name(op) == "alias"}
    known = {name.split(":", 1)[1]: spec for name, spec in state.items() if ":" in name}
    return tuple(dataclasses.replace(known.get(spec.name, spec), name=spec.name) for spec in facts.parameters)


def _are_same(first: object, second: object) -> bool:
    """Whether the contents of two computations are equal; an extent of -1, which follows from the others, is any."""
    if isinstance(first, Call) and isinstance(second, Call) and first.name == second.name == "view":
        own, other = dict(first.named), dict(second.named)
        given, wanted = own.pop("unflatten", None), other.pop("unflatten", None)
        if isinstance(given, tuple) and isinstance(wanted, tuple) and len(given) == len(wanted):
            pairs = zip(given, wanted, strict=True)
            return (first.positional, own) == (second.positional, other) and all(
                a == b or -1 in (a, b) for a, b in pairs
            )
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        return all(map(_are_same, first, second))
    return first == second


def _kernel_contents(found: Computation | None) -> object:
    """The parts of a computation that are written into kernels."""
    if found is None or not found.pieces:
        return found
    return [
        (piece.named.operation, piece.named.epilogues, piece.named.operands, piece.named.layout)
        for piece in found.pieces
    ]


def _match_single(facts: Facts) -> Computation:
    by_name = {op.name: op for op in facts.graph}
    output, *others = facts.graph[-1].operands
    is_complex = any(spec.dtype.startswith("complex") for op in facts.graph for spec in op.result)
    for attempt in MATCHERS if not others and not is_complex else ():
        found = attempt(facts, by_name, output)
        found = found if found is None or attempt is expressions.match_expressions else settle_types(facts, found)
        if found is not None:
            return found
    calls = " -> ".join(list_torch_names(facts.graph))
    numbers = " of complex numbers" if is_complex else " in floats of 8 bits" if facts.has_eight_bits else ""
    raise UnknownCalls(calls or "this module", numbers, f"{graphs.say_forms(facts.graph)}{YOURSELF}")
