"""Learning rates: extends each method's grid until its best rate is interior."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import check_given, check_mapping, sweep
from dmlcore.problems.problem import Problem
from dmlcore.trace import metrics
from dmlcore.training.evaluation import is_accuracy
from dmlcore.types import Method, Policy

Told = Callable[[float], Policy | Method]  # learning rate -> a method that depends on it


def tune(
    methods: Mapping[str, Policy | Method | Told],
    problem: Problem,
    cluster: Cluster,
    optimizer: Callable[[float], optax.GradientTransformation],
    metric: str,
    target: float,
    *,
    start: float | Mapping[str, float],
    factor: float = 2.0,
    steps: int = 8,
    seeds: Iterable[int] = range(5),
    **options: Any,
) -> pd.DataFrame:
    """Compares methods, each at learning rates around its own best one.

    Each method's grid begins at `start` and is extended until the best rate, by
    `metrics.best_learning_rate`, is interior. So `metrics.fair` of the frame is a fair comparison, however
    much the best rates of the methods differ.

    Args:
        methods: name -> policy, or a `Method` without an optimizer; or a function of the learning rate that
            returns one, for methods that need it, such as `dml.dbw`.
        metric: column of the history, such as "loss". Large accuracies are good, small values of all others.
        target: value of the metric to reach; the best rate has the smallest median time to it.
        start: the first learning rate, > 0; one for all methods, or name -> rate.
        factor: ratio of successive rates, > 1.
        steps: largest number of sweeps, each of which extends the grids. If the best rate of a method is then
            still at the end of its grid, or no run of a method reaches the target, a warning names the
            method.
        problem, cluster, optimizer, seeds, **options: as for `sweep`, including `save` and `progress`.

    Returns:
        A frame of all runs, as `sweep` returns it; methods may have different rates.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import dmlcore as dml
    >>> cluster, problem = Cluster.uniform(4), dml.problems.digits_mlp()
    >>> runs = tune({"BSP": dml.bsp()}, problem, cluster, optax.sgd, "loss", 2.0, start=0.1, seeds=[0],
    ...             updates=60)
    >>> rates = sorted(runs["learning_rate"].unique())
    >>> bool(rates[0] < metrics.best_learning_rate(runs, "loss", 2.0)["BSP"] < rates[-1])
    True
    """
    check_mapping(methods)
    begin = start if isinstance(start, Mapping) else dict.fromkeys(methods, start)
    if set(begin) != set(methods):
        checks.fail("start", start, "one learning rate, or one for each method")
    first = {name: checks.positive("start", each) for name, each in begin.items()}
    given = {name: at_rate(name, method, first[name]) for name, method in methods.items()}
    seeds = check_given(tune, given, problem, seeds, options)
    for name, method in given.items():
        if isinstance(method, Method) and method.optimizer is not None:
            checks.fail(f"methods[{name!r}]", method, "a Method without an optimizer of its own")
    factor = checks.real("factor", factor, above=1, high=1e300)
    target = checks.real("target", target)
    checks.choice("metric", metric, dict.fromkeys(problem.metrics))
    below = not is_accuracy(metric)
    # Rates are `start` times a power of the factor: with repeated products, rounding could repeat a rate.
    tried: dict[str, dict[float, int]] = {name: {} for name in methods}  # rate -> power
    untried: dict[str, list[int]] = {name: [-1, 0, 1] for name in methods}
    runs: list[pd.DataFrame] = []
    for _ in range(checks.integer("steps", steps, low=1)):
        together: dict[tuple[float, ...], dict[str, Any]] = {}  # rates -> methods that try them
        for name, powers in untried.items():
            rates = {first[name] * factor**power: power for power in powers}
            tried[name] |= rates
            told = given[name] is not methods[name]
            for some in [(rate,) for rate in rates] if told else [tuple(rates)]:
                together.setdefault(some, {})[name] = at_rate(name, methods[name], some[0])
        for some, each in together.items():
            try:
                runs.append(sweep(each, problem, cluster, optimizer, some, seeds=seeds, **options))
            except KeyboardInterrupt:  # raised before the first run of this sweep is finished
                if not runs:
                    raise
                warnings.warn("interrupted: the frame has what was finished before", stacklevel=2)
                return _together(runs, methods)
            if runs[-1].attrs["interrupted"]:
                return _together(runs, methods)
        best = metrics.best_learning_rate(pd.concat(runs), metric, target, below=below)
        at = {name: tried[name][best[name]] for name in methods}
        around = {name: {at[name] - 1, at[name] + 1} - {*tried[name].values()} for name in methods}
        untried = {name: sorted(powers) for name, powers in around.items() if powers}
        if not untried:
            break
    if untried:
        names = ", ".join(untried)
        text = f"tune: after {steps} steps the best rate is still the lowest or highest one tried for {names}"
        warnings.warn(text, stacklevel=2)
    every = _together(runs, methods)
    reached = np.isfinite(metrics.time_to(every, metric, target, below=below)).groupby("method").any()
    if not reached.all():
        names = ", ".join(name for name in methods if not reached[name])
        text = f"tune: no run reached a {metric} of {target:g} for {names}; best is the best last value"
        warnings.warn(text, stacklevel=2)
    return every


def at_rate(name: str, method: Policy | Method | Told, rate: float) -> Any:
    """Returns a method for a learning rate.

    Args:
        name: of the method, for messages.
        method: a `Policy` or a `Method`, which does not depend on the rate; or a function of the rate that
            returns one.
        rate: the learning rate.

    Raises:
        ValueError: `method` is none of these, for example `dml.bsp` without the call.
    """
    if isinstance(method, Policy | Method):
        return method
    argument, expected = f"methods[{name!r}]", "a Policy, a Method, or a function of the learning rate"
    if not callable(method):
        checks.fail(argument, method, expected)
    own = getattr(method, "__module__", "").startswith("dmlcore.methods.")
    if own and "learning_rate" not in inspect.signature(method).parameters:  # else the rate is its first knob
        checks.fail(argument, method, expected, checks.calling(method))
    try:
        with checks.within(argument):
            made = method(rate)
    except TypeError as error:
        given = f"{checks.shown(method)}, which raised TypeError: {error}"
        raise ValueError(checks.message(argument, given, expected, checks.calling(method))) from error
    if not isinstance(made, Policy | Method):
        checks.fail(argument, made, f"{expected} that returns one of them")
    return made


def _together(runs: list[pd.DataFrame], methods: Mapping[str, Any]) -> pd.DataFrame:
    """Returns one frame of all sweeps, with their attributes."""
    every = pd.concat(runs, ignore_index=True)
    finished = [sum(counts) for counts in zip(*(each.attrs["finished"] for each in runs), strict=True)]
    every.attrs = {**runs[-1].attrs, "methods": list(methods), "finished": finished}
    return every
