"""The ranking of methods, by comparing them seed by seed."""

import numpy as np
import pandas as pd

BEST, SLOWER, NEVER = "best", "slower", "not reached"  # verdicts; another one is "slower on 3 of 5"
ENOUGH = 5  # seeds; two equally fast methods have the same order on all 5 with a probability of 1/16


def level(table: pd.DataFrame) -> list[str]:
    """Returns the methods besides the best that are not clearly slower than it; [] if none is the best."""
    if table["verdict"].iloc[0] != BEST:
        return []
    return [str(name) for name, verdict in table["verdict"].items() if verdict not in (BEST, SLOWER, NEVER)]


def ranked(seconds: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of the methods with their times to the target and verdicts, the smallest median first.

    With the same seed all methods have the same stragglers, so times are compared seed by seed: a method is
    "slower" if it is slower than the best on every seed, of at least five.

    Args:
        seconds: times by method and seed; inf if the target was not reached.

    >>> times = {"A": [1, 2, 3, 4, 5], "B": [2, 3, 4, 5, 4.5], "C": [2, 3, 4, 5, 6]}
    >>> ranked(pd.DataFrame(times).T)["verdict"].to_dict()
    {'A': 'best', 'B': 'slower on 4 of 5', 'C': 'slower'}
    """
    spread = {"seconds": seconds.median(axis=1), "least": seconds.min(axis=1), "most": seconds.max(axis=1)}
    table = pd.DataFrame(spread).sort_values(["seconds", "least"], kind="stable")
    seconds = seconds.loc[table.index]
    reached = seconds.notna() & (seconds < np.inf)
    first = (seconds == seconds.min()) & reached
    table["fastest"] = first.div(first.sum().clip(lower=1)).mean(axis=1)
    table["ratio"] = (table["seconds"] / table["seconds"].iloc[0]).fillna(1.0)  # neither reached the target
    ratios = (seconds / seconds.iloc[0]).fillna(1.0)
    slower, of = (ratios > 1).sum(axis=1), seconds.shape[1]
    verdicts = [SLOWER if count == of >= ENOUGH else f"{SLOWER} on {count} of {of}" for count in slower]
    table["verdict"] = np.where(reached.any(axis=1), verdicts, NEVER)
    if np.isfinite(table["seconds"].iloc[0]):
        table.loc[table.index[0], "verdict"] = BEST
    elif reached.iloc[0].any():
        table.loc[table.index[0], "verdict"] = f"reached on {reached.iloc[0].sum()} of {of}"
    return table
