"""Host side of many products in one launch: the table of problems, memory for descriptors, the launch."""

import torch

from workbench.kernels.gemm.sm90.grouped_problems.kernel import MAP_BYTES, launch_grouped
from workbench.kernels.gemm.sm90.host import result_view
from workbench.kernels.gemm.sm90.pack import make_operands, max_active_clusters
from workbench.kernels.host import DynamicTensor, call, compile_launch, compiled
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import device_key


def tabulate(cfg: Static, problems):
    """(rows of the table, cluster tiles of all problems)."""
    rows, total = [], 0
    for a, b, d in problems:
        (m, k), n = a.shape, b.shape[0]
        total += -(-m // (cfg.tile_m * cfg.cluster_m)) * -(-n // (cfg.tile_n * cfg.cluster_n))
        addresses, strides = [t.data_ptr() for t in (a, b, d)], [t.stride(0) for t in (a, b, d)]
        rows.append([*addresses, m, n, k, *strides, total])
    return rows, total


def allocate_descriptors(count, device):
    """Memory for descriptors, (count, 16) int64, aligned to 128 bytes."""
    words = MAP_BYTES // 8
    raw = torch.zeros((count + 1) * words, dtype=torch.int64, device=device)
    skip = -raw.data_ptr() // 8 % words
    return raw[skip : skip + count * words].view(count, words)


def prepare_operands(cfg: Static, problems, max_clusters):
    """Operands of the launch: views of the first problem, the table, places for descriptors, tiles, clusters.

    a (m, k), b (n, k), d (m, n) of every problem are contiguous along the last dimension, with addresses and rows of a
    multiple of 16 bytes; all a and b of one dtype, all d of one. At most `max_clusters` run at once. One launch at a
    time uses the operands, since the descriptors' memory is theirs.
    """
    a, b, d = problems[0]
    rows, total = tabulate(cfg, problems)
    clusters = min(max_clusters, max_active_clusters(cfg))
    table = torch.tensor(rows, dtype=torch.int64).to(a.device)
    ctas = min(total, clusters) * cfg.cluster_m * cfg.cluster_n
    places = allocate_descriptors(ctas * (2 + cfg.mma_warpgroups) * (cfg.stages + 1), a.device)
    (left, _), (right, _) = make_operands(cfg, a, b)
    return (
        left,
        right,
        result_view(cfg, d.unsqueeze(0), True),
        DynamicTensor(table, leading_dim=1),
        DynamicTensor(places, align=MAP_BYTES, leading_dim=1),
        total,
        clusters,
    )


def launch_problems(cfg: Static, operands):
    """Compute d = a @ b.T for every problem of `prepare_operands`, on the current CUDA stream."""
    a, b, d, table, places, total, clusters = operands
    call(bind(launch_grouped, cfg), (device_key(),), (a, b, d, table, places, total, clusters))


def grouped_product(cfg: Static, problems, max_clusters):
    """Compute d = a @ b.T for every (a, b, d), on the current CUDA stream."""
    launch_problems(cfg, prepare_operands(cfg, problems, max_clusters))


def compile_problems(cfg, operands):
    """Compile what `launch_problems` launches, where that is not done yet."""
    key = (bind(launch_grouped, cfg), (device_key(),))
    if key not in compiled:
        compiled[key] = compile_launch(key[0], operands)
