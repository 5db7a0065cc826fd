"""Claims as text and tables: for a terminal, README.md and the last cell of a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmlcore.reproduce.claims.model import Part, Range, Result
from dmlcore.reproduce.claims.rules import comparable, within
from dmlcore.reproduce.claims.tally import told
from dmlcore.reproduce.markdown import table as written

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLORS = {"reproduced": "green", "mixed": "yellow", "not reproduced": "red", "not run": "dim"}


def number(value: float | None, unit: str = "") -> str:
    """Returns a number with three digits and its unit as text.

    >>> number(1.2345, "s"), number(3.0, "x"), number(float("inf"), "s"), number(None)
    ('1.23 s', '3x', '∞ s', '-')
    """
    if value is None:
        return "-"
    gap = "" if unit in ("", "x", "%") else " "
    return ("∞" if value == float("inf") else f"{value:.3g}") + gap + unit


def expectation(expected: Range, unit: str = "") -> str:
    """Returns an expected range as text.

    Args:
        expected: (low, high). None: no bound at that end.
        unit: of both.

    Returns:
        The text.

    Raises:
        ValueError: `expected` is not a pair.

    >>> expectation((1.2, None), "x"), expectation((None, 3), "s"), expectation((1, 2)), expectation((5, 5))
    ('>= 1.2x', '<= 3 s', '1 to 2', '5')
    """
    low, high = expected
    if low == high:
        return number(low, unit)
    if high is None:
        return f">= {number(low, unit)}"
    return f"<= {number(high, unit)}" if low is None else f"{number(low)} to {number(high, unit)}"


def spread(ends: tuple[float, float] | None, unit: str = "") -> str:
    """Returns a range of measurements as text.

    Args:
        ends: smallest and largest value. None: not measured.
        unit: of both.

    Returns:
        The text.

    Raises:
        ValueError: `ends` is neither a pair nor None.

    >>> spread((0.5, float("inf")), "s"), spread((1.0, 1.0), "x"), spread(None)
    ('0.5 to ∞ s', '1x', '-')
    """
    if ends is None:
        return "-"
    low, high = ends
    return number(low, unit) if low == high else f"{number(low)} to {number(high, unit)}"


def measured(result: Result, part: Part | None = None) -> str:
    """Returns the median over the seeds; for a claim with parts, the number of reproduced parts."""
    if part is None and result.parts:
        if all(each.measured is None for each in result.parts):
            return "-"
        if result.verdict == "not run":  # the samples come from other data
            return f"{len(result.parts)} settings"
        good = sum(each.verdict == "reproduced" for each in result.parts)
        return f"{good} of {len(result.parts)} settings"
    return number((part or result).measured, result.unit)


def spread_of(result: Result, part: Part | None = None) -> str:
    """Returns the range over the seeds as text; for a claim with parts, that of the medians of its parts."""
    told = spread((part or result).spread, result.unit)
    return f"medians {told}" if part is None and result.parts and result.spread else told


def remark(result: Result, part: Part | None = None) -> str:
    """Returns a few words on why a verdict is "mixed" or "not run", or an empty text.

    Args:
        result: the result of a claim.
        part: one of its parts. Default: None, the claim as a whole.

    Returns:
        The remark. A claim with parts has one if its data are other ones, or if some parts were not run.

    Raises:
        AttributeError: `result` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> remark(judge(claim, [1.0, 0.9]))
    '1 of 2 seeds'
    """
    outcome = part or result
    if outcome.spread is not None and not comparable(result, result.measured_on):
        return f"measured on {result.measured_on}, not on {result.data}"
    if part is None and result.parts:
        run = sum(each.verdict != "not run" for each in result.parts)
        return f"{run} of {len(result.parts)} parts run" if 0 < run < len(result.parts) else ""
    if outcome.verdict != "mixed":
        return ""
    known = sum(value is not None for value in outcome.samples)
    if known < len(outcome.samples):
        return f"{known} of {len(outcome.samples)} seeds measured"
    inside = within(outcome.samples, result.expected)
    return "one seed" if len(outcome.samples) == 1 else f"{inside} of {known} seeds"


def verdict(result: Result, part: Part | None = None) -> str:
    """Returns the verdict, with its remark in parentheses."""
    told = remark(result, part)
    return (part or result).verdict + (f" ({told})" if told else "")


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
            "data": result.measured_on or result.data,
            "metric": result.metric,
            "expected": expectation(result.expected, result.unit),
            "measured": measured(result, part),
            "spread": spread_of(result, part),
            "verdict": verdict(result, part),
        }
        for result, part in rows(results)
    ]


def frame(results: Sequence[Result], findings: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Returns results as a data frame indexed by claim and part, for the last cell of a notebook.

    Args:
        results: of one or several papers.
        findings: id of the claim -> its finding, for a further column, which is empty for parts. Default:
            None, no such column.

    Returns:
        The frame.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> frame([judge(claim, [1.0, 0.9])]).columns.tolist()
    ['statement', 'source', 'data', 'metric', 'expected', 'measured', 'spread', 'verdict']
    """
    import pandas as pd

    records = _records(results)
    for record in records if findings else ():
        record["finding"] = "" if record["part"] else (findings or {}).get(record["claim"], "")
    return pd.DataFrame(records).set_index(["claim", "part"])


def table(results: Sequence[Result]) -> Table:
    """Returns results as a table for a terminal, with the parts below their claim.

    Args:
        results: of `judge`, or the claims of a ledger.

    Returns:
        A table of the package rich.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> table([]).row_count
    0
    """
    from rich.markup import escape
    from rich.table import Table

    grid = Table(title="Claims", title_justify="left", header_style="bold")
    grid.add_column("claim", no_wrap=True)
    grid.add_column("statement")
    for name in ("expected", "measured", "spread"):
        grid.add_column(name, justify="right")
    grid.add_column("verdict")
    for (result, part), row in zip(rows(results), _records(results), strict=True):
        words = (
            ("", f"  {row['part']}", "") if row["part"] else (row["claim"], row["statement"], row["expected"])
        )
        color = COLORS[(part or result).verdict]
        said = f"[{color}]{escape(row['verdict'])}[/]"
        grid.add_row(*map(escape, words), row["measured"], row["spread"], said)
    return grid


def markdown(results: Sequence[Result]) -> str:
    """Returns results as a table in Markdown; a claim with parts shows the number of reproduced parts.

    `python -m dmlcore.reproduce.claims figures/ssp/claims.json` prints it.

    Args:
        results: of `judge`, or the claims of a ledger.

    Returns:
        The table.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> print(markdown([judge(claim, [1.0, 1.0])]).splitlines()[-1])
    | e-1 | No worker waits under ASP | 0.99 to 1 | 1 (1) | reproduced |
    """
    lines = []
    for result in results:
        found = measured(result)
        if result.spread is not None:
            found = f"{found} ({spread_of(result)})"
        expected = expectation(result.expected, result.unit)
        cells = (result.id, result.statement, expected, found, verdict(result))
        lines.append([cell.replace("|", "&#124;") for cell in cells])
    return written(("claim", "statement", "expected", "measured (spread)", "verdict"), lines) + "\n"


def tally(results: Sequence[Result]) -> str:
    """Returns the numbers of claims by source and verdict, as a list in Markdown.

    Args:
        results: of one or several papers.

    Returns:
        The list.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> print(tally([judge(claim, [1.0, 0.9])]).strip())
    - 1 our own: 1 mixed
    """
    return "".join(f"- {line}\n" for line in told(results))
