"""Names of the sections and metrics that ncu is asked for."""

from __future__ import annotations

SECTIONS = {
    "speed": ("SpeedOfLight",),
    "memory": ("MemoryWorkloadAnalysis",),
    "pipes": ("ComputeWorkloadAnalysis",),
    "stalls": ("WarpStateStats",),
    "occupancy": ("Occupancy",),
    "launch": ("LaunchStats",),
    "source": ("SourceCounters",),
}
# The metrics of a record. They are requested by name, because sections differ between versions of ncu. FLOPs on tensor
# cores are requested by type; ncu leaves out those that a chip does not have. Other counters of the raw page come from
# the sections (pipes, stalls).
METRICS = {
    "duration": "gpu__time_duration.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_op_write.sum",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "l1_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "warp_instructions": "smsp__inst_executed.sum",
    "fadd": "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "fmul": "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "tensor": "sm__inst_executed_pipe_tensor.sum",
    "tensor_cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm_throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_clock": "smsp__cycles_elapsed.avg.per_second",
    "achieved": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "theoretical": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "static_shared": "launch__shared_mem_per_block_static",
    "dynamic_shared": "launch__shared_mem_per_block_dynamic",
    "waves": "launch__waves_per_multiprocessor",
    "cluster": "launch__cluster_size",
    "active_threads": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "local_loads": "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "local_stores": "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "limit_blocks": "launch__occupancy_limit_blocks",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
    "limit_barriers": "launch__occupancy_limit_barriers",
}
# Sums over source lines, which come with the section SourceCounters: sectors and wavefronts beside the least for the
# accessed bytes.
OF_LINES = {
    "sectors": "memory_l2_theoretical_sectors_global",
    "ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
    "wavefronts": "memory_l1_wavefronts_shared",
    "ideal_wavefronts": "memory_l1_wavefronts_shared_ideal",
}
TENSOR_TYPES = (
    "fp16_dst_fp16",
    "fp16_dst_fp32",
    "bf16_dst_fp32",
    "tf32_dst_fp32",
    "fp8_dst_fp16",
    "fp8_dst_fp32",
    "int8",
    "fp64",
)
TENSOR_DTYPES = ("float16", "float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e4m3fn", "int8", "float64")
TENSOR_OPS = tuple(f"sm__ops_path_tensor_src_{kind}.sum" for kind in TENSOR_TYPES)
