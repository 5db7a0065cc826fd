"""The table of notebooks/06_compare.ipynb: the marks of methods, and its conclusions in sentences."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dmlcore.experiments.recommendation.reasons import in_words

RATIO = "relative to BSP"  # median of the seeds' ratios of times to the target
OTHER = "another optimizer"  # group of rows without marks, because their optimizer differs from the others
FEW = 4  # largest number of tied methods that are named


def marks(seconds: pd.DataFrame) -> pd.Series:
    """Marks the methods as "beaten", "tied" or "best".

    A method is "beaten" if the slowest seed of another method is faster than its own fastest seed, so that
    their ranges over the seeds do not overlap, or if its median does not reach the target. If only one method
    is not beaten, it is the "best"; if several are not, they are "tied".

    Args:
        seconds: to the target, by method (rows) and seed; inf if it was not reached.

    Returns:
        The mark of each method.

    >>> frame = pd.DataFrame({0: [1.0, 2.0, 5.0], 1: [1.5, 1.4, 6.0]}, index=["A", "B", "C"])
    >>> marks(frame).to_dict(), marks(frame.drop("B")).to_dict()
    ({'A': 'tied', 'B': 'tied', 'C': 'beaten'}, {'A': 'best', 'C': 'beaten'})
    """
    least, most = seconds.min(axis=1), seconds.max(axis=1)
    left = (least <= most.min()) & np.isfinite(seconds.median(axis=1))
    found = np.where(left, "tied" if left.sum() > 1 else "best", "beaten")
    return pd.Series(found, seconds.index, name="mark")


def rows(seconds: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Returns one column of the table: by method, its group, seconds, ratio to BSP and mark.

    Args:
        seconds: to the target, by method and seed, with a row BSP.
        groups: the group of each method, in the order of the rows.
    """
    middle = seconds.median(axis=1)
    table = pd.DataFrame({"group": groups, "seconds": middle}, seconds.index)
    table["least"], table["most"] = seconds.min(axis=1), seconds.max(axis=1)
    table["reached"] = np.isfinite(seconds).sum(axis=1)
    table[RATIO] = (seconds / seconds.loc["BSP"]).fillna(np.inf).median(axis=1)
    return table.join(marks(seconds[table["group"] != OTHER])).fillna({"mark": "not compared"})


def amount(ratio: float) -> str:
    """Returns a ratio of times as text.

    >>> amount(0.456), amount(np.inf)
    ('0.46', 'infinity (the target is not reached)')
    """
    return f"{ratio:.2g}" if np.isfinite(ratio) else "infinity (the target is not reached)"


def fastest(column: pd.DataFrame) -> str:
    """Returns a sentence that says which methods are fastest in one column of the table."""
    about = column.iloc[0]
    numbers = f"straggling {about['straggling']:.2g}, c = {about['c']:.2g}, ρ = {about['rho']:.2g}"
    where = f"**{about['regime']}** ({numbers})"
    marked = column[column["mark"].isin(["best", "tied"])].sort_values(RATIO)
    if marked.empty:
        return f"{where}: no method reaches the target on most seeds."
    low, high = marked[RATIO].iloc[0], marked[RATIO].iloc[-1]
    if len(marked) == 1:
        first = marked["method"].iloc[0]
        return f"{where}: {first} is the fastest on every seed, in {low:.2g} of BSP's time."
    names = in_words([*marked["method"]])
    if len(marked) > FEW:
        with_bsp = "with BSP among them" if "BSP" in set(marked["method"]) else "but not BSP"
        names = f"{len(marked)} methods ({', '.join(marked['method'].iloc[:FEW])} and others), {with_bsp},"
    return f"{where}: {names} tie (their seeds overlap); they take {low:.2g} to {high:.2g} of BSP's time."


def headline(table: pd.DataFrame) -> str:
    """Returns the title of the picture: how many methods are first on some cluster, by medians."""
    problem = table["problem"].iloc[0]
    own = table[(table["problem"] == problem) & (table["group"] != OTHER)]
    first = own.sort_values(RATIO).groupby("regime").head(1)["method"]
    if first.nunique() == 1:
        return f"{first.iloc[0]} has the least median time on all {len(first)} clusters ({problem})"
    return (
        f"Which method is the fastest depends on the cluster: {first.nunique()} methods have\n"
        f"the least median time on the {len(first)} clusters ({problem})"
    )


