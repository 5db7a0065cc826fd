"""What a command line asks for: papers and parameters, every one of them checked before anything runs."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from pydantic import ValidationError

from dmlcore.reproduce.manifest import PaperJob
from dmlcore.reproduce.paper import Paper, Parameters

NAME = "paper_repro.py"
OTHERS = """\
other commands:
  list                      papers, their parameters, claims and run times
  check                     hold every figures/*/claims.json against its rule
  test [pytest arguments]   the test suite
  lab [jupyter arguments]   JupyterLab on the notebooks, on this machine only
"""


class UsageError(Exception):
    """A mistake of the user: its message is shown without a traceback, and the exit code is 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see python3 {NAME} --help)")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog=f"python3 {NAME}",
        description="Runs the papers' notebooks, judges their claims and writes figures/report.html.",
        epilog=OTHERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("papers", nargs="*", metavar="PAPER", help="keys as `list` shows them (default: all)")
    parser.add_argument("--scale", help="quick (default) or full")
    parser.add_argument("--seeds", help="number of seeds")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="notebooks at a time (1)")
    parser.add_argument("-p", dest="pairs", action="append", default=[], metavar="NAME=VALUE",
                        help="a parameter, for the papers that have it; may be repeated")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="run again what is finished and unchanged")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is a whole number >= 1")
    return int(text)


def plan(given: argparse.Namespace, papers: Mapping[str, Paper]) -> list[PaperJob]:
    """Returns the jobs that a command line asks for; raises UsageError for a wrong paper, name or value.

    A parameter goes to the papers that have it; one that none of them has is refused.
    """
    for key in given.papers:
        if key not in papers:
            raise UsageError(f"paper: got {key!r}, {_one_of(papers, key)}")
    chosen = [papers[key] for key in dict.fromkeys(given.papers or papers)]
    values = {name: getattr(given, name) for name in ("scale", "seeds") if getattr(given, name) is not None}
    for pair in given.pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"-p: got {pair!r}, allowed is NAME=VALUE")
        values[name] = value
    known = {name: None for paper in chosen for name in paper.parameters.defaults()}
    for name in values:
        if name not in known:
            raise UsageError(f"-p: got {name!r}, {_one_of(known, name)}")
    return [PaperJob(paper, _validated(paper, values)) for paper in chosen]


def _validated(paper: Paper, values: Mapping[str, str]) -> Parameters:
    own = {name: value for name, value in values.items() if name in paper.parameters.model_fields}
    try:
        return paper.parameters.model_validate_strings({**own, "output": ""})
    except ValidationError as error:
        first = error.errors()[0]
        allowed = first["msg"].removeprefix("Input should be ").partition(", unable")[0]
        name = ".".join(map(str, first["loc"])) or "parameters"
        raise UsageError(f"{name} ({paper.key}): got {first['input']!r}, allowed is {allowed}") from None


def _one_of(words: Iterable[str], given: str) -> str:
    near = difflib.get_close_matches(given, list(words), n=1)
    return f"allowed is one of {', '.join(words)}" + (f"; did you mean {near[0]}?" if near else "")
