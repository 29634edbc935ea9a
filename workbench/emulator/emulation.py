"""What happens while `emulated()` is active: launches, faults, the memory that kernels may touch."""

from __future__ import annotations

import ctypes
import functools
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.execution.tensor_views import Arguments
from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.dlpack import AllocationWatch
from workbench.emulator.host.runtime import LaunchConfig, cluster_of
from workbench.emulator.host.torch_device import Functions, Operations
from workbench.emulator.host.virtual_gpu import VirtualGpu
from workbench.emulator.timing.roofline import roofline_seconds
from workbench.errors import UserError
from workbench.records import Finding, Launch

ACTIVE: list[Emulation] = []
LIBRARIES: dict[
    bytes, CompiledModule
] = {}  # image -> what it was compiled to; compiled functions outlive one emulation
_MACHINES: dict[
    tuple[str, str, str | None], Machine
] = {}  # those that launched last; another is made again from its PTX
MACHINES = 64  # at most, since one of a large kernel takes megabytes


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """One module that the program loaded."""

    ptx: str
    cubin: bytes


@dataclass(slots=True)
class Emulation:
    """What happened while `emulated()` was active."""

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
    sanitize: bool = False
    arguments: Arguments = field(default_factory=Arguments)  # of the call of a compiled function that is running
    launches: list[Launch] = field(default_factory=list)
    faults: list[EmulationFault] = field(default_factory=list)  # also those that the program caught
    modules: list[CompiledModule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watch: AllocationWatch = field(default_factory=AllocationWatch)
    tags: DeviceTags = field(default_factory=DeviceTags)
    loading: CompiledModule | None = None  # known while CuTe DSL loads it
    compiled: list[CompiledModule] = field(
        default_factory=list
    )  # of functions that load their module themselves, at their first call
    _machines: dict[str, Machine] = field(default_factory=dict)

    def modes(self) -> ExitStack:
        """Torch's modes of this emulation, entered; closing the stack leaves them."""
        stack = ExitStack()
        if self.sample is None:  # what a sample leaves unwritten is no error, and filling it would touch all of it
            stack.enter_context(self.watch)
        if self.cuda:
            stack.enter_context(Operations(self.tags, self.gpu))
            stack.enter_context(Functions(self.tags))
        return stack

    @property
    def findings(self) -> list[Finding]:
        """Findings of all launches, errors first."""
        return [fault.finding for fault in self.faults if fault.finding] + [
            finding for launch in self.launches for finding in launch.findings
        ]

    def files(self, kernel: str, line: int) -> list[str]:
        """The source files in which this kernel has instructions on line `line`: one, unless two files share a
        number.
        """
        machine = self._machines.get(kernel)
        instructions = machine.module.kernels[kernel].instructions if machine else []
        return sorted({ins.file for ins in instructions if ins.line == line and ins.file})

    def given(self, arguments: Arguments) -> None:
        """The arguments of the call that is about to run; none are known for functions that take them another way."""
        self.arguments = arguments

    def memory(self, arguments: Arguments | None = None) -> GlobalMemory:
        """All memory that a kernel may touch: tagged tensors that are still alive, and what the driver was asked for;
        of the tensors among `arguments` what they reach.
        """
        memory = GlobalMemory(arguments=arguments or Arguments())
        for found in self.tags.alive():
            if not (self.cuda and found.kind == "host"):
                memory.register(
                    found.start,
                    found.size,
                    found.name,
                    written=self.watch.written(found.start) if self.sample is None else None,
                )
        for address, buffer in self.gpu.buffers.items():
            memory.register(address, len(buffer.data), buffer.name, written=buffer.written)
        return memory

    def launch(
        self, name: str, image: bytes, config: LaunchConfig, arguments: ctypes._Pointer[ctypes.c_void_p]
    ) -> None:
        """Run one grid on the machine, or keep it for a graph while its stream is being captured."""
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
            cluster=cluster_of(config),
            dynamic_shared_bytes=config.shared,
            params=params,
            step_limit=self.step_limit,
            counters=self.counters,
            source_file=self.source_file,
            strict_shared=self.strict,
            sanitize=self.sanitize,
            sample=self.sample,
            follow=self.follow,
            limit_s=self.limit_s,
        )
        captured = self.gpu.capturing.get(config.stream or 0)
        if captured is not None:
            captured.append(functools.partial(self._run, machine, request, self.arguments))
        else:
            self._run(machine, request, self.arguments)

    def _run(self, machine: Machine, request: GridRequest, arguments: Arguments) -> None:
        try:
            launch = machine.run(request, self.memory(arguments))
        except EmulationFault as fault:
            self.faults.append(self._explained(fault))
            raise self.faults[-1] from None
        self.launches.append(launch)
        self.gpu.clock_s += roofline_seconds(launch, self.gpu.device)
        if launch.printed:
            sys.stdout.write(launch.printed)  # where a GPU's printf goes too

    def _explained(self, fault: EmulationFault) -> EmulationFault:
        """An access to host memory, or to a tensor that is gone, is called that; every other fault is as it was."""
        finding = fault.finding
        if finding is None or finding.kind != "out_of_bounds" or finding.address is None:
            return fault
        kind, message, hint = "", "", ""
        host = (
            [
                found
                for found in self.tags.alive()
                if found.kind == "host" and found.start <= finding.address < found.start + found.size
            ]
            if self.cuda
            else []
        )
        gone = self.tags.gone(finding.address)
        if host:
            kind, message, hint = (
                "host_memory",
                f"the kernel touches host memory: {host[0].name} is on the CPU",
                'put it on the device: .cuda(), or device="cuda"',
            )
        elif gone and self.arguments.may_reach(finding.address) and self.memory().find(finding.address) is None:
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


def inside() -> ExitStack:
    """The modes of the emulation that is active, if one is."""
    return ACTIVE[-1].modes() if ACTIVE else ExitStack()


def current() -> Emulation:
    if not ACTIVE:
        raise UserError("a kernel that was compiled under emulation was launched outside it")
    return ACTIVE[-1]
