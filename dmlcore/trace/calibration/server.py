"""The server in a trace: its processor times of pushes, updates and pulls, found from pushes that waited."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg, optimize

from dmlcore import checks
from dmlcore.trace import Trace
from dmlcore.trace.calibration.laws import Times, fit_law

FEWEST = 20  # least number of pushes that waited
LEAST_EXPLAINED = 0.05  # least share of the variation of push times that the fit must explain
MOST_OVERTAKEN = 1 / 3  # largest share of waiting pushes that overtook: a queue keeps the order, links do not
ROUNDS = 50  # most iterations of the fit
NOTHING = 1e-9  # times shorter than this share of the longest kind of work are rounding errors
HELD_UP = 10  # a pull this many times the usual distance from the line was delayed by something else
WORK = "push", "update", "pull"


class Taken(NamedTuple):
    """Pushes of a trace in the order in which the server took them."""

    computed: np.ndarray  # end of computing of each push, when it could be sent, seconds
    taken: np.ndarray  # when the server took it, seconds
    before: np.ndarray  # when the server took the push before, seconds
    order: np.ndarray  # end of computing, minus that of the push before, seconds
    work: np.ndarray  # (pushes, 3): this push (1), and the updates and pulls between the two


class Service(NamedTuple):
    """The times of a server, as far as traces determine them."""

    seconds: np.ndarray  # time of a push, an update, a pull, (3,); NaN if the traces do not determine them
    errors: np.ndarray  # standard errors, seconds, (3,); NaN for a kind that is counted in another one
    link: float  # mean seconds on the link of a push that does not wait
    waited: int  # number of pushes that waited
    pushes: int  # number of all pushes
    law: Any  # distribution of the multipliers

    @property
    def known(self) -> bool:
        """Whether the traces determine the times."""
        return bool(np.isfinite(self.seconds).all())


def service_times(*traces: Trace) -> pd.DataFrame:
    """Returns the processor times of a push, an update and a pull at the server of recorded traces.

    While pushes wait, the server takes the next push as soon as it has finished the one before, the update
    that it completed, and the pulls that it released. The time between two pushes is then
    `push + updates * update + pulls * pull`, and a push that does not wait takes `link + push`. These times
    are fitted by least squares, and the fit determines which pushes waited. Workers that are released at the
    same time are served one after the other, which also shows the time of a pull.

    Args:
        traces: traces of the same machines, from any engine. Under a policy where every push makes an update,
            such as `asp()`, the times of pushes and updates cannot be separated, and those of pulls hardly:
            all work is then counted with the update, or with the pull if the time of updates is visible. Add
            a trace of another policy, such as `bsp()`.

    Returns:
        A frame with the rows push, update and pull. `seconds` is NaN if the traces do not determine the
        times: too few pushes waited, or waiting pushes overtook each other, so that the links varied and not
        the queue. `standard_error` in seconds is NaN for work that is counted in another row, or that no push
        waited for, such as the update of `bsp()` alone, whose `seconds` is 0. `waited` is the number of
        pushes that waited, and `pushes` the number of all pushes.

    Raises:
        ValueError: there is no trace, or an argument is not a `Trace`.

    >>> import dmlcore as dml
    >>> from scipy import stats
    >>> cluster = dml.Cluster.uniform(8, jitter=stats.expon()).with_server(seconds_per_push=0.004)
    >>> traces = [dml.simulate(policy, cluster, updates=500) for policy in (dml.asp(), dml.bsp())]
    >>> service_times(*traces)["seconds"].round(6).tolist()
    [0.004, 0.0, 0.0]
    """
    service = fit_service(check_traces(traces))
    columns = {"seconds": service.seconds, "standard_error": service.errors}
    return pd.DataFrame(columns, list(WORK)).assign(waited=service.waited, pushes=service.pushes)


def fit_service(traces: Sequence[Trace]) -> Service:
    """Fits the times of a server to traces."""
    seen = [taken_pushes(trace) for trace in traces]
    computed, taken, before, order, work = (np.concatenate(each) for each in zip(*seen, strict=True))
    nothing = np.full(3, np.nan)
    if len(taken) < FEWEST:
        return Service(nothing, nothing, 0.0, 0, len(taken), None)
    response, gap = taken - computed, taken - before
    link, seconds, errors = float(np.median(response)), np.zeros(3), np.zeros(3)
    waited, (turn, later), made = np.zeros(len(taken), bool), _turns(traces), _made_later(traces)
    answers = np.multiply.outer(turn, [0.0, 0.0, 0.0, 1.0])
    answers = np.vstack([answers, np.multiply.outer(np.ones(len(made)), [0.0, 0.0, 1.0, 0.0])])
    later = np.append(later, made)
    for _ in range(ROUNDS):
        last, waited = waited, before + work[:, 1:] @ seconds[1:] > computed + link
        if waited.sum() < FEWEST or (waited == last).all():
            break
        design = np.column_stack([~waited, np.where(waited[:, None], work, [1.0, 0.0, 0.0])])
        design, spent = np.vstack([design, answers]), np.append(np.where(waited, gap, response), later)
        (link, *rest), (_, *missed) = _regression(design, spent)
        seconds, errors = np.array(rest), np.array(missed)
        seconds[seconds < NOTHING * seconds.max()] = 0.0
    expected = np.where(waited, before - computed + work[:, 1:] @ seconds[1:], link) + seconds[0]
    unexplained = np.abs(response - expected).sum() / max(np.abs(response - response.mean()).sum(), 1e-300)
    count = int(waited.sum())
    overtaken = (order[waited] < 0).mean() if count else 0.0
    if count < FEWEST or unexplained > 1 - LEAST_EXPLAINED or overtaken > MOST_OVERTAKEN:
        return Service(nothing, nothing, link, count, len(taken), None)
    ratios = np.maximum(gap[waited] / np.maximum(work[waited] @ seconds, 1e-12), 1e-9)
    ratios = Times(ratios, np.ones(count, bool), np.zeros(count, int))
    return Service(seconds, errors, link, count, len(taken), fit_law(ratios, 1)[1])


def time_at_server(trace: Trace, service: Service) -> pd.DataFrame:
    """Returns for each task the server's part of its pull and its push, and whether the push waited.

    Args:
        trace: one of the traces that the service was fitted to.
        service: the fit, with known times.

    Returns:
        A frame with T rows, one per task, and the columns `pull` and `push` in seconds, and `waited`.
    """
    tasks, (push, update, pull) = trace.tasks, service.seconds
    spent = pd.DataFrame({"pull": 0.0, "push": push, "waited": False}, tasks.index)
    seen = taken_pushes(trace)
    free = seen.before + seen.work[:, 1:] @ service.seconds[1:]
    waited = seen.taken[free > seen.computed + service.link]
    spent["waited"] = tasks["push_end"].isin(waited)
    pulls = _pulls(trace)
    spent.loc[pulls.index, "pull"] = np.maximum(pulls["after_update"] * update + pulls["turn"] * pull, 0.0)
    return spent


def _pulls(trace: Trace) -> pd.DataFrame:
    """Returns the pulls of a trace: when each began, its turn at the server, and when it ended.

    Pulls that begin at the same time are served one after the other, in the order of their workers.
    """
    pulls = trace.tasks.loc[
        trace.tasks["pull_start"].notna(), ["pull_start", "compute_start", "worker", "push_end"]
    ]
    pulls = pulls.sort_values(["pull_start", "worker"])
    pulls["turn"] = pulls.groupby("pull_start").cumcount() + 1
    # On real clocks a pull begins before the update that it waits for, at the arrival of that update's push.
    begun = pulls["pull_start"]
    made = begun.isin(trace.updates["time"]) & begun.isin(trace.tasks["push_end"])
    return pulls.assign(after_update=made)


def _turns(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many turns and how many seconds each pull came after the median of its group.

    A group is the pulls that began at the same time. Both arrays are empty if later turns do not end later.
    Pulls that something else delayed, such as a hang, are left out.
    """
    pulls = pd.concat([_pulls(trace).assign(run=run) for run, trace in enumerate(traces)])
    pulls = pulls[pulls["push_end"].notna()].assign(later=lambda each: each["compute_start"])
    middle = pulls.groupby(["run", "pull_start"])[["turn", "later"]].transform("median")
    turn, later = (pulls[["turn", "later"]] - middle).to_numpy().T
    varied = turn != 0
    turn, later = turn[varied], later[varied]
    if len(turn):
        missed = np.abs(later - np.median(later / turn) * turn)
        usual = missed <= HELD_UP * np.median(missed) + NOTHING * np.abs(later).max()
        turn, later = turn[usual], later[usual]
    slope = turn @ later / max(turn @ turn, 1)
    error = np.sqrt(np.sum((turn * (later - slope * turn)) ** 2)) / max(turn @ turn, 1)
    return (turn, later) if slope > 4 * error else (turn[:0], later[:0])


