# expect: kind=exception line=7
import ctypes
import platform
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 29, "aarch64": 194}[platform.machine()]
if libc.syscall(number, 0, 4096, 0o600) == -1 and ctypes.get_errno() == 1:
    raise PermissionError("refused")
