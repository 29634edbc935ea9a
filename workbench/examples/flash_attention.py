"""Flash attention, forward, for Hopper (sm_90a): O = softmax(scale * Q @ K^T) @ V; scores never go to memory.

The kernel is `workbench.kernels.attention.sm90`; this module configures, checks and runs it.

Shapes (torch's own): Q, O (batch, heads, queries, dim), K, V (batch, key heads, keys, dim), float16 or bfloat16, dim 64
or 128, contiguous along dim. `heads` may be a multiple of `key heads` (grouped queries). Causal as torch means it:
query i sees keys 0 to i. Any numbers of queries and keys.

The computation (`online_softmax`). A CTA keeps a tile of queries and takes blocks of 128 keys in turn. For each row it
carries the maximum so far and the sum of exponentials: a block's scores S = Q @ K^T become
P = exp2(S * c - maximum * c), c = scale * log2(e); when the maximum grows from old to new, what was summed before is
scaled by exp2((old - new) * c). Blocks come from the last to the first: those that need a mask (the diagonal, the end
of the keys) come first, the others run in a loop that does not test anything.

Who does what. One warp of the *producer* warpgroup loads Q once a tile, and K and V block by block through pipelines of
two stages each, with TMA, which fills rows beyond the end with zeros (`load`). Each *consumer* warpgroup owns 64
queries: S and O are accumulators of wgmma in registers, and P goes from registers straight into the second product as
its A operand: the accumulator's layout of 16 columns is just the operand's layout of one wgmma, so that converting to
16 bits is all that lies between (`mainloop`).

Keeping the tensor cores busy. The exponentials are slow (16 a cycle and SM), so they must hide behind products:
- within a warpgroup: S of the next block and O += P @ V of this one are issued together; the softmax of S runs while O
  is being computed;
- across warpgroups: named barriers pass a token round, so that one warpgroup's products run while another is in its
  softmax ("ping-pong").

Order of tiles (`scheduler`). Persistent CTAs take tiles in turn; heads come in sections whose K and V fit into L2, and
within a section the longest tiles (causal: the last queries) come first, which balances the ends.

With inputs of a standard normal distribution the result lies within 2e-3 (float16) or 1.6e-2 (bfloat16) of float32
arithmetic on the same inputs: the rounding of P and O to 16 bits.

    python -m workbench.examples.flash_attention --queries 200 --keys 300 --causal
"""

import argparse
import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.attention.config import Sm90Config
from workbench.kernels.attention.sm90.host import count_heads, count_sms, permuted_view
from workbench.kernels.attention.sm90.kernel import attention as launch_attention
from workbench.kernels.attention.sm90.kernel import fits_output
from workbench.kernels.host import call
from workbench.kernels.static import Static, bind

ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}
ORDERS = ((2, 3, 1, 0), (2, 3, 1, 0), (3, 2, 1, 0), (2, 3, 1, 0))  # axes of q, k, v and the result for the kernel
SMEM_BYTES = 232_448  # what a CTA of Hopper may have


@functools.cache
def configure(dtype: torch.dtype, causal: bool, groups: int) -> Sm90Config:
    """The kernel's configuration: `groups` consumer warpgroups of 64 queries, blocks of 128 keys, two stages."""
    return Sm90Config(
        element=ELEMENTS[dtype], causal=causal, mma_warpgroups=groups, tile_n=128, stages=2, smem_bytes=SMEM_BYTES
    )


@cute.jit
def launch(
    cfg: Static,
    mQ: cute.Tensor,
    mK: cute.Tensor,
    mV: cute.Tensor,
    mO: cute.Tensor,
    scale: cutlass.Float32,
    section: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    by_tma: cutlass.Constexpr,
) -> None:
    """The kernel of the library, without a mask."""
    launch_attention(cfg, mQ, mK, mV, (), mO, scale, section, ctas, stream, width, by_tma)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: torch.Tensor | None = None,
    groups: int = 2,
    max_ctas: int | None = None,
) -> torch.Tensor:
    """softmax(scale * q @ k^T) @ v, on the current CUDA stream. The first call of a configuration compiles (seconds).

    q (batch, heads, queries, dim), k, v (batch, key heads, keys, dim), float16 or bfloat16, dim 64 or 128; returns a
    tensor like q, or `out`. `scale`: None means 1 / sqrt(dim). `groups`: consumer warpgroups of 64 queries, 2, or 3 for
    dim 64 (which spills: 2.4 times as slow on an H200). `max_ctas`: no more than these, for tests. Raises ValueError
    for what the kernel does not take.
    """
    check(q, k, v)
    dim = q.shape[3]
    if groups not in (2, 3) or (groups == 3 and dim == 128):
        raise ValueError(f"{groups} warpgroups for dim {dim}: 2, or for dim 64 also 3")
    out = torch.empty_like(q) if out is None else out
    factor = dim**-0.5 if scale is None else scale
    config, ctas = configure(q.dtype, causal, groups), min(max_ctas or 1 << 16, count_sms())
    by_tma = out.data_ptr() % 16 == 0 and fits_output(config, dim)
    tensors = (permuted_view(x, *order) for x, order in zip((q, k, v, out), ORDERS, strict=True))
    arguments = (*tensors, factor, count_heads(config, q, k), ctas)
    call(bind(launch, config), (q.dtype, dim, by_tma), arguments, (dim, by_tma))
    return out


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raises ValueError, saying what is wrong, for operands that the kernel does not take."""
    batch, heads, _, dim = q.shape
    same_batch = k.shape == v.shape and k.shape[0] == batch and k.shape[3] == dim
    if not same_batch or heads % k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"shapes q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: q is (batch, heads, queries, dim), "
            "k and v (batch, key heads, keys, dim), heads a multiple of key heads"
        )
    if dim not in (64, 128) or q.dtype not in ELEMENTS or any(t.dtype != q.dtype for t in (k, v)):
        raise ValueError(f"{q.dtype}, {k.dtype}, {v.dtype}, dim {dim}: all float16 or all bfloat16, dim 64 or 128")
    if any(t.stride(3) != 1 or t.data_ptr() % 16 or any(stride % 8 for stride in t.stride()[:3]) for t in (q, k, v)):
        raise ValueError("TMA needs addresses and strides of a multiple of 16 bytes, and dim contiguous")


def main() -> None:
    """One attention, compared with torch in float32."""
    parser = argparse.ArgumentParser(description="Flash attention for Hopper, forward")
    for name, default in (("batch", 1), ("heads", 2), ("queries", 200), ("keys", 200), ("dim", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--causal", action="store_true")
    options = parser.parse_args()
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[options.dtype]
    q, k, v = (
        torch.randn(options.batch, options.heads, length, options.dim, device="cuda").to(dtype)
        for length in (options.queries, options.keys, options.keys)
    )
    out = attention(q, k, v, causal=options.causal)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=options.causal
    )
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-3 if dtype == torch.float16 else 1.6e-2)
    error = (out.float() - expected).abs().max().item()
    print(f"{tuple(q.shape)}, {options.keys} keys: at most {error:.1e} from float32")


if __name__ == "__main__":
    main()
