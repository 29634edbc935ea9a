"""The commands that ask a language model or play back what one wrote."""

from __future__ import annotations

from workbench.views.commands.shared_arguments import BY_LLM, MODEL, SETTING, VERSION, WORDS
from workbench.views.commands.table import Argument, Command

MODELS = (
    Command(
        name="model",
        about="which language model is asked, and its budget",
        group="a language model",
        arguments=(
            *MODEL,
            Argument(
                flags=("--ask-key",), action="store_true", about="ask for the key; it is kept in this process only"
            ),
        ),
    ),
    Command(
        name="ask",
        about="a question about a version; changes nothing",
        takes_words=True,
        group="a language model",
        arguments=(
            Argument(flags=("--about",), kind="version", about="a version (default: the baseline)"),
            WORDS,
        ),
    ),
    Command(
        name="choices",
        about="several proposals side by side",
        takes_words=True,
        group="a language model",
        arguments=(
            Argument(flags=("--count",), parse=int, default=3, about="how many (default 3)"),
            BY_LLM,
            WORDS,
        ),
    ),
    Command(
        name="chain",
        about="CuTeGen's loop: synthesise, repair, optimise step by step",
        group="a language model",
        arguments=(BY_LLM, SETTING),
    ),
    Command(
        name="repair",
        about="let the model diagnose and repair a failed version",
        group="a language model",
        arguments=(VERSION, BY_LLM),
    ),
    Command(name="conversation", about="every call of the model, verbatim", group="a language model"),
    Command(
        name="pin",
        about="words that hold for every proposal",
        takes_words=True,
        group="a language model",
        arguments=(WORDS,),
    ),
    Command(name="unpin", about="remove pinned words", takes_words=True, group="a language model", arguments=(WORDS,)),
    Command(
        name="replay",
        about="play a recorded session: each version is built and checked here",
        group="a language model",
        arguments=(
            Argument(flags=("name",), about="a recorded session, or a file"),
            Argument(
                flags=("--executor",),
                choices=("auto", "emulator", "gpu"),
                default="auto",
                about="where the versions are built and checked",
            ),
        ),
    ),
)
