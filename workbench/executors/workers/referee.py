"""The trusted process beside a candidate on a GPU: checks outputs, times torch eager, torch.compile and a fixed kernel,
which shows how steady the device is.

It never imports a candidate. It stays for the jobs of one problem, so that its CUDA context, its library handles and
its memory are made once.
"""

from __future__ import annotations

import copy
import itertools
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.executors.jobs import shared_tensors
from workbench.executors.jobs.rpc import requests
from workbench.executors.jobs.trials import name_numbers
from workbench.executors.workers import effects
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.gpu_candidate import reference_model, set_tf32, stopwatch
from workbench.executors.workers.outputs import find_case, load_case
from workbench.executors.workers.timer import KEPT_BYTES, Stopwatch, give_back_memory, is_memory_short
from workbench.executors.workers.tolerance import Tolerance, measure_tolerances
from workbench.problems import loading
from workbench.problems.reference import Reference
from workbench.problems.reference.choices import Choice, find_choices, take_equal_values
from workbench.records import Check, Job, TensorSpec
from workbench.wire import Json, from_plain, to_plain

IDLE_LIMIT_S = 900.0  # then it ends and gives the device's memory back; the next job starts another
PROBE_SIDE = 2048  # of a bf16 matmul, which feels the SM clock
PROBE_BYTES = 64 << 20  # of a copy, which feels the memory
PROBES = 3
KEPT_SHARE = 64  # outputs of a quick job up to the device's memory over this stay, with what is right, for the next one
SPARE_BYTES = 4 << 30  # of device memory that stay free for what a part needs
PARTS = (4, 16, 64)  # in which the reference's samples run where memory is short
INDICES = ("int64", "int32")  # dtypes of outputs that may be indices
ALIKE = (1e-9, 1e-12)  # relative and absolute difference of float64 results that only the order of summation explains


@dataclass(frozen=True)
class Expected:
    """What a call has to give; `changed` has what the reference changes as it was before, by number in `followed`."""

    outputs: tuple[TensorSpec, ...]
    found: effects.Expectation
    tolerances: list[Tolerance]
    followed: list[effects.Followed]
    changed: dict[int, torch.Tensor]
    choices: list[Choice]  # of which integer outputs may be the indices


