"""Measurements of notebooks/01_ssp.ipynb: windows, shares, makespans, reads, regret, topics."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize

import dmlcore as dml
from dmlcore.experiments.study import Study

BOUNDS = (0, 1, 3, 8)  # s of timelines, in clocks
DIAMETER, LIPSCHITZ = math.sqrt(2), 1.0  # F and L of theorem 1, for distances to points of the unit ball
CREW = 4  # number of workers in the runs for theorem 1
COORDINATES, UPDATES = 64, 2**14  # of the losses that a stale read cannot foresee
MULTIPLES = np.array([1, 4, 16, 32, 64, 128])  # run lengths as multiples of 16 (s + 1) P updates


def violations(policy: Any, s: int, clusters: Iterable[dml.Cluster], seed: int, seconds: float = 4.0) -> int:
    """Returns the number of reads that violate the bound s, plus clocks of lead beyond s, on all clusters."""
    traces = [dml.simulate(policy, each, seconds=seconds, seed=seed) for each in clusters]
    return sum(
        len(dml.metrics.read_window_violations(trace, s)) + max(0, dml.metrics.clock_gap(trace) - s)
        for trace in traces
    )


def computing_share(trace: dml.Trace) -> float:
    """Returns the share of their time in which workers compute, the mean over workers."""
    return dml.metrics.time_breakdown(trace)["compute_share"].mean()


def computing_rise(runs: Mapping[str, Sequence[dml.Trace]]) -> list[float]:
    """Returns the smallest increase of the computing share from one s to the next, one number per seed.

    Args:
        runs: s, in ascending order -> one trace per seed.
    """
    share = pd.DataFrame(
        {name: [computing_share(trace) for trace in traces] for name, traces in runs.items()}
    )
    return share.diff(axis=1).min(axis=1).tolist()


def makespan(cluster: dml.Cluster, s: int, seed: int = 0, clocks: int = 200) -> float:
    """Returns the seconds until the slowest worker has finished `clocks` clocks under SSP."""
    enough = 32 * cluster.num_workers * (clocks + s + 1)  # with so many samples the slowest has finished
    tasks = dml.simulate(dml.ssp(s), cluster, samples=enough, seed=seed).tasks
    return tasks.loc[tasks["clock"] == clocks - 1, "push_end"].max()


def farthest(makespans: Mapping[int, float]) -> float:
    """Returns the ratio makespan of BSP / makespan of SSP that is farthest from 1, among all s > 0.

    >>> farthest({0: 1.0, 1: 1.0, 3: 0.8, 8: 1.25})
    1.25
    >>> farthest({0: 1.0, 1: 1.0, 3: 0.8, 8: 1.6})
    0.625
    """
    ratios = [makespans[0] / lasted for s, lasted in makespans.items() if s]
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))


def waiting(cluster: dml.Cluster, s: int, seed: int, clocks: int = 200) -> float:
    """Returns the seconds that workers wait, for others, links or the server, per second of computing."""
    trace = dml.simulate(dml.ssp(s), cluster, samples=32 * cluster.num_workers * clocks, seed=seed)
    return 1 / computing_share(trace) - 1


def lag(trace: dml.Trace) -> float:
    """Returns the mean number of clocks by which reads lag behind."""
    counts = dml.metrics.clock_staleness(trace)
    return -np.average(counts.index, weights=counts)


def growth(found: Study, many: str, few: str) -> list[float]:
    """Returns SSP's lead over BSP on the cluster `many` / its lead on `few`, by seed; NaN if undefined."""
    return (found.samples("BSP", "SSP", many) / found.samples("BSP", "SSP", few)).tolist()


def cosine(params: Any, truth: np.ndarray) -> float:
    """Returns the mean cosine of the true topics and the topics of a run, matched one to one."""
    return dml.problems.match_topics(np.asarray(dml.problems.topics_of(params)), truth)[1]


