"""What the command lines share: a parser, numbers, and the error of a user's mistake."""

import argparse
from collections.abc import Callable
from typing import NoReturn


class UsageError(Exception):
    """A mistake of the user: the program shows its message without a traceback, and the exit code is 2."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `UsageError`; options are written in full."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        form = argparse.RawDescriptionHelpFormatter if epilog else argparse.HelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=form, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def number(kind: Callable[[str], float], expected: str) -> Callable[[str], float]:
    """Returns the `type` of an option that is a number above 0, at most a thousand million."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= 1e9:
            unfit(text, expected)
        return value

    return read


WHOLE, POSITIVE = number(int, "a whole number >= 1"), number(float, "a number > 0")


def unfit(text: str, expected: str) -> NoReturn:
    """Refuses the text of an option; the parser names the option."""
    raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
