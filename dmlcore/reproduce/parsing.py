"""The command lines, as `parsing.toml` declares them: one parser, and the values that options have."""

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from dmlcore import files

COMMANDS = files.table(__file__, "parsing")


TARGET = "METRIC=VALUE, such as loss=0.1"


class UsageError(Exception):
    """A mistake of the user: the program shows its message without a traceback, and the exit code is 2."""


class Parser(argparse.ArgumentParser):
    """The parser of a command, whose errors are `UsageError`; options are written in full.

    Args:
        command: a key of `COMMANDS`.
        prog: how it is called.
    """

    def __init__(self, command: str, prog: str) -> None:
        told = COMMANDS[command]
        form = argparse.RawDescriptionHelpFormatter if "epilog" in told else argparse.HelpFormatter
        texts = {"description": told["description"], "epilog": told.get("epilog")}
        super().__init__(prog, **texts, formatter_class=form, allow_abbrev=False)
        for name, given in told["arguments"].items():
            own = {"type": KINDS[given["type"]]} if "type" in given else {}
            self.add_argument(name, **given | own)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def _unfit(text: str, expected: str) -> NoReturn:
    """Refuses the text of an option; the parser names the option."""
    raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")


def _number(kind: Callable[[str], float], expected: str) -> Callable[[str], float]:
    """Returns a function that reads a number above 0, at most a thousand million."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        return value if 0 < value <= 1e9 else _unfit(text, expected)

    return read


def _target(text: str) -> dict[str, float]:
    metric, _, value = text.partition("=")
    try:
        return {metric: float(value)} if metric else _unfit(text, TARGET)
    except ValueError:
        _unfit(text, TARGET)


def _axis(text: str) -> tuple[str, list[float]]:
    axis, _, values = text.partition("=")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        _unfit(text, "AXIS=VALUES, such as workers=8,16")
    return axis, [int(number) if number.is_integer() else number for number in numbers]


def columns_of(text: str) -> list[tuple[str, Any]]:
    """Returns pairs of role and column of ROLE=COLUMN,...; `+` joins columns, a number is that of samples."""
    found: list[tuple[str, Any]] = []
    for each in re.split(r",(?=\w+=)", text):
        role, _, column = each.partition("=")
        if not column:
            _unfit(each, "ROLE=COLUMN, such as worker=host")
        several = role in ("worker", "seconds") and "+" in column
        count = role == "batch_size" and column.isdecimal()
        found.append((role, column.split("+") if several else int(column) if count else column))
    return found


def columns_as_text(message: str, option: str) -> str:
    """Returns a message about columns={...} with the option in its place, as `columns_of` reads it.

    >>> columns_as_text("expected columns, got none; try columns={'worker': ..., 'end': ...}", "--columns ")
    'expected columns, got none; try --columns worker=...,end=...'
    """

    def told(columns: re.Match[str]) -> str:
        return option + ",".join(f"{role}=..." for role in re.findall(r"'(\w+)':", columns[1]))

    return re.sub(r"columns=\{(.*?)\}", told, message)


KINDS: dict[str, Callable[[str], Any]] = {
    "whole": _number(int, "a whole number >= 1"),
    "positive": _number(float, "a number > 0"),
    "target": _target,
    "axis": _axis,
    "columns": columns_of,
}
