"""The server in a trace: what its processor takes over pushes, updates and pulls, from pushes that waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg, optimize

from dmlcore import checks
from dmlcore.trace import Trace
from dmlcore.trace.calibration.laws import Times, fit_law

FEWEST = 20  # pushes that must have waited
LEAST_EXPLAINED = 0.05  # of the differences between the times that pushes took
MOST_OVERTAKEN = 1 / 3  # of those that waited: a queue keeps the order in which pushes come, links do not
ROUNDS = 50  # of the fit
NOTHING = 1e-9  # of the longest kind of work: rounding
HELD_UP = 10  # times the usual distance from the line, from which a pull was held up by something else
WORK = "push", "update", "pull"


class Taken(NamedTuple):
    """Pushes of a trace in the order in which the server took them."""

    computed: np.ndarray  # when each was computed, and could be sent
    taken: np.ndarray  # when the server took it
    before: np.ndarray  # when it took the one before
    order: np.ndarray  # how much later it was computed than that
    work: np.ndarray  # (pushes, 3): this push, and the updates and pulls between the two


class Service(NamedTuple):
    """What a server takes, as far as traces can tell."""

    seconds: np.ndarray  # a push, an update, a pull; NaN where the traces cannot tell
    errors: np.ndarray  # standard errors; NaN where one is counted as a part of another
    link: float  # mean seconds of the way of a push that does not wait
    waited: int  # pushes from which that was found
    pushes: int  # all
    law: Any  # of the multipliers

    @property
    def known(self) -> bool:
        """Whether the traces can tell."""
        return bool(np.isfinite(self.seconds).all())


def service_times(*traces: Trace) -> pd.DataFrame:
    """Returns what the server of recorded traces takes over a push, an update and a pull.

    While pushes wait, the server takes the next one as soon as it is done with the one before, with the
    update which that has completed, and with the pulls that it has let go. So the time between two is
    `push + updates * update + pulls * pull`, and a push that does not wait takes `link + push`; these are
    fitted by least squares, and which pushes have waited follows from them. Workers that are let go at one
    moment are answered one after the other, which tells what a pull takes, too.

    Args:
        traces: of the same machines, of any engine. A policy under which every push makes an update, such
            as `asp()`, cannot tell the two apart, and hardly the pulls: all is then counted with the update,
            or with the pull where updates are seen to take another time. Record another one, such as
            `bsp()`, besides.

    Returns:
        A frame with the rows push, update and pull. `seconds`, NaN where the traces cannot tell: too few
        pushes have waited, or they overtook each other, so that it was their links that varied;
        `standard_error`, NaN where the work cannot be told from that of another row, in which it is, or no
        push has waited for it, as for the update of `bsp()` alone, where `seconds` is 0;
        `waited`, how many pushes have, and `pushes`, how many there were.

    Raises:
        ValueError: no trace.

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
    """Fits a server to traces."""
    seen = [taken_pushes(trace) for trace in traces]
    computed, taken, before, order, work = (np.concatenate(each) for each in zip(*seen, strict=True))
    if len(taken) < FEWEST:
        return Service(np.full(3, np.nan), np.full(3, np.nan), 0.0, 0, len(taken), None)
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
        nothing = np.full(3, np.nan)
        return Service(nothing, nothing, link, count, len(taken), None)
    ratios = np.maximum(gap[waited] / np.maximum(work[waited] @ seconds, 1e-12), 1e-9)
    ratios = Times(ratios, np.ones(count, bool), np.zeros(count, int))
    return Service(seconds, errors, link, count, len(taken), fit_law(ratios, 1)[1])


def time_at_server(trace: Trace, service: Service) -> pd.DataFrame:
    """Returns for each task how much of its pull and its push the server took, and whether the push waited.

    Args:
        trace: one of those that the service was fitted to.
        service: a known one.

    Returns:
        A frame with the trace's rows and the columns `pull` and `push`, seconds, and `waited`.
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
    """Returns the pulls of a trace: when each was let go, by which turn it was answered, when it was there.

    Answers of one moment are given one after the other, in the order of their workers.
    """
    pulls = trace.tasks.loc[
        trace.tasks["pull_start"].notna(), ["pull_start", "compute_start", "worker", "push_end"]
    ]
    pulls = pulls.sort_values(["pull_start", "worker"])
    pulls["turn"] = pulls.groupby("pull_start").cumcount() + 1
    # Real clocks let a worker go before the update that it waits for, whose arrival is then that of the push.
    made = pulls["pull_start"].isin(trace.updates["time"]) & pulls["pull_start"].isin(_arrivals(trace))
    return pulls.assign(after_update=made)


def _turns(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray]:
    """Returns by how many turns each pull was answered after the middle one of those let go with it, and how
    many seconds later it was there; none, where later turns do not come later. Pulls that something else
    held up, such as a hang, are left out."""
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


def _arrivals(trace: Trace) -> np.ndarray:
    return trace.tasks["push_end"].dropna().to_numpy()


def taken_pushes(trace: Trace) -> Taken:
    """Returns the pushes that a server took, all but the first."""
    tasks = trace.tasks[trace.tasks["push_end"].notna()].sort_values("push_end", kind="stable")
    taken, computed = tasks["push_end"].to_numpy(), tasks["compute_end"].to_numpy()
    made = np.searchsorted(trace.updates["time"].to_numpy(), taken)
    let_go = np.searchsorted(np.sort(trace.tasks["pull_start"].dropna().to_numpy()), taken)
    work = np.stack([np.ones(max(len(taken) - 1, 0)), np.diff(made), np.diff(let_go)], axis=1)
    seen = Taken(computed[1:], taken[1:], taken[:-1], np.diff(computed), work)
    # The server also reads what was computed of tasks that were cancelled: not to be told when.
    lost, cuts = trace.tasks["push_end"].isna(), np.append(trace.updates["time"], [*taken, trace.end_time])
    sent = np.sort(trace.tasks.loc[lost & ~trace.tasks["compute_end"].isin(cuts), "compute_end"])
    read = np.searchsorted(sent, seen.computed, "right") > np.searchsorted(sent, computed[:-1], "right")
    return Taken(*(column[~read] for column in seen))


def _made_later(traces: Sequence[Trace]) -> np.ndarray:
    """Returns how long after its last push each update was made, where it was: on virtual clocks."""
    made = []
    for trace in traces:
        last = trace.tasks[trace.tasks["update"] >= 0].groupby("update")["push_end"].max()
        made.append(trace.updates["time"].to_numpy()[last.index] - last.to_numpy())
    seconds = np.concatenate(made)
    return seconds[seconds > 1e-12 * max(trace.end_time for trace in traces)]


def _regression(work: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns non-negative least squares, and standard errors for unequal variances (White 1980)."""
    used: list[int] = []
    for kind in (0, 2, 3, 1):  # what a push takes may be a part of its way, and is then counted there
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
    """Returns traces, of which there must be one."""
    for trace in traces:
        checks.check_kind("trace", trace, Trace)
    if not traces:
        checks.fail("traces", traces, "at least one Trace")
    return traces
