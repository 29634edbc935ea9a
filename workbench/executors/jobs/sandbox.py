"""Confinement of candidate processes: namespaces, Landlock, resource limits. Each layer is probed and degrades by name.

Linux only; called in a freshly forked, single-threaded child, after torch and CuTe DSL were imported and before
candidate code is.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_NET, NEW_PID, NEW_IPC = 0x1000_0000, 0x4000_0000, 0x2000_0000, 0x0800_0000  # linux/sched.h
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36  # linux/prctl.h
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # landlock system calls, the same number on every architecture
CONFINED = ("candidate", "profile")  # the roles that run a candidate's code
GET_FLAGS, SET_FLAGS, IFF_UP = 0x8913, 0x8914, 1  # linux/sockios.h, linux/if.h
SCOPE_SIGNAL = 1 << 1  # no signal to a process outside; needed where there is no process namespace (CUDA)
READ_RIGHTS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory (linux/landlock.h)
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule on a plain file may grant
ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


def die_with_parent() -> None:
    """SIGKILL this process when its parent dies."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Orphaned descendants become children of this process, so that they can be found and killed."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def unshare(flags: int, *, user: bool = True) -> bool:
    """Leave the named namespaces; ids map to themselves. False where the kernel refuses.

    Without `user` no user namespace is made: that needs the rights of an administrator, and keeps them.
    """
    uid, gid = os.getuid(), os.getgid()
    if not user:
        return bool(_LIBC.unshare(flags) == 0)
    if _LIBC.unshare(flags | NEW_USER) != 0:
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return False
    return True


def raise_loopback() -> bool:
    """Bring up `lo` of a fresh network namespace, so that processes in it can talk to each other only."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            name = struct.pack("16sH22x", b"lo", 0)
            (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, GET_FLAGS, name), 16)
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    except OSError:
        return False
    return True


def set_limits(*, cpu_s: int, file_bytes: int, files: int = 512, processes: int | None = 256) -> None:
    """Limit CPU seconds, size of a file, open files and processes (but not root's); no core dumps."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if processes is not None and os.getuid() != 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (4096 + processes, 4096 + processes))


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    version = _LIBC.syscall(CREATE_RULESET, None, 0, 1)
    return max(int(version), 0)


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def landlock(readable: Iterable[str], writable: Iterable[str], *, network: bool = False) -> bool:
    """Allow reading below `readable` and everything below `writable`; refuse all else, and TCP unless `network`.

    False where the kernel has no Landlock.
    """
    abi = landlock_abi()
    if not abi:
        return False
    everything = ALL_BY_ABI[min(abi, 5)]
    ports = 3 if abi >= 4 and not network else 0
    scoped = SCOPE_SIGNAL if abi >= 6 else 0
    attributes = _Ruleset(everything, ports, scoped)
    ruleset = _LIBC.syscall(CREATE_RULESET, ctypes.byref(attributes), 24 if abi >= 6 else 16 if abi >= 4 else 8, 0)
    if ruleset < 0:
        return False
    for paths, rights in ((readable, READ_RIGHTS), (writable, everything)):
        for path in paths:
            _allow(ruleset, path, rights & everything)
    _LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done = bool(_LIBC.syscall(RESTRICT_SELF, ruleset, 0) == 0)
    os.close(ruleset)
    return done


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = _PathRule(rights if os.path.isdir(path) else rights & FILE_RIGHTS, parent)
    _LIBC.syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    os.close(parent)


def library_paths() -> tuple[str, ...]:
    """What a worker must read to go on importing: the interpreter, installed packages, system libraries."""
    own = {
        sys.prefix,
        sys.base_prefix,
        str(Path(sys.executable).resolve().parent.parent),
        str(Path(__file__).resolve().parents[2]),
    }
    own |= {path for path in sys.path if path not in ("", "/") and os.path.isdir(path)}
    system = (
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/proc",
        "/sys",
        "/dev/urandom",
        "/dev/random",
        "/dev/zero",
    )
    return tuple(sorted(own)) + system


def probe() -> tuple[tuple[str, bool, str], ...]:
    """(layer, active, why not) for the report; the namespaces are tried in a child."""
    rows = []
    for name, flag in (("network namespace", NEW_NET), ("process namespace", NEW_PID)):
        child = os.fork()
        if child == 0:
            os._exit(0 if unshare(flag) else 1)
        ok = os.waitpid(child, 0)[1] == 0
        rows.append((name, ok, "" if ok else "the kernel does not let this user make namespaces"))
    abi = landlock_abi()
    rows.append(
        (
            f"Landlock{f' (ABI {abi})' if abi else ''}",
            bool(abi),
            "" if abi else "this kernel has no Landlock (5.13 or newer has)",
        )
    )
    rows += [("resource limits", True, ""), ("clean environment", True, ""), ("memory and process watchdog", True, "")]
    return tuple(rows)


def drop_environment(keep: Sequence[str] = ()) -> dict[str, str]:
    """The environment of the worker server: an allow-list, so that no key or token gets in."""
    allowed = (
        "PATH",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "CUTEGEN_EMULATOR_ENGINE",
        *keep,
    )
    return {name: os.environ[name] for name in allowed if name in os.environ}
