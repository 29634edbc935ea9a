"""The commands that call a language model or play a recorded session."""

from __future__ import annotations

from workbench.views.commands.shared_arguments import BY_MODEL, EXECUTOR, MODEL, SETTING, VERSION, WORDS
from workbench.views.commands.table import Argument, Command

MODELS = (
    Command(
        name="model",
        about="choose the language model and its budget",
        group="a language model",
        arguments=(
            *MODEL,
            Argument(
                flags=("--ask-key",),
                action="store_true",
                about="read the key at a prompt; it is kept in this process only",
            ),
        ),
    ),
    Command(
        name="ask",
        about="ask a question about a version; the code is not changed",
        takes_words=True,
        group="a language model",
        arguments=(
            Argument(flags=("--about",), kind="version", about="a version (default: the baseline)"),
            WORDS,
        ),
    ),
    Command(
        name="choices",
        about="make several versions from the baseline to choose from",
        takes_words=True,
        group="a language model",
        arguments=(
            Argument(flags=("--count",), parse=int, default=3, about="number of versions (default 3)"),
            BY_MODEL,
            WORDS,
        ),
    ),
    Command(
        name="chain",
        about="run CuTeGen's loop: synthesise, repair, optimise step by step",
        group="a language model",
        arguments=(BY_MODEL, SETTING),
    ),
    Command(
        name="repair",
        about="let the model diagnose and repair a failed version",
        group="a language model",
        arguments=(VERSION, BY_MODEL),
    ),
    Command(name="conversation", about="show every call of the model, verbatim", group="a language model"),
    Command(
        name="pin",
        about="add an instruction for all later proposals",
        takes_words=True,
        group="a language model",
        arguments=(WORDS,),
    ),
    Command(
        name="unpin",
        about="remove a pinned instruction",
        takes_words=True,
        group="a language model",
        arguments=(WORDS,),
    ),
    Command(
        name="replay",
        about="play a recorded session: build and check each version here",
        group="a language model",
        arguments=(
            Argument(flags=("name",), about="a recorded session of the package, or a file"),
            EXECUTOR,
        ),
    ),
)
