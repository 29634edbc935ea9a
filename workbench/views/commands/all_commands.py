"""The table of all commands of the magics and of the command line.

Parsers, help, completion and the reference pages are generated from it.
"""

from __future__ import annotations

from workbench.views.commands.look_commands import LOOK
from workbench.views.commands.loop_commands import LOOP
from workbench.views.commands.model_commands import MODELS
from workbench.views.commands.table import Command
from workbench.views.commands.tool_commands import HELP, START, TOOLS

COMMANDS: dict[str, Command] = {command.name: command for command in (*START, *LOOP, *LOOK, *MODELS, *HELP, *TOOLS)}
