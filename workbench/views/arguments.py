"""Arguments that the magics and the command line share: their types, what adds them to a parser, and the problem that they name. Imports no session, so that help is quick."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import Any

from workbench import problems
from workbench.analysis import devices
from workbench.errors import UserError
from workbench.records import Scalar
from workbench.views.fitting import beside

ARCHES = ("sm_80", "sm_90a")
MODEL = {  # the settings of `session.model`, as they are on a command line
    "base_url": "any OpenAI-compatible address, such as http://localhost:11434/v1 (Ollama), :8000/v1 (vLLM), :8080/v1 (llama.cpp)", "model": "the model's name there", "language": "what it writes: cute (CuTe DSL) or mucutlass (the small language)",
    "max_tokens": "of one reply (default 32000)", "temperature": "default: the server's own", "budget_tokens": "all calls of this session together", "budget_usd": "the same in dollars; needs the prices",
    "price_in": "dollars per million input tokens", "price_out": "dollars per million output tokens", "first_s": "how long a model may think before its first byte", "silence_s": "how long to wait for the next byte", "total_s": "how long one call may take",
    "retries": "after errors that pass (429, 5xx, lost connections)",
}  # fmt: skip


def setting(text: str) -> tuple[str, Scalar]:
    """`name=value` with a number or a bool."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    raise argparse.ArgumentTypeError(f"{value!r} is not a number, true or false")


def size(text: str) -> tuple[int, ...]:
    """`4096,4096,4096`."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: whole numbers over 0, as in 4096,4096,4096")
    return tuple(int(part) for part in parts)


def indices(text: str) -> list[int]:
    """`1,3` or `2-4`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdigit() or (dash and not last.strip().isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of hunk numbers such as 1,3 or 2-4")
        found += range(int(first), int(last or first) + 1)
    return found


def sizes_arguments(parser: argparse.ArgumentParser) -> None:
    """What a problem is but for its name."""
    parser.add_argument("--inputs", help='declared inputs of an expression: "x: f32[4096, 4096]"')
    parser.add_argument("--set", dest="settings", action="append", type=setting, default=[], metavar="NAME=VALUE", help="override a module-level size of the problem")
    parser.add_argument("--precision", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32", help="what inputs and parameters are cast to")
    parser.add_argument("--mode", choices=["train", "eval"], default="train", help="KernelBench runs in train mode")


def problem_arguments(parser: argparse.ArgumentParser) -> None:
    """What names a problem, and where it runs; shared with the command line."""
    sizes_arguments(parser)
    parser.add_argument("--executor", choices=["auto", "emulator", "gpu", "replay"], default="auto", help="where candidates run; replay answers from recorded measurements")
    parser.add_argument("--arch", choices=ARCHES, default="", help="what the kernel is compiled for")
    parser.add_argument("--l2", choices=["cold", "warm"], default=None, help="what timed calls on a GPU find in L2: nothing of theirs (the default), or what the same call left there")
    parser.add_argument("--device", default=None, help="whose rates and limits are used for the bound: A100, H100, H200, B200, RTX4090")


def explain_arguments(parser: argparse.ArgumentParser) -> None:
    """On what a program is explained; shared with the command line."""
    parser.add_argument("--device", choices=devices.names(), default=None, help="whose limits are used (default: the session's, else H200)")
    parser.add_argument("--size", type=size, metavar="M,N,K", help="of a product: how many tiles and waves there are")
    parser.add_argument("--compile", action="store_true", help="compile it too, for registers and spills")


def load_problem(arguments: argparse.Namespace, cell: str | None) -> Any:
    """A problem from a cell, an expression with --inputs, a shipped name or a path."""
    options = {"settings": tuple(arguments.settings), "precision": arguments.precision, "mode": arguments.mode}
    inputs = getattr(arguments, "inputs", None)
    body = (cell or "").strip()
    if inputs:
        expression = body or arguments.spec
        if not expression:
            raise UserError("--inputs needs an expression, for example: \"torch.relu(x)\" --inputs \"x: f32[1024, 1024]\"")
        return problems.from_expression(expression, inputs, **options)
    if body:
        return problems.load(body + "\n", name=arguments.spec or "cell", **options)
    if not arguments.spec:
        raise UserError(f"which problem? a shipped name ({', '.join(problems.shipped())}), a file, or a cell")
    if not os.path.isfile(arguments.spec) and (said := beside(arguments.spec)):
        raise UserError(said)
    return problems.load(arguments.spec, **options)


def check_candidate(text: str) -> None:
    """Refuse what is neither a file nor looks like a program of muCUTLASS."""
    if not os.path.isfile(text) and "(" not in text:
        raise UserError(f"no candidate file at {textwrap.shorten(text, 200) or 'an empty name'}; give a file with class ModelNew, or a muCUTLASS program: \"softmax(x) .threads_per_row(32)\"")


def candidate_version(session: Any, text: str, *, test: bool) -> Any:
    """A version of a kernel's file, or of a program of muCUTLASS: its text, or a file that holds it."""
    if not os.path.isfile(text):
        return session.program(text, test=test)
    if Path(text).suffix != ".py" and "class " not in text_of(Path(text)):
        return session.program(text_of(Path(text)).strip(), test=test)
    return session.edit(text_of(Path(text)), title=Path(text).name, test=test)


def text_of(path: Path) -> str:
    """A file's text; raises `UserError` where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def choose_l2(session: Any, arguments: argparse.Namespace) -> None:
    """Cold or warm, where the person said which."""
    if arguments.l2 is not None:
        session.cold_l2 = arguments.l2 == "cold"


def model_arguments(parser: Any) -> None:
    """Where the model is and what it may cost; shared with the command line."""
    for name, said in MODEL.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=None, help=said)
