"""PTX text and cubin bytes -> `records.KernelBuild`; SASS comes from nvdisasm. No GPU is needed."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from workbench.errors import Unavailable
from workbench.records import KernelBuild
from workbench.toolchain.machine_code import read_code

# .nv.info attribute numbers (read from cubins and checked against cuobjdump); the payload is (symbol index, number)
REGISTER_COUNT, FRAME_SIZE = 0x2F, 0x11
_CLASSES = (
    ("tensor core", ("HMMA", "IMMA", "HGMMA", "QGMMA", "DMMA")),
    ("load global", ("LDG",)),
    ("store global", ("STG",)),
    ("load shared", ("LDS", "LDSM")),
    ("store shared", ("STS", "STSM")),
    ("local (spill)", ("LDL", "STL")),
    ("async copy", ("LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP")),
    ("atomic", ("ATOM", "ATOMG", "ATOMS", "RED", "REDG")),
    ("fp32", ("FADD", "FMUL", "FFMA", "FSETP", "FSEL", "FMNMX", "FCHK")),
    ("fp16", ("HADD2", "HMUL2", "HFMA2", "HSETP2")),
    ("special function", ("MUFU",)),
    ("conversion", ("F2F", "F2I", "I2F", "F2FP", "I2FP", "I2I")),
    ("barrier", ("BAR", "SYNCS", "WARPSYNC", "DEPBAR", "LDGDEPBAR")),
    ("branch", ("BRA", "EXIT", "BSSY", "BSYNC", "RET", "CALL")),
    ("warp", ("SHFL", "VOTE", "MATCH", "REDUX")),
    ("int", ("IADD3", "IMAD", "LOP3", "SHF", "LEA", "ISETP", "IADD", "PRMT", "SEL", "IMNMX", "POPC")),
)


def _sections(cubin: bytes) -> dict[str, tuple[bytes, int]]:
    """Sections of a 64-bit ELF: name -> (bytes, link). A section without bytes in the file has its size instead."""
    start = struct.unpack_from("<Q", cubin, 40)[0]
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + n * size) for n in range(count)]
    table = cubin[heads[names][4] : heads[names][4] + heads[names][5]]
    out = {}
    for head in heads:
        name = table[head[0] : table.index(b"\0", head[0])].decode()
        body = b"" if head[1] == 8 else cubin[head[4] : head[4] + head[5]]
        out[name] = (body if head[1] != 8 else bytes(head[5]), head[6])
    return out


def _symbols(sections: dict[str, tuple[bytes, int]]) -> list[str]:
    table, strings = sections[".symtab"][0], sections[".strtab"][0]
    offsets = [struct.unpack_from("<I", table, n)[0] for n in range(0, len(table), 24)]
    return [strings[offset : strings.index(b"\0", offset)].decode() for offset in offsets]


def _attributes(info: bytes) -> list[tuple[int, int, int]]:
    """(attribute, symbol index, value) of each entry with an 8-byte payload."""
    found, at = [], 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:
            if size == 8:
                found.append((attribute, *struct.unpack_from("<II", info, at)))
            at += size
    return found


def describe_module(ptx: str, cubin: bytes, arch: str, *, want_sass: bool = False) -> tuple[KernelBuild, ...]:
    """One record per kernel of the module: registers and spills from the cubin, and the static instruction mix from
    SASS if `want_sass`.
    """
    sections = _sections(cubin)
    symbols = _symbols(sections)
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, symbol, value in _attributes(sections.get(".nv.info", (b"", 0))[0]):
        if attribute == REGISTER_COUNT:
            registers[symbols[symbol]] = value
        elif attribute == FRAME_SIZE:
            frames[symbols[symbol]] = value
    sass = sass_text(cubin) if want_sass else ""
    names = re.findall(r"\.entry\s+([\w$]+)", ptx)
    return tuple(
        KernelBuild(
            kernel=name,
            arch=arch,
            registers=registers.get(name),
            spill_bytes=frames.get(name),
            static_shared_bytes=len(sections.get(f".nv.shared.{name}", (b"", 0))[0]),
            mix=instruction_mix(sass) if sass else (),
            code=read_code(sections.get(f".text.{name}", (b"", 0))[0], arch),
            ptx=ptx,
            sass=sass,
        )
        for name in names
    )


def nvdisasm() -> Path:
    """The path of nvdisasm: from the nvidia-cuda-nvdisasm package, else from the CUDA toolkit on the path. Raises
    `Unavailable` if there is none.
    """
    try:
        found = [path for path in files("nvidia-cuda-nvdisasm") or [] if path.name == "nvdisasm"]
    except PackageNotFoundError:
        found = []
    if found:
        return Path(str(found[0].locate()))
    toolkit = shutil.which("nvdisasm")
    if toolkit is None:
        raise Unavailable("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    return Path(toolkit)


def sass_text(cubin: bytes) -> str:
    """Disassembles the cubin; the source line stands before its instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([nvdisasm(), "-c", "-gi", file.name], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Unavailable(
            f"nvdisasm failed: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}"
        )
    return done.stdout


def instruction_mix(sass: str) -> tuple[tuple[str, int], ...]:
    """Static instruction count by class, largest first; `other` counts opcodes without a class."""
    counts: dict[str, int] = {}
    for opcode in re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?([A-Z0-9]+)", sass, flags=re.M):
        kind = next((name for name, opcodes in _CLASSES if opcode in opcodes), "other")
        counts[kind] = counts.get(kind, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
