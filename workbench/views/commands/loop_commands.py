"""The commands of the loop: open a problem, make versions, test them, decide."""

from __future__ import annotations

from workbench.plugins import DEFAULTS
from workbench.views.commands.parsing import parse_indices, parse_jobs
from workbench.views.commands.searching.arguments import SEARCH, SEARCH_TREE
from workbench.views.commands.shared_arguments import (
    ACCEPT,
    ALLOW,
    BY,
    L2,
    MODEL,
    PENDING,
    PLACE,
    PROBLEM,
    SETTING,
    SIZES,
    STEPS,
    TORCH_COMPILE,
    UNTIL,
    VERSION,
)
from workbench.views.commands.table import BOTH, Argument, Command

SPEC = Argument(flags=("spec",), kind="problem", about="a problem of the package, or a file", places=("shell",))
CANDIDATES = Argument(
    flags=("candidates",),
    nargs="+",
    metavar="CANDIDATE",
    about="files with class ModelNew, or muCUTLASS programs",
    places=("shell",),
)
JOBS = Argument(
    flags=("--jobs",),
    parse=parse_jobs,
    default=1,
    metavar="N",
    about="candidates that are tested at the same time (default 1; one GPU takes them in turn)",
    places=("shell",),
)
RUN_BY = (
    Argument(
        flags=("--by",),
        default=DEFAULTS.proposer,
        kind="proposer",
        about="planner (built in), llm (CuTeGen's chain; see --model), operators (NVIDIA's), "
        "or on the command line replay (see --recording)",
    ),
    Argument(
        flags=("--recording",),
        metavar="NAME",
        about="with --by replay: a recorded session, by name or file",
        places=("shell",),
    ),
)
WRITE = (
    BY,
    Argument(flags=("--from",), name="start", kind="version", about="branch from this version instead of the baseline"),
    Argument(flags=("words",), nargs="*", default=(), about="free text for the proposer"),
)
LOOP = (
    Command(
        name="problem",
        about="show what was understood of a problem: operations, dtypes, sizes, cases, bound, what the planner can "
        "write; in a notebook also open a session on it",
        places=BOTH,
        example='cutegen problem "torch.relu(x + b)" --inputs "x: bf16[4096, 1024], b: bf16[1024]"',
        takes_cell=True,
        group="the loop",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a problem of the package, a file, an expression (with --inputs), or a name for the cell",
            ),
            Argument(flags=("--session",), about="name of the session (default: the problem's)", places=("notebook",)),
            *SIZES,
            *PLACE,
            L2.only_in("notebook"),
            TORCH_COMPILE.only_in("notebook"),
            ACCEPT.only_in("notebook"),
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
        about="make one more change to the baseline, as your text says; or several, --until sol",
        takes_words=True,
        group="the loop",
        arguments=(*UNTIL, *WRITE),
    ),
    Command(
        name="edit",
        about="add your own version: the cell is the whole file",
        takes_cell=True,
        takes_words=True,
        group="the loop",
        arguments=(Argument(flags=("title",), nargs="*", default=(), about="title of the version"),),
    ),
    Command(
        name="program",
        about="add your own version in muCUTLASS, on the line or in the cell",
        takes_cell=True,
        takes_words=True,
        group="the loop",
        arguments=(
            Argument(
                flags=("words",),
                nargs="...",
                default=(),
                metavar="PROGRAM",
                about="softmax(x) .threads_per_row(32), here or in the cell below %%cutegen program "
                "(default: show the program of the latest version, of the one it was made from if it has none, "
                "or of the problem without settings)",
            ),
        ),
    ),
    Command(
        name="test",
        about="compile, run and check a version again; on the command line: test files or programs, "
        "with exit status 0 only if all are correct, none is refused, and none leaves a doubt",
        group="the loop",
        places=BOTH,
        example="cutegen test softmax best.py",
        arguments=(
            VERSION.only_in("notebook"),
            L2.only_in("notebook"),
            TORCH_COMPILE.only_in("notebook"),
            ALLOW,
            SPEC,
            CANDIDATES,
            JOBS,
            Argument(
                flags=("--lenient",),
                action="store_true",
                about="exit status 0 in spite of doubts (without: 3), but not of a refusal",
                places=("shell",),
            ),
            *(argument.only_in("shell") for argument in PROBLEM),
        ),
    ),
    Command(
        name="accept",
        about="make a version, or some of its hunks, the baseline",
        group="the loop",
        arguments=(
            PENDING,
            Argument(
                flags=("--hunks",),
                parse=parse_indices,
                about="only these changes to the parent: 1,3 or 2-4; they make a new version, which is tested first",
            ),
            Argument(
                flags=("--force",),
                action="store_true",
                about="accept it although it is not correct, or faster than the device can be",
            ),
            Argument(flags=("--reason",), nargs="*", default=(), about="the reason"),
        ),
    ),
    Command(
        name="reject",
        about="reject a version with a reason: reject [v2] reads A twice",
        takes_words=True,
        group="the loop",
        arguments=(
            Argument(flags=("words",), nargs="*", default=(), kind="version", about="a version, and the reason"),
        ),
    ),
    Command(name="undo", about="take back the last decision", group="the loop"),
    Command(
        name="run",
        about="run several steps, or a search (--search tree); accept each version that is correct and faster, or "
        "better by --accept",
        group="the loop",
        places=BOTH,
        example="cutegen run softmax --steps 3 --set dim=4096",
        arguments=(
            Argument(
                flags=("spec",),
                nargs="?",
                default="",
                kind="problem",
                about="a problem of the package, a file, or a PyTorch expression (with --inputs)",
                places=("shell",),
            ),
            Argument(
                flags=("--program",),
                metavar="TEXT|FILE",
                about="the first version: a muCUTLASS program, or a file with one or with class ModelNew",
                places=("shell",),
            ),
            *RUN_BY,
            SETTING.only_in("shell"),
            *(argument.only_in("shell") for argument in MODEL),
            STEPS,
            ACCEPT,
            ALLOW,
            *UNTIL,
            *SEARCH,
            Argument(
                flags=("--resume",),
                metavar="SESSION",
                about="continue a stored session; it has its own problem and executor",
                places=("shell",),
            ),
            Argument(
                flags=("--trust",),
                action="store_true",
                about="the session or the recording may be run although it is somebody else's (as cutegen trust)",
                places=("shell",),
            ),
            *(argument.only_in("shell") for argument in PROBLEM),
        ),
    ),
    SEARCH_TREE,
)
