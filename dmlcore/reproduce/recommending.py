"""`paper_repro.py recommend RECORD --target loss=0.1`: a page with the best method for a recorded cluster."""

import argparse
import functools
import os
import re
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dmlcore import calls, checks, files, pages
from dmlcore.reproduce.parsing import COMMANDS, columns_as_text

PROBLEMS = ("digits_mlp", "logistic_regression", "linear_regression", "matrix_factorization", "mnist_lenet",
            "cifar10_cnn", "cifar10_lenet")  # fmt: skip
PAGE_PATH = "runs/recommend.html"


def recommend(console: Console, given: argparse.Namespace, root: Path) -> int:
    """Prints the recommendation and writes the page; returns the exit code, 130 after Ctrl-C.

    Raises:
        ValueError: an argument is wrong; the message names it.
        OSError: the record does not exist, or the page cannot be written.
    """
    over: dict[str, Any] = dict(given.over)
    links = {"bandwidth": given.link, "server_bandwidth": given.server_link, "latency": given.latency}
    links = {name: text for name, text in links.items() if text is not None}
    from dmlcore import problems  # slow to import, so the arguments are checked before
    from dmlcore.experiments.recommendation import recommend as find
    from dmlcore.experiments.recommendation.clusters import AXES
    from dmlcore.trace.importing import record_of
    from dmlcore.view.show import LEGEND, html, readable

    for axis in over:
        checks.choice("--over", axis, AXES)
    if given.over_budget is not None and not over:
        checks.reject("--over-budget", f"{given.over_budget:g}", "--over, whose clusters it is for")
    if len(over) > 2:
        checks.fail("--over", [*over], "at most two axes")
    path = root / PAGE_PATH if given.output is None else Path(given.output).absolute()
    folder = next(folder for folder in path.parents if folder.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        checks.fail("--output", str(path), "a file in a folder that can be written to")
    problem = calls.made("--problem", given.problem, {name: getattr(problems, name) for name in PROBLEMS})
    source = given.trace[0] if len(given.trace) == 1 else given.trace
    columns = dict(given.columns) or None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Interrupted")  # the notes say so
        found = find(
            problem,
            record_of("cluster", source, columns, given.unit, events_of(given.events)),
            given.target,
            methods=given.methods and [name.strip() for name in given.methods.split(",")],
            batch_size=given.batch_size,
            budget=given.budget,
            seeds=range(given.seeds),
            save=given.save,
            progress=console.is_terminal,
            parameter_bytes=given.model_bytes,
            links=links or None,
        )
    hidden = ["samples", "MB sent"]  # columns that only the page shows
    console.print(_shown(readable(found.table).drop(columns=hidden).reset_index(names="method")))
    console.print(found.why, markup=False)
    for note in (*found.notes, LEGEND):
        console.print(f"- {note}", markup=False)
    page = functools.partial(pages.template(__file__, "recommend.html.jinja").render, body=html(found))
    files.write(path, page())  # kept if the values of an axis turn out not to be possible
    if over and not found.interrupted:
        tuned = "as they are" if given.over_budget is None else "tuned again for each cluster"
        frame = found.over(**over, budget=given.over_budget, progress=console.is_terminal)
        console.print(f"What if, with settings and learning rates {tuned}:")
        rounded = frame.drop(columns="tuned").round(3)
        console.print(_shown(rounded))
        map_of = _map(frame, [*over]) if len(over) == 2 else None
        files.write(path, page(tuned=tuned, table=rounded.to_html(border=0, index=False), map=map_of))
    console.print(f"page: {path}", soft_wrap=True, markup=False)
    return 130 if found.interrupted else 0


def _map(frame: Any, axes: list[str]) -> tuple[str, str]:
    """Returns the results for other clusters as a picture: its text and its source."""
    from dmlcore.view.plot import regimes
    from dmlcore.view.show import picture

    height = 2.2 + 0.9 * frame[axes[1]].nunique()
    return picture(
        f"The best method by {' and '.join(axes)}", height, lambda ax: regimes(frame, *axes, ax=ax)
    )


def _shown(frame: Any) -> Table:
    shown = Table(header_style="bold")
    for name in frame:
        shown.add_column(str(name), no_wrap=name == "method")
    for cells in frame.itertuples(index=False):
        shown.add_row(*map(str, cells))
    return shown


def events_of(given: list[str]) -> Any:
    """Returns the names of operations, or column -> names if all texts are COLUMN=NAME,NAME."""
    pairs = [text.partition("=") for text in given]
    if all(equals for _, equals, _ in pairs):
        return {column: names.split(",") for column, _, names in pairs} or None
    if any(equals for _, equals, _ in pairs):
        checks.fail("--events", given, "names alone, or COLUMN=NAME alone")
    return given


def typed(message: str) -> str:
    """Returns a message of `dml.recommend` that names the argument as it is on the command line.

    >>> typed("cluster: expected a file that exists, got 'tasks.csv'")
    "RECORD: expected a file that exists, got 'tasks.csv'"
    >>> typed("cluster: expected columns, got none; try columns={'worker': ..., 'end': ...}")
    'RECORD: expected columns, got none; try --columns worker=...,end=...'
    """
    message = columns_as_text(message, "--columns ")
    message = re.sub(r"events='([^']*)'", r"--events '\1'", message)
    words = {"cluster, frame": "RECORD", "cluster": "RECORD", "frame": "RECORD"}
    words |= {word.strip("-").replace("-", "_"): word for word in COMMANDS["recommend"]["arguments"]}
    words |= {"parameter_bytes": "--model-bytes", "links, bandwidth": "--link"}
    words |= {"links, server_bandwidth": "--server-link", "links, latency": "--latency"}
    for name, word in words.items():
        if message.startswith((f"{name}:", f"{name},", f"{name}[")):
            return word + message.removeprefix(name)
    return message
