"""The errors for wrong decisions of a user's own policy: a function for each kind."""

from collections.abc import Sequence
from typing import Any

from dmlcore import checks
from dmlcore.types import Policy

DECISION = "a state and a Decision, with lists of (worker, clock, weight) to apply and of Start to start"


def no_answer(policy: Policy, part: str, answer: Any, expected: str) -> ValueError:
    """Returns the error for what a function of a policy returned, or for a part of it, of a wrong form."""
    return ValueError(checks.message(f"{policy.name}, {part}", repr(answer), expected))


def not_at_server(policy: Policy, does: str, key: tuple[int, int]) -> ValueError:
    """Returns the error for a decision about a push that is not at the server."""
    worker, clock = key
    push = f"the push of worker {worker}, clock {clock}, which is not at the server"
    return ValueError(f"{policy.name} {does} {push}")


ENTRIES = {
    "apply": ("worker", "clock", "weight"),
    "drop": ("worker", "clock"),
    "cancel": ("worker",),
    "start": ("worker", "batch_size", "clock"),
}


def check_parts(policy: Policy, decision: tuple[Any, ...]) -> None:
    """Raises ValueError for the first part of a decision that has a wrong type.

    It is called only after a decision failed, because checking every decision would take longer than
    simulating it.
    """
    for (part, fields), entries in zip(ENTRIES.items(), decision, strict=False):
        name = f"{policy.name}, {part}"
        for number, entry in enumerate(checks.listed(name, entries)):
            own = f"{name}[{number}]"
            values = (entry,) if len(fields) == 1 else entry
            if not isinstance(values, Sequence) or len(values) != len(fields):
                kind = "Start" if part == "start" else ""
                checks.fail(own, entry, f"{kind}({', '.join(fields)})")
            for field, value in zip(fields, values, strict=True):
                if field == "weight":
                    checks.real(f"{own}, {field}", value)
                elif value is not None or part != "start" or field == "worker":
                    checks.integer(f"{own}, {field}", value, low=0)


def not_there(policy: Policy, does: str, worker: int, time: float) -> ValueError:
    """Returns the error for a decision about a worker that does not exist or is absent."""
    return ValueError(f"{policy.name} {does} worker {worker}, which is not present, at {time:g} s")


def other_weight(policy: Policy, order: Any, weight: float) -> ValueError:
    """Returns the error for a push applied with another weight than the worker used on its cached copy."""
    return ValueError(
        f"{policy.name} applies the push of worker {order.worker}, clock {order.clock}, with weight "
        f"{weight:g}, but the worker kept its copy, and on_pull told it the weight {order.told[1]:g}"
    )


def never_updates(policy: Policy, time: float, num_updates: int, most: int) -> RuntimeError:
    """Returns the error for a run that would never end because no update is made."""
    return RuntimeError(
        f"{policy.name} makes no update: {most:,} tasks arrived since update {num_updates}, by "
        f"{time:g} s, and none was applied; try decisions that apply pushes, or seconds= to end the run"
    )


def no_time(policy: Policy, time: float, end: float, tasks: int, passed: float) -> RuntimeError:
    """Returns the error for a run that would never reach its end time."""
    return RuntimeError(
        f"seconds: expected a run whose tasks a trace can hold, got {end:g}, but by {time:g} s the "
        f"last {tasks:,} tasks under {policy.name} took {passed:g} s together; try tasks that take time, or "
        "updates="
    )


def only_wakes(policy: Policy, time: float, num_updates: int, most: int) -> RuntimeError:
    """Returns the error for a run that would never end because only timers fire."""
    return RuntimeError(
        f"{policy.name} makes no progress: {most:,} timers fired since update {num_updates}, by {time:g} s, "
        "without an update, or without time passing between them"
    )


def deadlock(policy: Policy, time: float, num_updates: int, present: int) -> RuntimeError:
    """Returns the error for a run in which no event can follow."""
    workers = f"all {present} workers wait" if present else "every worker has left"
    return RuntimeError(
        f"{policy.name} deadlocks at {time:g} s after {num_updates} updates: {workers}; a decision must "
        "start a worker whenever no task is in flight and no timer is set"
    )


def no_hook(policy: Policy, hook: str, worker: int) -> ValueError:
    """Returns the error for a policy without `on_leave` or `on_join` whose worker leaves or joins."""
    return ValueError(
        f"{policy.name} has no {hook}, but worker {worker} leaves or joins; "
        "a policy needs on_leave and on_join for a cluster whose workers crash or hang"
    )
