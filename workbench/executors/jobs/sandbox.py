"""Confinement of candidate processes: namespaces, Landlock, resource limits. Each layer is probed and degrades by name.

Linux only; called in a freshly forked, single-threaded child, after torch and CuTe DSL were imported and before
candidate code is.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import re
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from workbench.executors.jobs import seccomp

_LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_NET, NEW_PID, NEW_IPC = 0x1000_0000, 0x4000_0000, 0x2000_0000, 0x0800_0000  # linux/sched.h
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36  # linux/prctl.h
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # landlock system calls, the same number on every architecture
CONFINED = ("candidate", "profile")  # the roles that run a candidate's code
FIRST_USER, USERS = 61184, 4336  # users for services of systemd's DynamicUser=, whom no files belong to
WORKER_FAILED = 70  # exit code of a worker that failed itself, before or after the candidate (sysexits: EX_SOFTWARE)
THREADS, THREADS_PER_CORE = 64, 8  # of a job, with its processes; pools of LLVM and of torch have one per core
NAMESPACES, PROCESSES, LANDLOCK, SECCOMP = LAYERS = (
    "namespaces (network, processes)",
    "limit of processes",
    "Landlock",
    "seccomp",
)
CAPABILITY_VERSION = 0x2008_0522  # _LINUX_CAPABILITY_VERSION_3, linux/capability.h
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
    uid, gid = os.geteuid(), os.getegid()
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


def leave_root() -> bool:
    """Count this process and its descendants as those of a user who has no others. False where this is not root.

    The kernel limits the number of processes of every user but root. Only the real user changes: files are still opened
    as root, which libraries in a folder of root's need. seccomp keeps a candidate from changing back.
    """
    if os.getuid() != 0:
        return False
    try:
        os.setresuid(FIRST_USER + os.getpid() % USERS, 0, 0)
    except OSError:
        return False
    return True


def drop_capabilities() -> None:
    """Give up the rights of an administrator, for good."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _LIBC.capset(header, (ctypes.c_uint32 * 6)())


def set_limits(*, cpu_s: int, file_bytes: int, files: int = 512) -> None:
    """Limit CPU seconds, size of a file and open files; no core dumps."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_processes(*, alone: bool) -> bool:
    """Limit the processes and threads of this user, and try whether the kernel enforces it.

    `alone` says that the kernel counts no others: it is `leave_root`'s user, or `counts_by_namespace`.
    """
    most = THREADS + THREADS_PER_CORE * (os.cpu_count() or 1) + (0 if alone else _tasks_of_user())
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, most))
    child = _LIBC.fork()  # without what Python does at a fork
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    return bool(child < 0)


def counts_by_namespace() -> bool:
    """Whether this kernel counts a user's processes in each user namespace (Linux 5.14)."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return release is not None and (int(release[1]), int(release[2])) >= (5, 14)


def _tasks_of_user() -> int:
    """The threads of all processes of this process's real user."""
    count, me = 0, os.getuid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == me:
                count += process.num_threads()
    return count


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    version = _LIBC.syscall(CREATE_RULESET, None, 0, 1)
    return max(int(version), 0)


class Left(NamedTuple):
    """What of its parent's a process has left: its namespaces, and root as the user whose processes are counted."""

    namespaces: bool = False
    user: bool = False


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
        "/sys",
        "/dev/urandom",
        "/dev/random",
        "/dev/zero",
    )
    return tuple(sorted(own)) + system


def process_paths() -> tuple[str, ...]:
    """What of /proc a process may read: what is its own, and what tells of the machine.

    Landlock's rule holds for the folder that was opened, so the kernel must not forget that one: a handle of it stays
    open in this process.
    """
    os.set_inheritable(os.open("/proc/self", os.O_PATH | os.O_DIRECTORY), False)
    machine = ("cpuinfo", "devices", "driver", "filesystems", "loadavg", "meminfo", "modules", "stat", "sys", "uptime")
    return ("/proc/self", *(f"/proc/{name}" for name in (*machine, "version")))


def list_missing(active: Sequence[str]) -> tuple[str, ...]:
    """The layers that a job was confined without. Empty if it ended before it could say so."""
    return tuple(name for name in LAYERS if name not in active) if active else ()


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
    refused = seccomp.why_not()
    rows.append(("seccomp (system calls)", not refused, refused))
    rows.append(("limit of processes", *_probe_process_limit()))
    if os.getuid() == 0:
        advice = "this is root: candidates open files as root where Landlock lets them; start it as another user"
        rows.append(("a user without rights", False, advice))
    rows += [("resource limits", True, ""), ("clean environment", True, ""), ("memory and process watchdog", True, "")]
    return tuple(rows)


def _probe_process_limit() -> tuple[bool, str]:
    """Whether the kernel limits the processes of a job, and why not."""
    child = os.fork()
    if child == 0:
        left = leave_root()
        namespace = unshare(NEW_NET) and counts_by_namespace()
        drop_capabilities()
        os._exit(0 if limit_processes(alone=left or namespace) else 1)
    enforced = os.waitpid(child, 0)[1] == 0
    return enforced, "" if enforced else "the kernel does not limit this user's processes; the watchdog counts them"


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
