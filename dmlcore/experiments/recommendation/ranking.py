"""The ranking of methods, by comparing them seed by seed."""

import numpy as np
import pandas as pd
from scipy.stats import binomtest

BEST, SLOWER, NEVER = "best", "slower", "not reached"  # verdicts; another one is "slower on 3 of 5"
CHANCE = 1 / 16  # largest probability of as clear an order, such as 5 of 5, of two equally fast methods


def level(table: pd.DataFrame) -> list[str]:
    """Returns the methods besides the best that are not clearly slower than it; [] if none is the best."""
    if table["verdict"].iloc[0] != BEST:
        return []
    return [str(name) for name, verdict in table["verdict"].items() if verdict not in (BEST, SLOWER, NEVER)]


def times_first(values: pd.DataFrame) -> pd.Series:
    """Returns each method's median over that of the first method, over the seeds with which both ran.

    Args:
        values: numbers by method and seed; NaN where a method did not run.

    >>> values = {"A": [1.0, 1.0, 4.0, 4.0, 4.0], "B": [2.0, 2.0, None, None, None]}
    >>> times_first(pd.DataFrame(values, dtype=float).T).to_dict()
    {'A': 1.0, 'B': 2.0}
    """
    first = values.notna().mul(values.iloc[0].to_numpy(), axis="columns").where(values.notna())
    return values.median(axis=1) / first.median(axis=1)


def ranked(seconds: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of the methods with their times to the target and verdicts, the fastest first.

    With the same seed all methods have the same stragglers, so times are compared seed by seed: a method is
    "slower" if it is slower than the best on so many of the seeds with which both ran that two equally fast
    methods would look as clear with a probability of at most 1/16, such as 5 of 5, 9 of 10 or 15 of 20 (sign
    test). That is the probability for one method and one look; of twenty methods that are looked at several
    times, some look clear by chance.

    Methods with fewer seeds were slower on these. They come after the others.

    Args:
        seconds: times by method and seed; inf if the target was not reached, NaN if it was not run.

    >>> times = {"A": [1, 2, 3, 4, 5], "B": [2, 3, 4, 5, 4.5], "C": [2, 3, 4, 5, 6]}
    >>> ranked(pd.DataFrame(times).T)["verdict"].to_dict()
    {'A': 'best', 'B': 'slower on 4 of 5', 'C': 'slower'}
    """
    spread = {"seconds": seconds.median(axis=1), "least": seconds.min(axis=1), "most": seconds.max(axis=1)}
    table = pd.DataFrame(spread | {"missing": seconds.isna().sum(axis=1)})
    table = table.sort_values(["missing", "seconds", "least"], kind="stable").drop(columns="missing")
    seconds = seconds.loc[table.index]
    reached = seconds < np.inf
    first = (seconds == seconds.min()) & reached
    table["fastest"] = first.div(first.sum().clip(lower=1)).mean(axis=1)
    table["ratio"] = times_first(seconds).fillna(1.0)  # neither reached the target
    slower, of = (seconds > seconds.iloc[0]).sum(axis=1), seconds.notna().sum(axis=1)
    verdicts = [_compared(*counts) for counts in zip(slower, of, strict=True)]
    table["verdict"] = np.where(reached.any(axis=1), verdicts, NEVER)
    if np.isfinite(table["seconds"].iloc[0]):
        table.loc[table.index[0], "verdict"] = BEST
    elif reached.iloc[0].any():
        table.loc[table.index[0], "verdict"] = f"reached on {reached.iloc[0].sum()} of {of.iloc[0]}"
    return table


def _compared(slower: int, of: int) -> str:
    clear = 2 * binomtest(slower, of, alternative="greater").pvalue <= CHANCE
    return SLOWER if clear else f"{SLOWER} on {slower} of {of}"
