"""Arguments that several commands share: problem, executor, version, proposer, profiler, language model."""

from __future__ import annotations

import dataclasses

from workbench.analysis import devices
from workbench.plugins import DEFAULTS
from workbench.policies import accept_rules
from workbench.views.commands.parsing import parse_names, parse_setting, parse_size, parse_steps, parse_tie
from workbench.views.commands.table import Argument

WORDS = Argument(flags=("words",), nargs="*", default=(), about="free text")
VERSION = Argument(
    flags=("version",),
    nargs="?",
    default="latest",
    kind="version",
    about="v1, v2, ..., latest, best, baseline or pending (default latest)",
)
PENDING = dataclasses.replace(
    VERSION, default="pending", about="v1, v2, ..., latest, best, baseline or pending (default pending)"
)
BY = Argument(
    flags=("--by",),
    default=DEFAULTS.proposer,
    kind="proposer",
    about="planner (built in), llm, operators (NVIDIA's kernels), ...",
)
BY_MODEL = dataclasses.replace(BY, default=DEFAULTS.model_proposer)
STEPS = Argument(
    flags=("--steps",), parse=parse_steps, default=3, about="refinements after the first version (default 3)"
)
SETTING = Argument(
    flags=("--setting",),
    action="append",
    default=(),
    metavar="NAME=VALUE",
    about="a setting of the chain: depth, repair_rounds, regenerate, timeouts, profile=late|always|never, "
    "accept=faster|correct, continue_from=latest|best",
)
DEVICE = Argument(
    flags=("--device",),
    kind="device",
    about="the device whose rates and limits the bound uses, such as A100 or RTX4090 (default: the GPU at hand, "
    "else H200)",
)
SIZES = (
    Argument(
        flags=("--inputs",),
        about='the inputs of an expression: "x: f32[4096, 4096]", or "x: bf16[M, N]" with --set M=4096 --set N=1024; '
        "dtypes f16, bf16, f32, f64, f8e4m3, f8e5m2, i8, u8, i16, i32, i64, bool",
    ),
    Argument(
        flags=("--set",),
        name="settings",
        action="append",
        parse=parse_setting,
        default=(),
        metavar="NAME=VALUE",
        about="override a size of the problem, and those tied to it",
    ),
    Argument(
        flags=("--tie",),
        action="append",
        parse=parse_tie,
        default=(),
        metavar="A=B",
        about="sizes that always have one value, besides those that are found",
    ),
    Argument(
        flags=("--vary",),
        action="append",
        default=(),
        metavar="NAME",
        about="a size that varies, on its own where the reference runs so; smaller on the emulator even if it was set",
    ),
    Argument(
        flags=("--keep",),
        action="append",
        default=(),
        metavar="NAME",
        about="a size, or a number given to forward, that stays as it is in every case",
    ),
    Argument(
        flags=("--precision",),
        choices=("declared", "fp32", "tf32", "fp16", "bf16"),
        default="declared",
        about="cast floating inputs and parameters to one dtype (tf32: float32 storage, TF32 arithmetic); "
        "by default they are as the problem declares them",
    ),
    Argument(
        flags=("--mode",),
        choices=("train", "eval"),
        default="train",
        about="mode of the model: eval calls eval(); train, as in KernelBench, leaves it as __init__ makes it",
    ),
)
L2 = Argument(
    flags=("--l2",),
    choices=("cold", "warm"),
    about="state of L2 before a timed call on a GPU: without its data (cold, the default), or as the last call left it",
)
TORCH_COMPILE = Argument(
    flags=("--torch-compile",),
    choices=("later", "now", "never"),
    about="when torch.compile of the problem is timed beside a version on a GPU: from the second test of a problem on "
    "(later, the default: compiling takes seconds), at once, or never",
)
ACCEPT = Argument(
    flags=("--accept",),
    choices=accept_rules.RULES,
    metavar="RULE",
    about="by which a correct version is accepted: time (default: faster), energy-at-equal-time (faster, or as fast "
    "with fewer joules), energy-delay (fewer joules times seconds); measured on a GPU, else modelled",
)
ALLOW = Argument(
    flags=("--allow",),
    choices=("torch", "nothing"),
    about="torch: torch may do more than half of the work in forward, in this session from now on (a doubt then, not "
    "a refusal); nothing takes it back",
)
EXECUTOR = Argument(
    flags=("--executor",),
    metavar="NAME",
    default=DEFAULTS.executor,
    kind="executor",
    about="where candidates run: auto (default), emulator, gpu, replay (recorded measurements) or another executor",
)
ARCH = Argument(flags=("--arch",), choices=devices.ARCHES, default="", about="the compile target")
GPU = Argument(
    flags=("--gpu",),
    metavar="N",
    about="the GPU to work on, by CUDA's number among the visible ones or by its UUID (default: the first one; "
    "cutegen doctor lists them)",
)
CALIBRATE = Argument(
    flags=("--no-calibrate",),
    action="store_true",
    about="do not measure the ceilings of a GPU that has no calibration yet (nor with CUTEGEN_CALIBRATE=0)",
)
TARGET = (EXECUTOR, ARCH, DEVICE)
PLACE = (*TARGET, GPU, CALIBRATE)
PROBLEM = (*SIZES, *PLACE, L2, TORCH_COMPILE)
UNTIL = (
    Argument(
        flags=("--until",),
        metavar="sol|N",
        kind="stop",
        about="sol: stop when the best version beats torch and is near the bound, or there is no further gain; "
        "N: stop after N refinements",
    ),
    Argument(
        flags=("--epsilon",),
        parse=float,
        about="with --until sol: the accepted fraction above the bound (default 0.25)",
    ),
    Argument(flags=("--patience",), parse=int, about="with --until sol: attempts in a row without a gain (default 4)"),
)
WHERE = Argument(
    flags=("--where",),
    action="append",
    default=(),
    metavar="SETTING=VALUE",
    about="only configurations with this value: schedule=pingpong, tile=128x256x64; schedule= if it was not set",
)
LANDSCAPE = (
    Argument(flags=("x",), nargs="?", default="", kind="landscape", about="a setting (default tile)"),
    Argument(flags=("y",), nargs="?", default="", kind="landscape", about="another setting (default cluster)"),
    WHERE,
)
EXPLAIN = (
    Argument(
        flags=("--device",),
        choices=devices.names(),
        kind="device",
        about="the device whose limits are used (default: the session's, else H200)",
    ),
    Argument(
        flags=("--size",), parse=parse_size, metavar="M,N,K", about="the size of a product: print its tiles and waves"
    ),
    Argument(flags=("--compile",), action="store_true", about="compile it, and print registers and spills"),
)
PROFILE = (
    Argument(
        flags=("--by",),
        default=DEFAULTS.profiler,
        metavar="NAMES",
        kind="profiler",
        about="counters (emulator; the default), sampled (emulator, at full size whatever it takes), sass, ncu, "
        "timeline or energy (GPU), or several: ncu+timeline+energy",
    ),
    Argument(
        flags=("--case",),
        choices=("full", "shrunk"),
        default="full",
        about="of counters: the full size, from a few CTAs (the default), or the small case, counted on all CTAs",
    ),
    Argument(
        flags=("--sections",),
        parse=parse_names,
        default="",
        metavar="A,B",
        about="only these sections of ncu: speed, memory, pipes, stalls, occupancy, launch, source",
    ),
    Argument(
        flags=("--again",),
        action="store_true",
        about="run the profilers even if the session keeps a profile of this version, device and options",
    ),
    Argument(
        flags=("--plot",),
        metavar="NAME",
        about="only this plot: roofline, pipes, stalls, occupancy, source, timeline or energy",
    ),
)
DIAGNOSE = (
    Argument(
        flags=("--by",),
        default="",
        metavar="NAMES",
        kind="profiler",
        about="profilers to look with (default: what the test counted; on a GPU ncu+sass)",
    ),
    Argument(
        flags=("--again",),
        action="store_true",
        about="with --by or on a GPU: run the profilers even if the session keeps a profile",
    ),
    Argument(
        flags=("--apply",),
        metavar="PROBE",
        kind="probe",
        about="make the version that follows this advice (its probe, or its number): the next untried program with the "
        "setting changed, else the model writes it",
    ),
)
MODEL_SETTINGS = {  # name -> help; the names are those of `Session.model`
    "base_url": "address of any OpenAI-compatible endpoint, such as http://localhost:11434/v1 (Ollama), "
    ":8000/v1 (vLLM), :8080/v1 (llama.cpp)",
    "model": "name of the model at the endpoint",
    "language": "language that the model writes: cute (CuTe DSL) or mucutlass",
    "feedback": "what the model is shown of the profile: directives (what the probes advise; the default), tools (it "
    "chooses which probes look), raw (the findings of the counters) or none",
    "rules": "rules on recorded times of problems of this kind in the prompt of a refinement: on (the default) or off",
    "max_tokens": "tokens of one reply at most (default 32000)",
    "temperature": "sampling temperature (default: the server's)",
    "budget_tokens": "tokens of all calls of this session at most",
    "budget_usd": "dollars for all calls of this session at most; needs the prices",
    "price_in": "dollars per million input tokens",
    "price_out": "dollars per million output tokens",
    "first_s": "timeout in seconds before the first byte of a reply",
    "silence_s": "timeout in seconds between two bytes",
    "total_s": "timeout in seconds of one call",
    "retries": "retries after temporary errors (429, 5xx, lost connections)",
}
MODEL = tuple(
    Argument(flags=(f"--{name.replace('_', '-')}",), about=about, group="language model")
    for name, about in MODEL_SETTINGS.items()
)
