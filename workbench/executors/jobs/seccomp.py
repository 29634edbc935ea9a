"""System calls that no candidate needs are refused with EPERM by a seccomp filter: a deny list in classic BPF.

The filter holds for every thread and for every process that this one starts, and cannot be removed. Python's start of a
process or thread and LLVM do without these calls. CUDA's initialisation makes a listening socket (AF_UNIX,
SOCK_SEQPACKET), which `cuda` allows; it connects only where MPS (multi-process service) runs, and then a confined
process cannot join its server. Numbers: linux/arch/x86/entry/syscalls/syscall_64.tbl and
linux/include/uapi/asm-generic/unistd.h (aarch64).
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Collection, Mapping

_LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
KEYCTL_JOIN = 1  # KEYCTL_JOIN_SESSION_KEYRING, linux/keyctl.h
SET_MODE_FILTER, FLAG_TSYNC, GET_ACTION_AVAIL = 1, 1, 2  # linux/seccomp.h
ALLOW, ERRNO = 0x7FFF_0000, 0x0005_0000  # what a filter returns
LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06  # linux/bpf_common.h
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; low words, little-endian
X32 = 0x4000_0000  # numbers of the x32 ABI on x86_64 begin here
NEW_NAMESPACES = 0x7E02_0000  # all CLONE_NEW* flags of clone
TYPE_MASK = 0xF  # of a socket's type, without its flags

Calls = Mapping[str, tuple[int, int | None]]
# name: (x86_64, aarch64). None: the architecture does not have it.
ALWAYS: Calls = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "iopl": (172, None),
    "ioperm": (173, None),
    "shmget": (29, 194),  # System V memory outlives its process and is seen by other runs
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "modify_ldt": (154, None),
}
OTHER_PROCESSES: Calls = {  # a profiler needs these
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
}
NETWORK: Calls = {
    "connect": (42, 203),
    "accept": (43, 202),
    "accept4": (288, 242),
}
LISTENING: Calls = {"bind": (49, 200), "listen": (50, 201)}
HIDDEN_MEMORY: Calls = {  # what these hold is in no process's resident memory
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "sendmsg": (46, 211),  # a descriptor in flight belongs to nobody
    "sendmmsg": (307, 269),
}
CHECKED = {"socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "clone3": (435, 435)}
# calls that would close a descriptor, by the argument that names it; close_range names two
CLOSING: Mapping[int, Calls] = {0: {"close": (3, 57)}, 1: {"dup2": (33, None), "dup3": (292, 24)}}
CLOSE_RANGE = 436
MACHINES = {"x86_64": (0, 0xC000_003E, 317), "aarch64": (1, 0xC000_00B7, 277)}  # column, AUDIT_ARCH_*, seccomp's number

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def why_not() -> str:
    """Why no filter can be set here; "" if one can."""
    if platform.machine() not in MACHINES:
        return f"no list of system calls for {platform.machine()}"
    action = ctypes.c_uint32(ERRNO)
    if _LIBC.syscall(MACHINES[platform.machine()][2], GET_ACTION_AVAIL, 0, ctypes.byref(action)) != 0:
        return "this kernel has no seccomp filters"
    return ""


def refuse_calls(
    *, network: bool = False, other_processes: bool = False, cuda: bool = False, sealed: int | None = None
) -> bool:
    """Refuse the calls of the deny list in all threads of this process, for good. False if there is no seccomp.

    `network` allows sockets of IPv4 and IPv6; `other_processes` what a profiler needs; `cuda` files in memory, the
    passing of descriptors, and a listening socket that is no datagram's and can connect to none. The descriptor
    `sealed` stays open.
    """
    if why_not():
        return False
    column, audit, number = MACHINES[platform.machine()]
    lists: list[Calls] = [
        ALWAYS,
        *([] if other_processes else [OTHER_PROCESSES]),
        *([] if network else [NETWORK]),
        *([] if network or cuda else [LISTENING]),
        *([] if cuda else [HIDDEN_MEMORY]),
    ]
    denied = [found for names in lists for one in names.values() if (found := one[column]) is not None]
    families = (socket.AF_INET, socket.AF_INET6) if network else ()
    code = b"".join(struct.pack("HBBI", *one) for one in make_filter(audit, column, denied, families, cuda, sealed))
    held = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(held, ctypes.c_void_p))
    _LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(_LIBC.syscall(number, SET_MODE_FILTER, FLAG_TSYNC, ctypes.byref(program)) == 0)


def make_filter(
    audit: int,
    column: int,
    denied: Collection[int],
    families: Collection[int],
    cuda: bool = False,
    sealed: int | None = None,
) -> list[Instruction]:
    """The instructions of the filter for system calls of the architecture `audit`."""
    refuse = (RETURN, 0, 0, ERRNO | errno.EPERM)
    allow = (RETURN, 0, 0, ALLOW)
    number = {name: both[column] for name, both in CHECKED.items()}
    body: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, audit),
        refuse,
        (LOAD, 0, 0, NUMBER),
        *([(JUMP_ABOVE, 0, 1, X32), refuse] if column == 0 else []),
    ]
    for one in denied:
        body += [(JUMP_EQUAL, 0, 1, one), refuse]
    body += [] if sealed is None else _keep_open(sealed, column)
    # glibc falls back to clone, whose flags a filter can read
    body += [(JUMP_EQUAL, 0, 1, number["clone3"]), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    body += [(JUMP_EQUAL, 0, 4, number["clone"]), (LOAD, 0, 0, FIRST), (JUMP_SET, 0, 1, NEW_NAMESPACES), refuse, allow]
    # an unconnected end of a datagram pair can send to any socket in the file system
    body += [
        (JUMP_EQUAL, 0, 5, number["socketpair"]),
        (LOAD, 0, 0, SECOND),
        (AND, 0, 0, TYPE_MASK),
        (JUMP_EQUAL, 0, 1, socket.SOCK_DGRAM),
        refuse,
        allow,
    ]
    inner = [one for family in families for one in ((JUMP_EQUAL, 0, 1, int(family)), allow)]
    if cuda:
        inner += [(JUMP_EQUAL, 0, 4, int(socket.AF_UNIX)), (LOAD, 0, 0, SECOND), (AND, 0, 0, TYPE_MASK)]
        inner += [(JUMP_EQUAL, 0, 1, socket.SOCK_SEQPACKET), allow]
    return [*body, (JUMP_EQUAL, 0, len(inner) + 2, number["socket"]), (LOAD, 0, 0, FIRST), *inner, refuse, allow]


def _keep_open(handle: int, column: int) -> list[Instruction]:
    """Instructions that refuse to close a descriptor, or to put another file in its place."""
    refuse = (RETURN, 0, 0, ERRNO | errno.EPERM)
    allow = (RETURN, 0, 0, ALLOW)
    body: list[Instruction] = []
    for argument, calls in CLOSING.items():
        for both in calls.values():
            if (found := both[column]) is not None:
                place = FIRST + 8 * argument
                body += [(JUMP_EQUAL, 0, 4, found), (LOAD, 0, 0, place), (JUMP_EQUAL, 0, 1, handle), refuse, allow]
    ranged = [(LOAD, 0, 0, FIRST), (JUMP_ABOVE, 3, 0, handle + 1), (LOAD, 0, 0, SECOND), (JUMP_ABOVE, 0, 1, handle)]
    return [*body, (JUMP_EQUAL, 0, len(ranged) + 2, CLOSE_RANGE), *ranged, refuse, allow]


def leave_keyring() -> bool:
    """Join a new session keyring, so that keys of the user's session are out of reach. False if that cannot be."""
    if platform.machine() not in MACHINES:
        return False
    number = ALWAYS["keyctl"][MACHINES[platform.machine()][0]]
    return bool(_LIBC.syscall(number, KEYCTL_JOIN, None) >= 0)
