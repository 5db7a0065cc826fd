"""Claims as people read them: in a terminal, and as the last cell of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmlcore.reproduce.claims.model import Part, Range, Result

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLORS = {"reproduced": "green", "partly": "yellow", "not reproduced": "red", "not run": "dim"}


def number(value: float | None, unit: str = "") -> str:
    """Returns a number to three digits, with its unit.

    >>> number(1.2345, "s"), number(3.0, "x"), number(float("inf"), "s"), number(None)
    ('1.23 s', '3x', '∞ s', '-')
    """
    if value is None:
        return "-"
    gap = "" if unit in ("", "x", "%") else " "
    return ("∞" if value == float("inf") else f"{value:.3g}") + gap + unit


def expectation(expected: Range, unit: str = "") -> str:
    """Returns the expected range in words.

    >>> expectation((1.2, None), "x"), expectation((None, 3), "s"), expectation((1, 2)), expectation((5, 5))
    ('>= 1.2x', '<= 3 s', '1 to 2', '5')
    """
    low, high = expected
    if low == high:
        return number(low, unit)
    if high is None:
        return f">= {number(low, unit)}"
    return f"<= {number(high, unit)}" if low is None else f"{number(low)} to {number(high, unit)}"


def interval(ends: tuple[float, float] | None) -> str:
    """Returns an interval in brackets.

    >>> interval((0.5, float("inf")))
    '[0.5, ∞]'
    """
    return "-" if ends is None else f"[{number(ends[0])}, {number(ends[1])}]"


def rows(results: Sequence[Result]) -> list[tuple[Result, Part | None]]:
    """Returns each result, followed by its parts if it has any."""
    return [(result, part) for result in results for part in (None, *result.parts)]


def _records(results: Sequence[Result]) -> list[dict[str, str]]:
    return [
        {
            "claim": result.id,
            "part": part.label if part else "",
            "statement": result.statement,
            "source": result.source,
            "metric": result.metric,
            "expected": expectation(result.expected, result.unit),
            "measured": number((part or result).measured, result.unit),
            "interval": interval((part or result).interval),
            "verdict": (part or result).verdict,
        }
        for result, part in rows(results)
    ]


def frame(results: Sequence[Result]) -> pd.DataFrame:
    """Returns results as a data frame indexed by claim and part, for the last cell of a notebook."""
    import pandas as pd

    return pd.DataFrame(_records(results)).set_index(["claim", "part"])


def table(results: Sequence[Result]) -> Table:
    """Returns results of `judge`, or of a ledger, as a table for the terminal, parts below their claim."""
    from rich.markup import escape
    from rich.table import Table

    grid = Table(title="Claims", title_justify="left", header_style="bold")
    grid.add_column("claim", no_wrap=True)
    grid.add_column("statement")
    for name in ("expected", "measured", "95% interval"):
        grid.add_column(name, justify="right")
    grid.add_column("verdict")
    for row in _records(results):
        words = (
            ("", f"  {row['part']}", "") if row["part"] else (row["claim"], row["statement"], row["expected"])
        )
        verdict = f"[{COLORS[row['verdict']]}]{row['verdict']}[/]"
        grid.add_row(*map(escape, words), row["measured"], row["interval"].replace("[", r"\["), verdict)
    return grid


def markdown(results: Sequence[Result]) -> str:
    """Returns results as the table in README.md; a claim with parts shows its weakest.

    `python -m dmlcore.reproduce.claims figures/ssp/claims.json` prints it.
    """
    lines = ["| claim | statement | expected | measured (95% interval) | verdict |", "|---|---|---|---|---|"]
    for result in results:
        measured = number(result.measured, result.unit)
        if result.interval is not None:
            low, high = map(number, result.interval)
            measured = f"{'weakest part: ' if result.parts else ''}{measured} ({low} to {high})"
        expected = expectation(result.expected, result.unit)
        cells = (result.id, result.statement, expected, measured, result.verdict)
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"
