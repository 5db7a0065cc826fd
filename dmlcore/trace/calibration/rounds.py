"""Rounds in which every worker computes a task: recorded ones, and those that a fitted cluster predicts."""

import dataclasses
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore.cluster import Cluster
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.durations import Durations
from dmlcore.trace import Trace

CLOSE = 0.03  # relative error of a prediction that counts as right
LATER = 0.1  # the same for tasks in a row, if it is also more than chance explains
CHANCE = 2  # standard errors of a recorded mean that chance explains
FEWEST = 20  # recorded rounds below which a comparison says nothing
CANCELLED = 0.05  # share of cancelled tasks above which the finished ones are no sample of all
TASKS, ROUNDS = 300_000, 20_000  # most tasks and rounds of a prediction
SPAN = 8  # tasks in a row of which a worker's sum is compared,
SPANS = 8  # if there are so many recorded ones
LONGEST, LEAST = 32, 0.1  # of a run of rows: the most, and the correlation at its end


class Rounds(NamedTuple):
    """Times of rounds.

    Args:
        seconds: mean time of a round that waits for all.
        throughput: samples/s of all workers that do not wait.
        straggling: mean time of a round that waits for all / mean time of a task.
        span: mean time of `SPAN` tasks of each worker, without waits between, until all have finished.
    """

    seconds: float
    throughput: float
    straggling: float
    span: float


class Fit(NamedTuple):
    """A cluster that was fitted to rounds, and how it predicts them.

    Args:
        cluster: the cluster.
        told: how well it predicts, and why recorded tasks are drawn if they are, for `Cluster.fitted`; "" if
            that is not known.
        why: the reason alone, where the fitted laws miss more than chance explains; else "".
    """

    cluster: Cluster
    told: str = ""
    why: str = ""


def predicting(cluster: Cluster, traces: Sequence[Trace]) -> Fit:
    """Returns the cluster if it predicts the recorded rounds, else one that draws the recorded tasks.

    Guarantee: mean round, throughput and straggling are predicted within 3%, or `told` says what is not. Laws
    with slow episodes, which short runs of recorded tasks lose, may miss by as much as chance explains. The
    first of these that does is taken: the fitted laws; every worker's own recorded tasks, drawn one by one,
    or in runs where successive tasks are correlated; whole rounds, one by one or in runs.

    Args:
        cluster: fitted to the traces.
        traces: of the same machines.
    """
    tasks, whole = _finished(traces)
    if len(whole) < FEWEST * cluster.num_workers:
        return Fit(cluster)
    seconds, sizes = (
        whole[name].to_numpy().reshape(cluster.num_workers, -1) for name in ("seconds", "batch_size")
    )
    recorded = _measured(seconds, sizes, tasks)
    spans = _spans(seconds).max(axis=0)
    later = max(LATER, _chance(spans)) if len(spans) >= SPANS else np.inf
    allowed = [CLOSE, CLOSE, CLOSE, later]
    between, after, run = _correlations(seconds)
    rows = {"bootstrap": tasks, "rounds": whole}
    by_chance = _chance(seconds.max(axis=0))
    tried = []
    for how, in_a_row in [("laws", 1), *product(rows, dict.fromkeys((1, run)))]:
        made = cluster if how == "laws" else _drawing(cluster, Durations.of(rows[how], how, in_a_row))
        missed = np.array(_predicted(made, sizes)) / np.array(recorded) - 1
        most_allowed = np.maximum(allowed, by_chance if how == "laws" and cluster.stragglers else 0)
        tried.append((float(np.abs(missed / most_allowed).max()), missed, made, how, in_a_row))
        if tried[-1][0] <= 1:
            break
    worst, missed, made, how, in_a_row = min(tried, key=lambda each: each[0])
    correlated = f"tasks of a round correlate by {between:.2f}, successive ones of a worker by {after:.2f}"
    told = (
        f"{1 + missed[0]:.2f}x the recorded round of {recorded.seconds:.4g} s, {1 + missed[1]:.2f}x its "
        f"samples/s, {1 + missed[2]:.2f}x its straggling of {recorded.straggling:.3g}; {correlated}"
    )
    if how == "laws" and worst <= 1:
        return Fit(cluster, told)

    def most(missed: np.ndarray) -> str:
        names = "mean round", "throughput", "straggling", f"mean time of {SPAN} tasks in a row"
        which = int(np.abs(missed / allowed).argmax())
        return f"the {names[which]} by {missed[which]:+.1%}"

    why = f"the fitted laws miss {most(tried[0][1])} (chance explains {by_chance:.1%}; {correlated})"
    if how != "laws":
        what = "whole rounds" if how == "rounds" else "each worker's recorded tasks"
        why += f"; {what} are drawn instead" + (f", {in_a_row} in a row" if in_a_row > 1 else "")
        why += f", and miss {most(missed)}" if worst > 1 else ""
    refuted = np.abs(tried[0][1]).max() > by_chance or worst > 1
    return Fit(made, f"{told}; {why}", why if refuted else "")


