"""`paper_repro.py recommend RECORD --target loss=0.1`: a page with the best method for a recorded cluster."""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dmlcore import calls, checks, files, pages

PROBLEMS = ("digits_mlp", "logistic_regression", "linear_regression", "matrix_factorization", "mnist_lenet",
            "cifar10_cnn", "cifar10_lenet")  # fmt: skip
PAGE_PATH = "runs/recommend.html"


OPTIONS = {
    "target": ("METRIC=VALUE", None, "the target to reach, such as loss=0.1"),
    "problem": ("CALL", "digits_mlp", "the problem to train, such as linear_regression(num_features=20)"),
    "methods": ("NAMES", None, "methods of the library, separated by commas (default: all)"),
    "batch-size": ("N", None, "samples of a task (default: that of the record, or else 32)"),
    "model-bytes": ("SIZE", None, "size of your model, such as 5.2GB (default: that of the problem)"),
    "link": ("RATE", None, "rate of every worker's link, such as 25Gb/s (default: that of the record)"),
    "server-link": ("RATE", None, "rate of the server's link, which all workers share, such as 100Gb/s"),
    "latency": ("TIME", None, "delay of every worker's link, such as 50us"),
    "unit": ("UNIT", None, "of times in the log that are plain numbers: ns, us, ms, s, min or h"),
    "budget": ("SECONDS", "60", "seconds of computing, approximately"),
    "seeds": ("N", "128", "largest number of judging seeds of a method"),
    "over-budget": (
        "SECONDS",
        None,
        "seconds of computing to tune the methods again for each cluster of --over",
    ),
    "save": ("FOLDER", None, "keeps finished runs here, from which the same call goes on"),
    "output": ("FILE", None, f"the page to write (default: {PAGE_PATH} in the repository)"),
}


def parser(make: Callable[..., argparse.ArgumentParser], call: str) -> argparse.ArgumentParser:
    """Returns the parser of the command's arguments."""
    found = make(
        prog=f"{call} recommend",
        description="Fits a cluster to a trace or to measured tasks, tunes all methods on it within one "
        "budget, and says which of them reaches the target first, and why.",
        allow_abbrev=False,
    )
    told = "a trace (.parquet), or a log of tasks: CSV, Parquet, JSON, or a Chrome trace of torch.profiler, "
    told += "Ray or Horovod, compressed or not; several files, or a folder, of which each is a worker's"
    found.add_argument("trace", metavar="RECORD", nargs="+", help=told)
    for option, (shown, default, told) in OPTIONS.items():
        if default is not None:
            told += f" (default: {default})"
        required = option == "target"
        found.add_argument(f"--{option}", metavar=shown, default=default, required=required, help=told)
    told = "other clusters to compare: workers=8,16, c=0.1,1 (links), rho=0.5,2 (server) or slowdown=1,4; "
    told += "at most two axes"
    lists = {
        "columns": ("ROLE=COLUMN", "what a column of the log means, such as worker=host+gpu,seconds=took"),
        "events": ("NAME", "operations that are a task's computing: a name, a pattern, or COLUMN=NAME,NAME"),
    }
    for option, (shown, meant) in lists.items():
        found.add_argument(f"--{option}", metavar=shown, action="append", default=[], help=meant)
    found.add_argument("--over", metavar="AXIS=VALUES", action="append", default=[], help=told)
    return found


