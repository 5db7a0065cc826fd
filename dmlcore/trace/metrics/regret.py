"""Online convex optimisation along a trace: the cost of stale reads as regret."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace

Function = Callable[[int, np.ndarray], tuple[float, np.ndarray]]


class Walk(NamedTuple):
    """The losses and iterates of `walk`, for T tasks and D parameters.

    Args:
        losses: f_t at the parameters of the t-th read, shape (T,).
        iterates: the start, and the result of the first t updates in serial order from it, shape (T + 1, D).

    >>> path = Walk(np.array([3.0, 1.0]), np.array([[3.0], [2.0], [1.0]]))
    >>> path.regret(0.0), path.distance(np.array([0.0]))
    (4.0, 4.5)
    """

    losses: np.ndarray
    iterates: np.ndarray

    def regret(self, least: float) -> float:
        """Returns the regret R: the sum of the losses minus its least value for one fixed x*.

        Args:
            least: the minimum of f_1 + ... + f_T, in the unit of the losses.

        Returns:
            R, in the unit of the losses.
        """
        return float(self.losses.sum() - least)

    def distance(self, optimum: np.ndarray) -> float:
        """Returns the largest D(x* || x_t) = |x* - x_t|^2 / 2 over the iterates.

        Args:
            optimum: x*, shape (D,).

        Returns:
            The largest distance, in squared units of the parameters.
        """
        return float(((self.iterates - optimum) ** 2).sum(axis=1).max() / 2)


@checked(trace=check_trace, function=checks.function, start=checks.array, rates=checks.array)
def walk(trace: Trace, function: Function, start: np.ndarray, rates: np.ndarray) -> Walk:
    """Takes subgradient steps along a trace: u_t = -eta_t grad f_t(x_t), where x_t is what the t-th read saw.

    The index t counts tasks by clock, then by worker: worker w of W has t = c W + w at clock c, 0-based. A
    read sees the version in the trace, or the worker's cached copy with its own updates (read-my-writes).
    Workers stop after T / W clocks. Updates count with weight 1, whatever their weight in the trace.

    Args:
        trace: a trace of a policy that applies every push, such as SSP, with at least T / W clocks of every
            worker.
        function: t, x -> f_t(x) and a subgradient of f_t at x, shape (D,).
        start: x_0, shape (D,).
        rates: eta_t, the step size of each task, shape (T,); T is a multiple of W.

    Returns:
        The losses, shape (T,), and the iterates, shape (T + 1, D).

    Raises:
        ValueError: T is not a multiple of W, or a task of the first T / W clocks was not applied.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=3)
    >>> walk(trace, lambda t, x: (abs(x[0]), np.sign(x)), np.array([3.0]), np.ones(4)).losses
    array([3., 3., 1., 1.])

    Source: Ho et al. 2013, theorem 1.
    """
    workers = trace.num_workers
    clocks, rest = divmod(len(rates), workers)
    if rest or not clocks:
        checks.reject("rates", f"{len(rates)}", f"a multiple of {workers} rates (the number of workers)")
    tasks = trace.tasks.query("clock < @clocks and update >= 0")
    if len(tasks) < len(rates):
        checks.reject("rates", f"{len(rates)}", f"at most one for each of the {len(tasks)} tasks applied")
    steps, losses = np.zeros((len(rates), len(start))), np.zeros(len(rates))
    landed = np.zeros((len(trace.updates), len(start)))  # the step of each update of the server
    versions = [start]
    copies: dict[int, np.ndarray] = {}
    columns = ["worker", "clock", "version_read", "update", "pull_start"]
    # In order of arrival: all updates in the version that a task read have arrived before the task.
    for worker, clock, version, update, pulled in tasks[columns].itertuples(index=False, name=None):
        while len(versions) <= version:
            versions.append(versions[-1] + landed[len(versions) - 1])
        t, seen = clock * workers + worker, copies[worker] if math.isnan(pulled) else versions[version]
        losses[t], gradient = function(t, seen)
        steps[t] = -rates[t] * gradient
        copies[worker] = seen + steps[t]
        landed[update] += steps[t]
    return Walk(losses, np.concatenate([versions[:1], versions[0] + np.cumsum(steps, axis=0)]))
