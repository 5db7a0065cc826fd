"""Histories: what is trained along traces is evaluated from time to time, up to a target.

The metric of a noisy method crosses its target between two evaluations, and back again. So a coarse grid
makes such a method later than it is, up to a third, and a smooth one not at all. A run reaches its target
with the first of its updates whose parameters meet it. To find that update (`resolved`), a run is trained
again and evaluated after every update; if it has very many, where its evaluations have come near the target.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import jax
import numpy as np
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.checks import check_kind, check_optax
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.trace.metrics.times import accounts
from dmlcore.training.checkpoints import Checkpoints
from dmlcore.training.contribution import factor
from dmlcore.training.evaluation import is_accuracy, reached
from dmlcore.training.identity import of_eval_params, of_timeline, of_training, told
from dmlcore.training.loop import EvalParams
from dmlcore.training.optimizer import check_update
from dmlcore.types import Aggregate, LocalSteps

Evaluations = list[tuple[int, dict[str, Any]]]  # (update, metrics)
Trained = tuple[Evaluations, Any, Any]  # evaluations, the final parameters and state of the optimizer

POINTS = 1000  # largest number of evaluations at one go: all updates of most runs, a stretch of long ones
NEAR = 4.0  # the target is near at this multiple of the largest deviation from the neighbours' mean
EDGE = 0.5  # a target that is reached in this first part of a stretch may have been reached before it


class Looks(NamedTuple):
    """When a run is evaluated, and when that ends it.

    Args:
        until: metric -> target; {}: the run goes to its end.
        every: updates between evaluations. None: a fiftieth of the run.
        params: state of the optimizer, parameters -> what is evaluated. None: the parameters.
    """

    until: Mapping[str, float]
    every: int | None
    params: EvalParams | None

    @classmethod
    def checked(cls, problem: Problem, until: Any, eval_every: Any, eval_params: Any) -> Looks:
        """Returns the looks for arguments of `train`, without a check of `eval_params`."""
        if eval_every is not None:
            eval_every = checks.integer("eval_every", eval_every, low=1)
        return cls(check_until(until, problem), eval_every, eval_params)


def histories(
    traces: Sequence[Trace],
    problem: Problem,
    optimizers: Sequence[optax.GradientTransformation],
    looks: Looks,
    driver: Callable[..., Any],
    resolve: bool,
) -> list[pd.DataFrame]:
    """Returns the histories of the runs of `replay_lanes`; it is cheaper because it cuts no trace.

    With `resolve` a history ends with the first of all updates that reaches a target, see `resolved`.
    """
    found = [seen for seen, *_ in trained(traces, problem, optimizers, looks, driver)]
    if not resolve:
        return [history(trace, seen) for trace, seen in zip(traces, found, strict=True)]
    runs = zip(traces, optimizers, found, strict=True)
    return [resolved_history(trace, problem, own, looks.until, driver, seen) for trace, own, seen in runs]


def resolved_history(
    trace: Trace,
    problem: Problem,
    optimizer: optax.GradientTransformation,
    until: Mapping[str, float],
    driver: Callable[..., Any],
    seen: Evaluations,
) -> pd.DataFrame:
    """Returns the history of an evaluated run up to the first of all its updates that reaches a target."""

    def train(updates: Sequence[int]) -> Evaluations:
        looks = driver([trace], problem, [optimizer]).looks([[*updates]], until, ahead=True)
        pairs = zip(updates, looks, strict=False)
        return [(update, cast(dict[str, Any], found)) for update, (found,) in pairs]

    return history(trace, resolved(seen, until, train))


def trained(
    traces: Sequence[Trace],
    problem: Problem,
    optimizers: Sequence[optax.GradientTransformation],
    looks: Looks,
    make_driver: Callable[..., Any],
    checkpoint: Path | None = None,
) -> list[Trained]:
    """Returns evaluations and final parameters of each lane."""
    if not traces:
        checks.reject("traces", "none", "at least one trace")
    if len(optimizers) != len(traces):
        checks.fail("optimizers", len(optimizers), f"one for each of {len(traces)} traces")
    own = {"problem": problem.name, "parameter_bytes": problem.parameter_bytes}
    for trace in traces:
        check_kind("trace", trace, Trace)
        made = {name: trace.metadata.get(name) or value for name, value in own.items()}
        if made != own:
            checks.fail("problem", own, f"the problem of the trace, {made}")
        steps, size = trace.metadata.get("local"), trace.metadata.get("step_size")
        if (problem.inner.batch_size if problem.inner else None) != size:
            given = None if problem.inner is None else f"steps of {problem.inner.batch_size} samples"
            checks.fail("local", given, f"{steps} with steps of {size} samples (as in the trace)")
    data = told(problem)["data_sha256"]
    if any(trace.metadata.get("data_sha256", data) != data for trace in traces):
        warnings.warn(
            f"problem: the training data of {problem.name}, or their owners, differ from those of the trace; "
            "tasks are computed on the data given here",
            stacklevel=5,
        )
    until, lengths = looks.until, [len(trace.updates) for trace in traces]
    between = [looks.every or max(1, -(-length // 50)) for length in lengths]

    driver = make_driver(traces, problem, optimizers)
    marks = [sorted({*range(0, end, every), end}) for end, every in zip(lengths, between, strict=True)]
    results: list[Evaluations] = [[] for _ in traces]
    with contextlib.ExitStack() as stack:
        kept = None
        if checkpoint is not None:
            about = {
                "eval_every": between[0],
                "until": until,
                **of_training(problem, optimizers[0]),
                "timeline_sha256": of_timeline(traces[0]),
                "rest": driver.fingerprint(),
                **of_eval_params(driver.eval_params, optimizers[0], problem.shapes),
            }
            call = traces[0].metadata | about
            kept = stack.enter_context(contextlib.closing(Checkpoints(checkpoint, call)))
            if (found := kept.load(driver.state())) is not None:
                done, state, results[0] = found
                driver.restore(done, state)
                over = reached(results[0][-1][1], until)
                marks = [[] if over else marks[0][marks[0].index(done) + 1 :]]
        for number, looked in enumerate(driver.looks(marks, until, ahead=kept is None)):
            for updates, result, metrics in zip(marks, results, looked, strict=True):
                if metrics is not None:
                    result.append((updates[number], metrics))
            mark, seen = results[0][-1]
            if number == 0 and mark == 0:
                _warn_of_nan(looked)
            if kept is not None and mark > 0 and (mark == lengths[0] or reached(seen, until) or kept.due()):
                floats = [(at, {name: float(m) for name, m in found.items()}) for at, found in results[0]]
                kept.save(mark, driver.state(), floats)
    return [(result, driver.params(lane), driver.opt_state(lane)) for lane, result in enumerate(results)]


def _warn_of_nan(evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Warns if metrics of the initial parameters are NaN."""
    unknown = {name for found in evaluations for name, value in found.items() if math.isnan(float(value))}
    if unknown:
        names = ", ".join(sorted(unknown))
        warnings.warn(f"evaluate: {names} of the initial parameters is not a number (NaN)", stacklevel=3)


