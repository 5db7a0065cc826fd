"""Claims as text and tables: for a terminal, README.md and the last cell of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmlcore.reproduce.claims.model import Outcome, Part, Range, Result
from dmlcore.reproduce.claims.rules import counts, told
from dmlcore.reproduce.markdown import table as written

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

COLORS = {"in part": "yellow", "undecided": "blue", "not run": "dim"}
COLORS |= dict.fromkeys(("reproduced", "holds"), "green") | dict.fromkeys(("not reproduced", "fails"), "red")


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
    if low is None:
        return f"<= {number(high, unit)}"
    return f">= {number(low, unit)}" if high is None else interval((low, high), unit)


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
    first, *others = counts(Outcome, [part.outcome for part in result.parts]).items()
    whole = f"{first[0]} in {first[1]} of {len(result.parts)} settings"
    return ", ".join([whole, *(f"{outcome} in {count}" for outcome, count in others)])


class Row(NamedTuple):
    """A claim, or one of its settings, as texts: a row in every table of claims."""

    claim: str
    part: str  # label of the setting; empty for the claim
    statement: str
    metric: str
    expected: str
    measured: str  # median over the seeds; of a claim with several settings, the range of their medians
    interval: str  # of the median, and the number of seeds; empty for a claim with several settings
    verdict: str  # the outcome in the setting, or the verdict on the claim with the numbers of its settings
    outcome: str  # the same without the numbers
    counts: str  # the numbers


def row(result: Result, part: Part | None = None) -> Row:
    """Returns the row of a claim, or of one of its settings."""
    outcome, numbers = (part.outcome, "") if part else (result.verdict, counted(result))
    return Row(
        result.id,
        part.label if part else "",
        result.statement,
        result.metric,
        expectation(result.expected, result.unit),
        *_numbers(result, [part] if part else result.parts),
        outcome + (f" ({numbers})" if numbers else ""),
        outcome,
        numbers,
    )


def _numbers(result: Result, parts: Sequence[Part]) -> tuple[str, str]:
    """Returns what was measured in some settings, and what is known about it."""
    if len(parts) > 1:
        medians = [part.measured for part in parts if part.measured is not None]
        return interval((min(medians), max(medians)) if medians else None, result.unit), ""
    (part,) = parts
    seeds, every = sum(sample is not None for sample in part.samples), len(part.samples)
    count = f"{seeds}" if seeds == every else f"{seeds} of {every}"
    told = f"{count} seed{'s' * (every != 1)}" if every and not result.always else ""
    ends = interval(part.interval, result.unit) if part.interval else ""
    return number(part.measured, result.unit), ", ".join(filter(None, (ends, told)))


def settings(result: Result) -> list[Row]:
    """Returns the rows of the settings of a claim; none if there is only one."""
    return [row(result, part) for part in result.parts] if len(result.parts) > 1 else []


def rows(results: Sequence[Result]) -> list[Row]:
    """Returns the row of each claim, followed by those of its settings if there are several."""
    return [each for result in results for each in (row(result), *settings(result))]


def frame(results: Sequence[Result]) -> pd.DataFrame:
    """Returns results as a data frame indexed by claim and part, for the last cell of a notebook.

    What a claim and its settings share is in the row of the claim only, so that a page shows them all.

    Args:
        results: of one or several papers.

    Returns:
        The frame.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> frame([judge(claim, [1.0, 0.9])]).columns.tolist()
    ['statement', 'expected', 'measured', 'interval', 'verdict']
    """
    import pandas as pd

    shown = pd.DataFrame(rows(results), columns=[*Row._fields])
    shown.loc[shown["part"] != "", ["statement", "expected"]] = ""
    columns = ["statement", "expected", "measured", "interval", "verdict"]
    return shown.set_index(["claim", "part"])[columns]


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
    for each in rows(results):
        words = ("", f"  {each.part}", "") if each.part else (each.claim, each.statement, each.expected)
        said = f"[{COLORS[each.outcome]}]{escape(each.verdict)}[/]"
        grid.add_row(*map(escape, words), each.measured, each.interval, said)
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
    for each in map(row, results):
        found = each.measured + (f" ({each.interval})" if each.interval else "")
        cells = (each.claim, each.statement, each.expected, found, each.verdict)
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
