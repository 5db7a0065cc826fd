"""A policy at work: its state and its decisions, push by push, along a trace that it made."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.trace import Trace
from dmlcore.types import Decision, Policy, Push


class Followed(NamedTuple):
    """A push, and what the policy made of it."""

    row: int  # of the task in `trace.tasks`
    push: Push
    state: Any  # of the policy afterwards; it goes on changing: copy what is to be kept
    decision: Decision


def follow(policy: Policy, trace: Trace) -> Iterator[Followed]:
    """Shows a policy the pushes of its trace again, in their order, and yields what it makes of each.

    A policy's state follows from the calls alone, so this is the state that it had in the run, on whichever
    engine the trace was made.

    Args:
        policy: the one of the run.
        trace: of a run in which no worker left.

    Raises:
        ValueError: the trace is another policy's, a worker left, or the policy watches its training.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.ssp(1), dml.Cluster.from_speeds([32, 16]), updates=5)
    >>> [(step.push.worker, len(step.decision.start)) for step in follow(dml.ssp(1), trace)]
    [(0, 0), (1, 0), (0, 1), (0, 0), (1, 2), (0, 0), (1, 1)]
    """
    if not isinstance(policy, Policy):
        checks.fail("policy", policy, "a Policy, such as dml.ssp(3)")
    if not isinstance(trace, Trace):
        checks.fail("trace", trace, "a Trace, such as run.trace")
    if trace.metadata.get("policy") != policy.name:
        checks.fail("policy", policy, f"the one of the trace, {trace.metadata.get('policy')}")
    if policy.on_observation is not None:
        checks.fail("policy", policy, "one that watches no training")
    if {"leave", "join", "down", "died"} & {each["kind"] for each in trace.metadata.get("incidents", ())}:
        checks.fail("trace", trace, "that of a run in which no worker left and the server stayed up")
    return _follow(policy, trace)


def _follow(policy: Policy, trace: Trace) -> Iterator[Followed]:
    tasks = trace.tasks[trace.tasks["push_end"].notna()].sort_values("push_end", kind="stable")
    tasks["took"] = tasks["compute_end"] - tasks["compute_start"]
    columns = ["worker", "clock", "version_read", "push_end", "took", "batch_size"]  # the fields of a push
    state, on_pull = policy.init(trace.num_workers), policy.on_pull or (lambda state, worker: (0, 1.0))
    keep_copy = policy.keep_copy or (lambda copy_clock, clock: False)
    told = [on_pull(state, worker) for worker in range(trace.num_workers)]
    for row, *fields in tasks[columns].itertuples(name=None):
        push = Push(*fields)
        push = push._replace(keeps_copy=keep_copy(told[push.worker][0], push.clock + 1))
        state, decision = policy.on_push(state, push)
        for start in decision[3]:
            told[start[0]] = on_pull(state, start[0])
        yield Followed(row, push, state, Decision(*decision))
