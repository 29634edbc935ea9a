"""PTX of the tests: bodies of kernels by name, instructions to be strung together, and data with edge cases. Needs
numpy alone.
"""

from __future__ import annotations

import numpy as np
from engines import aligned

STORE = "st.global.u32 [%rd3], %r6;"
SHARED = "mov.u32 %r6, sm;\nmad.lo.u32 %r7, %r2, 4, %r6;\n"
BODIES = {
    "divergent loop": "mov.u32 %r6, 0;\nmov.u32 %r7, 0;\nand.b32 %r9, %r5, 31;\n$L1:\nsetp.ge.u32 %p1, %r6, %r9;\n"
    "@%p1 bra $L2;\nadd.u32 %r7, %r7, %r6;\nadd.u32 %r6, %r6, 1;\nbra $L1;\n$L2:\n"
    "st.global.u32 [%rd3], %r7;",
    "nested ifs": "and.b32 %r7, %r5, 1;\nand.b32 %r8, %r5, 2;\nsetp.ne.u32 %p1, %r7, 0;\n"
    "setp.ne.u32 %p2, %r8, 0;\nmov.u32 %r6, 7;\n@%p1 bra $A;\n@%p2 bra $B;\nmov.u32 %r6, 1;\n"
    "bra $E;\n$B:\nmov.u32 %r6, 2;\nbra $E;\n$A:\n@!%p2 bra $C;\nmov.u32 %r6, 3;\nbra $E;\n$C:\n"
    "add.u32 %r6, %r6, 4;\n$E:\n" + STORE,
    "early exit": "setp.gt.u32 %p1, %r2, 20;\n@%p1 exit;\nmov.u32 %r6, %r5;\n" + STORE,
    "guarded instructions": "setp.gt.u32 %p1, %r2, 9;\nmov.u32 %r6, 5;\n@%p1 add.u32 %r6, %r6, %r2;\n"
    "@!%p1 mul.lo.u32 %r6, %r6, 3;\n@%p1 " + STORE,
    "loop within a loop": "mov.u32 %r6, 0;\nmov.u32 %r7, 0;\n$O:\nmov.u32 %r8, 0;\nand.b32 %r9, %r2, 3;\n$I:\n"
    "add.u32 %r6, %r6, 1;\nadd.u32 %r8, %r8, 1;\nsetp.le.u32 %p1, %r8, %r9;\n@%p1 bra $I;\n"
    "add.u32 %r7, %r7, 1;\nsetp.lt.u32 %p2, %r7, 5;\n@%p2 bra $O;\n" + STORE,
    "reverse through shared memory": SHARED
    + "st.shared.u32 [%r7], %r2;\nbar.sync 0;\nsub.u32 %r8, 63, %r2;\nmad.lo.u32 %r9, %r8, 4, %r6;\n"
    "ld.shared.u32 %r6, [%r9];\n" + STORE,
    "bank conflicts of wide accesses": "mov.u32 %r6, sm;\nand.b32 %r8, %r2, 7;\nmad.lo.u32 %r7, %r8, 128, %r6;\n"
    "setp.lt.u32 %p1, %r2, 31;\n@%p1 st.shared.v4.u32 [%r7], {%r2, %r2, %r2, %r5};\n"
    "@%p1 st.shared.v2.u32 [%r7+64], {%r2, %r5};",
    "named barriers": SHARED + "setp.lt.u32 %p1, %r2, 32;\n@%p1 bra $P;\nst.shared.u32 [%r7], %r2;\nbar.arrive 2, 64;\n"
    "bra $E;\n$P:\nbar.sync 2, 64;\nld.shared.u32 %r6, [%r7+128];\n" + STORE + "\n$E:\nbar.sync 0;",
    "scattered addresses": "mul.lo.u32 %r6, %r2, 37;\nand.b32 %r6, %r6, 63;\nmad.lo.u32 %r6, %r3, 64, %r6;\n"
    "mul.wide.u32 %rd4, %r6, 4;\nadd.s64 %rd5, %rd1, %rd4;\nst.global.u32 [%rd5], %r5;\n"
    "ld.global.u32 %r6, [%rd5];",
    "sub-word accesses": "mul.wide.u32 %rd4, %r5, 8;\nadd.s64 %rd5, %rd1, %rd4;\ncvt.u16.u32 %rs1, %r5;\n"
    "st.global.u8 [%rd5], %r5;\nld.global.s8 %r6, [%rd5];\nst.global.u16 [%rd5+2], %rs1;\n"
    "ld.global.s16 %rs2, [%rd5+2];\nst.global.v2.u16 [%rd5+4], {%rs2, %rs1};\n"
    "st.global.u32 [%rd5], %r6;",
    "generic addresses": SHARED + "cvt.u64.u32 %rd4, %r7;\ncvta.shared.u64 %rd5, %rd4;\nst.u32 [%rd5], %r5;\n"
    "ld.u32 %r6, [%rd5];\nst.u32 [%rd3], %r6;\nisspacep.shared %p1, %rd5;\n"
    "selp.u32 %r6, 1, 2, %p1;",
    "atomics that return": "and.b32 %r7, %r5, 3;\nmul.wide.u32 %rd4, %r7, 4;\nadd.s64 %rd5, %rd1, %rd4;\n"
    "atom.global.add.u32 %r6, [%rd5+256], %r5;\natom.global.max.s32 %r8, [%rd5+512], %r5;\n"
    "atom.global.cas.b32 %r9, [%rd5+768], 0, %r5;\nadd.u32 %r6, %r6, %r9;\n"
    "atom.global.inc.u32 %r9, [%rd5+800], 5;\n",
    "float atomics in a loop": "mov.u32 %r6, 0;\ncvt.rn.f32.u32 %f1, %r5;\nmul.f32 %f1, %f1, 0f3DCCCCCD;\n$L:\n"
    "red.global.add.f32 [%rd1], %f1;\nmul.f32 %f1, %f1, 0f3F4CCCCD;\nadd.u32 %r6, %r6, 1;\n"
    "setp.lt.u32 %p1, %r6, 3;\n@%p1 bra $L;",
    "shared atomics": SHARED + "st.shared.u32 [%r7], %r2;\nbar.sync 0;\natom.shared.add.u32 %r8, [%r6], %r2;\n"
    "red.shared.xor.b32 [%r6+4], %r2;\nbar.sync 0;\nld.shared.u32 %r6, [%r6];\n"
    "add.u32 %r6, %r6, %r8;\n" + STORE,
    "votes and reductions": "setp.lt.u32 %p1, %r2, 5;\nvote.sync.ballot.b32 %r6, %p1, -1;\n"
    "redux.sync.add.u32 %r7, %r2, -1;\nredux.sync.max.s32 %r8, %r5, -1;\n"
    "match.any.sync.b32 %r9, %r3, -1;\nactivemask.b32 %r10;\nadd.u32 %r6, %r6, %r7;\n"
    "add.u32 %r6, %r6, %r8;\nxor.b32 %r6, %r6, %r9;\nvote.sync.any.pred %p2, %p1, -1;\n"
    "elect.sync %r11|%p3, -1;\n@%p3 add.u32 %r6, %r6, 9;\n" + STORE,
    "votes of some lanes": "and.b32 %r7, %r2, 3;\nsetp.eq.u32 %p1, %r7, 1;\nmov.u32 %r6, 0;\n@%p1 bra $E;\n"
    "setp.gt.u32 %p2, %r2, 8;\nvote.sync.ballot.b32 %r6, %p2, -1;\nactivemask.b32 %r8;\n"
    "add.u32 %r6, %r6, %r8;\nredux.sync.min.u32 %r9, %r2, -1;\nadd.u32 %r6, %r6, %r9;\n$E:\n" + STORE,
    "shuffles": "shfl.sync.bfly.b32 %r6, %r2, 1, 31, -1;\nshfl.sync.up.b32 %r7|%p1, %r6, 3, 0, -1;\n"
    "shfl.sync.down.b32 %r8|%p2, %r7, 5, 0x1807, -1;\nshfl.sync.idx.b32 %r9, %r8, %r5, 31, -1;\n"
    "add.u32 %r6, %r7, %r8;\nadd.u32 %r6, %r6, %r9;\n@%p2 add.u32 %r6, %r6, 1;\n" + STORE,
    "shuffle that reads a lane which is not there": "mov.u32 %r6, %r5;\nsetp.gt.u32 %p1, %r2, 15;\n@%p1 bra $E;\n"
    "add.u32 %r6, %r6, 100;\nshfl.sync.down.b32 %r6, %r6, 4, 31, -1;\n$E:\n" + STORE,
    "asynchronous copy": SHARED
    + "mad.lo.u32 %r7, %r2, 16, %r6;\nmul.wide.u32 %rd4, %r5, 16;\nadd.s64 %rd5, %rd1, %rd4;\n"
    "and.b32 %r8, %r2, 1;\nshl.b32 %r8, %r8, 4;\ncp.async.cg.shared.global [%r7], [%rd5], 16;\n"
    "cp.async.ca.shared.global [%r7+1024], [%rd5], 16, %r8;\ncp.async.commit_group;\n"
    "cp.async.wait_group 0;\nld.shared.u32 %r6, [%r7+1028];\nst.global.u32 [%rd5], %r6;",
    "matrices": SHARED + "mad.lo.u32 %r7, %r2, 16, %r6;\nst.shared.v4.u32 [%r7], {%r5, %r2, 1006648320, 1073757184};\n"
    "bar.sync 0;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r7];\n"
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r12, %r13}, [%r7];\n"
    "mov.b32 %f1, 0f3F800000;\n"
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r8, "
    "%r9, %r10, %r11}, {%r12, %r13}, {%f1, %f1, %f1, %f1};\n"
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f6, %f7, %f8, %f9}, {%r8, "
    "%r9, %r10, %r11}, {%r12, %r13}, {%f2, %f3, %f4, %f5};\n"
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r14, %r15}, {%r8, %r9, %r10, "
    "%r11}, {%r12, %r13}, {%r8, %r9};\n"
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r7], {%r14, %r15};\nst.global.f32 [%rd3], %f6;",
    "special registers": "mov.u32 %r6, %lanemask_lt;\nmov.u32 %r7, %warpid;\nmov.u32 %r8, %nctaid.x;\n"
    "mov.u32 %r9, %smid;\nmov.u32 %r10, %total_smem_size;\nmov.u32 %r11, %laneid;\n"
    "add.u32 %r6, %r6, %r7;\nadd.u32 %r6, %r6, %r8;\nadd.u32 %r6, %r6, %r9;\n"
    "xor.b32 %r6, %r6, %r10;\nadd.u32 %r6, %r6, %r11;\n" + STORE,
    "a register that nothing wrote": "add.u32 %r6, %r60, %r5;\nand.b32 %r6, %r6, 0;\nadd.u32 %r6, %r6, %r5;\n" + STORE,
}
INTEGER = [
    "add.u32 {d}, {a}, {b};",
    "sub.s32 {d}, {a}, {b};",
    "mul.lo.u32 {d}, {a}, {b};",
    "mul.hi.s32 {d}, {a}, {b};",
    "mul.hi.u32 {d}, {a}, {b};",
    "mad.lo.s32 {d}, {a}, {b}, {c};",
    "div.s32 {d}, {a}, {b};",
    "div.u32 {d}, {a}, {b};",
    "rem.s32 {d}, {a}, {b};",
    "rem.u32 {d}, {a}, {b};",
    "min.s32 {d}, {a}, {b};",
    "min.relu.s32 {d}, {a}, {b};",
    "max.relu.s32 {d}, {a}, {b};",
    "max.u32 {d}, {a}, {b};",
    "abs.s32 {d}, {a};",
    "neg.s32 {d}, {a};",
    "and.b32 {d}, {a}, {b};",
    "or.b32 {d}, {a}, {b};",
    "xor.b32 {d}, {a}, {b};",
    "not.b32 {d}, {a};",
    "shl.b32 {d}, {a}, {b};",
    "shr.u32 {d}, {a}, {b};",
    "shr.s32 {d}, {a}, {b};",
    "shr.s32 {d}, {a}, 5;",
    "lop3.b32 {d}, {a}, {b}, {c}, 0x96;",
    "prmt.b32 {d}, {a}, {b}, {c};",
    "prmt.b32 {d}, {a}, {b}, 0x9410;",
    "popc.b32 {d}, {a};",
    "clz.b32 {d}, {a};",
    "brev.b32 {d}, {a};",
    "bfind.u32 {d}, {a};",
    "bfind.s32 {d}, {a};",
    "mov.b64 %rd11, {{{a}, {b}}};\nbfind.s64 {d}, %rd11;",
    "cnot.b32 {d}, {a};",
    "bfe.u32 {d}, {a}, {b}, {c};",
    "bfe.s32 {d}, {a}, 3, 9;",
    "bfi.b32 {d}, {a}, {b}, 4, 13;",
    "bfi.b32 {d}, {a}, {b}, {c}, 7;",
    "shf.l.wrap.b32 {d}, {a}, {b}, {c};",
    "shf.r.clamp.b32 {d}, {a}, {b}, {c};",
    "add.sat.s32 {d}, {a}, {b};",
    "setp.lt.s32 %p1, {a}, {b};\nselp.b32 {d}, {b}, {c}, %p1;",
    "setp.hi.and.u32 %p2|%p3, {a}, {b}, %p1;\n@%p3 mov.u32 {d}, {c};",
    "set.ge.u32.s32 {d}, {a}, {b};",
    "mul.wide.s32 %rd10, {a}, {b};\nmov.b64 {{{d}, %r90}}, %rd10;",
    "mov.b64 %rd11, {{{a}, {b}}};\nmov.b64 %rd12, {{{c}, {a}}};\nmul.hi.u64 %rd10, %rd11, %rd12;\n"
    "mul.hi.s64 %rd13, %rd11, %rd12;\nxor.b64 %rd10, %rd10, %rd13;\nmov.b64 {{%r90, {d}}}, %rd10;",
    "mov.b64 %rd11, {{{a}, {b}}};\ncvt.s64.s32 %rd12, {c};\ndiv.s64 %rd10, %rd11, %rd12;\n"
    "rem.u64 %rd13, %rd11, %rd12;\nxor.b64 %rd10, %rd10, %rd13;\nmov.b64 {{{d}, %r90}}, %rd10;",
    "mov.b64 %rd11, {{{a}, {b}}};\nshr.s64 %rd10, %rd11, {c};\nshl.b64 %rd12, %rd11, {a};\n"
    "and.b32 %r91, {b}, 255;\nbfe.s64 %rd13, %rd11, 7, %r91;\nxor.b64 %rd10, %rd10, %rd12;\n"
    "xor.b64 %rd10, %rd10, %rd13;\nmov.b64 {{{d}, %r90}}, %rd10;",
    "cvt.u16.u32 %rs1, {a};\ncvt.u16.u32 %rs2, {b};\nmul.lo.u16 %rs3, %rs1, %rs2;\n"
    "add.s16 %rs3, %rs3, %rs1;\nshr.s16 %rs4, %rs3, 3;\nmul.wide.s16 {d}, %rs4, %rs2;",
    "cvt.s8.s32 {d}, {a};",
    "cvt.sat.u8.s32 {d}, {a};",
    "cvt.sat.s16.u32 {d}, {a};",
]
FLOAT = [
    "add.f32 {d}, {a}, {b};",
    "sub.ftz.f32 {d}, {a}, {b};",
    "mul.f32 {d}, {a}, {b};",
    "fma.rn.f32 {d}, {a}, {b}, {c};",
    "fma.rn.ftz.f32 {d}, {a}, {b}, {c};",
    "div.rn.f32 {d}, {a}, {b};",
    "div.full.f32 {d}, {a}, {b};",
    "min.f32 {d}, {a}, {b};",
    "max.f32 {d}, {a}, {b};",
    "max.NaN.f32 {d}, {a}, {b};",
    "cvt.rn.f16.f32 %rs1, {a};\ncvt.rn.f16.f32 %rs2, {b};\nmax.NaN.f16 %rs3, %rs1, %rs2;\ncvt.f32.f16 {d}, %rs3;",
    "cvt.rn.bf16.f32 %rs1, {a};\ncvt.rn.bf16.f32 %rs2, {b};\nmin.NaN.bf16 %rs3, %rs1, %rs2;\ncvt.f32.bf16 {d}, %rs3;",
    "cvt.rn.f16x2.f32 %r90, {a}, {b};\ncvt.rn.f16x2.f32 %r91, {b}, {c};\n"
    "max.NaN.f16x2 %r92, %r90, %r91;\nmov.b32 {{%rs1, %rs2}}, %r92;\ncvt.f32.f16 {d}, %rs1;",
    "cvt.rn.bf16x2.f32 %r90, {a}, {b};\ncvt.rn.bf16x2.f32 %r91, {b}, {c};\n"
    "min.NaN.bf16x2 %r92, %r90, %r91;\nmov.b32 {{%rs1, %rs2}}, %r92;\ncvt.f32.bf16 {d}, %rs2;",
    "neg.f32 {d}, {a};",
    "abs.ftz.f32 {d}, {a};",
    "sqrt.rn.f32 {d}, {a};",
    "sqrt.approx.f32 {d}, {a};",
    "rsqrt.approx.ftz.f32 {d}, {a};",
    "rcp.rn.f32 {d}, {a};",
    "rcp.approx.f32 {d}, {a};",
    "ex2.approx.ftz.f32 {d}, {a};",
    "lg2.approx.f32 {d}, {a};",
    "sin.approx.f32 {d}, {a};",
    "cos.approx.f32 {d}, {a};",
    "tanh.approx.f32 {d}, {a};",
    "add.sat.f32 {d}, {a}, {b};",
    "copysign.f32 {d}, {a}, {b};",
    "setp.lt.f32 %p1, {a}, {b};\nselp.f32 {d}, {b}, {c}, %p1;",
    "setp.neu.f32 %p1, {a}, {b};\nselp.f32 {d}, {b}, {c}, %p1;",
    "setp.nan.f32 %p1, {a}, {b};\nselp.f32 {d}, {b}, {c}, %p1;",
    "cvt.rn.f16.f32 %rs1, {a};\ncvt.f32.f16 {d}, %rs1;",
    "cvt.rz.f16.f32 %rs1, {a};\ncvt.f32.f16 {d}, %rs1;",
    "cvt.rn.bf16.f32 %rs1, {a};\ncvt.f32.bf16 {d}, %rs1;",
    "cvt.rn.f16x2.f32 %r90, {a}, {b};\ncvt.rn.f16x2.f32 %r91, {b}, {c};\n"
    "fma.rn.f16x2 %r92, %r90, %r91, %r90;\nmov.b32 {{%rs1, %rs2}}, %r92;\ncvt.f32.f16 {d}, %rs2;",
    "cvt.rn.bf16x2.f32 %r90, {a}, {b};\nmul.bf16x2 %r92, %r90, %r90;\n"
    "mov.b32 {{%rs1, %rs2}}, %r92;\ncvt.f32.bf16 {d}, %rs1;",
    "cvt.rn.f16.f32 %rs1, {a};\ncvt.rn.f16.f32 %rs2, {b};\nadd.f16 %rs3, %rs1, %rs2;\n"
    "setp.gt.f16 %p1, %rs1, %rs2;\ncvt.f32.f16 {d}, %rs3;\n@%p1 mul.f32 {d}, {d}, {d};",
    "cvt.rni.s32.f32 %r90, {a};\ncvt.rn.f32.s32 {d}, %r90;",
    "cvt.rzi.u32.f32 %r90, {a};\ncvt.rz.f32.u32 {d}, %r90;",
    "cvt.rmi.f32.f32 {d}, {a};",
    "cvt.rna.tf32.f32 %r90, {a};\nmov.b32 {d}, %r90;",
    "cvt.f64.f32 %fd1, {a};\ncvt.f64.f32 %fd2, {b};\nfma.rn.f64 %fd3, %fd1, %fd2, %fd1;\ncvt.rn.f32.f64 {d}, %fd3;",
    "cvt.f64.f32 %fd1, {a};\ncvt.f64.f32 %fd2, {b};\ndiv.rn.f64 %fd3, %fd1, %fd2;\ncvt.rz.f32.f64 {d}, %fd3;",
    "cvt.f64.f32 %fd1, {a};\ncvt.f64.f32 %fd2, {b};\nmul.f64 %fd3, %fd1, %fd2;\ncvt.rp.f32.f64 {d}, %fd3;",
    "cvt.rzi.s64.f32 %rd10, {a};\ncvt.rn.f32.s64 {d}, %rd10;",
    "cvt.sat.f32.f32 {d}, {a};",
]
EDGES = np.array(
    [
        0,
        1,
        0x80000000,
        0x7FFFFFFF,
        0xFFFFFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x00000001,
        0x807FFFFF,
        0x3F800000,
        0xBF800000,
        0x477FE000,
        0x477FF000,
        0x33000000,
        0x5F000000,
        0x4F800000,
        31,
        32,
        33,
    ],
    np.uint32,
)


