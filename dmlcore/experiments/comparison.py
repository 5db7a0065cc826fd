"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.checks import check_kind, check_seed, several
from dmlcore.cluster import Cluster
from dmlcore.engines.engine import Engine, resolve
from dmlcore.engines.on_ray.connection import spread
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.runs import check_optimizer, check_until, histories, run, run_spec, timeline, train
from dmlcore.problems.problem import Problem
from dmlcore.problems.validation import check_problem
from dmlcore.types import Method, Policy

ELSEWHERE = {"checkpoint": "none: single runs of `train` keep one", "seed": "`seeds`, those to compare over"}
OPTIONS = [name for name in inspect.getfullargspec(train).kwonlyargs if name not in ELSEWHERE]


class Work(NamedTuple):
    """What all runs of a comparison share."""

    problem: Problem
    optimizers: Mapping[float, optax.GradientTransformation]  # by learning rate; 0: one whatever it is
    engine: Any
    until: Mapping[str, float] | None
    eval_every: int | None


Item = tuple[RunSpec, Any]  # a run, and its method's own optimizer or None


def compare(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizer: optax.GradientTransformation | None,
    *,
    seeds: Iterable[int] = range(5),
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
    executor: str = "threads",
    **options: Any,
) -> pd.DataFrame:
    """Trains every method under every seed and returns all histories as one tidy frame.

    On one seed all methods meet the same stragglers, batches and initial parameters (common random numbers).

    Args:
        methods: name -> policy, or a `Method` with its own load, transport, aggregate or optimizer.
        problem: what is trained.
        cluster: on what.
        optimizer: for the methods that bring none; None where all do.
        seeds: of the runs.
        until, eval_every: as for `train`.
        executor: "threads" of this process, or "ray", which spreads methods and seeds over a Ray cluster: the
            one that is connected or that RAY_ADDRESS names, else a local one. The same frame either way;
            engines with a real clock run on "threads" only, one run after the other.
        **options: as for `train`: one of `updates`, `seconds`, `samples`; `batch_size`, `load`, `transport`,
            `compensation`, `local`, `aggregate`, `engine`.

    Returns:
        A frame with the columns method, seed and those of `Run.history`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import dmlcore as dml
    >>> methods = {"BSP": dml.bsp(), "ASP": dml.asp()}
    >>> runs = compare(methods, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd(0.1),
    ...                seeds=range(2), updates=10, eval_every=5)
    >>> len(runs), list(runs.columns[:5])
    (12, ['method', 'seed', 'update', 'time', 'samples'])
    """
    work = Work(problem, {0.0: optimizer}, options.pop("engine", "simulate"), until, eval_every)
    return _run_all(compare, methods, work, cluster, seeds, executor, options)


def sweep(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizer: Callable[[float], optax.GradientTransformation],
    learning_rates: Iterable[float],
    *,
    seeds: Iterable[int] = range(5),
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
    executor: str = "threads",
    **options: Any,
) -> pd.DataFrame:
    """Compares methods at every learning rate of one shared grid, for a fair choice of each method's own.

    A timeline does not depend on the learning rate, so each is made once; no rate compiles anew.

    Args:
        methods: as for `compare`; one with an optimizer of its own is trained once per seed, and its rows are
            the same at every rate.
        optimizer: learning rate -> optax optimizer, such as `optax.sgd`.
        learning_rates: the grid.
        problem, cluster, seeds, until, eval_every, executor, **options: as for `compare`.

    Returns:
        A frame with the columns method, learning_rate, seed and those of `Run.history`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import dmlcore as dml
    >>> runs = sweep({"BSP": dml.bsp()}, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd,
    ...              [0.1, 0.2], seeds=[0], updates=10, eval_every=10)
    >>> runs.groupby("learning_rate").size().to_dict()
    {0.1: 2, 0.2: 2}
    """
    made: dict[float, Any] = {}
    for rate in several("learning_rates", learning_rates, checks.positive):
        try:
            check_optimizer(made.setdefault(rate, optimizer(rate)))
        except (TypeError, ValueError) as error:
            allowed = "a function of the learning rate that returns an optax optimizer, such as optax.sgd"
            raise ValueError(f"optimizer: got {optimizer!r}, allowed is {allowed} ({error})") from error
    work = Work(problem, made, options.pop("engine", "simulate"), until, eval_every)
    return _run_all(sweep, methods, work, cluster, seeds, executor, options)


def check_given(function: Any, methods: Any, problem: Any, seeds: Any, options: dict[str, Any]) -> list[int]:
    """Checks what `compare`, `sweep` and `tune` have in common, and options' names; returns the seeds."""
    check_problem(problem)
    seeds = several("seeds", seeds, check_seed)
    if not isinstance(methods, Mapping) or not methods:
        checks.fail("methods", methods, "a mapping of at least one name to a Policy or a Method")
    for name, given in methods.items():
        if not isinstance(name, str):
            checks.fail("methods", name, "a string, as the name of each Policy or Method")
        policy = given.policy if isinstance(given, Method) else given
        if not isinstance(policy, Policy):
            hint = "; was it called?" if callable(policy) else ""
            checks.fail(f"methods[{name!r}]", given, f"a Policy or a Method{hint}")
    for name, allowed in ELSEWHERE.items():
        if name in options:
            checks.fail(name, options[name], allowed)
    for name in options:
        known = [*inspect.getfullargspec(function).kwonlyargs, "executor", *OPTIONS]
        checks.choice("argument", name, dict.fromkeys(known))
    return seeds


