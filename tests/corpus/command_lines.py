# expect: kind=exception line=2
open("/proc/1/cmdline", "rb")
