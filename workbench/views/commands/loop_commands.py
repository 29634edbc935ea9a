"""The commands of the loop: open a problem, write versions, test them, decide."""

from __future__ import annotations

from workbench.views.commands.parsing import parse_indices
from workbench.views.commands.shared_arguments import BY, L2, MODEL, PENDING, PROBLEM, SETTING, STEPS, UNTIL, VERSION
from workbench.views.commands.table import BOTH, Argument, Command

SPEC = Argument(flags=("spec",), kind="problem", about="a shipped problem or a file", places=("shell",))
CANDIDATE = Argument(
    flags=("candidate",), about="a file with class ModelNew, or a muCUTLASS program", places=("shell",)
)
WRITE = (
    BY,
    Argument(flags=("--from",), name="start", kind="version", about="branch from this version instead of the baseline"),
    Argument(flags=("words",), nargs="*", default=(), about="your words for the next step"),
)
LOOP = (
    Command(
        name="problem",
        about="open a session on a problem",
        takes_cell=True,
        group="the loop",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a shipped name, a file, an expression (with --inputs), or the name of the cell's problem",
            ),
            Argument(flags=("--session",), about="name of the session"),
            *PROBLEM,
        ),
    ),
    Command(
        name="generate",
        about="write and test the next version",
        takes_words=True,
        group="the loop",
        arguments=WRITE,
    ),
    Command(
        name="refine",
        about="one more change to the baseline, with your words; or several, --until sol",
        takes_words=True,
        group="the loop",
        arguments=(*UNTIL, *WRITE),
    ),
    Command(
        name="edit",
        about="your own version: the cell is the whole file",
        takes_cell=True,
        takes_words=True,
        group="the loop",
        arguments=(Argument(flags=("title",), nargs="*", default=(), about="what the version is called"),),
    ),
    Command(
        name="program",
        about="your own version in muCUTLASS: on the line, or in the cell",
        takes_cell=True,
        takes_words=True,
        group="the loop",
        arguments=(
            Argument(
                flags=("words",),
                nargs="...",
                default=(),
                metavar="PROGRAM",
                about="softmax(x) .threads_per_row(32); may stand in the cell below %%cutegen program "
                "(default: show the latest version's, or the problem's without settings)",
            ),
        ),
    ),
    Command(
        name="test",
        about="compile, run and check a version again; on the command line: one verdict on a file, "
        "with exit status 0 only if it is correct",
        group="the loop",
        places=BOTH,
        example="cutegen test softmax best.py",
        arguments=(
            VERSION.only("notebook"),
            L2.only("notebook"),
            SPEC,
            CANDIDATE,
            *(argument.only("shell") for argument in PROBLEM),
        ),
    ),
    Command(
        name="accept",
        about="make a version, or some hunks of it, the baseline",
        group="the loop",
        arguments=(
            PENDING,
            Argument(
                flags=("--hunks",),
                parse=parse_indices,
                about="only these changes to the parent: 1,3 or 2-4; they become a new version, which is tested first",
            ),
            Argument(
                flags=("--force",),
                action="store_true",
                about="even though it is not correct, or faster than the device can be",
            ),
            Argument(flags=("--reason",), nargs="*", default=(), about="why"),
        ),
    ),
    Command(
        name="reject",
        about="say no, and why: reject [v2] reads A twice",
        takes_words=True,
        group="the loop",
        arguments=(Argument(flags=("words",), nargs="*", default=(), kind="version", about="a version, and why"),),
    ),
    Command(name="undo", about="take the last decision back", group="the loop"),
    Command(
        name="run",
        about="several steps; accepts what is correct and faster",
        group="the loop",
        places=BOTH,
        example="cutegen run softmax --steps 3 --set dim=4096",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a shipped problem, a file, or an expression of PyTorch (with --inputs)",
                places=("shell",),
            ),
            Argument(
                flags=("--program",),
                metavar="TEXT|FILE",
                about="the first version: a muCUTLASS program, or a file with one or with class ModelNew; "
                "refinements begin there",
                places=("shell",),
            ),
            Argument(
                flags=("--by",),
                default="planner",
                kind="proposer",
                about="planner (built in), llm (CuTeGen's chain; see --model), or on the command line replay "
                "(see --recording)",
            ),
            Argument(
                flags=("--recording",),
                metavar="NAME",
                about="with --by replay: a recorded session, by name or file",
                places=("shell",),
            ),
            SETTING.only("shell"),
            *(argument.only("shell") for argument in MODEL),
            STEPS,
            *(argument.only("shell") for argument in UNTIL),
            Argument(flags=("--resume",), metavar="SESSION", about="go on with a stored session", places=("shell",)),
            *(argument.only("shell") for argument in PROBLEM),
        ),
    ),
)
