"""Which methods are faster than which, seed by seed."""

import numpy as np
import pandas as pd

BEST, SLOWER, NEVER = "best", "slower", "not reached"  # verdicts; besides: slower on some of the seeds
ENOUGH = 5  # seeds: two equal methods come out in one order on all of so many once in 16 times


def level(table: pd.DataFrame) -> list[str]:
    """Returns the methods that seeds do not tell from the best one."""
    if table["verdict"].iloc[0] != BEST:
        return []
    return [str(name) for name, verdict in table["verdict"].items() if verdict not in (BEST, SLOWER, NEVER)]


def ranked(seconds: pd.DataFrame) -> pd.DataFrame:
    """Returns what the times to the target say of each method, the least median first.

    Two methods on one seed meet the same stragglers, so that times are compared seed by seed: a method is
    slower than the best where it is on every seed, of at least five.

    Args:
        seconds: by method and seed; inf where the target was not reached.

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
    table["ratio"] = (table["seconds"] / table["seconds"].iloc[0]).fillna(1.0)  # where neither gets there
    ratios = (seconds / seconds.iloc[0]).fillna(1.0)
    slower, of = (ratios > 1).sum(axis=1), seconds.shape[1]
    verdicts = [SLOWER if count == of >= ENOUGH else f"{SLOWER} on {count} of {of}" for count in slower]
    table["verdict"] = np.where(reached.any(axis=1), verdicts, NEVER)
    if np.isfinite(table["seconds"].iloc[0]):
        table.loc[table.index[0], "verdict"] = BEST
    elif reached.iloc[0].any():
        table.loc[table.index[0], "verdict"] = f"reached on {reached.iloc[0].sum()} of {of}"
    return table