def recommend(console: Console, given: argparse.Namespace, root: Path) -> int:
    """Prints the recommendation and writes the page; returns the exit code, 130 after Ctrl-C.

    Raises:
        ValueError: an argument is wrong; the message names it.
        OSError: the record does not exist, or the page cannot be written.
    """
    target = _target(given.target)
    asked = {name: getattr(given, name) for name in ("batch_size", "budget", "seeds", "over_budget")}
    number: dict[str, Any] = {
        name: None if text is None else _number(name, text) for name, text in asked.items()
    }
    over: dict[str, Any] = dict(map(_axis, given.over))
    links = {"bandwidth": given.link, "server_bandwidth": given.server_link, "latency": given.latency}
    links = {name: text for name, text in links.items() if text is not None}
    from dmlcore import problems  # slow to import, so the arguments are checked before
    from dmlcore.experiments.recommendation import recommend as find
    from dmlcore.experiments.recommendation.axes import AXES
    from dmlcore.trace.importing import record_of
    from dmlcore.view.show import LEGEND, html, readable

    for axis in over:
        checks.choice("--over", axis, AXES)
    if number["over_budget"] is not None and not over:
        checks.reject("--over-budget", given.over_budget, "--over, whose clusters it is for")
    if len(over) > 2:
        checks.fail("--over", [*over], "at most two axes")
    path = root / PAGE_PATH if given.output is None else Path(given.output).absolute()
    folder = next(folder for folder in path.parents if folder.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        checks.fail("--output", str(path), "a file in a folder that can be written to")
    problem = calls.made("--problem", given.problem, {name: getattr(problems, name) for name in PROBLEMS})
    source = given.trace[0] if len(given.trace) == 1 else given.trace
    record = record_of("cluster", source, _columns(given.columns), given.unit, _events(given.events))
    methods = None if given.methods is None else [name.strip() for name in given.methods.split(",")]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Interrupted")  # the notes say so
        found = find(
            problem,
            record,
            target,
            methods=methods,
            batch_size=number["batch_size"],
            budget=number["budget"],
            seeds=range(number["seeds"]),
            save=given.save,
            progress=console.is_terminal,
            parameter_bytes=given.model_bytes,
            links=links or None,
        )
    columns = ["samples", "MB sent"]  # columns that only the page shows
    console.print(_shown(readable(found.table).drop(columns=columns).reset_index(names="method")))
    console.print(found.why, highlight=False, markup=False)
    for note in (*found.notes, LEGEND):
        console.print(f"- {note}", highlight=False, markup=False)
    body, page = html(found), pages.template(__file__, "recommend.html.jinja")
    files.write(path, page.render(body=body))  # kept if the values of an axis turn out not to be possible
    if over and not found.interrupted:
        again = number["over_budget"]
        frame = found.over(**over, budget=again, progress=console.is_terminal)
        console.print(f"What if, with settings and learning rates {_tuned(again)}:", highlight=False)
        console.print(_shown(frame.drop(columns="tuned").round(3)))
        files.write(path, page.render(body=body + what_if(frame, [*over], _tuned(again))))
    console.print(f"page: {path}", highlight=False, soft_wrap=True, markup=False)
    return 130 if found.interrupted else 0


def _tuned(budget: float | None) -> str:
    return "as they are" if budget is None else "tuned again for each cluster"


def what_if(frame: Any, axes: list[str], tuned: str) -> str:
    """Returns the results for other clusters as HTML: a map for two axes, a table for one."""
    from dmlcore.view.plot import regimes
    from dmlcore.view.show import picture

    heading = f"<h2>What if?</h2><p>With settings and learning rates {tuned}.</p>"
    if len(axes) == 1:
        return heading + str(frame.drop(columns="tuned").round(3).to_html(border=0, index=False))
    height = 2.2 + 0.9 * frame[axes[1]].nunique()
    label = f"The best method by {' and '.join(axes)}"
    label, source = picture(label, height, lambda ax: regimes(frame, *axes, ax=ax))
    return f'{heading}<img src="{source}" alt="{label}" style="width:100%;max-width:640px"/>'


def _shown(frame: Any) -> Table:
    shown = Table(header_style="bold")
    for name in frame:
        shown.add_column(str(name), no_wrap=name == "method")
    for cells in frame.itertuples(index=False):
        shown.add_row(*map(str, cells))
    return shown


def _axis(text: str) -> tuple[str, list[float]]:
    axis, _, values = text.partition("=")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        checks.fail("--over", text, "AXIS=VALUES, such as workers=8,16")
    return axis, [int(number) if number.is_integer() else number for number in numbers]


def _columns(given: list[str]) -> dict[str, Any] | None:
    """Returns role -> column of the texts ROLE=COLUMN; `+` joins columns, a number is that of samples."""
    found: dict[str, Any] = {}
    for text in [each for several in given for each in re.split(r",(?=\w+=)", several)]:
        role, equals, column = text.partition("=")
        if not equals or not column:
            checks.fail("--columns", text, "ROLE=COLUMN, such as worker=host")
        several = role in ("worker", "seconds") and "+" in column
        found[role] = column.split("+") if several else column
        if role == "batch_size" and column.isdecimal():
            found[role] = int(column)
    return found or None


def _events(given: list[str]) -> Any:
    """Returns the names of operations, or column -> names if all texts are COLUMN=NAME,NAME."""
    pairs = [text.partition("=") for text in given]
    if all(equals for _, equals, _ in pairs):
        return {column: names.split(",") for column, _, names in pairs} or None
    if any(equals for _, equals, _ in pairs):
        checks.fail("--events", given, "names alone, or COLUMN=NAME alone")
    return given


def _on_command_line(hint: re.Match[str]) -> str:
    return " ".join(f"--columns {role}=..." for role in re.findall(r"'(\w+)':", hint[1]))


def typed(message: str) -> str:
    """Returns a message of `dml.recommend` that names the argument as it is on the command line.

    >>> typed("cluster: expected a file that exists, got 'tasks.csv'")
    "RECORD: expected a file that exists, got 'tasks.csv'"
    >>> typed("cluster: expected columns, got none; try columns={'worker': ..., 'end': ...}")
    'RECORD: expected columns, got none; try --columns worker=... --columns end=...'
    """
    message = re.sub(r"columns=\{(.*?)\}", _on_command_line, message)
    message = re.sub(r"events='([^']*)'", r"--events '\1'", message)
    words = {"cluster, frame": "RECORD", "cluster": "RECORD", "frame": "RECORD"}
    words |= {option.replace("-", "_"): f"--{option}" for option in (*OPTIONS, "columns", "events")}
    words |= {"parameter_bytes": "--model-bytes", "links, bandwidth": "--link"}
    words |= {"links, server_bandwidth": "--server-link", "links, latency": "--latency"}
    for name, word in words.items():
        if message.startswith((f"{name}:", f"{name},", f"{name}[")):
            return word + message.removeprefix(name)
    return message


def _target(text: str) -> dict[str, float]:
    metric, equals, value = text.partition("=")
    try:
        if not equals or not metric:
            raise ValueError
        return {metric: float(value)}
    except ValueError:
        checks.fail("--target", text, "METRIC=VALUE, such as loss=0.1")


def _number(name: str, text: str) -> Any:
    whole = name not in ("budget", "over_budget")
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = 0
    if not value > 0 or (whole and value > 1e9):
        checks.fail(f"--{name.replace('_', '-')}", text, "a whole number >= 1" if whole else "a number > 0")
    return value