def taken_pushes(trace: Trace) -> Taken:
    """Returns the pushes that a server took, except the first."""
    tasks = trace.tasks[trace.tasks["push_end"].notna()].sort_values("push_end", kind="stable")
    taken, computed = tasks["push_end"].to_numpy(), tasks["compute_end"].to_numpy()
    made = np.searchsorted(trace.updates["time"].to_numpy(), taken)
    let_go = np.searchsorted(np.sort(trace.tasks["pull_start"].dropna().to_numpy()), taken)
    work = np.stack([np.ones(max(len(taken) - 1, 0)), np.diff(made), np.diff(let_go)], axis=1)
    seen = Taken(computed[1:], taken[1:], taken[:-1], np.diff(computed), work)
    # The server also reads pushes of tasks that were cancelled, at times that a trace does not contain.
    lost, cuts = trace.tasks["push_end"].isna(), np.append(trace.updates["time"], [*taken, trace.end_time])
    sent = np.sort(trace.tasks.loc[lost & ~trace.tasks["compute_end"].isin(cuts), "compute_end"])
    read = np.searchsorted(sent, seen.computed, "right") > np.searchsorted(sent, computed[:-1], "right")
    return Taken(*(column[~read] for column in seen))


def _made_later(traces: Sequence[Trace]) -> np.ndarray:
    """Returns the seconds between each update and its last push, if there are any: on virtual clocks."""
    made = []
    for trace in traces:
        last = trace.tasks[trace.tasks["update"] >= 0].groupby("update")["push_end"].max()
        made.append(trace.updates["time"].to_numpy()[last.index] - last.to_numpy())
    seconds = np.concatenate(made)
    return seconds[seconds > 1e-12 * max(trace.end_time for trace in traces)]


def _regression(work: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a non-negative least-squares fit, and standard errors for unequal variances (White 1980)."""
    used: list[int] = []
    for kind in (0, 2, 3, 1):  # the push comes last: if it cannot be separated, it counts with its link
        if np.linalg.matrix_rank(work[:, [*used, kind]]) > len(used):
            used.append(kind)
    used.sort()
    seconds, errors = np.zeros(work.shape[1]), np.full(work.shape[1], np.nan)
    design = work[:, used]
    seconds[used], _ = optimize.nnls(design, gaps)
    inverse = linalg.inv(design.T @ design)
    residual = (gaps - work @ seconds)[:, None] * design
    errors[used] = np.sqrt(np.maximum(np.diag(inverse @ (residual.T @ residual) @ inverse), 0.0))
    return seconds, errors


def check_traces(traces: Sequence[Trace]) -> Sequence[Trace]:
    """Returns `traces`, checked: at least one `Trace`."""
    for trace in traces:
        checks.check_kind("trace", trace, Trace)
    if not traces:
        checks.fail("traces", traces, "at least one Trace")
    return traces