# The accounts of each trace, as long as the trace exists: all learning rates of a sweep share a timeline.
_ACCOUNTS: WeakKeyDictionary[Trace, pd.DataFrame] = WeakKeyDictionary()


def history(trace: Trace, evaluations: Sequence[tuple[int, Mapping[str, Any]]]) -> pd.DataFrame:
    """Returns evaluations (update, metrics) as a tidy frame, with the accounts of the trace until then."""
    at = np.array([update for update, _ in evaluations])
    names = sorted(evaluations[0][1], key=lambda name: (name != "loss", name))
    metrics = {name: np.array([float(m[name]) for _, m in evaluations]) for name in names}
    if trace not in _ACCOUNTS:
        _ACCOUNTS[trace] = accounts(trace)
    costs = _ACCOUNTS[trace].iloc[at].reset_index(drop=True)
    return pd.concat([pd.DataFrame({"update": at}), costs, pd.DataFrame(metrics)], axis=1)


def resolved(
    coarse: Evaluations, until: Mapping[str, float], train: Callable[[Sequence[int]], Evaluations]
) -> Evaluations:
    """Returns the evaluations of a run up to its first update that reaches a target.

    Of more than `POINTS` updates, about so many are evaluated among which the target is near, and then all
    those between the last two. So a lone update that meets the target long before its neighbours do can be
    missed in a run that is so long.

    Args:
        coarse: evaluations from the start, ascending, up to the first that reaches a target, if one does.
        until: metric -> target.
        train: updates, ascending -> evaluations there, of training from the start, up to the first that
            reaches a target.

    Returns:
        Evaluations, ascending: coarse ones, then those of the stretch in which the target is near.
    """
    begin, end = near(coarse, until), coarse[-1][0]
    if begin is None or len(coarse) < 2:
        return coarse
    begin = 0 if end <= POINTS else begin
    found = coarse
    while True:
        marks = stretch(begin, end)
        fine = train(marks)
        found = [each for each in found if each[0] < marks[0]] + fine
        end = fine[-1][0]
        if begin == 0 or end > marks[0] + EDGE * (marks[-1] - marks[0]):
            break
        begin = max(0, begin - (marks[-1] - marks[0]))
    last = found[-2][0] if len(found) > 1 else end
    if end - last > 1:
        found = found[:-1] + train(stretch(last + 1, end))
    return found


