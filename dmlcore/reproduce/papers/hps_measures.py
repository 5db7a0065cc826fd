"""Measurements of notebooks/04_hps.ipynb: round times from one timeline, finish times, shares of a gain."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from dmlcore import checks
from dmlcore.methods.loads import share_out
from dmlcore.trace import Trace
from dmlcore.types import Load, Push


def computing(trace: Trace) -> np.ndarray:
    """Returns the computing seconds of each worker's task of each update, (U, W).

    It is for policies with one task of every worker in each update, such as `bsp`.

    >>> import dmlcore as dml
    >>> computing(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=2))
    array([[1., 2.],
           [1., 2.]])
    """
    tasks = trace.tasks.query("update >= 0")
    tasks = tasks.assign(seconds=tasks["compute_end"] - tasks["compute_start"])
    return tasks.pivot(index="update", columns="worker", values="seconds").to_numpy(float)


def round_ends(seconds: npt.ArrayLike, transfer: float, *, pipelined: bool = False) -> np.ndarray:
    """Returns the times of the updates of a lock-step run, from the computing times of its tasks.

    Without a pipeline a round is a pull, the longest task and a push. With a pipeline a worker pushes task k
    and begins task k + 1 as soon as it has computed task k and received the answer to task k - 1. The
    simulator computes the same times if workers have their own links and the server takes no time. So one
    timeline gives the times for every bandwidth.

    Args:
        seconds: computing seconds of each worker's task of each update, (U, W).
        transfer: seconds of a pull, and of a push.
        pipelined: whether workers compute during transfers.

    Returns:
        Seconds from the start of the run, (U,).

    >>> round_ends([[1.0, 2.0], [1.0, 2.0]], 0.5)
    array([3., 6.])
    >>> round_ends([[1.0, 2.0], [1.0, 2.0]], 0.5, pipelined=True)
    array([3., 5.])
    """
    tasks = np.asarray(seconds, float)
    if not pipelined:
        return np.cumsum(tasks.max(axis=1) + 2 * transfer)
    ends, answer = np.empty(len(tasks)), transfer
    begun = np.full(tasks.shape[1], transfer)
    for k, lasted in enumerate(tasks):
        begun = np.maximum(begun + lasted, answer)  # start of task k + 1 and of the push of task k
        ends[k] = begun.max() + transfer
        answer = ends[k] + transfer
    return ends


def retimed(run: pd.DataFrame, ends: npt.ArrayLike) -> pd.DataFrame:
    """Returns the history of a run with other times of its updates.

    Args:
        run: history of one run, with the columns `update` and `time`.
        ends: new time of each update in seconds, for at least the updates of the run, (U,).

    >>> run = pd.DataFrame({"update": [0, 2, 3], "time": [0.0, 1.0, 1.5], "loss": [3.0, 2.0, 1.0]})
    >>> retimed(run, [2.0, 4.0, 6.0])["time"].tolist()
    [0.0, 4.0, 6.0]
    """
    times = np.concatenate([[0.0], np.asarray(ends, float)])
    return run.assign(time=times[run["update"].to_numpy()])


def spread(trace: Trace) -> pd.Series:
    """Returns the spread of finish times of each round, last minus first, in per cent of its computing time.

    >>> import dmlcore as dml
    >>> spread(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=2)).tolist()
    [50.0, 50.0]
    """
    rounds = trace.tasks[trace.tasks["update"] >= 0].groupby("update")
    finish, start = rounds["compute_end"], rounds["compute_start"]
    return 100 * (finish.max() - finish.min()) / (finish.max() - start.max())


def perfect(speeds_at: Callable[[int], Sequence[float]]) -> Load:
    """Returns the load rule of a scheduler that always knows the mean speed of each worker.

    It divides the batch in proportion to the mean speeds in the round that begins. The remaining spread of
    finish times is random: no scheduler can know the time of a single task.

    Args:
        speeds_at: number of a round, from 0 -> mean samples/s of each worker in it, (W,).

    >>> rule = perfect(lambda clock: [3, 1] if clock == 0 else [1, 1])
    >>> rounds = rule.init(2, 64)
    >>> [rule.size(rounds, worker) for worker in (0, 1)]
    [48, 16]
    >>> rounds = rule.observe(rounds, Push(0, 0, 0, 1.0, 1.0, 48))
    >>> rule.size(rounds, 0)
    32
    """

    def size(state: tuple[int, list[int]], worker: int) -> int:
        total, finished = state
        return share_out(list(speeds_at(finished[worker])), total)[worker]

    def observe(state: tuple[int, list[int]], push: Push) -> tuple[int, list[int]]:
        state[1][push.worker] = push.clock + 1
        return state

    return Load("perfect()", lambda workers, total: (total, [0] * workers), size, observe)


def shares(seconds: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Returns each mechanism's share of the gain of all of them together.

    The gain is log(time without any / time with all). The part of a mechanism is its Shapley value: the gain
    that it adds to the mechanisms before it, averaged over all orders in which they can be added. So the
    shares sum to 1. A mechanism that costs time has a negative share. If all together have no gain, the
    shares are NaN.

    Args:
        seconds: set of mechanisms in use -> seconds to the target, for every subset.

    Raises:
        ValueError: a subset is missing.

    >>> times = {frozenset(): 8.0, frozenset("a"): 4.0, frozenset("b"): 8.0, frozenset("ab"): 2.0}
    >>> {name: round(share, 2) for name, share in sorted(shares(times).items())}
    {'a': 0.75, 'b': 0.25}
    """
    names = sorted(frozenset().union(*seconds))
    if len(seconds) != 2 ** len(names):
        checks.fail("seconds", list(map(sorted, seconds)), f"one time for each subset of {names}")
    gain = math.log(seconds[frozenset()] / seconds[frozenset(names)])
    parts = dict.fromkeys(names, 0.0)
    orders = list(itertools.permutations(names))
    for order in orders:
        for i, name in enumerate(order):
            before = frozenset(order[:i])
            parts[name] += math.log(seconds[before] / seconds[before | {name}]) / len(orders)
    return {name: part / gain if gain > 0 else math.nan for name, part in parts.items()}
