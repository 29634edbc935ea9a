"""The reference at given sizes, traced on fake tensors. Used in workers only: it imports torch."""

from __future__ import annotations

import dataclasses

from workbench.problems import dtypes, loading, numbers
from workbench.problems.inputs.integers import fake_inputs
from workbench.problems.results import spec_of
from workbench.problems.settings import spread_ties
from workbench.problems.tracing import trace_graph
from workbench.problems.tracing.fakes import on_fake_tensors
from workbench.problems.tracing.positions import Branch, list_branches
from workbench.records import Operation, Problem, Settings, TensorSpec

Graph = tuple[Operation, ...]


@dataclasses.dataclass(frozen=True)
class Full:
    """The reference at full size, or at others, on fake tensors; empty if it cannot be traced there.

    `values` are specs of its inputs, parameters and buffers, `places` the lines of its calls.
    """

    graph: tuple[Operation, ...] = ()
    values: tuple[TensorSpec, ...] = ()
    places: tuple[tuple[str, str], ...] = ()

    def differing_graph(self, small: Graph) -> tuple[Operation, ...]:
        """The graph if it may do something else than the small one, else ()."""
        return self.graph if self.graph and numbers.differs(drop_reservations(small), self.graph) else ()

    def calculates_differently(self, small: Graph) -> bool:
        """Whether the calls or the numbers of the small graph are others than those of this one."""
        return bool(self.graph) and numbers.calculates_differently(drop_reservations(small), self.graph)

    def specs(self, small: Graph) -> tuple[TensorSpec, ...]:
        """Specs of every value of the graph if its calls are those of the small one, else ()."""
        if not self.graph or [(op.name, op.target) for op in self.graph] != [
            (op.name, op.target) for op in drop_reservations(small)
        ]:
            return ()
        return self.all_specs()

    def list_branches(self) -> frozenset[Branch]:
        """The ways that it takes for positions."""
        return list_branches(self.graph, {spec.name: spec.shape for spec in self.values})

    def all_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of every value of the graph."""
        return (*self.values, *(dataclasses.replace(op.result[0], name=op.name) for op in self.graph if op.result))


def trace_at(problem: Problem, settings: Settings) -> Full:
    """The reference at these settings, on fake tensors."""
    return trace_full(dataclasses.replace(problem, settings=spread_ties(problem, (*problem.settings, *settings))))


def trace_full(problem: Problem) -> Full:
    """The reference at the problem's own sizes."""
    module = loading.load_module(problem)
    try:
        with on_fake_tensors():
            inputs = fake_inputs(module, problem)
            model = dtypes.fake_model(module.Model, module, problem)
            found = trace_graph(model, inputs, loading.find_call(module, problem).names)
    except Exception:  # torch raises what it likes on fake tensors; the sizes only rank settings
        return Full()
    labels = [
        *(f"param:{name}" for name, _ in model.named_parameters()),
        *(f"buffer:{name}" for name, _ in model.named_buffers()),
    ]
    given = tuple(spec_of(name, value) for name, value in loading.name_tensors(module, problem, inputs).items())
    return Full(
        graph=drop_reservations(found.graph),
        values=(
            *given,
            *(dataclasses.replace(spec, name=label) for label, spec in zip(labels, found.parameters, strict=True)),
        ),
        places=found.places,
    )


def drop_reservations(graph: Graph) -> Graph:
    """The graph without each `aten.empty` that nothing reads: a batch norm reserves memory on fake tensors only."""
    read = {text for op in graph for text in op.operands}
    return tuple(op for op in graph if op.name in read or not op.target.startswith("aten.empty"))
