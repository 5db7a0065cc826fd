"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.checks import check_kind, check_seed, several
from dmlcore.cluster import Cluster
from dmlcore.engines.engine import Engine, resolve
from dmlcore.engines.ray_cluster import spread
from dmlcore.engines.stop import stop_rule
from dmlcore.experiments.runs import check_optimizer, check_until, histories, timeline, train
from dmlcore.problems.problem import Problem
from dmlcore.training.replay import Replay
from dmlcore.types import Method, Policy

T = TypeVar("T")
OPTIONS = ("updates", "seconds", "samples", "batch_size", "load", "transport", "engine")
EXECUTORS = {"threads": None, "ray": None}


def compare(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizer: optax.GradientTransformation,
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
        methods: name -> policy, or a `Method` with its own load, transport or optimizer.
        problem: what is trained.
        cluster: on what.
        optimizer: for the methods that bring none.
        seeds: of the runs.
        until: as for `train`.
        eval_every: as for `train`.
        executor: "threads" of this process, or "ray", which spreads methods and seeds over a Ray cluster: the
            one that is connected or that RAY_ADDRESS names, else a local one. The same frame either way;
            engines with a real clock run on "threads" only, one run after the other.
        **options: as for `train`: one of `updates`, `seconds`, `samples`; `batch_size`, `load`, `transport`,
            `engine`.

    Returns:
        A frame with the columns method, seed and those of `Run.history`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    Example:
        >>> import dmlcore as dml
        >>> methods = {"BSP": dml.bsp(), "ASP": dml.asp()}
        >>> runs = compare(methods, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd(0.1),
        ...                seeds=range(2), updates=10, eval_every=5)
        >>> len(runs), list(runs.columns[:5])
        (12, ['method', 'seed', 'update', 'time', 'samples'])
    """
    return _run_all(methods, problem, cluster, {None: optimizer}, seeds, until, eval_every, executor, options)


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
        methods: name -> policy, or a `Method`. One with an optimizer of its own is trained once per seed, and
            its rows are the same at every rate.
        problem: what is trained.
        cluster: on what.
        optimizer: learning rate -> optax optimizer, such as `optax.sgd`.
        learning_rates: the grid.
        seeds: of the runs.
        until: as for `train`.
        eval_every: as for `train`.
        executor: "threads" of this process, or "ray", which spreads methods and seeds over a Ray cluster: the
            one that is connected or that RAY_ADDRESS names, else a local one. The same frame either way;
            engines with a real clock run on "threads" only, one run after the other.
        **options: as for `compare`.

    Returns:
        A frame with the columns method, learning_rate, seed and those of `Run.history`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    Example:
        >>> import dmlcore as dml
        >>> runs = sweep({"BSP": dml.bsp()}, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd,
        ...              [0.1, 0.2], seeds=[0], updates=10, eval_every=10)
        >>> runs.groupby("learning_rate").size().to_dict()
        {0.1: 2, 0.2: 2}
    """
    rates = [
        checks.real("learning_rates", rate, above=0) for rate in several("learning_rates", learning_rates)
    ]
    if not callable(optimizer):
        checks.fail("optimizer", optimizer, "a function of the learning rate, such as optax.sgd")
    return _run_all(
        methods,
        problem,
        cluster,
        {rate: optimizer(rate) for rate in rates},
        seeds,
        until,
        eval_every,
        executor,
        options,
    )


def _run_all(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizers: Mapping[float | None, optax.GradientTransformation],
    seeds: Iterable[int],
    until: Mapping[str, float] | None,
    eval_every: int | None,
    executor: str,
    options: dict[str, Any],
) -> pd.DataFrame:
    check_kind("problem", problem, Problem)
    check_kind("cluster", cluster, Cluster)
    for optimizer in optimizers.values():
        check_optimizer(optimizer, problem)
    seeds = [check_seed("seeds", seed) for seed in several("seeds", seeds)]
    if not isinstance(methods, Mapping) or not methods:
        checks.fail("methods", methods, "a mapping of at least one name to a Policy or a Method")
    if options.get("checkpoint") is not None:
        checks.fail("checkpoint", options["checkpoint"], "none: single runs of `train` keep one")
    if "seed" in options:
        checks.fail("seed", options["seed"], "`seeds`, the seeds to compare over")
    for name in options:
        checks.choice("argument", name, dict.fromkeys(OPTIONS))
    stop_rule(*(options.get(name) for name in ("updates", "seconds", "samples")))
    check_until(until)
    each = {name: _method(name, method, problem) for name, method in methods.items()}
    checks.choice("executor", executor, EXECUTORS)
    engine = resolve(options.pop("engine", "simulate"))
    work = Work(problem, cluster, [*optimizers.values()], engine, until, eval_every, options)
    # Methods in turn, so that those at work side by side compile different loops.
    runs = [(name, seed) for seed in seeds for name in each]
    items = [(each[name], seed) for name, seed in runs]
    if executor == "ray" and engine.record is not None:
        checks.fail("executor", executor, "'threads' for engines with a real clock")
    if executor == "ray":
        found = spread(_histories, work, items)
    elif engine.record is not None or engine.driver is not Replay:
        found = [
            _histories(work, item) for item in items
        ]  # one after the other: each has the machine to itself
    elif jax.default_backend() != "cpu":
        lanes = {name: _side_by_side(work, method, seeds) for name, method in each.items()}
        found = [lanes[name][i] for i in range(len(seeds)) for name in each]
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = _map(pool, functools.partial(_histories, work), items)
    frames = {}
    for (name, seed), of_run in zip(runs, found, strict=True):
        for rate, history in zip(optimizers, of_run, strict=True):
            columns: dict[str, Any] = {"method": name} | ({} if rate is None else {"learning_rate": rate})
            frames[name, rate, seed] = history.assign(**columns, seed=seed)
    table = pd.concat([frames[key] for key in itertools.product(each, optimizers, seeds)], ignore_index=True)
    first = [name for name in ("method", "learning_rate", "seed") if name in table]
    return table[first + [name for name in table if name not in first]]


class Work(NamedTuple):
    """What all runs of a comparison share; options are those of `timeline`."""

    problem: Problem
    cluster: Cluster
    optimizers: list[optax.GradientTransformation]
    engine: Engine
    until: Mapping[str, float] | None
    eval_every: int | None
    options: dict[str, Any]


def _options(work: Work, method: Method) -> dict[str, Any]:
    own = {"load": method.load, "transport": method.transport}
    return work.options | {name: value for name, value in own.items() if value is not None}


def _histories(work: Work, item: tuple[Method, int]) -> list[pd.DataFrame]:
    """Histories of a method on a seed, one for each optimizer; what does not depend on it is made once."""
    method, seed = item
    problem, cluster, optimizers, engine, until, eval_every, _ = work
    options = _options(work, method) | {"seed": seed}
    distinct = [method.optimizer] if method.optimizer else optimizers
    if _timeline_first(engine, method):
        trace = timeline(problem, cluster, method.policy, engine=engine, **options)
        found = [histories([trace], problem, [optimizer], until, eval_every)[0] for optimizer in distinct]
    else:
        options |= {"until": until, "eval_every": eval_every, "engine": engine}
        runs = [train(problem, cluster, method.policy, optimizer, **options) for optimizer in distinct]
        found = [run.history for run in runs]
    return found * len(optimizers) if method.optimizer else found


def _timeline_first(engine: Engine, method: Method) -> bool:
    """Whether timelines are made without training, and are the same whatever the optimizer."""
    return engine.record is None and engine.driver is Replay and method.policy.on_observation is None


def _side_by_side(work: Work, method: Method, seeds: Sequence[int]) -> list[list[pd.DataFrame]]:
    """The same for all seeds, as lanes of one `vmap`: on an accelerator, which a single run leaves idle."""
    if not _timeline_first(work.engine, method):
        return [_histories(work, (method, seed)) for seed in seeds]
    options = _options(work, method)
    traces = [
        timeline(work.problem, work.cluster, method.policy, engine=work.engine, seed=seed, **options)
        for seed in seeds
    ]
    distinct = [method.optimizer] if method.optimizer else work.optimizers
    lanes = [(trace, optimizer) for trace in traces for optimizer in distinct]
    of_lanes, optimizers = zip(*lanes, strict=True)
    found = histories(of_lanes, work.problem, optimizers, work.until, work.eval_every)
    by_seed = [found[i : i + len(distinct)] for i in range(0, len(found), len(distinct))]
    return [own * len(work.optimizers) for own in by_seed] if method.optimizer else by_seed


def _map(pool: ThreadPoolExecutor, function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Results of `function` in the pool, under the caller's settings of JAX that hold in one thread only."""
    config: Any = jax.config
    x64, device = config.jax_enable_x64, config.jax_default_device

    def task(item: Any) -> T:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(item)

    return list(pool.map(task, items))


def _method(name: str, given: Policy | Method, problem: Problem) -> Method:
    method = Method(given) if isinstance(given, Policy) else given
    if not isinstance(method, Method) or not isinstance(method.policy, Policy):
        hint = "; was it called?" if callable(given) else ""
        checks.fail(f"methods[{name!r}]", given, f"a Policy or a Method{hint}")
    if method.optimizer is not None:
        check_optimizer(method.optimizer, problem)
    return method
