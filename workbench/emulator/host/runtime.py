"""The CUDA runtime that compiled CuTe host code calls: our callbacks load libraries, give attributes and launch
kernels.

The host function that CuTe DSL 4.8 compiles calls `_cuda*` symbols, which can be overridden on the MLIR execution
engine before the first look-up. Each callback returns a CUDA error code. A Python exception cannot cross the compiled
frame, so a callback stores it in `pending`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol

ERROR_LAUNCH_FAILURE = 719  # cudaErrorLaunchFailure: the host code gets this code for our own faults
CLUSTER_DIMENSION = 4  # cudaLaunchAttributeClusterDimension
PROGRAMMATIC_SERIALIZATION = 6  # cudaLaunchAttributeProgrammaticStreamSerialization


class Dim3(ctypes.Structure):
    """dim3"""

    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class LaunchAttribute(ctypes.Structure):
    """cudaLaunchAttribute: id, padding, 64 bytes of value."""

    _fields_ = [("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16)]


class LaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t"""

    _fields_ = [
        ("grid", Dim3),
        ("block", Dim3),
        ("shared", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint32),
    ]


class Engine(Protocol):
    """The part of MLIR's execution engine that is used."""

    def raw_register_runtime(self, name: str, callback: object) -> None: ...


class Runtime:
    """Callbacks by symbol name; `on_launch(kernel name, library image, config, args pointer)` executes a launch."""

    def __init__(
        self,
        attribute: Callable[[int], int],
        on_launch: Callable[[str, bytes, LaunchConfig, ctypes._Pointer[ctypes.c_void_p]], None],
    ) -> None:
        self.attribute = attribute
        self.on_launch = on_launch
        self.pending: BaseException | None = None
        self.on_load: Callable[[bytes], None] = lambda image: None
        self.libraries: dict[int, bytes] = {}
        self.kernels: dict[int, tuple[str, bytes]] = {}
        self.symbols = self._symbols()

    def _symbols(self) -> dict[str, ctypes._FuncPointer]:
        pointer, integer, unsigned = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
        signatures: dict[
            str, tuple[Callable[..., int], tuple[type[ctypes._SimpleCData[int]] | type[ctypes.c_void_p], ...]]
        ] = {
            "_cudaLibraryLoadData": (
                self._load_library,
                (pointer, pointer, pointer, pointer, unsigned, pointer, pointer, unsigned),
            ),
            "_cudaLibraryGetKernel": (self._get_kernel, (pointer, pointer, pointer)),
            "_cudaGetDevice": (lambda out: _store(out, 0), (pointer,)),
            "_cudaSetDevice": (lambda device: 0, (integer,)),
            "_cudaDeviceGetAttribute": (
                lambda out, which, device: _store(out, self.attribute(which)),
                (pointer, integer, integer),
            ),
            "_cuKernelGetAttribute": (
                lambda out, which, kernel, device: _store(out, 0),
                (pointer, integer, pointer, integer),
            ),
            "_cudaFuncSetAttribute": (lambda kernel, which, value: 0, (pointer, integer, integer)),
            "_cudaKernelSetAttributeForDevice": (
                lambda kernel, which, value, device: 0,
                (pointer, integer, integer, integer),
            ),
            "_cudaLaunchKernelEx": (self._launch, (pointer, pointer, pointer)),
            "cuda_dialect_init_library_once": (self._load_once, (pointer, pointer, pointer, pointer)),
            "cuda_dialect_unload_library_once": (lambda state: 0, (pointer,)),
        }
        return {name: ctypes.CFUNCTYPE(integer, *kinds)(function) for name, (function, kinds) in signatures.items()}

    def register(self, engine: Engine) -> None:
        """Override the symbols on a new execution engine."""
        for name, callback in self.symbols.items():
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))

    def _load_library(self, out: int, data: int, *_: object) -> int:
        handle = 0x10_0000 + len(self.libraries)
        try:
            self.libraries[handle] = read_fatbin(data)
            self.on_load(self.libraries[handle])
        except BaseException as error:
            self.pending = error
            return ERROR_LAUNCH_FAILURE
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = handle
        return 0

    def _load_once(self, state: int, init: int, load_to_device: int, set_error: int) -> int:
        """The first call of a function of TVM-FFI: load the module unless its 64-bit state says that it is loaded."""
        loaded = ctypes.cast(state, ctypes.POINTER(ctypes.c_int64))
        if loaded[0]:
            return 0
        library = ctypes.c_void_p()
        status = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(init)(ctypes.addressof(library))
        status = status or ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(load_to_device)(
            ctypes.addressof(library), 0
        )
        loaded[0] = int(status == 0)
        return int(status)

    def _get_kernel(self, out: int, library: int, name: int) -> int:
        handle = 0x20_0000 + len(self.kernels)
        self.kernels[handle] = (ctypes.string_at(name).decode(), self.libraries[library])
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = handle
        return 0

    def _launch(self, config: int, kernel: int, arguments: int) -> int:
        if self.pending is not None:
            return ERROR_LAUNCH_FAILURE
        try:
            name, image = self.kernels[kernel]
            self.on_launch(
                name,
                image,
                ctypes.cast(config, ctypes.POINTER(LaunchConfig))[0],
                ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p)),
            )
        except BaseException as error:
            self.pending = error
            return ERROR_LAUNCH_FAILURE
        return 0


def _store(out: int, value: int) -> int:
    ctypes.cast(out, ctypes.POINTER(ctypes.c_int32))[0] = value
    return 0


def read_fatbin(address: int) -> bytes:
    """The bytes of a fat binary or ELF image at `address`. A fat binary's header (magic 0xBA55ED50) has the size of the
    rest at offset 8. Raises ValueError for anything else.
    """
    head = ctypes.string_at(address, 16)
    if head[:4] == b"\x50\xed\x55\xba":
        return ctypes.string_at(address, int.from_bytes(head[6:8], "little") + int.from_bytes(head[8:16], "little"))
    if head[:4] == b"\x7fELF":
        sections = int.from_bytes(ctypes.string_at(address + 40, 8), "little")
        count = int.from_bytes(ctypes.string_at(address + 60, 2), "little")
        return ctypes.string_at(address, sections + 64 * count)
    raise ValueError("not a fat binary or an ELF image")


def cluster_dims(config: LaunchConfig) -> tuple[int, int, int]:
    """Cluster dimensions of a launch, (1, 1, 1) if it requests none."""
    for n in range(config.count):
        if config.attributes[n].id == CLUSTER_DIMENSION:
            x, y, z = config.attributes[n].value[:3]
            return int(x), int(y), int(z)
    return 1, 1, 1


def is_dependent(config: LaunchConfig) -> bool:
    """Whether a launch may start before its predecessor in the stream ends (programmatic dependent launch)."""
    return any(
        config.attributes[n].id == PROGRAMMATIC_SERIALIZATION and config.attributes[n].value[0]
        for n in range(config.count)
    )