def regrets(
    cluster: dml.Cluster,
    s: int,
    seed: int,
    *,
    step: Callable[[np.ndarray], np.ndarray] = lambda rates: rates,
    multiples: np.ndarray = MULTIPLES,
) -> pd.DataFrame:
    """Returns the regret of stale reads after multiples of 16 (s + 1) P updates, and its bound.

    Each term of the objective is the distance to a point, drawn from the unit ball of four dimensions. The
    column `out_of_turn` has the value of `of_lemma` on the first 2000 updates; NaN for s = 0, which the lemma
    does not cover.

    Args:
        cluster: a cluster of P workers.
        s: of SSP and of the bounds, in clocks.
        seed: of the schedule and the points.
        step: step sizes of theorem 1 -> the step sizes to use.
        multiples: run lengths as multiples of 16 (s + 1) P updates, ascending.
    """
    crew = cluster.num_workers
    every = 16 * (s + 1) * crew * multiples
    steps = int(every[-1])
    trace = dml.simulate(dml.ssp(s), cluster, samples=32 * (steps + crew * s), seed=seed)
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(steps, 4))
    points *= rng.random((steps, 1)) ** (1 / 4) / np.linalg.norm(points, axis=1, keepdims=True)

    def distance(t: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        length = math.sqrt((x - points[t]) @ (x - points[t]))
        return length, (x - points[t]) / length if length else 0 * x

    rates = dml.theory.regret_rates(DIAMETER, LIPSCHITZ, s, crew, steps)
    walk = dml.metrics.walk(trace, distance, np.eye(4)[0], step(rates))
    found = [walk.losses[:number].sum() - _least(points[:number]) for number in every.tolist()]
    bounds = [dml.theory.regret_bound(DIAMETER, LIPSCHITZ, s, crew, number) for number in every.tolist()]
    frame = pd.DataFrame({"T": every, "regret": found, "bound": bounds})
    return frame.assign(s=s, seed=seed, out_of_turn=of_lemma(trace.until(2000), s) if s else math.nan)


def unforeseen(s: int, num_workers: int, seed: int) -> dict[str, float]:
    """Returns the regret of stale reads of losses that they tell nothing of, and the bound of theorem 1.

    Workers run in lock-step, and all losses of s + 1 clocks are the scaled L1 distance to one random corner
    of a cube, so what a read lacks is just what would tell it where to go. The first losses are 0: with steps
    as long as the first ones x would leave the region that the theorem is for.

    Source: Weinberger and Ordentlich 2002, whose lower bound for delayed feedback has such losses.
    """
    size = 1 / math.sqrt(COORDINATES)
    window = (s + 1) * num_workers
    trace = dml.simulate(dml.ssp(s), dml.Cluster.uniform(num_workers), samples=32 * (UPDATES + window))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(-(-UPDATES // window), COORDINATES))
    corners = np.repeat(size * signs, window, axis=0)[:UPDATES]

    def distance(t: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        apart = size * (t >= window) * (x - corners[t])
        return np.abs(apart).sum(), size * np.sign(apart)

    rates = dml.theory.regret_rates(DIAMETER, LIPSCHITZ, s, num_workers, UPDATES)
    path = dml.metrics.walk(trace, distance, np.zeros(COORDINATES), rates)
    late = corners[window:]
    best = size * np.where(late.sum(axis=0) < 0, -1.0, 1.0)
    regret = path.regret(size * np.abs(late - best).sum())
    bound = dml.theory.regret_bound(DIAMETER, LIPSCHITZ, s, num_workers, UPDATES)
    found = {"s": s, "P": num_workers, "seed": seed, "regret": regret, "bound": bound}
    return found | {"F2": path.distance(best)}


def order(runs: pd.DataFrame, column: str) -> list[float]:
    """Returns the power of 1 + s (column s) or of P with which regret grows, for each seed."""
    x = np.log(runs[column] + (column == "s"))
    runs = runs.assign(x=x, y=np.log(runs["regret"]))
    return [np.polyfit(part["x"], part["y"], 1)[0] for _, part in runs.groupby("seed")]


def of_lemma(trace: dml.Trace, s: int) -> float:
    """Returns the largest number of missing and early updates of a read / the bound of lemma 1, for s > 0."""
    most = dml.theory.most_out_of_turn(s, trace.num_workers)
    return dml.metrics.out_of_turn(trace).sum(axis=1).max() / most


def _least(points: np.ndarray) -> float:
    """Returns the smallest sum of distances from any place to the points."""

    def total(x: np.ndarray) -> tuple[float, np.ndarray]:
        lengths = np.linalg.norm(x - points, axis=1)
        return lengths.sum(), ((x - points) / lengths[:, None]).sum(axis=0)

    return optimize.minimize(total, points.mean(axis=0), jac=True).fun


def slope(run: pd.DataFrame) -> float:
    """Returns the slope of log(regret) over log(T), from 16 times the first T on."""
    late = run[run["T"] >= 16 * run["T"].min()]
    return np.polyfit(np.log(late["T"]), np.log(late["regret"]), 1)[0]


def of_bound(run: pd.DataFrame) -> float:
    """Returns the largest regret / bound, from 16 times the T up to which it cannot exceed 1."""
    late = run[run["T"] >= 16 * run["T"].min()]
    return (late["regret"] / late["bound"]).max()