def _run_all(
    function: Any, methods: Any, work: Work, cluster: Any, seeds: Any, executor: Any, options: dict[str, Any]
) -> pd.DataFrame:
    problem, optimizers, engine, until, _ = work
    seeds = check_given(function, methods, problem, seeds, options)
    check_kind("cluster", cluster, Cluster)
    brought = [given.optimizer for given in methods.values() if isinstance(given, Method)]
    if len(brought) < len(methods) or None in brought:
        for optimizer in optimizers.values():
            check_optimizer(optimizer, problem)
    engine = resolve(engine)
    check_until(until, problem)
    checks.one_of("threads", "ray")("executor", executor)
    if executor == "ray" and engine.record is not None:
        checks.fail("executor", executor, "'threads' for engines with a real clock")
    each, specs = {}, {}
    for name, given in methods.items():
        each[name] = method = Method(given) if isinstance(given, Policy) else given
        # What only this method brings is named with it, and not what is given for all of them.
        shared = {*OPTIONS} - {field for field, own in method._asdict().items() if own is not None}
        with checks.within(f"methods[{name!r}]", shared):
            if method.optimizer is not None:
                check_optimizer(method.optimizer, problem)
            specs[name] = run_spec(problem, method, cluster, **options)
    # Methods in turn, so that those at work side by side compile different loops.
    runs = [(name, seed) for seed in seeds for name in each]
    items = [(dataclasses.replace(specs[name], seed=seed), each[name].optimizer) for name, seed in runs]
    work = work._replace(engine=engine)
    if executor == "ray":
        found = spread(_histories, work, items)
    elif engine.record is not None or engine.driver is not None:
        found = [_histories(work, item) for item in items]  # in turn: each has the machine to itself
    elif jax.default_backend() != "cpu":
        # `items` has the methods in turn: every len(each)-th is of one method.
        lanes = [_side_by_side(work, items[first :: len(each)]) for first in range(len(each))]
        found = [of_run for of_seed in zip(*lanes, strict=True) for of_run in of_seed]
    else:
        found = _in_threads(functools.partial(_histories, work), items)
    by_run = dict(zip(runs, (dict(zip(optimizers, of_run, strict=True)) for of_run in found), strict=True))
    ordered = itertools.product(each, optimizers, seeds)
    frames = {(name, rate, seed): by_run[name, seed][rate] for name, rate, seed in ordered}
    levels = ["method", "learning_rate", "seed"]
    table = pd.concat(frames, names=levels).reset_index(levels).reset_index(drop=True)
    return table.drop(columns="learning_rate") if 0.0 in optimizers else table


def _histories(work: Work, item: Item) -> list[pd.DataFrame]:
    """Histories of a run, one for each optimizer; what does not depend on it is made once."""
    (spec, own), (problem, optimizers, engine, until, eval_every) = item, work
    problem = problem.with_steps(spec.local, spec.step_size)
    distinct = [own] if own else [*optimizers.values()]
    if _timeline_first(engine, spec):
        trace = timeline(problem, spec, None, engine)
        options = until, eval_every, spec.aggregate
        found = [histories([trace], problem, [optimizer], *options)[0] for optimizer in distinct]
    else:
        found = [run(problem, spec, optimizer, engine, until, eval_every).history for optimizer in distinct]
    return found * len(optimizers) if own else found


def _timeline_first(engine: Engine, spec: RunSpec) -> bool:
    """Whether timelines are made without training, and are the same whatever the optimizer."""
    return engine.record is None and engine.driver is None and spec.policy.on_observation is None


def _side_by_side(work: Work, items: Sequence[Item]) -> list[list[pd.DataFrame]]:
    """The same for all seeds, as lanes of one `vmap`: on an accelerator, which a single run leaves idle."""
    first, own = items[0]
    if not _timeline_first(work.engine, first):
        return [_histories(work, item) for item in items]
    traces = [timeline(work.problem, spec, None, work.engine) for spec, _ in items]
    problem = work.problem.with_steps(first.local, first.step_size)
    distinct = [own] if own else [*work.optimizers.values()]
    lanes = [(trace, optimizer) for trace in traces for optimizer in distinct]
    of_lanes, optimizers = zip(*lanes, strict=True)
    found = histories(of_lanes, problem, optimizers, work.until, work.eval_every, first.aggregate)
    by_seed = [found[i : i + len(distinct)] for i in range(0, len(found), len(distinct))]
    return [each * len(work.optimizers) for each in by_seed] if own else by_seed


def _in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Results of `function`, under the caller's settings of JAX that hold in one thread only."""
    config: Any = jax.config
    x64, device = config.jax_enable_x64, config.jax_default_device

    def task(item: Any) -> Any:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(item)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(task, items))
