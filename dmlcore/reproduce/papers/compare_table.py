"""The clusters of notebooks/06_compare.ipynb, and its table: what studies found, in sentences."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.regime import with_load
from dmlcore.experiments.recommendation.reasons import in_words
from dmlcore.experiments.study.judging import BEST, outcomes

CALM = stats.gamma(16, scale=1 / 16)  # jitter with a standard deviation of a quarter, as in `dml.presets`
COST, LOAD = 4.0, 4.0  # c of the slow links, rho of the saturated server


def regimes(workers: int, problem: Any, batch_size: int = 32) -> dict[str, dml.Cluster]:
    """Returns the clusters by name; the parameters of `problem` set the bytes of transfers.

    A task takes `batch_size` ms at full speed, and a transfer 2 ms. On the slow links the time of a transfer
    is in proportion to its bytes, and every worker has its own link. The saturated server takes equally long
    for a pull and for a push, whatever their bytes.

    >>> for name, cluster in regimes(8, dml.problems.digits_mlp()).items():
    ...     print(f"{name}: {cluster.regime(dml.problems.digits_mlp())}")
    even: c = 0.12, rho = 0
    uneven speeds: c = 0.1, rho = 0
    slow episodes: c = 0.096, rho = 0
    slow links: c = 4, rho = 0
    saturated server: c = 0.12, rho = 4
    """
    even = dml.Cluster.uniform(workers, dml.presets.FULL_SPEED, latency=0.002, jitter=CALM)
    transfer = COST * batch_size / dml.presets.FULL_SPEED / 2
    bandwidth = problem.parameter_bytes / transfer
    return {
        "even": even,
        "uneven speeds": dml.presets.heterogeneous(workers),
        "slow episodes": dml.presets.unstable(workers),
        "slow links": dataclasses.replace(
            even, latency_seconds=(0.0,) * workers, bandwidth_bytes_per_second=(bandwidth,) * workers
        ),
        "saturated server": with_load(even, LOAD, problem, batch_size, {"push": 1, "pull": 1}),
    }


def straggling(cluster: dml.Cluster, batch_size: int = 32, rounds: int = 400) -> float:
    """Returns the cost of waiting for all: the mean time of the slowest task of a round / that of any task.

    It includes only computing, not links and the server. It is 1 if all tasks take the same time.

    >>> straggling(dml.Cluster.uniform(4)), round(straggling(dml.Cluster.from_speeds([1000, 1000, 500])), 6)
    (1.0, 1.5)
    """
    return dml.metrics.straggling(dml.simulate(dml.bsp(), cluster, updates=rounds, batch_size=batch_size))


RATIO = "relative to BSP"  # median of the seeds' ratios of times to the target
OTHER = "another optimizer"  # group of rows that are not compared, because their optimizer is another one
ALONE = "not compared"  # their outcome
FRONT = BEST, "level", "undecided"  # outcomes of the best method, and of those not told apart from it
FEW = 4  # largest number of such methods that are named


def times(answers: Sequence[Any]) -> pd.DataFrame:
    """Returns the seconds to the target, by method and seed, of studies of one problem on one cluster.

    Args:
        answers: of the studies on the cluster; each has other methods.
    """
    return pd.concat([answer.seconds for answer in answers])


def rows(answers: Sequence[Any], groups: Mapping[str, str]) -> pd.DataFrame:
    """Returns one column of the table: by method, its best setting, its time, and how it compares.

    The ratio to BSP is that of the times on the same seed, in the median. A run that does not reach the
    target counts with its whole length, so that the ratio is a lower bound if `seconds` is inf.

    Args:
        answers: as for `times`.
        groups: method -> its group, in the order of the rows; with BSP.
    """
    seconds = times(answers).loc[[*groups]]
    ended = pd.concat([answer.runs for answer in answers]).groupby(["method", "seed"])["time"].max()
    lasted = seconds.where(np.isfinite(seconds), ended.unstack("seed"))
    table = pd.concat([answer.told for answer in answers]).loc[[*groups]].assign(group=pd.Series(groups))
    table[["seconds", "least", "most"]] = seconds.agg(["median", "min", "max"], axis=1)
    table["reached"] = np.isfinite(seconds).sum(axis=1)
    table[RATIO] = (lasted / lasted.loc["BSP"]).median(axis=1)
    ranked = {name: found.outcome for name, found in outcomes(seconds[table["group"] != OTHER]).items()}
    return table.assign(outcome=pd.Series(ranked)).fillna({"outcome": ALONE})


def amount(ratio: float) -> str:
    """Returns a ratio of times as text.

    >>> amount(0.456), amount(np.inf)
    ('0.46', 'infinity (the target is not reached)')
    """
    return f"{ratio:.2g}" if np.isfinite(ratio) else "infinity (the target is not reached)"


def relative(row: Any) -> str:
    """Returns a row's ratio to BSP as text, with a ">" if the method did not reach the target.

    >>> relative({RATIO: 1.25, "seconds": np.inf})
    '>1.25'
    """
    return f"{'>' if np.isinf(row['seconds']) else ''}{row[RATIO]:.2f}"


def fastest(column: pd.DataFrame) -> str:
    """Returns a sentence that says which methods are fastest in one column of the table."""
    about = column.iloc[0]
    numbers = f"straggling {about['straggling']:.2g}, c = {about['c']:.2g}, ρ = {about['rho']:.2g}"
    where = f"**{about['regime']}** ({numbers})"
    front = column[column["outcome"].isin(FRONT)].sort_values(RATIO)
    if front.empty:
        return f"{where}: no method reaches the target."
    best = str(front.loc[front["outcome"] == BEST, "method"].iloc[0])
    share = amount(front.loc[front["outcome"] == BEST, RATIO].iloc[0])
    if len(front) == 1:
        return f"{where}: {best} is faster than all others, in {share} of BSP's time."
    others = [name for name in front["method"] if name != best]
    names, low, high = in_words(others), amount(front[RATIO].iloc[0]), amount(front[RATIO].iloc[-1])
    if len(others) > FEW:
        with_bsp = "with BSP among them" if "BSP" in others else "but not BSP"
        names = f"{len(others)} methods ({', '.join(others[:FEW])} and others), {with_bsp},"
    verb = "is" if len(others) == 1 else "are"
    apart = f"{names} {verb} not told apart from it; they take {low} to {high} of BSP's time"
    return f"{where}: {best} is the fastest in the median, and {apart}."


def headline(table: pd.DataFrame) -> str:
    """Returns the title of the picture: how many methods are the best on some cluster."""
    problem = table["problem"].iloc[0]
    best = table.loc[(table["problem"] == problem) & (table["outcome"] == BEST), "method"]
    if best.nunique() == 1:
        return f"{best.iloc[0]} is the best on all {len(best)} clusters ({problem})"
    return (
        f"Which method is the fastest depends on the cluster: each of {best.nunique()} methods\n"
        f"is the best on one or more of the {len(best)} clusters ({problem})"
    )


def never_slower(table: pd.DataFrame) -> list[str]:
    """Returns the methods with medians that are never above BSP's, among those run on everything."""
    ratio = table[table["group"] != OTHER].pivot(index="method", columns=["problem", "regime"], values=RATIO)
    return [str(name) for name in ratio.index[(ratio <= 1).all(axis=1)] if name != "BSP"]


