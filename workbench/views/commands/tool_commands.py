"""The commands for beginners, the help, and the tools of the command line."""

from __future__ import annotations

import dataclasses

from workbench.views.commands.parsing import parse_names, parse_numbers, parse_size
from workbench.views.commands.searching.arguments import TUNE
from workbench.views.commands.shared_arguments import EXPLAIN, GPU, PROBLEM, SIZES, STEPS, WORDS
from workbench.views.commands.table import BOTH, Argument, Command

START = (
    Command(
        name="demo",
        about="run the loop on a problem; write a report and a notebook",
        places=("shell",),
        example="cutegen demo",
        group="to begin",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="softmax",
                kind="problem",
                about="a problem of the package, or a file",
            ),
            STEPS,
            Argument(
                flags=("--out",),
                default="cutegen-demo",
                about="folder for the report, the notebook and the best version",
            ),
            *PROBLEM,
        ),
    ),
    Command(
        name="lab",
        about="start JupyterLab on the first tutorial",
        places=("shell",),
        example="cutegen lab -- --no-browser",
        group="to begin",
        arguments=(
            Argument(flags=("--folder",), default="cutegen-tutorials", about="folder to copy the tutorials to"),
            GPU,
            Argument(flags=("rest",), nargs="*", default=(), about="options for JupyterLab, after --"),
        ),
    ),
)
HELP = (
    Command(
        name="docs",
        about="show a page of the documentation; without a name: list the pages",
        group="help and language",
        places=BOTH,
        example="cutegen docs language",
        arguments=(Argument(flags=("page",), nargs="?", default="", kind="page", about="the name of a page"),),
    ),
    Command(
        name="explain",
        about="explain each setting of a muCUTLASS program and its cost; without a program: list the operations",
        group="help and language",
        places=BOTH,
        example='cutegen explain "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(cooperative)" --size 4096,4096,4096',
        arguments=(
            Argument(
                flags=("words",),
                nargs="*",
                default=(),
                kind="operation",
                about="a muCUTLASS program, or an operation's name for its settings "
                "(default: the latest version's program)",
                places=("notebook",),
            ),
            Argument(
                flags=("--list",),
                action="store_true",
                about="list all operations of the language",
                places=("notebook",),
            ),
            Argument(
                flags=("program",),
                nargs="?",
                default="",
                kind="operation",
                about="the program's text, or an operation's name for its settings (default: all operations)",
                places=("shell",),
            ),
            *EXPLAIN,
        ),
    ),
    Command(
        name="search",
        about="search CuTe DSL, CUTLASS and our examples: search TMA multicast",
        takes_words=True,
        group="help and language",
        arguments=(
            WORDS,
            Argument(flags=("--lines",), default="", about="100-160: read these lines of the named file"),
        ),
    ),
    Command(
        name="open",
        about="open a stored session",
        group="help and language",
        arguments=(Argument(flags=("name",), kind="session", about="name of the session"), GPU),
    ),
    Command(
        name="trust",
        about="trust somebody else's session or recording, so that its code may run and its prompts are used",
        group="help and language",
        places=BOTH,
        example="cutegen trust their-session",
        arguments=(
            Argument(
                flags=("path",),
                about="a session's folder or name, or the file of a recording or of a problem that a landscape names",
            ),
        ),
    ),
    Command(name="sessions", about="list the stored sessions", group="help and language"),
    Command(
        name="lessons",
        about="what earlier sessions taught: which changes helped, which failed and how they were repaired",
        group="help and language",
        places=BOTH,
        example="cutegen lessons --kind softmax",
        arguments=(
            Argument(flags=("--kind",), default="", about="only lessons of this kind of problem, such as softmax"),
            Argument(
                flags=("--forget",), action="append", metavar="ID", about="forget a lesson by its id, or all with: all"
            ),
            Argument(
                flags=("--note",), default="", metavar="ID", about="write a note to a lesson: --note ID --text TEXT"
            ),
            Argument(flags=("--text",), default="", about="the note; an empty text removes it"),
        ),
    ),
)
MINIBATCH = (  # names and defaults are those of workbench.graphs.study.Study
    Argument(
        flags=("graph",),
        nargs="?",
        default="sbm",
        about="a generator (sbm, rmat or ba; default sbm), or a graph's file or folder: a list of edges, .npz, a "
        "public set (docs graphs says which)",
    ),
    Argument(
        flags=("--mix",),
        parse=parse_numbers,
        metavar="A,B,...",
        about="shares of the communities that a block of roots merges, from 0 to 1 (default 0,0.125,0.5,1)",
    ),
    Argument(
        flags=("--p",),
        parse=parse_numbers,
        metavar="A,B,...",
        about="weights of a neighbour inside the community, from 0 to 1; 0.5 is uniform (default 0.5,0.9,1)",
    ),
    Argument(
        flags=("--baselines",),
        parse=parse_names,
        metavar="A,B,...",
        about="also uniform, norand, labor, cluster-gcn",
    ),
    Argument(flags=("--model",), choices=("sage", "gat"), about="GraphSAGE (default) or graph attention"),
    Argument(flags=("--epochs",), parse=int, about="epochs of training at each point (default 3); 0 trains nothing"),
    Argument(
        flags=("--patience",), parse=int, about="stop after so many epochs without a better validation (default: never)"
    ),
    Argument(flags=("--seeds",), parse=int, about="number of seeds, whose means are shown (default 1)"),
    Argument(flags=("--nodes",), parse=int, about="nodes of a generated graph (default 12000)"),
    Argument(flags=("--degree",), parse=float, about="mean degree of a generated graph (default 14)"),
    Argument(flags=("--features",), parse=int, about="features of a node of a generated graph (default 64)"),
    Argument(flags=("--spread",), parse=float, about="noise of its features over the spread of classes (default 4)"),
    Argument(
        flags=("--communities",),
        choices=("louvain", "label_propagation", "parallel_louvain", "rabbit", "given"),
        about="how they are found (default louvain; parallel_louvain uses a GPU); given: those of the graph",
    ),
    Argument(flags=("--batch",), parse=int, about="roots of a mini-batch (default 512)"),
    Argument(
        flags=("--fanouts",), parse=parse_size, metavar="A,B", about="neighbours of a node by hop (default 10,10)"
    ),
    Argument(flags=("--cache-kib",), parse=int, about="size of the modelled cache in KiB (default 256)"),
    Argument(flags=("--device",), about="torch's device for training (default cpu)"),
    Argument(
        flags=("--place",),
        choices=("device", "host"),
        about="where features lie (default device); host: in the host's memory, as those that a GPU cannot hold",
    ),
    Argument(
        flags=("--recorded",),
        action="store_true",
        about="show the maps that were recorded and come with the package; other options change nothing",
    ),
    Argument(
        flags=("--rows",),
        metavar="FILE",
        about="the file of the results; an existing one is continued "
        "(default: minibatch/GRAPH.jsonl beside the sessions)",
    ),
    Argument(flags=("--svg",), metavar="FILE", about="write the picture to a file", places=("shell",)),
)
TOOLS = (
    Command(
        name="emulate",
        about="run an unmodified CuTe DSL script or notebook without a GPU; exit status 0 only if nothing was found",
        places=("shell",),
        example="cutegen emulate --device A100 --sanitize my_gemm.py --m 512",
        group="tools",
        arguments=(
            Argument(
                flags=("--device",),
                default="H200",
                kind="device",
                about="the GPU that the program sees: A100, H100, H200, RTX4090 (default H200)",
            ),
            Argument(
                flags=("--arch",), about="the compile target of CuTe DSL, sm_80 to sm_90a (default: the device's)"
            ),
            Argument(
                flags=("--sanitize",),
                action="store_true",
                about="also report advice (uncoalesced access, bank conflicts), and treat a read of unwritten shared "
                "memory as an error; other errors are always reported",
            ),
            Argument(
                flags=("--follow",),
                action="store_true",
                about="model the first CTAs of each launch cycle by cycle: the lines at which warps wait, cache hits, "
                "and a better modelled time",
            ),
            Argument(flags=("--counters",), metavar="FILE", about="write all counters and findings to a JSON file"),
            Argument(flags=("program",), about="a .py or .ipynb file; options of cutegen come before it"),
            Argument(flags=("rest",), nargs="...", default=(), about="arguments of the program"),
        ),
    ),
    Command(
        name="calibrate",
        about="measure the ceilings of this GPU (about 20 s); bounds then use them",
        places=("shell",),
        example="cutegen calibrate --show",
        group="tools",
        arguments=(
            Argument(flags=("--show",), action="store_true", about="list the stored calibrations and measure nothing"),
            Argument(
                flags=("--only",),
                action="append",
                default=(),
                metavar="NAME",
                about="measure only ceilings that start with this: copy, read, write, l2, shared, matmul, launch",
            ),
            Argument(
                flags=("--out",),
                metavar="FILE",
                about="write the calibration to this file instead of storing it for this user",
            ),
            GPU,
        ),
    ),
    Command(
        name="tune",
        about="measure many configurations of your own problem on your own GPU; the result is a landscape",
        places=("shell",),
        example='cutegen tune my_problem.py --program "softmax(x)" '
        "--over threads_per_row=32|128|256,vector --budget 100",
        group="tools",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a problem of the package, a file, or a PyTorch expression (with --inputs)",
            ),
            Argument(
                flags=("--program",),
                metavar="TEXT",
                about="a muCUTLASS program to vary (default: the planner's configurations of the problem)",
            ),
            Argument(
                flags=("--over",),
                metavar="SETTINGS",
                about="with --program: the settings to vary, tile=128x128x64|128x256x64,stages; without values: all",
            ),
            Argument(
                flags=("--file",),
                metavar="FILE",
                about="a file with class ModelNew and SPACE = {NAME: (values)} for its constants, instead; "
                "it runs without a sandbox, like any script of yours",
            ),
            Argument(
                flags=("--budget",), parse=int, default=200, about="number of configurations at most (default 200)"
            ),
            Argument(flags=("--seconds",), parse=float, default=600.0, about="seconds at most (default 600)"),
            Argument(
                flags=("--out",),
                metavar="FILE",
                about="the file of the landscape; an existing one is continued "
                "(default: landscapes/NAME.csv beside the sessions)",
            ),
            Argument(
                flags=("--export",), metavar="FILE", about="write the source of the best configuration to this file"
            ),
            Argument(
                flags=("--dry-run",),
                name="dry_run",
                action="store_true",
                about="test reduced sizes on the emulator, without times",
            ),
            Argument(
                flags=("--no-refine",),
                name="no_refine",
                action="store_true",
                about="do not count up to six of the measured programs on the emulator afterwards (60 s at most), "
                "which tells the time model how far it is off on this GPU",
            ),
            *TUNE,
            dataclasses.replace(GPU, about="measure on this GPU only (default: on all visible ones like the first)"),
            *SIZES,
        ),
    ),
    Command(
        name="minibatch",
        about="show what the order of mini-batches does to a cache and to training, as heat maps over mix and p",
        places=BOTH,
        example="cutegen minibatch sbm --mix 0,0.125,1 --p 0.5,1 --epochs 5 --baselines labor,cluster-gcn",
        group="tools",
        arguments=MINIBATCH,
    ),
    Command(
        name="format",
        about="print the canonical text of a muCUTLASS program",
        places=("shell",),
        example='cutegen format "gemm(a,b).tile(64,64,16)"',
        group="tools",
        arguments=(Argument(flags=("program",), about="the program's text"),),
    ),
    Command(
        name="doctor",
        about="list what is available here, and how to get the rest",
        places=("shell",),
        example="cutegen doctor",
        group="tools",
        arguments=(GPU,),
    ),
)
