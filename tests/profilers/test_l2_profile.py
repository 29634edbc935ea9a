"""The profile of an emulated case with hits of the device's L2: by names of forward's tensors, and what probes see."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from workbench import problems
from workbench.analysis import devices
from workbench.analysis.speed_of_light import bound
from workbench.executors.inspector import WorkerInspector
from workbench.probes.diagnosing import diagnose
from workbench.probes.memory import L2Locality
from workbench.profilers.counters import CounterProfiler
from workbench.profilers.emulation import run_on_emulator
from workbench.proposers.binding import candidate_of
from workbench.protocols import RunContext
from workbench.records import Job, Profile
from workbench.views.text.l2_report import l2_tables

SOURCE = """
import torch
import torch.nn as nn
NODES, ROWS, DEGREE, COLUMNS = 1_000_000, 20_000, 16, 64

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, indptr, indices):
        return torch.segment_reduce(x[indices], "sum", offsets=indptr)

def get_inputs():
    indptr = torch.arange(ROWS + 1) * DEGREE
    return [torch.randn(NODES, COLUMNS), indptr, torch.randint(0, NODES, (ROWS * DEGREE,))]

def get_init_inputs():
    return []
"""


@cache
def profiled() -> Profile:
    problem = problems.load(SOURCE)
    facts = WorkerInspector().inspect(problem)
    candidate = candidate_of(problem, facts, "sm_90a", "aggregate(x, indptr, indices)")
    job = Job(problem=problem, facts=facts, candidate=candidate, cases=("shrunk",), trials=1, arch="sm_90a")
    outcome = run_on_emulator(job)
    return CounterProfiler().profile(job, outcome, RunContext(options={"case": "shrunk"}))


def test_hits_are_told_by_tensor_and_by_line() -> None:
    profile = profiled()
    l2 = profile.launches[0].l2
    assert l2 is not None and {"x", "indptr", "indices"} <= {use.name for use in l2.tensors}
    assert profile.kernels[0].l2_hit_rate == l2.hit_rate and 0 < l2.share < 0.1 and l2.missed > 1.2 * l2.touched
    text, page = l2_tables(profile, "\n" * 300)[0]
    assert "of loaded sectors hit L2" in text and "of the device's" in text and "indices" in text and "<table" in page


def test_the_probe_of_locality_sees_reloads() -> None:
    profile = profiled()  # at these sizes latency decides; where DRAM is busy for a third of the time, reloads do
    busy = replace(profile.kernels[0], pipes=(("latency", 0.5), ("DRAM", 0.3)))
    profile = replace(profile, kernels=(busy,))
    work = WorkerInspector().inspect(problems.load(SOURCE)).work[0]
    limit = bound(replace(work, case="shrunk"), devices.find(profile.device))
    found = diagnose(profile, limit, SOURCE, probes=(L2Locality(),))
    assert found is not None
    advice = [item for item in found.advice if item.probe == "l2_locality"]
    l2 = profile.launches[0].l2
    assert advice and advice[0].gain is not None and advice[0].gain > 1.05
    assert l2 is not None and advice[0].evidence[0].value == l2.missed / l2.touched
