"""The ranking of methods, by comparing them seed by seed."""

import numpy as np
import pandas as pd
from scipy.stats import binomtest

BEST, SLOWER, NEVER = "best", "slower", "not reached"  # verdicts; another one is "slower on 3 of 5"
CHANCE = 1 / 16  # probability with which seeds order two equally fast methods as clearly, such as 5 of 5


def level(table: pd.DataFrame) -> list[str]:
    """Returns the methods besides the best that are not clearly slower than it; [] if none is the best."""
    if table["verdict"].iloc[0] != BEST:
        return []
    return [str(name) for name, verdict in table["verdict"].items() if verdict not in (BEST, SLOWER, NEVER)]


def ranked(seconds: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of the methods with their times to the target and verdicts, the smallest median first.

    With the same seed all methods have the same stragglers, so times are compared seed by seed: a method is
    "slower" if it is slower than the best on so many of their seeds that two equally fast methods would
    differ as much with a probability of at most 1/16, such as 5 of 5, 9 of 10 or 15 of 20 (sign test).
    Methods that ran on fewer seeds, because they were slower on these, come after the others.

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
    table["ratio"] = (table["seconds"] / table["seconds"].iloc[0]).fillna(1.0)  # neither reached the target
    slower, of = (seconds > seconds.iloc[0]).sum(axis=1), seconds.notna().sum(axis=1)
    verdicts = [_compared(*counts) for counts in zip(slower, of, strict=True)]
    table["verdict"] = np.where(reached.any(axis=1), verdicts, NEVER)
    if np.isfinite(table["seconds"].iloc[0]):
        table.loc[table.index[0], "verdict"] = BEST
    elif reached.iloc[0].any():
        table.loc[table.index[0], "verdict"] = f"reached on {reached.iloc[0].sum()} of {of.iloc[0]}"
    return table


def _compared(slower: int, of: int) -> str:
    clear = slower > of / 2 and binomtest(slower, of).pvalue <= CHANCE
    return SLOWER if clear else f"{SLOWER} on {slower} of {of}"
