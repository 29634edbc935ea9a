"""Instruction forms that the conformance collection found, each against exact arithmetic in Python or against torch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.isa import fp8
from workbench.emulator.ptx.parser import parse

LANES = 32
WORD = st.integers(0, 2**32 - 1)


def run(body: str, inputs: list[np.ndarray], outputs: int = 1, out_type: type = np.uint32) -> list[np.ndarray]:
    """One warp: lane n holds inputs[k][n] in %r<10+k>; the outputs are %r<60+k>. 64-bit operands go in %rd<10+k> and
    %rd<60+k>.
    """
    wide = inputs[0].dtype.itemsize == 8
    kind, reg, size = ("b64", "rd", 8) if wide else ("b32", "r", 4)
    held = np.zeros(size * LANES * (len(inputs) + outputs) + 256, np.uint8)
    start = -held.ctypes.data % 256
    held = held[start : start + size * LANES * (len(inputs) + outputs)]
    for n, values in enumerate(inputs):
        held[n * size * LANES : (n + 1) * size * LANES] = values.view(np.uint8)
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(\n .param .u64 k_param_0\n"
        ")\n{\n.reg .pred %p<9>;\n.reg .b16 %rs<99>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
    )
    text += (
        f"ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, {size};\n"
        f"add.s64 %rd3, %rd1, %rd2;\n"
    )
    text += (
        "".join(f"ld.global.{kind} %{reg}{10 + n}, [%rd3+{n * size * LANES}];\n" for n in range(len(inputs)))
        + body
        + "\n"
    )
    text += (
        "".join(
            f"st.global.{kind} [%rd3+{(len(inputs) + n) * size * LANES}], %{reg}{60 + n};\n" for n in range(outputs)
        )
        + "ret;\n}\n"
    )
    memory = GlobalMemory()
    memory.register(held.ctypes.data, held.nbytes, "data")
    Machine(text, DeviceLimits()).run(
        GridRequest(entry="k", grid=(1, 1, 1), block=(LANES, 1, 1), params=(held.ctypes.data.to_bytes(8, "little"),)),
        memory,
    )
    return [
        held[(len(inputs) + n) * size * LANES : (len(inputs) + n + 1) * size * LANES].view(out_type)
        for n in range(outputs)
    ]


def lanes(values: list[int] | list[float], kind: type) -> np.ndarray:
    return np.resize(np.array(values, dtype=kind), LANES)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=1, max_size=32))
def test_carry_chains_are_64_bit_arithmetic(pairs: list[tuple[int, int, int, int]]) -> None:
    columns = [lanes([pair[n] for pair in pairs], np.uint32) for n in range(4)]
    low, high = run("add.cc.u32 %r60, %r10, %r12;\naddc.u32 %r61, %r11, %r13;", columns, 2)
    borrowed_low, borrowed_high = run("sub.cc.u32 %r60, %r10, %r12;\nsubc.u32 %r61, %r11, %r13;", columns, 2)
    product_low, product_high = run(
        "mad.lo.cc.u32 %r60, %r10, %r12, %r13;\nmadc.hi.u32 %r61, %r10, %r12, 0;", columns, 2
    )
    for n in range(LANES):
        a, b = int(columns[0][n]) | int(columns[1][n]) << 32, int(columns[2][n]) | int(columns[3][n]) << 32
        assert int(low[n]) | int(high[n]) << 32 == (a + b) % 2**64
        assert int(borrowed_low[n]) | int(borrowed_high[n]) << 32 == (a - b) % 2**64
        assert (
            int(product_low[n]) | int(product_high[n]) << 32
            == (int(columns[0][n]) * int(columns[2][n]) + int(columns[3][n])) % 2**64
        )


def _rounded(exact: Fraction, mode: str) -> np.float32:
    near = np.float32(float(exact))
    below = near if Fraction(float(near)) <= exact else np.nextafter(near, np.float32(-np.inf))
    above = near if Fraction(float(near)) >= exact else np.nextafter(near, np.float32(np.inf))
    return below if {"rm": True, "rp": False, "rz": exact > 0}[mode] else above


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["rz", "rm", "rp"]),
    st.lists(
        st.tuples(*[st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)] * 3), min_size=1, max_size=32
    ),
)
def test_directed_rounding_is_exact(mode: str, rows: list[tuple[float, float, float]]) -> None:
    columns = [lanes([row[n] for row in rows], np.float32) for n in range(3)]
    got = run(
        f"add.{mode}.f32 %r60, %r10, %r11;\nmul.{mode}.f32 %r61, %r10, %r11;\nfma.{mode}.f32 %r62, %r10, %r11, %r12;",
        columns,
        3,
        np.float32,
    )
    for n in range(LANES):
        a, b, c = (Fraction(float(column[n])) for column in columns)
        for value, exact in zip((column[n] for column in got), (a + b, a * b, a * b + c), strict=True):
            if exact == 0 or abs(exact) < Fraction(2) ** -126:
                continue  # the sign of zero, and subnormals, are another rule
            assert value == _rounded(exact, mode), (mode, a, b, c)


def test_products_of_24_bits_and_bytes() -> None:
    a, b, c = (
        lanes([0x00FFFFFF, 0x7FFFFF, 5, 0x12345678], np.uint32),
        lanes([0x00FFFFFF, 3, 0xFFFFFFFB, 0x9ABCDEF0], np.uint32),
        lanes([1, 2, 3, 4], np.uint32),
    )
    low, high, signed, dot = run(
        "mul24.lo.u32 %r60, %r10, %r11;\nmad24.hi.u32 %r61, %r10, %r11, %r12;\n"
        "mul24.lo.s32 %r62, %r10, %r11;\ndp4a.s32.s32 %r63, %r10, %r11, %r12;",
        [a, b, c],
        4,
    )

    def sign(value: int, bits: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value

    for n in range(LANES):
        x, y, z = int(a[n]), int(b[n]), int(c[n])
        product = (x & 0xFFFFFF) * (y & 0xFFFFFF)
        assert int(low[n]) == product % 2**32 and int(high[n]) == ((product >> 16) + z) % 2**32
        assert int(signed[n]) == sign(x, 24) * sign(y, 24) % 2**32
        assert int(dot[n]) == (z + sum(sign(x >> 8 * k, 8) * sign(y >> 8 * k, 8) for k in range(4))) % 2**32


def test_products_of_halves_and_bytes() -> None:
    a, b, c = (
        lanes([0x8000FFFF, 0x00030002], np.uint32),
        lanes([0x807F0102, 0xFF010203], np.uint32),
        lanes([10, 20], np.uint32),
    )
    low, high = run("dp2a.lo.u32.u32 %r60, %r10, %r11, %r12;\ndp2a.hi.s32.s32 %r61, %r10, %r11, %r12;", [a, b, c], 2)
    assert int(low[0]) == 10 + 0xFFFF * 0x02 + 0x8000 * 0x01 and int(low[1]) == 20 + 2 * 3 + 3 * 2
    assert int(high[0]) == (10 + -1 * 0x7F + -0x8000 * -0x80) % 2**32 and int(high[1]) == (20 + 2 * 1 + 3 * -1) % 2**32


def test_match_all_and_xorsign() -> None:
    same, differ = lanes([7], np.uint32), np.arange(LANES, dtype=np.uint32)
    (found,) = run("match.all.sync.b32 %r60|%p1, %r10, -1;", [same])
    assert (found == 0xFFFFFFFF).all()
    found, flag = run("match.all.sync.b32 %r60|%p1, %r10, -1;\nselp.b32 %r61, 1, 0, %p1;", [differ], 2)
    assert not found.any() and not flag.any()
    a, b = lanes([-3.0, 2.0, -1.0], np.float32), lanes([2.0, -5.0, -4.0], np.float32)
    (largest,) = run("max.xorsign.abs.f32 %r60, %r10, %r11;", [a, b], 1, np.float32)
    assert (largest == np.maximum(abs(a), abs(b)) * np.sign(a) * np.sign(b)).all()


@pytest.mark.parametrize(("kind", "torch_type"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_8_bit_floats_agree_with_torch(kind: str, torch_type: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    table = codes.view(torch_type).float().numpy()
    assert np.array_equal(fp8.DECODE[kind], table, equal_nan=True)
    values = np.concatenate(
        [
            table[np.isfinite(table)],
            np.random.default_rng(0).normal(0, 30, 4000).astype(np.float32),
            np.float32([1e-9, -1e-9, 0.0]),
        ]
    )
    inside = values[np.abs(values) <= np.nanmax(table[np.isfinite(table)])]
    assert np.array_equal(fp8.encode(inside, kind), torch.from_numpy(inside).to(torch_type).view(torch.uint8).numpy())
    largest = int(np.nanargmax(np.where(np.isfinite(table[:128]), table[:128], -1)))
    assert fp8.encode(np.float32([1e30, -np.inf, np.nan]), kind).tolist() == [largest, largest | 128, 127]


def test_8_bit_conversions_of_pairs() -> None:
    a, b = lanes([1.5, -2.0, 448.0, 1e9], np.float32), lanes([0.25, 3.0, -0.5, -7.0], np.float32)
    packed, wide = run(
        "cvt.rn.satfinite.e4m3x2.f32 %rs1, %r10, %r11;\ncvt.u32.u16 %r60, %rs1;\ncvt.rn.f16x2.e4m3x2 %r61, %rs1;",
        [a, b],
        2,
    )
    assert list(packed[:4] & 0xFF) == list(fp8.encode(b[:4], "e4m3")) and list(packed[:4] >> 8) == list(
        fp8.encode(a[:4], "e4m3")
    )
    halves = wide.view(np.float16).reshape(-1, 2)
    assert list(halves[:4, 0]) == [0.25, 3.0, -0.5, -7.0] and list(halves[:4, 1]) == [1.5, -2.0, 448.0, 448.0]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_an_8_bit_nan_stays_one(kind: str) -> None:
    a = lanes([np.nan, 1.5, -3.0], np.float32)
    plain, relu = run(
        f"cvt.rn.satfinite.{kind}x2.f32 %rs1, %r10, %r10;\ncvt.rn.f16x2.{kind}x2 %r60, %rs1;\n"
        f"cvt.rn.relu.f16x2.{kind}x2 %r61, %rs1;",
        [a],
        2,
    )
    halves = [value.view(np.float16).reshape(-1, 2)[:3, 0] for value in (plain, relu)]
    assert np.array_equal(halves[0], [np.nan, 1.5, -3.0], equal_nan=True)
    assert np.array_equal(halves[1], [np.nan, 1.5, 0.0], equal_nan=True)


def test_registers_of_inline_assembly_belong_to_their_scope() -> None:
    a = lanes([2, 5], np.uint32)
    first, second = run(
        "setp.ne.u32 %p1, %r10, %r10;\n{\n.reg .b32 t;\n.reg .pred p;\nadd.u32 t, %r10, 1;\n"
        "setp.gt.u32 p, t, 4;\nselp.b32 %r60, t, 0, p;\n}\n{\n.reg .b32 t;\nmov.b32 t, 9;\n"
        "@%p1 bra skip;\nadd.u32 %r61, t, %r10;\nskip:\n}",
        [a],
        2,
    )
    assert list(first[:2]) == [0, 6] and list(second[:2]) == [11, 14]


def test_bfloat16_atomics_round_each_sum() -> None:
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(\n .param .u64 k_param_0\n"
        ")\n{\n.reg .b16 %rs<9>;\n.reg .b64 %rd<9>;\n"
        "ld.param.u64 %rd1, [k_param_0];\nmov.b16 %rs1, 0x3F80;\n"
        "atom.global.add.noftz.bf16 %rs2, [%rd1], %rs1;\nret;\n}\n"
    )
    held = np.zeros(128, np.uint16)
    memory = GlobalMemory()
    memory.register(held.ctypes.data, held.nbytes, "data")
    Machine(text, DeviceLimits()).run(
        GridRequest(entry="k", grid=(10, 1, 1), block=(LANES, 1, 1), params=(held.ctypes.data.to_bytes(8, "little"),)),
        memory,
    )
    assert held[0] == 0x4380  # 256: bfloat16 has no 257, so adding 1 stops there


def test_lines_of_the_dsl_are_its_callers() -> None:
    text = (
        '.version 8.8\n.target sm_80\n.address_size 64\n.file 1 "/x/nvidia_cutlass_dsl/a.py"\n'
        '.file 2 "/home/me/prog.py"\n.visible .entry k()\n{\n.reg .b32 %r<9>;\n'
        ".loc 2 10 5\nmov.b32 %r1, 1;\n.loc 1 99 0, function_name $L, inlined_at 2 20 3\n"
        "mov.b32 %r2, 1;\n.loc 1 77 0\nmov.b32 %r3, 1;\nret;\n}\n"
    )
    assert [(ins.line, ins.file) for ins in parse(text).kernels["k"].instructions] == [
        (10, "/home/me/prog.py"),
        (20, "/home/me/prog.py"),
        (20, "/home/me/prog.py"),
        (20, "/home/me/prog.py"),
    ]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=32))
def test_integer_relu_is_no_less_than_zero(pairs: list[tuple[int, int]]) -> None:
    a, b = (lanes([pair[n] for pair in pairs], np.int32) for n in range(2))
    least, most = run(
        "min.relu.s32 %r60, %r10, %r11;\nmax.relu.s32 %r61, %r10, %r11;", [a.view(np.uint32), b.view(np.uint32)], 2
    )
    assert (
        least.tolist() == np.maximum(np.minimum(a, b), 0).tolist()
        and most.tolist() == np.maximum(np.maximum(a, b), 0).tolist()
    )


def test_the_highest_bit_that_is_not_the_signs() -> None:
    values = [0, 1, 2, 5, 2**31 - 1, -1, -2, -3, -(2**31)]
    signed, unsigned, shift = run(
        "bfind.s32 %r60, %r10;\nbfind.u32 %r61, %r10;\nbfind.shiftamt.s32 %r62, %r10;",
        [lanes(values, np.int32).view(np.uint32)],
        3,
    )
    highest = [(value if value >= 0 else ~value).bit_length() - 1 for value in values]
    assert signed.view(np.int32)[: len(values)].tolist() == highest
    assert unsigned.view(np.int32)[: len(values)].tolist() == [(value % 2**32).bit_length() - 1 for value in values]
    assert shift.view(np.int32)[: len(values)].tolist() == [31 - place if place >= 0 else -1 for place in highest]


@pytest.mark.parametrize("form", ["min.s16x2", "add.s16x2", "min.relu.s16x2", "max.xorsign.s32"])
def test_forms_that_are_not_known_are_refused_by_name(form: str) -> None:
    with pytest.raises(EmulationFault, match=form.split(".")[0]) as caught:
        run(f"{form} %r60, %r10, %r11;", [lanes([1], np.uint32), lanes([2], np.uint32)])
    assert caught.value.failure.kind == "unknown_instruction"
