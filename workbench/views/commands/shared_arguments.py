"""Arguments that several commands have: the problem, where it runs, versions, proposers, the language model."""

from __future__ import annotations

import dataclasses

from workbench.analysis import devices
from workbench.views.commands.parsing import parse_names, parse_setting, parse_size, parse_steps
from workbench.views.commands.table import Argument

WORDS = Argument(flags=("words",), nargs="*", default=(), about="your words")
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
BY = Argument(flags=("--by",), default="planner", kind="proposer", about="planner (built in), llm, or another proposer")
BY_LLM = dataclasses.replace(BY, default="llm")
STEPS = Argument(
    flags=("--steps",), parse=parse_steps, default=3, about="refinements after the first version (default 3)"
)
SETTING = Argument(
    flags=("--setting",),
    action="append",
    default=(),
    metavar="NAME=VALUE",
    about="of the chain: depth, repair_rounds, regenerate, timeouts, profile=late|always|never, "
    "accept=faster|correct, continue_from=latest|best",
)
DEVICE = Argument(
    flags=("--device",),
    kind="device",
    about="whose rates and limits are used for the bound: A100, H100, H200, B200, RTX4090",
)
SIZES = (
    Argument(flags=("--inputs",), about='declared inputs of an expression: "x: f32[4096, 4096]"'),
    Argument(
        flags=("--set",),
        name="settings",
        action="append",
        parse=parse_setting,
        default=(),
        metavar="NAME=VALUE",
        about="override a module-level size of the problem",
    ),
    Argument(
        flags=("--precision",),
        choices=("fp32", "tf32", "fp16", "bf16"),
        default="fp32",
        about="what inputs and parameters are cast to",
    ),
    Argument(flags=("--mode",), choices=("train", "eval"), default="train", about="KernelBench runs in train mode"),
)
L2 = Argument(
    flags=("--l2",),
    choices=("cold", "warm"),
    about="what timed calls on a GPU find in L2: nothing of theirs (the default), or what the same call left there",
)
PROBLEM = (
    *SIZES,
    Argument(
        flags=("--executor",),
        choices=("auto", "emulator", "gpu", "replay"),
        default="auto",
        kind="executor",
        about="where candidates run; replay answers from recorded measurements",
    ),
    Argument(flags=("--arch",), choices=devices.ARCHES, default="", about="what the kernel is compiled for"),
    L2,
    DEVICE,
)
UNTIL = (
    Argument(
        flags=("--until",),
        metavar="sol|N",
        about="sol: until the best version beats torch and is near the bound, or nothing helps any more; "
        "N: that many refinements",
    ),
    Argument(
        flags=("--epsilon",),
        parse=float,
        about="with --until sol: how far above the bound is near enough (default 0.25)",
    ),
    Argument(flags=("--patience",), parse=int, about="with --until sol: attempts in a row without a gain (default 4)"),
)
LANDSCAPE = (
    Argument(flags=("x",), nargs="?", default="", kind="landscape", about="a setting (default tile)"),
    Argument(flags=("y",), nargs="?", default="", kind="landscape", about="another (default cluster)"),
    Argument(
        flags=("--where",),
        action="append",
        default=(),
        metavar="SETTING=VALUE",
        about="only configurations that have it: schedule=pingpong, tile=128x256x64; schedule= where it was not set",
    ),
)
EXPLAIN = (
    Argument(
        flags=("--device",),
        choices=devices.names(),
        kind="device",
        about="whose limits are used (default: the session's, else H200)",
    ),
    Argument(
        flags=("--size",), parse=parse_size, metavar="M,N,K", about="of a product: how many tiles and waves there are"
    ),
    Argument(flags=("--compile",), action="store_true", about="compile it too, for registers and spills"),
)
PROFILE = (
    Argument(
        flags=("--by",),
        default="counters",
        metavar="NAMES",
        kind="profiler",
        about="counters (emulator, at the emulated sizes; the default), sampled (emulator, a few CTAs at full size), "
        "sass, ncu, timeline or energy (GPU), or several: ncu+timeline+energy",
    ),
    Argument(
        flags=("--sections",),
        parse=parse_names,
        default="",
        metavar="A,B",
        about="of ncu, only these: speed, memory, pipes, stalls, occupancy, launch, source",
    ),
    Argument(
        flags=("--plot",),
        metavar="NAME",
        about="only this plot: roofline, pipes, stalls, occupancy, source, timeline or energy",
    ),
)
MODEL_SETTINGS = {  # the settings of `session.model`, as they are on a command line
    "base_url": "any OpenAI-compatible address, such as http://localhost:11434/v1 (Ollama), "
    ":8000/v1 (vLLM), :8080/v1 (llama.cpp)",
    "model": "the model's name there",
    "language": "what it writes: cute (CuTe DSL) or mucutlass (the small language)",
    "max_tokens": "of one reply (default 32000)",
    "temperature": "default: the server's own",
    "budget_tokens": "all calls of this session together",
    "budget_usd": "the same in dollars; needs the prices",
    "price_in": "dollars per million input tokens",
    "price_out": "dollars per million output tokens",
    "first_s": "how long a model may think before its first byte",
    "silence_s": "how long to wait for the next byte",
    "total_s": "how long one call may take",
    "retries": "after errors that pass (429, 5xx, lost connections)",
}
MODEL = tuple(
    Argument(flags=(f"--{name.replace('_', '-')}",), about=about, group="language model")
    for name, about in MODEL_SETTINGS.items()
)
