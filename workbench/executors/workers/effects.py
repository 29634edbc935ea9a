"""The calls of a trial on one instance, and what they change: the instance's state and the inputs of each call.

State are parameters and buffers. What the reference changes is compared like an output. What it does not change must
keep its bits. The candidate hands over what it changed: the value with number n of `list_followed` in the file N.bin,
and no file for a value that it left as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import read_numbered, write_numbered
from workbench.executors.workers.outputs import digest
from workbench.problems import loading
from workbench.problems.reference import Reference, run_reference, sample_reference
from workbench.problems.results import spec_of, tensors_of
from workbench.records import NOTHING, Check, Facts, Job, TensorSpec

EFFECTS = "effects"  # below scratch


@dataclass(frozen=True)
class Followed:
    """A value whose changes are followed: a parameter, a buffer, or an input of one call."""

    kind: str  # "parameter", "buffer" or "input"
    call: int
    spec: TensorSpec

    @property
    def title(self) -> str:
        """The value in words."""
        return f"{self.kind} {self.spec.name}"


@dataclass(frozen=True)
class Expectation:
    """What the calls of a trial give in the reference: the outputs of each call, then the values that it changed.

    `changed` has the numbers of the latter among `list_followed`.
    """

    found: Reference
    specs: tuple[TensorSpec, ...]
    outputs: int  # of all calls
    changed: tuple[int, ...]


def generator_seed(inputs: Iterable[object]) -> int:
    """The seed of torch's generator for a call, the same for the reference and the candidate."""
    return int(digest(inputs)[:12], 16)


def list_followed(
    model: torch.nn.Module, calls: Sequence[Sequence[object]], facts: Facts, first: int = 0
) -> list[Followed]:
    """All values that are followed, in order; `first` is the number of the first call."""
    parameters = dict(model.named_parameters())
    state = [
        ("parameter" if name in parameters else "buffer", spec_of(name, value))
        for name, value in loading.state_of(model).items()
    ]
    found = []
    for call, inputs in enumerate(calls, first):
        found += [Followed(kind, call, spec) for kind, spec in state]
        found += [Followed("input", call, spec_of(name, value)) for name, value in name_tensors(facts, inputs).items()]
    return found


def name_tensors(facts: Facts, inputs: Iterable[object]) -> dict[str, torch.Tensor]:
    """The tensors among the inputs of a call by name. A number of the text may decide how many there are."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    case = next(case for case in facts.cases if len(case.inputs) == len(tensors))
    return {spec.name: value for spec, value in zip(case.inputs, tensors, strict=True)}


def changes_inputs(facts: Facts) -> bool:
    """Whether the reference writes to its inputs."""
    return any(item.kind == "input_modified" for item in facts.degeneracies)


def list_returned(facts: Facts) -> tuple[str, ...]:
    """Names of the inputs and buffers that the reference changes in place of a result; () if it returns one."""
    return tuple(spec.name for spec in facts.cases[-1].outputs) if facts.form == NOTHING else ()


class Calls(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Calls a model with the inputs of several calls in a row.

    Returns the outputs of the calls from `first` on, then the state after each of them, with the inputs of that call
    if `with_inputs`.
    """

    def __init__(
        self, model: torch.nn.Module, calls: Sequence[Sequence[object]], first: int, with_inputs: bool
    ) -> None:
        super().__init__()
        self.model, self.first, self.with_inputs = model, first, with_inputs
        self.size, self.seeds = len(calls[0]), [generator_seed(inputs) for inputs in calls]

    def forward(self, *values: object) -> tuple[torch.Tensor, ...]:
        """The results of all calls."""
        outputs: list[torch.Tensor] = []
        after: list[torch.Tensor] = []
        several = len(self.seeds) > 1
        for call, seed in enumerate(self.seeds):
            inputs = list(values[call * self.size : (call + 1) * self.size])
            if self.with_inputs:
                inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
            loading.seed_generators(seed)
            results = tensors_of(self.model(*inputs))
            if call < self.first:
                continue
            outputs += [value.clone() for value in results] if several else results
            state = loading.state_of(self.model).values()
            after += [value.detach().clone() if several else value.detach() for value in state]
            if self.with_inputs:
                after += [value for value in inputs if isinstance(value, torch.Tensor)]
        return (*outputs, *after)


