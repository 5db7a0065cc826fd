"""Online convex optimisation along a trace: what reading stale parameters costs."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace

Function = Callable[[int, np.ndarray], tuple[float, np.ndarray]]


class Walk(NamedTuple):
    """What `walk` saw on its way."""

    losses: np.ndarray  # f_t at what the t-th read saw, (T,)
    iterates: np.ndarray  # the start, and where the first t updates in turn lead from it, (T + 1, d)

    def regret(self, least: float) -> float:
        """Returns R, the sum of the losses above the least of f_1 + ... + f_T, at one x*."""
        return float(self.losses.sum() - least)

    def distance(self, optimum: np.ndarray) -> float:
        """Returns the largest D(x* || x_t) = |x* - x_t|^2 / 2 of the iterates."""
        return float(((self.iterates - optimum) ** 2).sum(axis=1).max() / 2)


@checked(trace=check_trace, function=checks.function, start=checks.array, rates=checks.array)
def walk(trace: Trace, function: Function, start: np.ndarray, rates: np.ndarray) -> Walk:
    """Takes subgradient steps along a trace: u_t = -eta_t grad f_t(x_t), x_t being what the t-th read saw.

    t counts clock by clock, and worker by worker in a clock: of P workers, w has t = c P + w at clock c, from
    0 on. A read saw the version that the trace says, or else the worker's copy with its own updates
    (read-my-writes). Workers stop after T / P clocks; updates count whole, whatever their weight.

    Args:
        trace: of a policy that applies every push, such as SSP, with so many clocks of every worker.
        function: t, x -> f_t(x) and a subgradient there.
        start: x_0, (d,).
        rates: eta of each t, (T,); T is a multiple of the number of workers.

    Raises:
        ValueError: T is no multiple of the number of workers, or a task of those clocks was not applied.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=3)
    >>> walk(trace, lambda t, x: (abs(x[0]), np.sign(x)), np.array([3.0]), np.ones(4)).losses
    array([3., 3., 1., 1.])

    Source: Ho et al. 2013, theorem 1.
    """
    workers = trace.num_workers
    clocks, rest = divmod(len(rates), workers)
    if rest or not clocks:
        checks.fail("rates", f"{len(rates)} rates", f"a multiple of {workers}, the number of workers")
    tasks = trace.tasks.query("clock < @clocks and update >= 0")
    if len(tasks) < len(rates):
        checks.fail("rates", f"{len(rates)} rates", f"at most one for each of the {len(tasks)} tasks applied")
    steps, losses = np.zeros((len(rates), len(start))), np.zeros(len(rates))
    landed = np.zeros((len(trace.updates), len(start)))  # what each update of the server adds
    versions = [start]
    copies: dict[int, np.ndarray] = {}
    columns = ["worker", "clock", "version_read", "update", "pull_start"]
    # In order of arrival: when a task arrives, whatever is in the version that it read has arrived.
    for worker, clock, version, update, pulled in tasks[columns].itertuples(index=False, name=None):
        while len(versions) <= version:
            versions.append(versions[-1] + landed[len(versions) - 1])
        t, seen = clock * workers + worker, copies[worker] if math.isnan(pulled) else versions[version]
        losses[t], gradient = function(t, seen)
        steps[t] = -rates[t] * gradient
        copies[worker] = seen + steps[t]
        landed[update] += steps[t]
    return Walk(losses, np.concatenate([versions[:1], versions[0] + np.cumsum(steps, axis=0)]))
