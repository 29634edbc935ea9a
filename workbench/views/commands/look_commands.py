"""The commands that show a session: sources, profiles, plots, histories, exported files."""

from __future__ import annotations

from workbench.views.commands.shared_arguments import LANDSCAPE, PROBLEM, PROFILE, SIZES, VERSION
from workbench.views.commands.table import BOTH, Argument, Command

STORED_SESSION = Argument(
    flags=("--session",), about="name of the session (needed when there are several)", places=("shell",)
)
LOOK = (
    Command(name="show", about="the source of a version", group="looking", arguments=(VERSION,)),
    Command(
        name="profile",
        about="counters, stalls, timeline or energy: on each source line and as plots",
        group="looking",
        places=BOTH,
        example="cutegen profile softmax best.py --by ncu+timeline+energy",
        arguments=(
            VERSION.only("notebook"),
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a shipped problem or a file",
                places=("shell",),
            ),
            Argument(
                flags=("candidate",),
                nargs="?",
                default="",
                about="a file with class ModelNew, or a muCUTLASS program",
                places=("shell",),
            ),
            Argument(flags=("--session",), about="instead of a file: a stored session", places=("shell",)),
            Argument(
                flags=("--version",),
                name="chosen",
                default="",
                about="with --session: which version (default best)",
                places=("shell",),
            ),
            Argument(flags=("--html",), metavar="FILE", about="write tables and plots as a page", places=("shell",)),
            *PROFILE,
            *(argument.only("shell") for argument in PROBLEM),
        ),
    ),
    Command(
        name="diff",
        about="two versions side by side, or one with its parent; on the command line also two files",
        group="looking",
        places=BOTH,
        example="cutegen diff v1 v2",
        arguments=(
            STORED_SESSION,
            Argument(flags=("old",), nargs="?", default="", kind="version", about="a version", places=("notebook",)),
            Argument(flags=("new",), nargs="?", default="", kind="version", about="another", places=("notebook",)),
            Argument(flags=("old",), about="a version or a file", places=("shell",)),
            Argument(flags=("new",), about="another", places=("shell",)),
        ),
    ),
    Command(
        name="landscape",
        about="what was recorded on a GPU for every configuration of a problem, as a heat map over two settings; "
        "on the command line without a problem: where all stand",
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
                about="a problem, or the name of what was recorded",
                places=("shell",),
            ),
            *LANDSCAPE,
            Argument(flags=("--svg",), metavar="FILE", about="write the picture too", places=("shell",)),
            *(argument.only("shell") for argument in SIZES),
        ),
    ),
    Command(name="roofline", about="the trajectory of the versions", group="looking"),
    Command(
        name="history",
        about="the version tree; on the command line without a session: the sessions there are",
        group="looking",
        places=BOTH,
        example="cutegen history",
        arguments=(STORED_SESSION,),
    ),
    Command(name="compare", about="a pandas table of all versions", group="looking"),
    Command(name="status", about="where the session stands", group="looking"),
    Command(
        name="panel",
        about="everything in one widget",
        group="looking",
        arguments=(
            Argument(
                flags=("--by",),
                default="planner",
                kind="proposer",
                about="who writes when you press Generate, Refine or Run: planner, llm, ...",
            ),
        ),
    ),
    Command(
        name="export",
        about="write a version as a file that KernelBench loads",
        group="looking",
        places=BOTH,
        example="cutegen export best.py",
        arguments=(
            STORED_SESSION,
            Argument(flags=("path",), about="where to write it"),
            Argument(flags=("--version",), default="best", kind="version", about="which version (default best)"),
        ),
    ),
)
