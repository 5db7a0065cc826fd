"""Which methods are faster than which, seed by seed."""

import numpy as np
import pandas as pd

BEST, SLOWER, NEVER = "best", "slower", "not reached"  # verdicts; besides: slower on some of the seeds


def level(table: pd.DataFrame) -> list[str]:
    """Returns the methods that seeds do not tell from the best: those that are not slower on every seed."""
    return [str(name) for name, verdict in table["verdict"].items() if verdict not in (BEST, SLOWER, NEVER)]


def ranked(seconds: pd.DataFrame) -> pd.DataFrame:
    """Returns what the times to the target say of each method, the least median first.

    Two methods on one seed meet the same stragglers, so that times are compared seed by seed: a method is
    slower than the best where it is on every seed.

    Args:
        seconds: by method and seed; inf where the target was not reached.

    >>> seconds = pd.DataFrame({0: [1.0, 2.0, 5.0], 1: [1.5, 1.4, 6.0]}, index=["A", "B", "C"])
    >>> ranked(seconds)["verdict"].to_dict()
    {'A': 'best', 'B': 'slower on 1 of 2', 'C': 'slower'}
    """
    table = pd.DataFrame(
        {"seconds": seconds.median(axis=1), "least": seconds.min(axis=1), "most": seconds.max(axis=1)}
    )
    table = table.sort_values(["seconds", "least"], kind="stable")
    seconds = seconds.loc[table.index]
    first = (seconds == seconds.min()) & np.isfinite(seconds)
    table["fastest"] = first.div(first.sum().clip(lower=1)).mean(axis=1)
    ratios = (seconds / seconds.iloc[0]).fillna(1.0)  # where neither gets there
    table["ratio"] = ratios.median(axis=1)
    slower, of = (ratios > 1).sum(axis=1), len(ratios.columns)
    table["verdict"] = [f"{SLOWER} on {count} of {of}" if count < of else SLOWER for count in slower]
    table.loc[~np.isfinite(seconds).any(axis=1), "verdict"] = NEVER
    if np.isfinite(table["seconds"].iloc[0]):
        table.loc[table.index[0], "verdict"] = BEST
    return table
