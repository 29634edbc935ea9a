"""Memory from the driver, filled by copies, a kernel on raw pointers; then a call that nothing here emulates."""

import sys

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass.cute.runtime import make_ptr


def check(result):
    """The value of a driver call that went well."""
    assert result[0] == cuda.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) > 1 else None


@cute.kernel
def add_one_kernel(pointer: cute.Pointer):
    """One element a thread."""
    tensor = cute.make_tensor(pointer, 64)
    i = cute.arch.thread_idx()[0]
    tensor[i] = tensor[i] + 1


@cute.jit
def add_one(pointer: cute.Pointer):
    """Launch add_one_kernel."""
    add_one_kernel(pointer).launch(grid=(1, 1, 1), block=(64, 1, 1))


check(cuda.cuInit(0))
device = check(cuda.cuDeviceGet(0))
context = check(cuda.cuCtxCreate(None, 0, device))
memory = check(cuda.cuMemAlloc(64 * 4))
host = np.arange(64, dtype=np.int32)
if "unwritten" not in sys.argv:
    check(cuda.cuMemcpyHtoD(memory, host.ctypes.data, host.nbytes))
add_one(make_ptr(cutlass.Int32, int(memory), cute.AddressSpace.gmem))
back = np.zeros_like(host)
check(cuda.cuMemcpyDtoH(back.ctypes.data, memory, back.nbytes))
assert (back == host + 1).all()
check(cuda.cuMemFree(memory))
if "freed" in sys.argv:
    add_one(make_ptr(cutlass.Int32, int(memory), cute.AddressSpace.gmem))
if "unknown" in sys.argv:
    cuda.cuTexObjectCreate(None, None, None)
print("driver memory is right")
