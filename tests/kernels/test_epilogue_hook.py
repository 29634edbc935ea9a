"""Epilogue hooks: the text written for a chain of calls."""

from workbench.codegen.epilogue import epilogue_hook
from workbench.kernels.operands import Read
from workbench.language import parse
from workbench.language.operations.epilogue import chain_of

PROGRAM = "gemm(a, b) .threads(256) >> bias(c, along=m) >> clamp(0, 6) >> max(r) >> gelu() >> scale(2) >> cast(bf16)"


def test_the_hook_of_a_chain():
    chain = chain_of(parse(PROGRAM).stages[0])
    assert chain.reads == (Read(role="bias", along="m"), Read(role="other", along="both")) and chain.cast == "bf16"
    hook = epilogue_hook(chain.calls)
    assert hook is not None and hook.source.splitlines() == [
        "def epilogue(total, bias, other, batch, row, column):",
        "    total = total + bias[row].to(cutlass.Float32)",
        "    total = cute.arch.fmin(cute.arch.fmax(total, cutlass.Float32(0.0), nan=True), "
        "cutlass.Float32(6.0), nan=True)",
        "    total = cute.arch.fmax(total, other[batch, row, column].to(cutlass.Float32), nan=True)",
        "    total = gelu(total)",
        "    total = total * 2.0",
        "    return total",
    ]


def test_a_hook_of_one_call_and_of_none():
    chain = chain_of(parse("gemm(a, b) >> bias()").stages[0])
    hook = epilogue_hook(chain.calls, place=("e", "column"), element=lambda read: f"{read.role}[e]")
    assert hook is not None
    assert hook.source == "def epilogue(total, bias, e, column):\n    return total + bias[e].to(cutlass.Float32)\n"
    assert epilogue_hook(()) is None
