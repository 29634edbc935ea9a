"""wgmma in TF32, which CuTe DSL 4.8 does not emit, from PTX: D (64, 8) = A (64, 8) @ B (8, 8) transposed, all K-major
in shared memory without a swizzle.
"""

from __future__ import annotations

import numpy as np
import pytest

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine

# A core matrix is 8 rows of 16 bytes (4 elements). Core (row block, k half) of A is at (2 * row block + k half) * 128,
# those of B begin at 2048: 128 bytes to the next along k, 256 along rows.
A_AND_B = """
ld.param.u64 %rd1, [k_param_0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 16;
add.s64 %rd3, %rd1, %rd2;
ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3];
shr.u32 %r6, %r1, 4;
and.b32 %r7, %r1, 1;
mad.lo.u32 %r8, %r6, 2, %r7;
bfe.u32 %r9, %r1, 1, 3;
shl.b32 %r10, %r8, 7;
mad.lo.u32 %r11, %r9, 16, %r10;
mov.u32 %r12, sm;
add.u32 %r13, %r12, %r11;
st.shared.v4.b32 [%r13], {%r2, %r3, %r4, %r5};
setp.ge.u32 %p1, %r1, 16;
@%p1 bra $ready;
ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3+2048];
st.shared.v4.b32 [%r13+2048], {%r2, %r3, %r4, %r5};
$ready:
"""
MULTIPLY = """
bar.sync 0;
shr.u32 %r14, %r12, 4;
cvt.u64.u32 %rd4, %r14;
or.b64 %rd4, %rd4, 0x1000080000;
add.s64 %rd5, %rd4, 128;
setp.ne.u32 %p2, 0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%r20, %r21, %r22, %r23}, %rd4, %rd5, %p2, 1, 1;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
add.s64 %rd6, %rd1, 2304;
shr.u32 %r15, %r1, 5;
bfe.u32 %r16, %r1, 2, 3;
mad.lo.u32 %r17, %r15, 16, %r16;
and.b32 %r18, %r1, 3;
mul.wide.u32 %rd7, %r17, 32;
mad.wide.u32 %rd8, %r18, 8, %rd7;
add.s64 %rd9, %rd6, %rd8;
st.global.v2.b32 [%rd9], {%r20, %r21};
st.global.v2.b32 [%rd9+256], {%r22, %r23};
"""
HEAD = (
    ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(\n .param .u64 k_param_0\n"
    ")\n{\n.reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
    ".shared .align 128 .b8 sm[4096];\n"
)


def product(
    a: np.ndarray,
    b: np.ndarray,
    fence: str = "fence.proxy.async.shared::cta;",
    multiply: str = MULTIPLY,
    ctas: int = 1,
) -> np.ndarray:
    data = np.concatenate([a.ravel(), b.ravel(), np.zeros(64 * 8, np.float32)])
    raw = np.zeros(data.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    view = raw[start : start + data.nbytes].view(np.float32)
    view[:] = data
    memory = GlobalMemory()
    memory.register(view.ctypes.data, view.nbytes, "data")
    params = (view.ctypes.data.to_bytes(8, "little"),)
    request = GridRequest(entry="k", grid=(ctas, 1, 1), block=(128, 1, 1), params=params, counters=ctas == 1)
    Machine(HEAD + A_AND_B + fence + multiply + "\nret;\n}\n", DeviceLimits()).run(request, memory)
    return view[64 * 8 + 64 :].reshape(64, 8).copy()


def test_a_product_of_integers_is_exact() -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(-8, 9, (rows, 8)).astype(np.float32) for rows in (64, 8))
    assert (product(a, b) == a @ b.T).all()


def test_only_ten_bits_of_the_mantissa_are_read() -> None:
    a, b = np.zeros((64, 8), np.float32), np.eye(8, dtype=np.float32)
    a[:, 0] = 1 + 2.0**-10 + 2.0**-11 + 2.0**-20
    assert (product(a, b)[:, 0] == 1 + 2.0**-10).all()


@pytest.mark.parametrize("cleared", [True, False])
def test_undefined_accumulators_count_only_in_ctas_that_add_to_them(cleared: bool) -> None:
    zeros = "".join(f"mov.b32 %r{n}, 0;\n" for n in range(20, 24)) if cleared else ""
    scale_d = f"mov.u32 %r30, %ctaid.x;\nsetp.ne.u32 %p2, %r30, 0;\n@!%p2 bra $multiply;\n{zeros}$multiply:"
    multiply = MULTIPLY.replace("setp.ne.u32 %p2, 0, 0;", scale_d)
    a, b = np.ones((64, 8), np.float32), np.ones((8, 8), np.float32)
    if cleared:
        assert (product(a, b, multiply=multiply, ctas=2) == 8).all()
        return
    with pytest.raises(EmulationFault) as caught:
        product(a, b, multiply=multiply, ctas=2)
    assert caught.value.failure.kind == "uninitialised_register" and "block (1, 0, 0)" in caught.value.failure.message


def test_a_missing_proxy_fence_is_found() -> None:
    with pytest.raises(EmulationFault):
        product(np.ones((64, 8), np.float32), np.ones((8, 8), np.float32), fence="")