def run_calls(
    model: torch.nn.Module,
    calls: Sequence[Sequence[object]],
    job: Job,
    outputs: tuple[TensorSpec, ...],
    *,
    seed: int,
    first: int = 0,
    disturb: bool = False,
) -> Expectation:
    """Run the reference with the inputs of each call; what is compared are the calls from `first` on. `disturb` is that
    of `run_reference`.
    """
    with_inputs = changes_inputs(job.facts)
    followed = list_followed(model, calls[first:], job.facts, first)
    before = followed_values((value.detach() for value in loading.state_of(model).values()), calls[first:])
    wrapped = Calls(model, calls, first, with_inputs)
    given = [value for call in calls for value in call]
    found = run_reference(wrapped, given, job.problem.precision, seed=seed, disturb=disturb)
    shown = len(outputs) * len(calls[first:])
    numbers = [n for n, item in enumerate(followed) if with_inputs or item.kind != "input"]
    changed = [
        (at, n) for at, n in enumerate(numbers, shown) if not _is_same(found.exact[at], before[n].to(found.exact[at]))
    ]
    kept = [*range(shown), *(at for at, _ in changed)]
    specs = (*outputs * len(calls[first:]), *(followed[n].spec for _, n in changed))
    eager = None if found.eager is None else [found.eager[at] for at in kept]
    exact = [found.exact[at] for at in kept]
    ranges = [found.ranges[at] for at in kept] if found.ranges else ()
    return Expectation(
        replace(found, exact=exact, eager=eager, ranges=ranges), specs, shown, tuple(n for _, n in changed)
    )


def sample_calls(model: torch.nn.Module, calls: Sequence[Sequence[object]], count: int) -> list[list[torch.Tensor]]:
    """The outputs of all calls in the reference, `count` times with other random numbers."""
    several = _Sequence(model, calls)
    return list(sample_reference(several, [value for call in calls for value in call], range(1, count + 1)))


class _Sequence(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Calls a model with the inputs of several calls in a row, and returns all results."""

    def __init__(self, model: torch.nn.Module, calls: Sequence[Sequence[object]]) -> None:
        super().__init__()
        self.model, self.count = model, len(calls)

    def forward(self, *values: object) -> list[torch.Tensor]:
        """The results of all calls."""
        size = len(values) // self.count
        parts = (values[at : at + size] for at in range(0, len(values), max(size, 1)))
        return [value.clone() for inputs in parts for value in tensors_of(self.model(*inputs))]


def followed_values(state: Iterable[torch.Tensor], calls: Sequence[Sequence[object]]) -> list[torch.Tensor]:
    """The values of `list_followed` before the calls, given the state; not copied."""
    held = list(state)
    return [
        value for inputs in calls for value in (*held, *(value for value in inputs if isinstance(value, torch.Tensor)))
    ]


def _is_same(value: torch.Tensor, other: torch.Tensor) -> bool:
    if value.shape != other.shape:
        return False
    return bool(((value == other) | (value.isnan() & other.isnan())).all())


class Watch:
    """Follows what a candidate changes. `pairs` maps names of the reference's state to the candidate's."""

    def __init__(
        self, reference: torch.nn.Module, candidate: torch.nn.Module, pairs: Mapping[str, str], first: int = 0
    ) -> None:
        self.reference, self.candidate, self.pairs, self.first = reference, candidate, dict(pairs), first
        self.marks = {key: digest([value]) for key, value in self._state()}
        self.changed: dict[int, torch.Tensor] = {}
        self.count = 0
        self._inputs: list[str] = []

    def _state(self) -> list[tuple[str, torch.Tensor]]:
        now = loading.state_of(self.candidate)
        return [(key, now[name].detach()) for key, name in self.pairs.items() if name in now]

    def before(self, inputs: Iterable[object]) -> None:
        """Note the inputs of a call that is about to be made."""
        self._inputs = [digest([value]) for value in inputs if isinstance(value, torch.Tensor)]

    def after(self, inputs: Iterable[object]) -> None:
        """Keep copies of what a call has changed."""
        now = dict(self._state())
        names = list(loading.state_of(self.reference).items())
        for n, (name, own) in enumerate(names, self.count):
            if name in now and now[name].shape == own.shape and digest([now[name]]) != self.marks[name]:
                self.changed[n] = now[name].to(own.dtype).clone()
        self.count += len(names)
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        for n, (value, mark) in enumerate(zip(tensors, self._inputs, strict=True), self.count):
            if digest([value]) != mark:
                self.changed[n] = value.clone()
        self.count += len(tensors)

    def write(self, folder: Path) -> None:
        """Hand the changed values over."""
        write_numbered(folder, self.changed)


def read_changed(root: Path, relative: str, followed: Sequence[Followed]) -> dict[int, torch.Tensor]:
    """The values that an untrusted process says it changed. Raises `ValueError` or `OSError`."""
    return read_numbered(root, relative, [item.spec for item in followed])


def unasked_checks(
    case: str, trial: int, followed: Sequence[Followed], after: Mapping[int, torch.Tensor], changed: Sequence[int]
) -> list[Check]:
    """A failed comparison for each value that the candidate changed and the reference does not; each name once."""
    wrong = {followed[n].title: followed[n] for n in sorted(after, reverse=True) if n not in changed}
    return [
        Check(
            case=case,
            trial=trial,
            timed=False,
            passed=False,
            of=title,
            unasked=True,
            message=f"the candidate changed its {title}, which the reference does not change",
        )
        for title in sorted(wrong)
    ]


def name_values(
    facts: Facts, model: torch.nn.Module, state: Iterable[torch.Tensor], inputs: Sequence[object]
) -> dict[str, torch.Tensor]:
    """Inputs and state by name."""
    return {**name_tensors(facts, inputs), **dict(zip(loading.state_of(model), state, strict=True))}
