"""The commands that show or export something of a session: sources, profiles, plots, histories, files."""

from __future__ import annotations

from workbench.codegen import exports
from workbench.plugins import DEFAULTS
from workbench.views.commands.shared_arguments import DIAGNOSE, LANDSCAPE, PROBLEM, PROFILE, SIZES, VERSION
from workbench.views.commands.table import BOTH, Argument, Command

STORED_SESSION = Argument(
    flags=("--session",), about="name of the session (needed when there are several)", places=("shell",)
)
ONE_VERSION = (
    VERSION.only_in("notebook"),
    Argument(
        flags=("spec",),
        nargs="?",
        default="",
        kind="problem",
        about="a problem of the package, or a file",
        places=("shell",),
    ),
    Argument(
        flags=("candidate",),
        nargs="?",
        default="",
        about="a file with class ModelNew, or a muCUTLASS program",
        places=("shell",),
    ),
    Argument(flags=("--session",), about="a stored session, instead of a file", places=("shell",)),
    Argument(
        flags=("--version",),
        name="chosen",
        default="",
        about="with --session: the version (default best)",
        places=("shell",),
    ),
    Argument(flags=("--html",), metavar="FILE", about="write what is shown to an HTML file", places=("shell",)),
)
LOOK = (
    Command(name="show", about="show the source of a version", group="looking", arguments=(VERSION,)),
    Command(
        name="profile",
        about="profile a version: counters, stalls, timeline or energy, per source line and as plots",
        group="looking",
        places=BOTH,
        example="cutegen profile softmax best.py --by ncu+timeline+energy",
        arguments=(
            *ONE_VERSION,
            *PROFILE,
            *(argument.only_in("shell") for argument in PROBLEM),
        ),
    ),
    Command(
        name="diagnose",
        about="say what limits a version and what to change, best advice first: cause, line, counters, gains elsewhere",
        group="looking",
        places=BOTH,
        example="cutegen diagnose softmax best.py",
        arguments=(
            *ONE_VERSION,
            *DIAGNOSE,
            *(argument.only_in("shell") for argument in PROBLEM),
        ),
    ),
    Command(
        name="diff",
        about="compare two versions; in a notebook also one with its parent, on the command line also two files",
        group="looking",
        places=BOTH,
        example="cutegen diff v1 v2",
        arguments=(
            STORED_SESSION,
            Argument(flags=("old",), nargs="?", default="", kind="version", about="a version", places=("notebook",)),
            Argument(
                flags=("new",), nargs="?", default="", kind="version", about="another version", places=("notebook",)
            ),
            Argument(flags=("old",), about="a version or a file", places=("shell",)),
            Argument(flags=("new",), about="another version or file", places=("shell",)),
        ),
    ),
    Command(
        name="landscape",
        about="show the recorded times of a problem's configurations on a GPU as a heat map over two settings; "
        "on the command line without a problem: a summary of all problems",
        group="looking",
        places=BOTH,
        example="cutegen landscape matmul tile schedule --precision bf16",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                metavar="PROBLEM",
                kind="problem",
                about="a problem, or the name of a recorded landscape",
                places=("shell",),
            ),
            *LANDSCAPE,
            Argument(flags=("--svg",), metavar="FILE", about="write the picture to a file", places=("shell",)),
            *(argument.only_in("shell") for argument in SIZES),
        ),
    ),
    Command(
        name="alike",
        about="find kernels of a like structure: versions of the session, recorded programs, worked examples",
        group="looking",
        places=BOTH,
        example='cutegen alike "softmax(x) .arch(sm_90a) .kept()"',
        arguments=(
            VERSION.only_in("notebook"),
            Argument(
                flags=("candidate",),
                nargs="?",
                default="",
                about="a file with class ModelNew, or a muCUTLASS program",
                places=("shell",),
            ),
            STORED_SESSION,
            Argument(
                flags=("--version",),
                name="chosen",
                default="",
                about="with --session: the version (default best)",
                places=("shell",),
            ),
        ),
    ),
    Command(name="roofline", about="plot all versions in a roofline", group="looking"),
    Command(
        name="energy",
        about="plot energy against time of all versions, with the Pareto front: measured, or else modelled",
        group="looking",
        places=BOTH,
        example="cutegen energy --session softmax-1 --svg energy.svg",
        arguments=(
            STORED_SESSION,
            Argument(flags=("--svg",), metavar="FILE", about="write the picture to a file", places=("shell",)),
        ),
    ),
    Command(
        name="history",
        about="show the version tree; on the command line without a session: list the sessions",
        group="looking",
        places=BOTH,
        example="cutegen history --session softmax-1 --html report.html",
        arguments=(
            STORED_SESSION,
            Argument(
                flags=("--html",),
                metavar="FILE",
                about="write a report of the session: versions, diffs, times and advice",
            ),
        ),
    ),
    Command(
        name="verify",
        about="say what of a session is not as it was written: rows of the log, its end, and files of versions",
        group="looking",
        places=BOTH,
        example="cutegen verify --session softmax-1 --run all",
        arguments=(
            STORED_SESSION,
            Argument(
                flags=("--head",), default="", metavar="HASH", about="the head that a report of the session shows"
            ),
            Argument(
                flags=("--run",),
                action="append",
                default=(),
                metavar="VERSION",
                kind="version",
                about="run a version again and compare the outcome; all for every version",
            ),
        ),
    ),
    Command(name="compare", about="return a pandas DataFrame of all versions", group="looking"),
    Command(name="status", about="show the state of the session", group="looking"),
    Command(
        name="panel",
        about="show the panel: everything in one widget",
        group="looking",
        arguments=(
            Argument(
                flags=("--by",),
                default=DEFAULTS.proposer,
                kind="proposer",
                about="the proposer of the buttons Generate, Refine and Run: planner, llm, ...",
            ),
        ),
    ),
    Command(
        name="export",
        about="write a version as a file that needs nothing of the workbench",
        group="looking",
        places=BOTH,
        example="cutegen export best.py",
        arguments=(
            STORED_SESSION,
            Argument(flags=("path",), about="the file to write, or the folder"),
            Argument(flags=("--version",), default="best", kind="version", about="the version (default best)"),
            Argument(
                flags=("--as",),
                name="form",
                default="kernelbench",
                choices=exports.FORMS,
                about="kernelbench (default), custom-op (an operator of torch.library for torch.compile and training), "
                "operators (registers the kernel with nvidia-cutlass-operators), "
                "ahead-of-time (a folder whose build.py makes a library for Python and C++), "
                "flashinfer-bench or sol-execbench (a folder with definition, solution and workload)",
            ),
        ),
    ),
)
