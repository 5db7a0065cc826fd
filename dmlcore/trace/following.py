"""The states and decisions of a policy, push by push, along a trace of its run."""

import heapq
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.trace import Trace
from dmlcore.types import Decision, Policy, Push


class Wake(NamedTuple):
    """A timer of the policy that fired."""

    time: float  # seconds from the start of the run
    token: Any


class Followed(NamedTuple):
    """A push or a timer, with the policy's state and decision after it."""

    row: int  # row of the task in `trace.tasks`; -1: a timer
    push: Push | Wake
    state: Any  # later pushes may change it in place: copy what is to be kept
    decision: Decision


def follow(policy: Policy, trace: Trace) -> Iterator[Followed]:
    """Replays the pushes of a trace to its policy, and yields the state and decision after each push.

    A policy's state depends only on the calls, so the states are those of the run, whichever engine recorded
    the trace. Timers fire at the same positions as in the run.

    Args:
        policy: the policy of the run.
        trace: the trace of a run in which no worker left and the server stayed up.

    Returns:
        An iterator with one item for each push and each timer that fired: `row`, the row of the task in
        `trace.tasks`, or -1 for a timer; `push`, the push or the timer; `state`, the policy's state
        afterwards, which later items may change in place; and `decision`.

    Raises:
        ValueError: the trace belongs to another policy, a worker left, the server was down, or the policy
            watches its training.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.ssp(1), dml.Cluster.from_speeds([32, 16]), updates=5)
    >>> [(step.push.worker, len(step.decision.start)) for step in follow(dml.ssp(1), trace)]
    [(0, 0), (1, 0), (0, 1), (0, 0), (1, 2), (0, 0), (1, 1)]
    """
    checks.check_kind("policy", policy, Policy)
    checks.check_kind("trace", trace, Trace)
    if trace.metadata.get("policy") != policy.name:
        checks.fail("policy", policy, f"the policy of the trace, {trace.metadata.get('policy')}")
    if policy.on_observation is not None:
        checks.fail("policy", policy, "one that watches no training")
    if {"leave", "join", "down", "died"} & {each["kind"] for each in trace.metadata.get("incidents", ())}:
        checks.fail("trace", trace, "the trace of a run in which no worker left and the server did not crash")
    return _follow(policy, trace)


def _follow(policy: Policy, trace: Trace) -> Iterator[Followed]:
    state, on_pull = policy.init(trace.num_workers), policy.on_pull or (lambda state, worker: (0, 1.0))
    if policy.on_begin is not None:
        state, _ = policy.on_begin(state, int(trace.metadata["seed"]))
    keep_copy = policy.keep_copy or (lambda copy_clock, clock: False)
    told = [on_pull(state, worker) for worker in range(trace.num_workers)]
    tokens: list[Any] = [None]  # of the timers, in the order in which they are set
    for row, found in _happened(policy, trace):
        if isinstance(found, Wake):
            assert policy.on_wake is not None
            found = found._replace(token=tokens[found.token])
            state, decision = policy.on_wake(state, found.token, found.time)
        else:
            keeps_copy = keep_copy(told[found.worker][0], found.clock + 1)
            found = found._replace(keeps_copy=keeps_copy)
            state, decision = policy.on_push(state, found)
        decision = Decision(*decision)
        for start in decision.start:
            told[start[0]] = on_pull(state, start[0])
        if decision.wake is not None:
            tokens.append(decision.wake[1])
        yield Followed(row, found, state, decision)


def _happened(policy: Policy, trace: Trace) -> Iterator[tuple[int, Push | Wake]]:
    """Yields pushes with their rows, and timers with their numbers instead of tokens."""
    tasks = trace.tasks[trace.tasks["push_end"].notna()].sort_values("push_end", kind="stable")
    tasks["took"] = tasks["compute_end"] - tasks["compute_start"]
    columns = ["worker", "clock", "version_read", "push_end", "took", "batch_size"]  # the fields of a push
    arrived = enumerate(tasks[columns].itertuples(name=None))
    pushes = ((count, row, Push(*fields)) for count, (row, *fields) in arrived)
    wakes = trace.metadata.get("wakes", ()) if policy.on_wake is not None else ()
    timers = ((count, -1, Wake(time, number)) for time, count, number in wakes)
    for _, row, found in heapq.merge(timers, pushes, key=itemgetter(0)):  # of equal ones, timers come first
        yield row, found
