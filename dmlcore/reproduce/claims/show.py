"""Claims as text and tables: for a terminal, README.md and the last cell of a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from dmlcore.reproduce.claims.model import Outcome, Part, Range, Result
from dmlcore.reproduce.claims.tally import told
from dmlcore.reproduce.markdown import table as written

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLORS = {
    "reproduced": "green",
    "in part": "yellow",
    "not reproduced": "red",
    "undecided": "blue",
    "not run": "dim",
}
COLORS |= {"holds": "green", "fails": "red"}


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


def interval(ends: tuple[float, float] | None, unit: str = "") -> str:
    """Returns an interval, or a range, as text.

    Args:
        ends: both ends. None: not known.
        unit: of both.

    Returns:
        The text.

    Raises:
        ValueError: `ends` is neither a pair nor None.

    >>> interval((0.5, float("inf")), "s"), interval((1.0, 1.0), "x"), interval(None)
    ('0.5 to ∞ s', '1x', '-')
    """
    if ends is None:
        return "-"
    low, high = ends
    return number(low, unit) if low == high else f"{number(low)} to {number(high, unit)}"


def counted(result: Result) -> str:
    """Returns in how many settings a claim holds, fails or is undecided.

    Args:
        result: the result of a claim.

    Returns:
        The text; empty for a claim with a single setting.

    Raises:
        AttributeError: `result` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="A is faster", source="ours", data="none", regime="any",
    ...               metric="time of B / time of A", expected=(1.0, None), parts=("A", "B", "C"))
    >>> counted(judge(claim, {"A": [1.2] * 8, "B": [0.9] + [1.2] * 7, "C": [1.3] * 8}))
    'holds in 2 of 3 settings, undecided in 1'
    """
    if len(result.parts) == 1:
        return ""
    counts = Counter(part.outcome for part in result.parts)
    first, *others = [(outcome, counts[outcome]) for outcome in get_args(Outcome) if counts[outcome]]
    whole = f"{first[0]} in {first[1]} of {len(result.parts)} settings"
    return ", ".join([whole, *(f"{outcome} in {count}" for outcome, count in others)])


def measured(result: Result, part: Part | None = None) -> str:
    """Returns the median over the seeds; of a claim with several settings, the range of their medians."""
    parts = [part] if part else result.parts
    if len(parts) == 1:
        return number(parts[0].measured, result.unit)
    medians = [each.measured for each in parts if each.measured is not None]
    return interval((min(medians), max(medians)) if medians else None, result.unit)


def known(result: Result, part: Part | None = None) -> str:
    """Returns the interval of the median and the number of seeds; empty for a claim of several settings."""
    parts = [part] if part else result.parts
    if len(parts) > 1 or not parts[0].samples:
        return ""
    seeds, all_of_them = sum(sample is not None for sample in parts[0].samples), len(parts[0].samples)
    count = f"{seeds}" if seeds == all_of_them else f"{seeds} of {all_of_them}"
    told = f"{count} seed{'s' * (all_of_them != 1)}" * (not result.always)
    ends = interval(parts[0].interval, result.unit) if parts[0].interval else ""
    return ", ".join(filter(None, (ends, told)))


def verdict(result: Result, part: Part | None = None) -> str:
    """Returns the outcome in a setting, or the verdict on a claim with the numbers of its settings."""
    if part:
        return part.outcome
    return result.verdict + (f" ({counts})" if (counts := counted(result)) else "")


def rows(results: Sequence[Result]) -> list[tuple[Result, Part | None]]:
    """Returns each result, followed by its settings if there are several."""
    return [
        (result, part)
        for result in results
        for part in (None, *(result.parts if len(result.parts) > 1 else ()))
    ]


def _records(results: Sequence[Result]) -> list[dict[str, str]]:
    return [
        {
            "claim": result.id,
            "part": part.label if part else "",
            "statement": result.statement,
            "source": result.source,
            "data": (part.data if part else result.measured_on) or result.data,
            "metric": result.metric,
            "expected": expectation(result.expected, result.unit),
            "measured": measured(result, part),
            "interval": known(result, part),
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
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> frame([judge(claim, [1.0, 0.9])]).columns.tolist()
    ['statement', 'source', 'data', 'metric', 'expected', 'measured', 'interval', 'verdict']
    """
    import pandas as pd

    records = _records(results)
    for record in records if findings else ():
        record["finding"] = "" if record["part"] else (findings or {}).get(record["claim"], "")
    return pd.DataFrame(records).set_index(["claim", "part"])


def table(results: Sequence[Result]) -> Table:
    """Returns results as a table for a terminal, with the settings below their claim.

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
    for name in ("expected", "measured", "interval"):
        grid.add_column(name, justify="right")
    grid.add_column("verdict")
    for (result, part), row in zip(rows(results), _records(results), strict=True):
        words = (
            ("", f"  {row['part']}", "") if row["part"] else (row["claim"], row["statement"], row["expected"])
        )
        color = COLORS[part.outcome if part else result.verdict]
        said = f"[{color}]{escape(row['verdict'])}[/]"
        grid.add_row(*map(escape, words), row["measured"], row["interval"], said)
    return grid


def markdown(results: Sequence[Result]) -> str:
    """Returns results as a table in Markdown, with the numbers of the settings of each claim.

    `python -m dmlcore.reproduce.claims figures/ssp/claims.json` prints it.

    Args:
        results: of `judge`, or the claims of a ledger.

    Returns:
        The table.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> print(markdown([judge(claim, [1.0] * 8)]).splitlines()[-1])
    | e-1 | No worker waits under ASP | 0.99 to 1 | 1 (1, 8 seeds) | reproduced |
    """
    lines = []
    for result in results:
        found = measured(result) + (f" ({ends})" if (ends := known(result)) else "")
        expected = expectation(result.expected, result.unit)
        cells = (result.id, result.statement, expected, found, verdict(result))
        lines.append([cell.replace("|", "&#124;") for cell in cells])
    return written(("claim", "statement", "expected", "measured (interval)", "verdict"), lines) + "\n"


def tally(results: Sequence[Result]) -> str:
    """Returns the numbers of claims by source and verdict, and of settings, as a list in Markdown.

    Args:
        results: of one or several papers.

    Returns:
        The list.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> print(tally([judge(claim, [1.0] * 8)]).strip())
    - 1 our own: 1 reproduced
    - 1 setting: holds in 1
    """
    return "".join(f"- {line}\n" for line in told(results))
