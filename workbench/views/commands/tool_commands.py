"""The commands to begin with, the tools of the command line, and what explains the language."""

from __future__ import annotations

from workbench.views.commands.shared_arguments import EXPLAIN, PROBLEM, SIZES, STEPS, WORDS
from workbench.views.commands.table import BOTH, Argument, Command

START = (
    Command(
        name="demo",
        about="the loop on a shipped problem; leaves a report and a notebook",
        places=("shell",),
        example="cutegen demo",
        group="to begin",
        arguments=(
            Argument(
                flags=("spec",), nargs="?", default="softmax", kind="problem", about="a shipped problem or a file"
            ),
            STEPS,
            Argument(flags=("--out",), default="cutegen-demo", about="folder for what is left behind"),
            *PROBLEM,
        ),
    ),
    Command(
        name="lab",
        about="JupyterLab on the first tutorial",
        places=("shell",),
        example="cutegen lab -- --no-browser",
        group="to begin",
        arguments=(
            Argument(flags=("--folder",), default="cutegen-tutorials", about="where the tutorials are copied to"),
            Argument(flags=("rest",), nargs="*", default=(), about="options for JupyterLab, after --"),
        ),
    ),
)
HELP = (
    Command(
        name="docs",
        about="a page of the documentation; without a name: which pages there are",
        group="help and language",
        places=BOTH,
        example="cutegen docs language",
        arguments=(Argument(flags=("page",), nargs="?", default="", kind="page", about="the name of a page"),),
    ),
    Command(
        name="explain",
        about="what each setting of a muCUTLASS program means and costs; without one: the operations",
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
                flags=("--list",), action="store_true", about="all operations of the language", places=("notebook",)
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
        about="search CuTe DSL, CUTLASS and examples: search TMA multicast",
        takes_words=True,
        group="help and language",
        arguments=(
            WORDS,
            Argument(flags=("--lines",), default="", about="100-160: read these lines of the file that is named"),
        ),
    ),
    Command(
        name="open",
        about="open a stored session",
        group="help and language",
        arguments=(Argument(flags=("name",), kind="session", about="its name"),),
    ),
    Command(name="sessions", about="the stored sessions", group="help and language"),
)
TOOLS = (
    Command(
        name="emulate",
        about="an unmodified CuTe DSL script or notebook, with no GPU; exit status 0 only if nothing was found",
        places=("shell",),
        example="cutegen emulate --device A100 --sanitize my_gemm.py --m 512",
        group="tools",
        arguments=(
            Argument(
                flags=("--device",),
                default="H200",
                kind="device",
                about="the GPU that the program finds: A100, H100, H200, RTX4090 (default H200)",
            ),
            Argument(
                flags=("--arch",), about="what CuTe DSL compiles for, sm_80 to sm_90a (default: the device's own)"
            ),
            Argument(
                flags=("--sanitize",),
                action="store_true",
                about="report advice too (uncoalesced access, bank conflicts), and take a read of unwritten shared "
                "memory for an error; other errors are always reported",
            ),
            Argument(
                flags=("--follow",),
                action="store_true",
                about="follow the first CTAs of each launch in time: cycles, the lines at which warps wait, "
                "cache hits, and a better modelled time",
            ),
            Argument(flags=("--counters",), metavar="FILE", about="write everything counted and found to a JSON file"),
            Argument(flags=("program",), about="a .py or .ipynb file; options of ours come before it"),
            Argument(flags=("rest",), nargs="...", default=(), about="arguments of the program"),
        ),
    ),
    Command(
        name="calibrate",
        about="measure this GPU's ceilings (about two minutes), so that bounds say what can be reached",
        places=("shell",),
        example="cutegen calibrate --show",
        group="tools",
        arguments=(
            Argument(flags=("--show",), action="store_true", about="list what is kept, and measure nothing"),
            Argument(
                flags=("--only",),
                action="append",
                default=(),
                metavar="NAME",
                about="measure only what begins with this: copy, read, write, l2, shared, matmul, launch",
            ),
            Argument(flags=("--out",), metavar="FILE", about="write it there instead of keeping it for this user"),
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
                about="a shipped problem, a file, or an expression of PyTorch (with --inputs)",
            ),
            Argument(
                flags=("--program",),
                metavar="TEXT",
                about="a muCUTLASS program to vary (default: the planner's configurations of the problem)",
            ),
            Argument(
                flags=("--over",),
                metavar="SETTINGS",
                about="with --program: which settings vary, tile=128x128x64|128x256x64,stages; without values: all",
            ),
            Argument(
                flags=("--file",),
                metavar="FILE",
                about="instead: a file with class ModelNew and SPACE = {NAME: (values)} for its constants; "
                "it runs unconfined, as your own script does",
            ),
            Argument(flags=("--budget",), parse=int, default=200, about="configurations at most (default 200)"),
            Argument(flags=("--seconds",), parse=float, default=600.0, about="time at most (default 600)"),
            Argument(
                flags=("--out",),
                metavar="FILE",
                about="the landscape's file; one that is there is gone on with "
                "(default: landscapes/NAME.csv beside the sessions)",
            ),
            Argument(flags=("--export",), metavar="FILE", about="write the best configuration's file there"),
            Argument(
                flags=("--dry-run",),
                name="dry_run",
                action="store_true",
                about="reduced sizes on the emulator: what compiles and is correct, with no times",
            ),
            *SIZES,
        ),
    ),
    Command(
        name="format",
        about="the canonical text of a muCUTLASS program",
        places=("shell",),
        example='cutegen format "gemm(a,b).tile(64,64,16)"',
        group="tools",
        arguments=(Argument(flags=("program",), about="the program's text"),),
    ),
    Command(
        name="doctor",
        about="what is available here, why not, and how to get it",
        places=("shell",),
        example="cutegen doctor",
        group="tools",
    ),
)