def never_slower(table: pd.DataFrame) -> list[str]:
    """Returns the methods with medians that are never above BSP's, among those run on everything."""
    ratio = table[table["group"] != OTHER].pivot(index="method", columns=["problem", "regime"], values=RATIO)
    return [str(name) for name in ratio.index[(ratio <= 1).all(axis=1)] if name != "BSP"]


def behind(table: pd.DataFrame) -> pd.Series:
    """Returns by method its largest ratio to the smallest median time, over all clusters of a problem."""
    medians = table[table["group"] != OTHER].pivot(index="method", columns="regime", values="seconds")
    return (medians / medians.min()).max(axis=1)


def alike(table: pd.DataFrame) -> str:
    """Returns a sentence with the methods and clusters for which runs equal those of ASP; "" if none."""
    times = ["seconds", "least", "most"]
    asp = table[table["method"] == "ASP"].set_index("regime")[times]
    others = table[table["method"] != "ASP"]
    same = others[(others[times].to_numpy() == asp.loc[others["regime"], times].to_numpy()).all(axis=1)]
    parts = [f"{method} ({', '.join(rows['regime'])})" for method, rows in same.groupby("method", sort=False)]
    return f"With its chosen setting a method acts as ASP: {'; '.join(parts)}." if parts else ""


def conclusions(table: pd.DataFrame) -> list[str]:
    """Returns the conclusions of the table, in sentences made from its numbers.

    Args:
        table: columns problem, regime, straggling, c, rho, method and those of `rows`; one row per problem,
            regime and method. The first problem has all methods and regimes.
    """
    first, *others = table["problem"].unique()
    own = table[table["problem"] == first]
    found = [fastest(column) for _, column in own.groupby("regime", sort=False)]
    ratio = own.pivot(index="method", columns="regime", values=RATIO)[own["regime"].unique()]
    asp = ratio.loc["ASP"]
    parts = [f"{regime} {amount(value)}" for regime, value in asp.items()]
    found.append(f"ASP, whose workers never wait, takes this share of BSP's time: {', '.join(parts)}.")
    worst = behind(own)
    safe = str(worst.idxmin())
    found.append(
        f"On {first}, {safe} is the safest choice, if it is tuned on each cluster: on none does it take more "
        f"than {amount(worst[safe])} times as long as the fastest there (by medians); BSP takes up to "
        f"{amount(worst['BSP'])} times as long."
    )
    found += [each for each in [alike(own)] if each]
    spans = own[own["group"] == OTHER].groupby("method", sort=False)[RATIO].agg(["min", "max"])
    if len(spans):
        each = [f"{name} takes {amount(low)} to {amount(high)}" for name, low, high in spans.itertuples()]
        found.append(
            f"{in_words(each)} of BSP's time. They are not marked, because their optimizer is "
            "another one, so the gain is not due to the policy alone."
        )
    if names := never_slower(table):
        found.append(f"Never slower than BSP, on any cluster or problem: {in_words(names)}.")
    for problem in others:
        found.append(elsewhere(own, table[table["problem"] == problem], problem))
    return found


def elsewhere(own: pd.DataFrame, other: pd.DataFrame, problem: str) -> str:
    """Returns a sentence on the ranks, on another problem, of the fastest methods of the first problem."""
    parts = []
    for regime, column in other.groupby("regime", sort=False):
        there = own[(own["regime"] == regime) & own["method"].isin(column["method"])]
        there = there[there["group"] != OTHER]
        name = there.sort_values(RATIO)["method"].iloc[0]
        value = column.set_index("method")[RATIO][name]
        share = f"takes {value:.2g} of BSP's time" if np.isfinite(value) else "does not reach the target"
        parts.append(f"{name}, which is first on {own['problem'].iloc[0]} with {regime}, {share}")
    worst = behind(other)
    return (
        f"On {problem}, of the methods that were run on both: {'; '.join(parts)}. There {worst.idxmin()} is "
        f"the safest choice: it takes at most {amount(worst.min())} times the smallest median."
    )