def behind(table: pd.DataFrame) -> pd.Series:
    """Returns by method its largest ratio to the smallest median time, over all clusters of a problem."""
    medians = table[table["group"] != OTHER].pivot(index="method", columns="regime", values="seconds")
    return (medians / medians.min()).max(axis=1)


def conclusions(table: pd.DataFrame) -> list[str]:
    """Returns the conclusions of the table, in sentences made from its numbers.

    Args:
        table: columns problem, regime, straggling, c, rho, method and those of `rows`; one row per problem,
            regime and method. The first problem has all methods and regimes.
    """
    first = table["problem"].iloc[0]
    own = table[table["problem"] == first]
    found = [fastest(column) for _, column in own.groupby("regime", sort=False)]
    asp = own[own["method"] == "ASP"].set_index("regime")[RATIO]
    parts = [f"{regime} {amount(value)}" for regime, value in asp.items()]
    found.append(f"ASP, whose workers never wait, takes this share of BSP's time: {', '.join(parts)}.")
    worst = behind(own)
    safe = str(worst.idxmin())
    found.append(
        f"On {first}, {safe} is the safest choice, if it is tuned on each cluster: on none does it take more "
        f"than {amount(worst[safe])} times as long as the fastest there (by medians); BSP takes up to "
        f"{amount(worst['BSP'])} times as long."
    )
    if names := never_slower(table):
        found.append(f"Never slower than BSP, on any cluster or problem: {in_words(names)}.")
    return found
