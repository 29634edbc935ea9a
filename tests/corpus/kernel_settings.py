# expect: kind=exception line=2
open("/proc/sys/kernel/core_pattern", "r+")
