"""The state of an active emulation: launches, faults, and the memory that kernels may touch."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.execution.tensor_views import Arguments
from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.dlpack import AllocationWatch
from workbench.emulator.host.lazy_memory import LazyAllocations
from workbench.emulator.host.runtime import LaunchConfig, cluster_dims, is_dependent
from workbench.emulator.host.torch_device import Functions, Operations, StandIns
from workbench.emulator.host.virtual_gpu import VirtualGpu
from workbench.emulator.sanitizer.launch_order import LaunchHistory, OrderedLaunch
from workbench.emulator.timing.roofline import roofline_seconds
from workbench.errors import UserError
from workbench.records import Failure, Finding, Launch

ACTIVE: list[Emulation] = []
LIBRARIES: dict[bytes, CompiledModule] = {}  # by image; compiled functions outlive one emulation
OPERANDS = DeviceTags()  # CPU tensors that stand for device tensors; CuTe DSL's tensors outlive one emulation too
_MACHINES: dict[tuple[str, str, str | None], Machine] = {}  # the latest ones; others are made again from their PTX
LIMITED_THREADS = 256  # of a CTA that the limit of instructions is for; a larger CTA may take more in proportion
MACHINES = 64  # limit for _MACHINES, since the machine of a large kernel takes megabytes


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """The PTX and the cubin of a module that the program loaded."""

    ptx: str
    cubin: bytes


@dataclass(slots=True)
class Emulation:
    """Everything that happened while `emulated()` was active."""

    arch: str
    limits: DeviceLimits
    gpu: VirtualGpu
    counters: bool
    step_limit: int
    source_file: str | None
    cuda: bool
    strict: bool
    sample: int | None = None
    follow: bool = False
    limit_s: float | None = None
    skip_repeats: bool = False
    l2_share: float | None = None
    names: dict[int, str] = field(default_factory=dict)  # of tensors by their addresses, in place of their shapes
    sanitize: bool = False
    note_launch: Callable[[Launch], None] | None = None
    note_fault: Callable[[Failure], None] | None = None
    arguments: Arguments = field(default_factory=Arguments)  # of the running call of a compiled function
    launches: list[Launch] = field(default_factory=list)
    faults: list[EmulationFault] = field(default_factory=list)  # includes faults that the program caught
    modules: list[CompiledModule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watch: AllocationWatch = field(default_factory=AllocationWatch)
    tags: DeviceTags = field(default_factory=DeviceTags)
    history: LaunchHistory = field(default_factory=LaunchHistory)
    loading: CompiledModule | None = None  # the module that CuTe DSL is loading now
    # modules of functions that load their module themselves, at their first call
    compiled: list[CompiledModule] = field(default_factory=list)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def enter_modes(self) -> ExitStack:
        """Enter the torch modes of this emulation; closing the returned stack leaves them."""
        stack = ExitStack()
        self.watch.capturing = {} if self.cuda else self.gpu.capturing  # with cuda, Operations says it
        # a sample leaves memory unwritten, and filling it would touch all of it
        stack.enter_context(self.watch if self.sample is None else LazyAllocations())
        if self.cuda:
            stack.enter_context(Operations(self.tags, self.gpu))
            stack.enter_context(Functions(self.tags))
        else:
            stack.enter_context(StandIns())
        return stack

    @property
    def findings(self) -> list[Finding]:
        """The findings of all launches, errors first."""
        return [fault.finding for fault in self.faults if fault.finding] + [
            finding for launch in self.launches for finding in launch.findings
        ]

    def source_files(self, kernel: str, line: int) -> list[str]:
        """The source files in which this kernel has instructions, or its function, on line `line`: more than one if
        files share the number.
        """
        machine = self._machines.get(kernel)
        if machine is None:
            return []
        found = machine.module.kernels[kernel]
        places = {(found.line, found.file), *((ins.line, ins.file) for ins in found.instructions)}
        return sorted(file for at, file in places if at == line and file)

    def set_arguments(self, arguments: Arguments) -> None:
        """Set the arguments of the call that is about to run; empty ones if the function takes them in another way."""
        self.arguments = arguments

    def global_memory(self, arguments: Arguments | None = None) -> GlobalMemory:
        """Collects all memory that a kernel may touch: live tagged tensors, and allocations of the driver.

        Of the tensors among `arguments`, only the part that they reach is included.
        """
        memory = GlobalMemory(arguments=arguments or Arguments())
        for found in self.tags.alive_ranges():
            if not (self.cuda and found.kind == "host"):
                memory.register(
                    found.start,
                    found.size,
                    self.names.get(found.start, found.name),
                    identity=found.identity,
                    written=self.watch.written_shadow(found.start, found.size) if self.sample is None else None,
                    owner=found.storage,
                )
        for address, buffer in self.gpu.buffers.items():
            memory.register(address, len(buffer.data), buffer.name, written=buffer.written, owner=buffer)
        return memory

    def launch(
        self, name: str, image: bytes, config: LaunchConfig, arguments: ctypes._Pointer[ctypes.c_void_p]
    ) -> None:
        """Run one grid on the machine, or add it to a graph while its stream is being captured."""
        module = LIBRARIES[image]
        if module not in self.modules:
            self.modules.append(module)
        key = (module.ptx, self.limits.name, self.source_file)
        machine = _MACHINES[key] = (
            _MACHINES.pop(key) if key in _MACHINES else Machine(module.ptx, self.limits, self.source_file)
        )
        while len(_MACHINES) > MACHINES:
            del _MACHINES[next(iter(_MACHINES))]
        self._machines[name] = machine
        kernel = machine.module.kernels[name]
        params = tuple(ctypes.string_at(arguments[n] or 0, size) for n, (_, size, _) in enumerate(kernel.params))
        request = GridRequest(
            entry=name,
            grid=(config.grid.x, config.grid.y, config.grid.z),
            block=(config.block.x, config.block.y, config.block.z),
            cluster=cluster_dims(config),
            dynamic_shared_bytes=config.shared,
            params=params,
            step_limit=self.step_limit * max(config.block.x * config.block.y * config.block.z // LIMITED_THREADS, 1),
            counters=self.counters,
            source_file=self.source_file,
            strict_shared=self.strict,
            sanitize=self.sanitize,
            sample=self.sample,
            follow=self.follow,
            limit_s=self.limit_s,
            skip_repeats=self.skip_repeats,
            l2_share=self.l2_share,
        )
        stream = config.stream or 0
        run = functools.partial(self._run, machine, request, self.arguments, is_dependent(config))
        captured = self.gpu.capturing.get(stream)
        if captured is not None:
            captured.append(run)
        else:
            run(stream)

    def _order_launch(
        self, machine: Machine, request: GridRequest, stream: int, dependent: bool
    ) -> OrderedLaunch | None:
        """The launch's place among others, if it may overlap with some and its accesses are checked."""
        if not request.counters or request.sample is not None:
            return None
        streams = self.gpu.streams
        ctas = request.grid[0] * request.grid[1] * request.grid[2]
        placed = self.history.begin(
            request.entry, ctas, streams.launch(stream), dependent=dependent, several=streams.several
        )
        return placed if dependent or streams.several or machine.depends_on_launches else None

    def _run(self, machine: Machine, request: GridRequest, arguments: Arguments, dependent: bool, stream: int) -> None:
        order = self._order_launch(machine, request, stream, dependent)
        memory = self.global_memory(arguments)
        try:
            with self._follow_origins(arguments):
                launch = machine.run(request, memory, order)
        except EmulationFault as fault:
            self.faults.append(self._explain_fault(fault))
            if self.note_fault is not None:
                self.note_fault(self.faults[-1].failure)
            raise self.faults[-1] from None
        finally:
            memory.release()
        self.launches.append(launch)
        if self.note_launch is not None:
            self.note_launch(launch)
        self.gpu.clock_s += roofline_seconds(launch, self.gpu.device)
        if launch.printed:
            sys.stdout.write(launch.printed)  # a GPU's printf goes to standard output too

    @contextmanager
    def _follow_origins(self, arguments: Arguments) -> Iterator[None]:
        """Follow which storages the launch writes, if that is followed."""
        if self.watch.origins is None:
            yield
            return
        reached = [
            found
            for found in self.tags.alive_ranges()
            if arguments.views_in_range(found.start, found.size)[0] or arguments.may_reach(found.start)
        ]
        with self.watch.origins.follow_launch([(found.start, found.size) for found in reached]):
            yield

    def _explain_fault(self, fault: EmulationFault) -> EmulationFault:
        """Turns an out-of-bounds fault into one about host memory or freed memory where that is the cause."""
        finding = fault.finding
        if finding is None or finding.kind != "out_of_bounds" or finding.address is None:
            return fault
        kind, message, hint = "", "", ""
        host = (
            [
                found
                for found in self.tags.alive_ranges()
                if found.kind == "host" and found.start <= finding.address < found.start + found.size
            ]
            if self.cuda
            else []
        )
        gone = self.tags.freed_name(finding.address)
        if host:
            kind, message, hint = (
                "host_memory",
                f"the kernel touches host memory: {host[0].name} is on the CPU",
                'put it on the device: .cuda(), or device="cuda"',
            )
        elif gone and self.arguments.may_reach(finding.address) and self.global_memory().find(finding.address) is None:
            kind, message, hint = (
                "use_after_free",
                f"the kernel touches memory that was freed: {gone} is gone",
                "keep the tensor alive until the last kernel that uses its address has run",
            )
        if not kind:
            return fault
        message = f"{message}, by thread {finding.thread} of block {finding.block}"
        return EmulationFault(
            replace(fault.failure, kind=kind, message=message, hint=hint), replace(finding, kind=kind, message=message)
        )


def enter_active_modes() -> ExitStack:
    """Enter the modes of the active emulation, if there is one."""
    return ACTIVE[-1].enter_modes() if ACTIVE else ExitStack()


def current_emulation() -> Emulation:
    """The active emulation; raises `UserError` if there is none."""
    if not ACTIVE:
        raise UserError("a kernel that was compiled under emulation was launched outside it")
    return ACTIVE[-1]