class Referee:
    """Each method carries out the request of its name."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self.watches: dict[str, Stopwatch] = {}  # by program: eager, compiled
        self.compiled: Compiled | None = None
        self.expected: Expected | None = None
        self.kept: tuple[tuple[object, ...], Expected] | None = None  # of a quick job
        self.jobs = 0  # opened so far
        self.probe_with: tuple[torch.Tensor, ...] = ()
        self.quiet_s = float("inf")  # the fastest probe so far
        self.model: tuple[tuple[str, int], torch.nn.Module] | None = None  # the last, by case and seed
        self.split: tuple[int, ...] | None = None  # of the job; None until it is asked for

    @property
    def job(self) -> Job:
        """The job that was opened last."""
        assert self._job is not None, "open comes first"
        return self._job

    def open(self, job: Json) -> Json:
        """Open a job, given as plain data by the parent: another process of the user might have written to its folder.

        Makes the CUDA context and the tensors of the probe.
        """
        self.close()
        self._job = from_plain(job, Job)
        self.jobs += 1
        set_tf32(self.job)
        if not self.probe_with:
            torch.manual_seed(0)
            # random, because the values of operands decide how much power a matmul draws
            a = torch.randn(PROBE_SIDE, PROBE_SIDE, device="cuda").bfloat16()
            source = torch.randn(PROBE_BYTES // 4, device="cuda")
            self.probe_with = (a, torch.empty_like(a), source, torch.empty_like(source))
        self.probe()
        compiles = self.job.compiled == "now" or (self.job.compiled == "later" and self.jobs > 1)
        return {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda, "compiles": compiles}

    def expect(self, case: str, model_seed: int, input_seeds: list[int], timed: bool) -> Json:
        """What a call has to give, for the next `check`: the reference in float64, beside torch eager's, and the
        tolerances. Of a trial, the state and the inputs are followed too.
        """
        asked = (case, model_seed, input_seeds)
        if self.kept is not None and not timed and self.kept[0] == asked:
            self.expected = self.kept[1]
            return {"carried": False}
        outputs = find_case(self.job, case).outputs
        module = load_case(self.job, case)
        calls = [loading.make_inputs(module, self.job.problem, seed, "cuda") for seed in input_seeds]
        model, last = self._model(case, module, model_seed), len(calls) - 1
        followed = effects.list_followed(model, calls[last:], self.job.facts, last)
        expected = self._expect(case, model, calls, model_seed, last)
        changed = () if timed else expected.changed
        initial = effects.followed_values(loading.state_of(model).values(), calls[last:])
        self.expected = Expected(
            outputs=outputs,
            found=expected,
            tolerances=measure_tolerances(expected.found, expected.specs),
            followed=followed,
            changed={n: initial[n].detach() for n in changed},
            choices=find_choices(model, calls[last]) if any(spec.dtype in INDICES for spec in outputs) else [],
        )
        if self.job.quick and sum(spec.size_bytes for spec in outputs) <= torch.cuda.mem_get_info()[1] // KEPT_SHARE:
            self.kept = (asked, self.expected)
        return {"carried": last > 0 and self._depends_on_calls_before(model, calls, expected)}

    def check(self, case: str, trial: int, timed: bool, root: str, relative: str) -> Json:
        """Compare what the candidate's last call gave with what `expect` found."""
        assert self.expected is not None, "expect comes first"
        one, self.expected = self.expected, None
        after = {} if timed else effects.read_changed(Path(root), f"scratch/{effects.EFFECTS}", one.followed)
        changed = [after.get(n, before) for n, before in one.changed.items()]
        left = [*(False for _ in one.outputs), *(n not in after for n in one.changed)]
        titles = [*("" for _ in one.outputs), *(one.followed[n].title for n in one.changed)]
        checks = []
        with shared_tensors.opened(Path(root), relative, one.outputs, "cuda") as outputs:
            for n, (value, title) in enumerate(zip([*outputs, *changed], titles, strict=True)):
                wanted = one.found.found.exact[n]
                if one.choices and not wanted.is_floating_point():
                    wanted = take_equal_values(value.to(wanted.device), wanted, partial(list, one.choices))
                fields = compare(value, wanted, one.tolerances[n])
                number = 0 if title else n
                untouched = left[n] and not fields["passed"]
                checks.append(
                    Check(
                        case=case,
                        trial=trial,
                        timed=timed,
                        output=number,
                        of=title,
                        values=name_numbers(self.job.facts, case),
                        untouched=untouched,
                        **fields,
                    )
                )
        checks += effects.unasked_checks(case, trial, one.followed, after, tuple(one.changed))
        del changed, one
        if is_memory_short() if timed else torch.cuda.memory_reserved() > KEPT_BYTES:
            give_back_memory()
        return {"checks": [to_plain(check) for check in checks]}

    def _expect(
        self, case: str, model: torch.nn.Module, calls: list[list[object]], seed: int, first: int
    ) -> effects.Expectation:
        """What the calls give in the reference: where memory is short, of some samples at a time, or on the CPU."""
        outputs = find_case(self.job, case).outputs
        try:
            return effects.run_calls(model, calls, self.job, outputs, seed=seed, first=first)
        except torch.OutOfMemoryError:
            pass  # what the failed run held is free only after this block
        give_back_memory()
        split = self._split() if len(calls) == 1 else ()
        for parts in PARTS if split else ():
            try:
                return run_in_parts(model, calls[0], split, parts, self.job, outputs, seed)
            except torch.OutOfMemoryError:
                pass
            give_back_memory()
        held = [[value.cpu() if isinstance(value, torch.Tensor) else value for value in inputs] for inputs in calls]
        return effects.run_calls(copy.deepcopy(model).cpu(), held, self.job, outputs, seed=seed, first=first)

    def _split(self) -> tuple[int, ...]:
        """The inputs that have a row for each sample, if the reference treats samples apart; found at small sizes."""
        small = next((one.name for one in self.job.facts.cases if one.name != self.job.cases[-1]), None)
        if self.split is None and small is not None:
            module = load_case(self.job, small)
            model = reference_model(self.job, module, small, 0)
            inputs = loading.make_inputs(module, self.job.problem, 1, "cuda")
            self.split = find_samples(model, inputs, self.job, find_case(self.job, small).outputs)
        return self.split or ()

    def _depends_on_calls_before(
        self, model: torch.nn.Module, calls: list[list[object]], expected: effects.Expectation
    ) -> bool:
        """Whether the outputs of the last call would be others if it were the first, or its inputs change."""
        if not expected.changed:
            return False
        if effects.changes_inputs(self.job.facts):
            return True
        outputs = expected.specs[: expected.outputs]
        alone = effects.run_calls(model, calls[-1:], self.job, outputs, seed=0).found.exact
        return not all(map(_are_alike, alone[: len(outputs)], expected.found.exact[: len(outputs)]))

    def _model(self, case: str, module: ModuleType, seed: int) -> torch.nn.Module:
        """The reference; its parameters are drawn on the CPU once for a seed, not again for each check."""
        if self.model is None or self.model[0] != (case, seed):
            self.model = ((case, seed), reference_model(self.job, module, case, seed))
        return self.model[1]

    def compile(self, case: str, model_seed: int, seed: int) -> Json:
        """torch.compile of the reference, if it is not there yet. It runs once, which compiles it."""
        if self.compiled is None or self.compiled.case != case:
            self.compiled = None
            module = load_case(self.job, case)
            compiled = Compiled(case, self._model(case, module, model_seed))
            compiled.module(*loading.make_inputs(module, self.job.problem, seed, "cuda"))
            torch.cuda.synchronize()
            self.compiled = compiled
        return {}

    def warm_up(self, case: str, model_seed: int, seeds: list[int], program: str = "eager") -> Json:
        """Torch eager or torch.compile with the parameters of the last trial, warmed up."""
        module = load_case(self.job, case)
        model = self._model(case, module, model_seed)
        if program == "compiled":
            assert self.compiled is not None, "compile comes first"
            model = self.compiled.take(model)
        else:
            model = copy.deepcopy(model)
        self.watches[program] = stopwatch(self.job, module, model)
        return dict(self.watches[program].warm_up(seeds))

    def begin(self, program: str = "eager", **options: Any) -> Json:
        """Begin a round."""
        return self.watches[program].begin(**options)

    def samples(self, seeds: list[int], program: str = "eager") -> Json:
        """The samples of a round."""
        return {"taken": [self.watches[program].time_call(seed) for seed in seeds]}

    def call_times(self, seed: int, count: int, program: str = "eager") -> Json:
        """Seconds of calls as a model sees them."""
        return {"taken": self.watches[program].time_as_called(seed, count)}

    def rest(self) -> Json:
        """End of a turn."""
        for watch in self.watches.values():
            watch.rest()
        return {}

    def drop(self) -> Json:
        """End of the timing of a case."""
        for watch in self.watches.values():
            watch.drop()
        self.watches = {}
        return {}

    def probe(self) -> Json:
        """Median seconds of the fixed kernels: a matmul and a copy on resident data."""
        a, product, source, target = self.probe_with
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        found = []
        for _ in range(PROBES + 1):
            torch.cuda._sleep(200_000)
            start.record()
            torch.mm(a, a, out=product)
            target.copy_(source)
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e-3)
        self.quiet_s = min([self.quiet_s, *found[1:]])
        return {"s": sorted(found[1:])[PROBES // 2], "quiet_s": self.quiet_s}

    def close(self) -> Json:
        """Close the job and free its memory."""
        self.drop()
        self.model, self.split, self.expected = None, None, None
        if torch.cuda.is_initialized():
            if is_memory_short():
                self.compiled = self.kept = None
            torch.cuda.empty_cache()
        return {}


class Compiled:
    """torch.compile of the reference at one case. It stays for the next jobs."""

    def __init__(self, case: str, model: torch.nn.Module) -> None:
        # in this process: helpers of the compiler would outlive it
        torch._inductor.config.compile_threads = 1
        self.case, self.original = case, copy.deepcopy(model)
        self.module = torch.compile(self.original)

    def take(self, model: torch.nn.Module) -> torch.nn.Module:
        """The compiled module with the parameters and buffers of `model`."""
        theirs = loading.state_of(model)
        for name, value in loading.state_of(self.original).items():
            value.copy_(theirs[name])
        return self.module


def find_samples(
    model: torch.nn.Module, inputs: list[object], job: Job, outputs: tuple[TensorSpec, ...]
) -> tuple[int, ...]:
    """The inputs whose first axis has the samples, if the reference of each sample depends on no other one.

    That is tried: two halves, one after the other, give what all of them give. () if there are no such inputs.
    """
    sizes = {spec.shape[:1] for spec in outputs}
    if len(sizes) != 1 or sizes <= {(), (0,), (1,)}:
        return ()
    (samples,) = next(iter(sizes))
    known = [n for n, value in enumerate(inputs) if isinstance(value, torch.Tensor) and value.shape[:1] == (samples,)]
    whole = effects.run_calls(model, [inputs], job, outputs, seed=0)
    if whole.changed:
        return ()
    for count in range(len(known), 0, -1):
        for chosen in itertools.combinations(known, count):
            try:
                parts = run_in_parts(model, inputs, chosen, 2, job, outputs, seed=0)
            except (RuntimeError, ValueError, IndexError):
                continue
            pairs = zip(whole.found.exact, parts.found.exact, strict=True)
            if all(itertools.starmap(_are_alike, pairs)):
                return chosen
    return ()


def _are_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether float64 results are equal but for the order of summation, which torch may choose anew."""
    return one.shape == two.shape and bool(torch.allclose(one, two.to(one), *ALIKE, True))


def run_in_parts(
    model: torch.nn.Module,
    inputs: list[object],
    split: tuple[int, ...],
    parts: int,
    job: Job,
    outputs: tuple[TensorSpec, ...],
    seed: int,
) -> effects.Expectation:
    """What one call gives in the reference, with the samples of the inputs `split` in so many parts."""
    first = inputs[split[0]]
    assert isinstance(first, torch.Tensor)
    exact: list[torch.Tensor] = []
    eager: list[torch.Tensor] | None = []
    ends: list[torch.Tensor] = []
    known: set[tuple[int, ...]] = set()  # results with ranges, in each part
    terms, eps = 0, 0.0
    for rows in (part for part in torch.arange(len(first)).tensor_split(parts) if len(part)):
        at = slice(int(rows[0]), int(rows[-1]) + 1)
        part = [
            value[at] if n in split and isinstance(value, torch.Tensor) else value for n, value in enumerate(inputs)
        ]
        got = effects.run_calls(model, [part], job, outputs, seed=seed).found
        terms, eps = max(terms, got.terms), max(eps, got.eps)
        _put(exact, got.exact, at, len(first))
        known.add(tuple(n for n, pair in enumerate(got.ranges) if pair is not None))
        if len(known) == 1:
            _put(ends, [end for pair in got.ranges if pair is not None for end in pair], at, len(first))
        if eager is not None and got.eager is not None:
            _put(eager, got.eager, at, len(first))
        else:
            eager = None
    ranges = dict(zip(*known, zip(ends[::2], ends[1::2], strict=True), strict=True)) if len(known) == 1 else {}
    found = Reference(exact, eager, terms, eps, ranges=[ranges.get(n) for n in range(len(exact))])
    return effects.Expectation(found, outputs, len(outputs), ())


def _put(whole: list[torch.Tensor], parts: Sequence[torch.Tensor], at: slice, samples: int) -> None:
    """Put the samples `at` into tensors of all, which are made for the first ones: on the device if it has room."""
    if not whole:
        for part in parts:
            size = part.nbytes // max(len(part), 1) * samples
            host = torch.cuda.is_initialized() and torch.cuda.mem_get_info()[0] < size + SPARE_BYTES
            whole.append(part.new_empty((samples, *part.shape[1:]), device="cpu" if host else part.device))
    for value, part in zip(whole, parts, strict=True):
        value[at] = part


def serve(connection: socket.socket) -> Json:
    """Answer requests until "end", or until none comes for IDLE_LIMIT_S. A reply may be an error."""
    referee = Referee()
    timing = ("compile", "warm_up", "begin", "samples", "call_times", "rest", "drop", "probe")
    what = {name: getattr(referee, name) for name in ("open", "expect", "check", *timing, "close")}
    with torch.no_grad():
        for request, answer in requests(connection, IDLE_LIMIT_S):
            name = request.pop("do")
            if name == "end":
                answer({})
                break
            try:
                answer(what[name](**request))
            except torch.OutOfMemoryError as error:
                answer({"error": "out of memory", "memory": next(iter(str(error).splitlines()), "")})
            except Exception as error:
                answer({"error": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"})
    return {"done": True}