def _chance(values: np.ndarray) -> float:
    """Returns the relative error of a mean that chance explains."""
    return float(CHANCE * values.std() / np.sqrt(max(len(values), 1)) / max(values.mean(), 1e-300))


def _finished(traces: Sequence[Trace]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the finished tasks of traces, and those in whole rounds, sorted by worker.

    A worker's k-th finished task is in round k. There is no round if many tasks were cancelled.
    """
    finished, in_rounds = [], []
    for trace in traces:
        tasks = trace.tasks.sort_values(["worker", "clock"])
        done = tasks["push_end"].notna()
        if (~done & (tasks["compute_end"] < trace.end_time)).mean() > CANCELLED:
            return tasks, tasks[:0]
        took = tasks["compute_end"] - tasks["compute_start"]
        tasks = tasks[["worker", "batch_size"]].assign(seconds=took)[done]
        rounds = int(np.bincount(tasks["worker"], minlength=trace.num_workers).min())
        finished.append(tasks)
        in_rounds.append(tasks[tasks.groupby("worker").cumcount() < rounds])
    return pd.concat(finished), pd.concat(in_rounds).sort_values("worker", kind="stable")


def _measured(seconds: np.ndarray, sizes: np.ndarray, tasks: pd.DataFrame | None = None) -> Rounds:
    """Returns the times of rounds, shape (W, rounds); the throughput is that of all tasks."""
    took, samples = seconds.sum(axis=1), sizes.sum(axis=1)
    if tasks is not None:
        took, samples = tasks.groupby("worker")[["seconds", "batch_size"]].sum().to_numpy().T
    mean = float(seconds.max(axis=0).mean())
    span = float(_spans(seconds).max(axis=0).mean())
    return Rounds(mean, float((samples / took).sum()), mean / float(seconds.mean()), span)


def _spans(seconds: np.ndarray) -> np.ndarray:
    """Returns each worker's seconds of `SPAN` tasks in a row, shape (W, rounds // SPAN)."""
    count = seconds.shape[1] // SPAN
    return seconds[:, : count * SPAN].reshape(len(seconds), count, SPAN).sum(axis=2)


def _predicted(cluster: Cluster, sizes: np.ndarray) -> Rounds:
    """Returns the times of rounds on a cluster, whose tasks have the recorded samples again and again."""
    workers, recorded = sizes.shape
    rounds = min(ROUNDS, max(TASKS // workers, SPAN))
    sizes = sizes[:, np.arange(rounds) % recorded]
    draw = Draws(cluster, seed=0).compute_seconds
    seconds = [
        [draw(worker, clock, size) for clock, size in enumerate(own.tolist())]
        for worker, own in enumerate(sizes)
    ]
    return _measured(np.array(seconds), sizes)


def _correlations(seconds: np.ndarray) -> tuple[float, float, int]:
    """Returns the correlation of tasks of a round, that of a worker's successive tasks, and a run's length.

    The run ends where the correlation of a worker's tasks has fallen to 0.1.
    """
    spread = seconds.std(axis=1, keepdims=True)
    z = (seconds - seconds.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    z = z[spread[:, 0] > 0]
    workers, rounds = z.shape
    if not workers:
        return 0.0, 0.0, 1
    between = (workers * float(z.mean(axis=0).var()) - 1) / (workers - 1) if workers > 1 else 0.0
    lags = range(1, max(min(LONGEST, rounds // FEWEST), 1) + 1)
    falling = [float((z[:, lag:] * z[:, :-lag]).mean()) for lag in lags]
    run = next((lag for lag, each in zip(lags, falling, strict=True) if each < LEAST), lags[-1])
    return between, falling[0], run


def _drawing(cluster: Cluster, durations: Durations) -> Cluster:
    """Returns the cluster with recorded tasks in place of laws of computing."""
    nothing = (0.0,) * cluster.num_workers
    return dataclasses.replace(
        cluster,
        samples_per_second=tuple(durations.speeds),
        overhead_seconds=nothing,
        jitter=None,
        stragglers=(),
        durations=durations,
    )
