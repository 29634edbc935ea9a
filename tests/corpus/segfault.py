# expect: stage=run kind=signal
import ctypes
ctypes.string_at(0)
