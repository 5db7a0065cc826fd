"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.engines.arguments import check_kind, check_seed
from dmlcore.engines.stop import stop_rule
from dmlcore.problems.problem import Problem
from dmlcore.runs import Run, check_optimizer, check_until, replay, replay_lanes, timeline
from dmlcore.trace import Trace
from dmlcore.types import Method, Policy

T = TypeVar("T")


def compare(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizer: optax.GradientTransformation,
    *,
    seeds: Iterable[int] = range(5),
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
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
    return _run_all(methods, problem, cluster, {None: optimizer}, seeds, until, eval_every, options)


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
        checks.real("learning_rates", rate, above=0) for rate in _several("learning_rates", learning_rates)
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
    options: dict[str, Any],
) -> pd.DataFrame:
    check_kind("problem", problem, Problem)
    check_kind("cluster", cluster, Cluster)
    for optimizer in optimizers.values():
        check_optimizer(optimizer)
    seeds = [check_seed("seeds", seed) for seed in _several("seeds", seeds)]
    if not isinstance(methods, Mapping) or not methods:
        checks.fail("methods", methods, "a mapping of at least one name to a Policy or a Method")
    if "seed" in options:
        checks.fail("seed", options["seed"], "`seeds`, the seeds to compare over")
    stop_rule(*(options.get(name) for name in ("updates", "seconds", "samples")))
    check_until(until)
    each = {name: _method(name, method) for name, method in methods.items()}

    def trace(method: Method, seed: int) -> Trace:
        own = {"load": method.load, "transport": method.transport}
        own = {key: value for key, value in own.items() if value is not None}
        return timeline(problem, cluster, method.policy, seed=seed, **(options | own))

    frames = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, method in each.items():
            traces = _map(pool, functools.partial(trace, method), seeds)
            distinct = [method.optimizer] if method.optimizer else [*optimizers.values()]
            lanes = [(each_trace, optimizer) for optimizer in distinct for each_trace in traces]
            runs = _train_lanes(pool, lanes, problem, until=until, eval_every=eval_every)
            if method.optimizer:
                runs *= len(optimizers)
            for (rate, seed), run in zip(itertools.product(optimizers, seeds), runs, strict=True):
                columns: dict[str, Any] = {"method": name} | ({} if rate is None else {"learning_rate": rate})
                frames.append(run.history.assign(**columns, seed=seed))
    table = pd.concat(frames, ignore_index=True)
    first = [name for name in ("method", "learning_rate", "seed") if name in table]
    return table[first + [name for name in table if name not in first]]


def _train_lanes(
    pool: ThreadPoolExecutor, lanes: Sequence[tuple[Trace, Any]], problem: Problem, **options: Any
) -> list[Run]:
    """Lanes of one `vmap` on an accelerator; on a CPU, where that gains nothing, one a thread."""
    if jax.default_backend() != "cpu":
        traces, optimizers = zip(*lanes, strict=True)
        return replay_lanes(traces, problem, optimizers, **options)
    return _map(pool, lambda lane: replay(lane[0], problem, lane[1], **options), lanes)


def _map(pool: ThreadPoolExecutor, function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Results of `function` in the pool, under the caller's settings of JAX that hold in one thread only."""
    config: Any = jax.config
    x64, device = config.jax_enable_x64, config.jax_default_device

    def task(item: Any) -> T:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(item)

    return list(pool.map(task, items))


def _several(name: str, values: Any) -> list[Any]:
    """Returns `values` as a list if there are some, all different."""
    listed = [*values] if isinstance(values, Iterable) else []
    if not listed or len({*listed}) < len(listed):
        checks.fail(name, values, "at least one, all different")
    return listed


def _method(name: str, given: Policy | Method) -> Method:
    method = Method(given) if isinstance(given, Policy) else given
    if not isinstance(method, Method) or not isinstance(method.policy, Policy):
        checks.fail(f"methods[{name!r}]", given, "a Policy or a Method")
    if method.optimizer is not None:
        check_optimizer(method.optimizer)
    return method
