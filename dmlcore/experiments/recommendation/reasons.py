"""Why a method is the fastest: the regime, how many samples methods need, and what their workers wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from dmlcore.engines import simulate
from dmlcore.experiments.recommendation.goal import LONGER, Goal
from dmlcore.experiments.recommendation.ranking import level
from dmlcore.experiments.runs import train
from dmlcore.methods.policies import bsp
from dmlcore.trace import Trace, metrics
from dmlcore.types import Method

ROUNDS = 200  # of BSP, for the measure of straggling
UPDATES = 400  # of a timeline, for shares of time, at most
BASES = "BSP", "ASP"  # which the best is compared with
DOING = {
    "compute": "compute",
    "cancelled": "compute what is thrown away",
    "pull": "pull",
    "push": "push",
    "queue": "queue at the server",
    "wait": "wait for others",
    "away": "are away",
}


class Regime(NamedTuple):
    """Three numbers that say where a problem on a cluster stands.

    Args:
        straggling: mean time of the slowest task of a round over that of any task, of computing alone.
        communication_ratio: c, see `Cluster.regime`.
        server_load: rho, likewise.
    """

    straggling: float
    communication_ratio: float
    server_load: float

    def __str__(self) -> str:
        ratio, load = self.communication_ratio, self.server_load
        return f"straggling {self.straggling:.2g}, c = {ratio:.2g}, ρ = {load:.2g}"


def regime(goal: Goal) -> Regime:
    """Returns the three numbers of a goal's cluster and problem."""
    options: Any = {"updates": ROUNDS, "batch_size": goal.batch_size}
    tasks = simulate(bsp(), goal.cluster, **options).tasks
    seconds = (tasks["compute_end"] - tasks["compute_start"]).groupby(tasks["clock"])
    straggling = float(seconds.max().mean() / seconds.mean().mean())
    return Regime(straggling, *goal.cluster.regime(goal.problem, goal.batch_size))


def trace(goal: Goal, method: Method, seconds: float, seed: int) -> Trace:
    """Returns what a method's workers do in some time."""
    options: Any = {"batch_size": goal.batch_size, "seed": seed, "seconds": seconds}
    if method.policy.on_observation is not None:
        return train(goal.problem, goal.cluster, method, None, eval_every=2**20, **options).trace
    sizes: Any = {"parameter_bytes": goal.problem.parameter_bytes, "tensor_sizes": goal.problem.tensor_sizes}
    return simulate(method, goal.cluster, **options, **sizes)


def shares(goal: Goal, method: Method, seconds: float, seed: int) -> pd.Series:
    """Returns the mean share of a worker's time by what it does."""
    found = metrics.time_breakdown(trace(goal, method, seconds, seed))
    return found[[f"{kind}_share" for kind in metrics.PHASES]].mean().set_axis([*metrics.PHASES])


def samples_per_second(goal: Goal, method: Method) -> float:
    """Returns how many samples of a method get into updates in a second."""
    rounds = simulate(bsp(), goal.cluster, updates=ROUNDS, batch_size=goal.batch_size).end_time
    made = trace(goal, method, rounds, 0)
    return float(made.updates["samples"].sum() / made.end_time)


def why(goal: Goal, table: pd.DataFrame, methods: Mapping[str, Method], seed: int) -> str:
    """Returns the reason in sentences: who is first, in which regime, and what makes the difference."""
    first, best = str(table.index[0]), table.iloc[0]
    about = f"{goal.cluster.num_workers} workers, {regime(goal)}"
    if not math.isfinite(best["seconds"]):
        return f"{about}. No method reaches a {goal} on most seeds."
    spread = f"{best['least']:.3g} to {best['most']:.3g}"
    median = f"{best['seconds']:.3g} s ({spread} by seed)"
    if alike := level(table):
        told = [
            f"{about}. {first} has the least median time to a {goal}, {median}, but between it and "
            f"{_listed(alike)} there is no difference that these seeds show"
        ]
    else:
        told = [f"{about}. {first} reaches a {goal} in {median}, on every seed before any other"]
    done = shares(goal, methods[first], best["seconds"], seed)
    told.append(f"Its workers {_doing(done)}")
    for name in BASES:
        if name in table.index and name != first:
            told.append(_against(goal, table, methods, name, seed))
    return ". ".join(told) + "."


def _against(goal: Goal, table: pd.DataFrame, methods: Mapping[str, Method], name: str, seed: int) -> str:
    """Returns why a method takes longer: more samples, or fewer in a second, and what its workers do."""
    first: Any = table.iloc[0]
    other: Any = table.loc[name]
    does = _doing(shares(goal, methods[name], float(first["seconds"]), seed))
    if not math.isfinite(other["seconds"]):
        return f"{name} does not reach it in {LONGER:g} times that; its workers {does}"
    needed = other["samples"] / first["samples"]
    speed = needed / (other["seconds"] / first["seconds"])
    return (
        f"{name} takes {other['ratio']:.2f} times as long: it computes {needed:.2f} times the samples, at "
        f"{speed:.2f} times the rate; its workers {does}"
    )


def _doing(share: pd.Series) -> str:
    """Returns what takes at least a twentieth of the time, in words.

    >>> _doing(pd.Series({"compute": 0.6, "wait": 0.38, "pull": 0.02}))
    'compute 60% of the time and wait for others 38%'
    """
    large = share[share >= 0.05]
    parts = [f"{DOING[str(kind)]} {part:.0%}" for kind, part in large.items()]
    parts[:1] = [f"{parts[0]} of the time"] if parts else ["do nothing that takes time"]
    return _listed(parts)


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
