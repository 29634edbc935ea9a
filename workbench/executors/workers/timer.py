"""Times a call on a GPU, the same way for a candidate, its parent and torch eager, each in a process of its own.

With events: fresh inputs, L2 flushed by writing twice its size (or warmed by the same call), a device-side sleep so
that the host is ahead and its overhead is hidden, start event, the call, end event, then a device-wide synchronisation.
Work that still runs after the end event (on another stream) shows up in `wall`. The host's time to enqueue the call is
measured as well.

With a graph, for calls so short that two events are a large part of their time: several calls on different inputs are
captured once a round. Their inputs are filled again before each replay, and a sample is the time of the replay over
the number of calls. The calls are cold because together they touch more than twice the L2. `NotCapturable` gives the
reason if they touch less, if parameters that all calls share would stay in L2, or if capture fails or records nothing.
The runtime's own functions capture the graph. torch.cuda.graph is not used: if a capture fails, it leaves torch's
allocator and generators in a capturing state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from cuda.bindings import runtime as cudart
from torch.cuda import (
    Event,
    Stream,
    _sleep,
    current_stream,
    empty_cache,
    get_device_properties,
    mem_get_info,
    memory_reserved,
    stream,
    synchronize,
)

from workbench.executors.jobs.rpc import derive_seed
from workbench.problems.results import tensors_of
from workbench.wire import Json

CLOCK, PAUSE = time.perf_counter, time.sleep
SLEEP_S = 0.5e-3  # longer than a call takes to enqueue; more where the host was seen to take longer
CYCLES_PER_S = 2e9  # of the SM clock, about
MOST_SLEEP_S = 20e-3
SETTLED_S = 20e-6  # time of a synchronisation after the end event if nothing else runs
MOST_CALLS, LEAST_CALLS, WARM_CALLS = 32, 4, 16  # in a graph
SHARED = 0.1  # parameters over all bytes that a call touches, above which it is not cold in a graph (inferred)
POISON = 0xA5
KEPT_BYTES = 1 << 30  # of unused device memory that a process keeps outside of timing
SHORT = 0.25  # share of the device's memory; where less is free, processes free theirs after each turn
LEAST_S = 1e-9  # lower bound of a measured time
PAD_BYTES = 2 << 20  # granularity of the device's memory
# bytes; inferred: the driver clears memory that was given back while kernels run. On an H200, kernels at the rate of
# memory took 12 to 15 % longer for 18 ms after 9 GB, and for 40 ms after 19 GB
CLEARED_PER_S = 250e9

Values = list[Any]  # inputs or outputs of one call: tensors and scalars
Call = Callable[[Values], object]


class NotCapturable(Exception):
    """A call cannot be timed in a CUDA graph; the message says why."""


def is_memory_short() -> bool:
    """Whether little of the device's memory is free."""
    free, whole = mem_get_info()
    return bool(free < SHORT * whole)


def give_back_memory() -> None:
    """Give this process's unused memory back to the device, and wait until the driver has cleared it."""
    held = memory_reserved()
    empty_cache()
    PAUSE((held - memory_reserved()) / CLEARED_PER_S)