def sequence(chosen: list[tuple[str, tuple[int, int, int, int]]], prefix: str, first: int) -> str:
    """Instructions over eight registers loaded from memory, whose final values are stored."""
    names = [f"%{prefix}{first + n}" for n in range(8)]
    kind = "u32" if prefix == "r" else "f32"
    lines = [
        "mul.wide.u32 %rd4, %r5, 32;\nadd.s64 %rd5, %rd1, %rd4;\nsetp.eq.u32 %p1, %r5, %r5;\n",
        *[f"ld.global.{kind} {name}, [%rd5+{4 * n}];" for n, name in enumerate(names)],
    ]
    for template, (d, a, b, c) in chosen:
        lines.append(template.format(d=names[d], a=names[a], b=names[b], c=names[c]))
    return "\n".join([*lines, *[f"st.global.{kind} [%rd5+{4 * n}], {name};" for n, name in enumerate(names)]])


def values(seed: int) -> np.ndarray:
    """Random bits with edge cases among them, 8 for each of 64 threads."""
    random = np.random.default_rng(seed)
    data = aligned(8 * 64)
    data[:] = random.integers(0, 2**32, len(data), dtype=np.uint64).astype(np.uint32)
    small = random.random(len(data)) < 0.3
    data[small] = (random.standard_normal(len(data)).astype(np.float32) * 8).view(np.uint32)[small]
    edge = random.random(len(data)) < 0.3
    data[edge] = random.choice(EDGES, len(data))[edge]
    return data