def near(found: Evaluations, until: Mapping[str, float]) -> int | None:
    """Returns the last update before the target is near for the first time; None if it never is.

    >>> curve = [(update, {"loss": 10.0 - update + update % 2 / 10}) for update in range(10)]
    >>> near(curve, {"loss": 1.0}), near(curve, {"loss": -5.0})
    (8, None)
    """
    close = np.zeros(len(found), bool)
    for name, target in until.items():
        sign = -1 if is_accuracy(name) else 1
        above = np.array([sign * (float(metrics[name]) - target) for _, metrics in found])
        known = above[np.isfinite(above)]
        late = known[len(known) // 2 - 1 :] if len(known) >= 6 else known
        noise = np.abs(late[1:-1] - (late[2:] + late[:-2]) / 2)
        close |= above <= (NEAR * noise.max() if noise.size else np.inf)
    return found[max(int(close.argmax()) - 1, 0)][0] if close.any() else None


def stretch(begin: int, end: int) -> list[int]:
    """Returns the updates at which a stretch of a run is evaluated: all, or about `POINTS`.

    >>> stretch(2, 5), len(stretch(0, 10_000))
    ([2, 3, 4, 5], 1001)
    """
    return [*range(begin, end, max(1, -(-(end - begin) // POINTS))), end]


def driver_with(
    driver: Callable[..., Any], aggregate: Aggregate, eval_params: EvalParams | None
) -> Callable[..., Any]:
    """Returns the driver with its arguments, as far as they are not the defaults."""
    given: dict[str, Any] = {} if aggregate.plain else {"aggregate": aggregate}
    given |= {} if eval_params is None else {"eval_params": eval_params}
    return functools.partial(driver, **given)


def check_optimizer(optimizer: Any, problem: Problem, eval_params: EvalParams | None) -> None:
    """Raises ValueError unless it is an optax optimizer that the problem supports, and `eval_params` it."""
    check_optax("optimizer", optimizer)
    if problem.additive:
        factor(problem, optimizer)
    else:
        check_update("optimizer", optimizer, problem.shapes)
    check_eval_params(eval_params, optimizer, problem)


def check_eval_params(eval_params: EvalParams | None, optimizer: Any, problem: Problem) -> None:
    """Raises ValueError unless a function makes, of an optimizer's state and parameters, such parameters."""
    if eval_params is None:
        return
    expected = f"a function of the optimizer's state and parameters that returns parameters of {problem.name}"
    if problem.additive or not callable(eval_params):
        checks.fail("eval_params", eval_params, "None" if problem.additive else expected)
    fault = "a function that returns others"
    try:
        state = jax.eval_shape(optimizer.init, problem.shapes)
        found = jax.eval_shape(eval_params, state, problem.shapes)
        same = jax.tree.map(
            lambda one, two: one.shape == two.shape and one.dtype == two.dtype, found, problem.shapes
        )
    except Exception as error:  # any exception of a user's function
        same, fault = False, f"a function that fails ({type(error).__name__}: {error})".splitlines()[0]
    if not all(jax.tree.leaves(same)):
        checks.reject("eval_params", fault, expected)


def check_one_state(eval_params: EvalParams | None, local: LocalSteps | None) -> None:
    """Raises ValueError if what is evaluated depends on a state of which each fragment has its own."""
    if eval_params is not None and local is not None and local.fragments > 1:
        checks.fail("eval_params", eval_params, "None (each fragment has an optimizer's state of its own)")


def check_until(
    until: Mapping[str, float] | None, problem: Problem, argument: str = "until"
) -> dict[str, float]:
    """Checks targets by metric and returns them; messages name `argument`."""
    if until is None:
        return {}
    if not isinstance(until, Mapping) or not until:
        checks.fail(argument, until, "a mapping of metrics to targets, such as dict(loss=0.1)")
    for name in until:
        checks.choice(argument, name, dict.fromkeys(problem.metrics))
    return {name: checks.real(f"{argument}[{name!r}]", target) for name, target in until.items()}
