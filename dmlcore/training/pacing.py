"""Schedules in samples or seconds: what an optimizer is told besides gradient, state and parameters.

A version of the parameters has a progress: the samples in the updates that made it, and the time of the last
one. An optimizer gets that of the version that it changes, as the keyword arguments `samples` and `seconds`
of its update. They are numbers of the trace, so a replay repeats them. A worker that changes its cached copy
uses the progress of the version that it pulled.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from optax.schedules import StatefulSchedule

from dmlcore import checks

UNITS = ("samples", "seconds")


def progress(numbers: Any = (0, 0)) -> np.ndarray:
    """Returns samples and seconds, (..., 2), as numbers of compiled programs."""
    return np.asarray(numbers, jax.dtypes.canonicalize_dtype(float))


def named(update: Any, of_version: Any) -> dict[str, Any]:
    """Returns the progress of a version, (2,), as keyword arguments that an update takes."""
    known = inspect.signature(update).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in known.values())
    return arguments([unit for unit in UNITS if takes_all or unit in known], of_version)


def arguments(units: Iterable[str], of_version: Any) -> dict[str, Any]:
    """Returns these units of the progress of a version, (2,), as keyword arguments."""
    return {unit: of_version[UNITS.index(unit)] for unit in units}


def told_all(update: Any) -> Callable[..., Any]:
    """Returns an update that is told the whole progress of a version, and passes on what `update` takes."""
    takes = [*named(update, progress())]
    return lambda *given, **told: update(*given, **{unit: told[unit] for unit in takes})


def updated(update: Any, gradients: Any, state: Any, params: Any, at: Any = (0, 0)) -> Any:
    """Returns what an update makes at this progress, of which it is told what it takes."""
    return update(gradients, state, params, **named(update, progress(at)))


class ScheduleIn:
    """A stateful schedule of optax whose value depends on the keyword argument `unit` alone."""

    def __init__(self, unit: str, schedule: Callable[[Any], Any]):
        self._unit, self._schedule = unit, schedule

    def __repr__(self) -> str:
        return f"schedule_in({self._unit!r}, ...)"

    def init(self) -> tuple[()]:
        """Returns the state, which is empty."""
        return ()

    def update(self, state: tuple[()], *, samples: Any, seconds: Any, **others: Any) -> tuple[()]:
        """Returns the state; raises TypeError if the optimizer is not told its progress."""
        return state

    def __call__(self, state: tuple[()], **told: Any) -> Any:
        """Returns the value."""
        if not isinstance(state, tuple):
            expected = "to be an argument of optax.inject_hyperparams(optimizer)(...), which tells it more"
            checks.reject(repr(self), "a count of updates only", expected)
        return self._schedule(told.get(self._unit, 0))


def schedule_in(unit: str, schedule: Callable[[Any], Any]) -> StatefulSchedule:
    """Returns a schedule that counts samples, or seconds of the engine's clock, and not server updates.

    Methods make very different numbers of updates of as many samples, and of as many samples in as many
    seconds. The value for an update is that at the progress of the version of the parameters that it changes:
    the samples in all updates so far, or the time of the last one; both are 0 at first.

    Guarantees: the same on all engines, and a replay repeats it to the last bit. Progress is a 32-bit float,
    unless JAX has 64 bits.

    Args:
        unit: "samples" or "seconds".
        schedule: samples or seconds -> number, such as `optax.cosine_decay_schedule(0.1, 50_000)`.

    Returns:
        A schedule for arguments of `optax.inject_hyperparams(optimizer)(...)`. The update of an optimizer of
        one's own may have keyword arguments `samples` and `seconds`.

    Raises:
        ValueError: an argument is wrong, or the schedule is used without `inject_hyperparams`.

    >>> import optax
    >>> import dmlcore as dml
    >>> rate = schedule_in("samples", optax.linear_schedule(0.2, 0.0, 256))
    >>> optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=rate)
    >>> run = dml.train(dml.problems.digits_mlp(8), dml.Cluster.uniform(2), dml.bsp(), optimizer, updates=3)
    >>> float(run.opt_state.hyperparams["learning_rate"])  # of the third update, after 128 samples
    0.10000000149011612
    """
    checks.one_of(*UNITS)("unit", unit)
    if not callable(schedule) or isinstance(schedule, ScheduleIn):
        checks.fail("schedule", schedule, "a function of a number, such as optax.linear_schedule(0.1, 0, 99)")
    return ScheduleIn(unit, schedule)