def _size_bytes(values: Iterable[object]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


class Stopwatch:
    """Times `call` on inputs from `inputs_of(seed)`, by events or in a graph.

    `parameters` are the bytes that all calls share.
    """

    def __init__(self, call: Call, inputs_of: Callable[[int], Values], *, cold: bool, parameters: int = 0) -> None:
        self.call, self.inputs_of, self.cold, self.parameters = call, inputs_of, cold, parameters
        self.l2 = int(get_device_properties(0).L2_cache_size)
        self.flush: torch.Tensor | None = None
        self.start, self.end = Event(enable_timing=True), Event(enable_timing=True)
        self.sleep_s = SLEEP_S
        self.graph: Graph | None = None
        self.pad: torch.Tensor | None = None
        self.outputs: list[Values] = []  # of the last timed call, or of all calls of the last replay
        self.inputs: list[Values] = []  # of the last timed call; a graph has its own
        self.seed = 0  # of the last sample
        self.touched = 0

    def warm_up(self, seeds: list[int]) -> dict[str, float]:
        """Time a few calls by events. Returns the seconds of one on the device and on the host, without the first."""
        taken = [self.time_call(one) for one in seeds]
        counted = taken[1:] or taken
        estimate, host = (sorted(one[key] for one in counted)[len(counted) // 2] for key in ("s", "host"))
        self.sleep_s = min(max(SLEEP_S, 2 * host), MOST_SLEEP_S)
        return {"estimate_s": estimate, "host_s": host}

    def begin(self, pad: int, method: str, first: int) -> Json:
        """Begin a round: memory is freed and allocated again, `pad` pages later, so that its placement differs."""
        self.drop()
        give_back_memory()
        self.pad = torch.empty(pad * PAD_BYTES, dtype=torch.uint8, device="cuda") if pad else None
        if method == "graph":
            try:
                self._capture(first)
            except NotCapturable as why:
                return {"why": str(why), "calls": 1, "sets": 0}
        self.time_call(first)  # the caches still hold code and data of the process that ran before
        return {
            "why": "",
            "calls": self.graph.calls if self.graph else 1,
            "sets": len(self.graph.inputs) if self.graph else 0,
        }

    def time_call(self, seed: int) -> dict[str, float]:
        """One sample: seconds per call on the device, host clock over events, host seconds to enqueue."""
        self.outputs, self.inputs, self.seed = [], [], seed
        if self.graph is not None:
            self.graph.fill(self.inputs_of, seed)
            return self._time_on_device(
                self.graph.launch, self.graph.calls, lambda _: self.graph.outputs if self.graph else []
            )
        inputs = self.inputs_of(seed)
        if self.cold:
            if self.flush is None:
                self.flush = torch.empty(2 * self.l2, dtype=torch.uint8, device="cuda")
            synchronize()
            self.flush.fill_(seed & 127)
        else:
            self.call(inputs)
        said = self._time_on_device(lambda: self.call(inputs), 1, lambda output: [tensors_of(output)])
        self.touched, self.inputs = _size_bytes(inputs) + _size_bytes(self.outputs[0]), [inputs]
        return said

    def has_changed_inputs(self, call: int, mark_of: Callable[[Values], object]) -> bool:
        """Whether a call of the last sample changed its inputs; `mark_of` digests values. They are freed."""
        held, seed = self.inputs, self.seed
        if self.graph is not None:
            held = self.graph.inputs
            seed = derive_seed(seed, call % len(held))
        if not held:
            return False
        mark = mark_of(held[call % len(held)])
        self.inputs = []
        del held  # the fresh ones take their memory
        return mark != mark_of(self.inputs_of(seed))

    def time_as_called(self, seed: int, count: int) -> list[float]:
        """Seconds from an idle GPU to the end of a call, host time included, for `count` calls on the same inputs."""
        self.outputs, self.inputs = [], []
        inputs, taken = self.inputs_of(seed), []
        for _ in range(count):
            if self.flush is not None:
                self.flush.fill_(seed & 127)
            synchronize()
            before = CLOCK()
            output = self.call(inputs)
            synchronize()
            taken.append(max(CLOCK() - before, LEAST_S))
            del output
        return taken

    def _time_on_device(
        self, run: Callable[[], object], calls: int, outputs: Callable[[object], list[Values]]
    ) -> dict[str, float]:
        if calls > 1:
            synchronize()
        _sleep(int(self.sleep_s * CYCLES_PER_S))
        self.start.record()
        before = CLOCK()
        output = run()
        host = CLOCK() - before
        self.end.record()
        self.end.synchronize()
        after = CLOCK()
        synchronize()
        late = CLOCK() - after
        self.outputs = outputs(output)
        seconds = max(self.start.elapsed_time(self.end) * 1e-3, LEAST_S)
        return {"s": seconds / calls, "wall": (seconds + max(late - SETTLED_S, 0.0)) / seconds, "host": host}

    def _capture(self, first: int) -> None:
        calls = WARM_CALLS
        if self.cold:
            calls = max(LEAST_CALLS, -(-2 * self.l2 // max(self.touched, 1)))
            if calls > MOST_CALLS:
                raise NotCapturable(
                    f"{MOST_CALLS} calls of {self.touched / 1e6:.2f} MB do not fill twice the L2, "
                    "so they would not be cold"
                )
            if self.parameters > SHARED * (self.touched + self.parameters):
                raise NotCapturable(
                    f"{self.parameters / 1e6:.2f} MB of parameters are shared by the calls, so they would not be cold"
                )
        self.graph = Graph(
            self.call, [self.inputs_of(derive_seed(first, n)) for n in range(calls if self.cold else 1)], calls
        )

    def rest(self) -> None:
        """End of a turn: where the device's memory is short, the others need what this one holds."""
        if is_memory_short():
            self.drop()
            give_back_memory()

    def drop(self) -> None:
        """Free the graph, the outputs and the padding."""
        if self.graph is not None:
            self.graph.close()
        self.graph, self.pad, self.outputs, self.inputs = None, None, [], []


class Graph:
    """Calls captured on a stream of our own, each on its own inputs or all on the same. Raises `NotCapturable`."""

    def __init__(self, call: Call, inputs: list[Values], calls: int) -> None:
        if not all(isinstance(value, torch.Tensor) for one in inputs for value in one):
            raise NotCapturable("an input is not a tensor, so that it cannot be filled afresh")
        self.inputs, self.calls, self.executable = inputs, calls, None
        side = Stream()
        synchronize()
        try:
            with stream(side):
                call(inputs[0])  # a call may do some work once per stream; it does so now
            synchronize()
            self.outputs = self._record(call, side)
        except NotCapturable:
            raise
        except Exception as error:
            synchronize()
            raise NotCapturable(
                f"capture failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            ) from error
        self._verify_replay()

    def _record(self, call: Call, side: torch.cuda.Stream) -> list[Values]:
        """Capture the calls; returns the outputs that each replay writes.

        In relaxed mode a call may allocate memory.
        """
        graph, outputs = None, []
        _call_runtime(
            cudart.cudaStreamBeginCapture, side.cuda_stream, cudart.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        )
        try:
            with stream(side):
                for n in range(self.calls):
                    outputs.append(tensors_of(call(self.inputs[n % len(self.inputs)])))
        finally:
            result = cudart.cudaStreamEndCapture(side.cuda_stream)
            graph = result[1] if not int(result[0]) else None
            if graph is None:
                cudart.cudaGetLastError()
        if graph is None:
            raise NotCapturable(f"the capture was broken off by the call ({result[0].name})")
        try:
            if not int(_call_runtime(cudart.cudaGraphGetNodes, graph, 0)[-1]):
                raise NotCapturable("nothing was recorded: the kernel is not launched on torch's current stream")
            self.executable = _call_runtime(cudart.cudaGraphInstantiate, graph, 0)[0]
        finally:
            cudart.cudaGraphDestroy(graph)
        return outputs

    def _verify_replay(self) -> None:
        """Check that a replay writes every output, and that no two outputs share memory."""
        values = [value for one in self.outputs for value in one]
        if not all(isinstance(value, torch.Tensor) and value.is_contiguous() for value in values):
            self._refuse("an output is not a contiguous tensor")
        given = {value.untyped_storage().data_ptr() for one in self.inputs for value in one if value.numel()}
        if any(value.untyped_storage().data_ptr() in given for value in values if value.numel()):
            self._refuse("an output lies in the memory of an input")
        if len({value.data_ptr() for value in values if value.numel()}) < sum(value.numel() > 0 for value in values):
            self._refuse("the calls share the memory of their outputs")
        self.poison()
        self.launch()
        synchronize()
        if any(value.numel() and bool((value.reshape(-1).view(torch.uint8) == POISON).all()) for value in values):
            self._refuse("a replay writes nothing: the kernel is not launched on torch's current stream")

    def _refuse(self, why: str) -> None:
        self.close()
        raise NotCapturable(why)

    def poison(self) -> None:
        """Overwrite every output, so that an output that a replay does not write is wrong."""
        for one in self.outputs:
            for value in one:
                if value.numel():
                    value.reshape(-1).view(torch.uint8).fill_(POISON)

    def fill(self, inputs_of: Callable[[int], Values], seed: int) -> None:
        """Fill all inputs; those of call n come from `derive_seed(seed, n)`."""
        for n, held in enumerate(self.inputs):
            for value, fresh in zip(held, inputs_of(derive_seed(seed, n)), strict=True):
                value.copy_(fresh)
        self.poison()

    def launch(self) -> None:
        """One replay on torch's current stream."""
        _call_runtime(cudart.cudaGraphLaunch, self.executable, current_stream().cuda_stream)

    def close(self) -> None:
        """Destroy the graph when it no longer runs."""
        synchronize()
        if self.executable is not None:
            cudart.cudaGraphExecDestroy(self.executable)
            self.executable = None


def _call_runtime(function: Any, *arguments: Any) -> tuple[Any, ...]:
    """Results of a runtime call after its error code; raises `NotCapturable` with the code's name."""
    result = function(*arguments)
    if int(result[0]):
        cudart.cudaGetLastError()
        raise NotCapturable(f"{function.__name__} said {result[0].name}")
    return tuple(result[1:])
