"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.engines.stop import stop_rule
from dmlcore.problems.problem import Problem
from dmlcore.runs import Run, check_optimizer, check_until, replay, replay_lanes, timeline
from dmlcore.trace import Trace
from dmlcore.types import Method, Policy


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
    check_optimizer(optimizer)
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
        methods: name -> policy, or a `Method` (whose own optimizer, if any, is not swept).
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
    rates = [checks.real("learning_rates", rate, above=0) for rate in learning_rates]
    if not rates:
        checks.fail("learning_rates", rates, "at least one learning rate")
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
    seeds = [checks.integer("seeds", seed, low=0) for seed in seeds]
    if not methods or not seeds:
        checks.fail("methods" if not methods else "seeds", "none", "at least one")
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
            traces = list(pool.map(functools.partial(trace, method), seeds))
            lanes = [
                (rate, seed, seed_trace, method.optimizer or optimizer)
                for rate, optimizer in optimizers.items()
                for seed, seed_trace in zip(seeds, traces, strict=True)
            ]
            runs = _train_lanes(pool, lanes, problem, until=until, eval_every=eval_every)
            for (rate, seed, *_), run in zip(lanes, runs, strict=True):
                columns: dict[str, Any] = {"method": name} | ({} if rate is None else {"learning_rate": rate})
                frames.append(run.history.assign(**columns, seed=seed))
    table = pd.concat(frames, ignore_index=True)
    first = [name for name in ("method", "learning_rate", "seed") if name in table]
    return table[first + [name for name in table if name not in first]]


def _train_lanes(
    pool: ThreadPoolExecutor, lanes: Sequence[tuple[Any, int, Trace, Any]], problem: Problem, **options: Any
) -> list[Run]:
    """Lanes of one `vmap` on an accelerator; on a CPU, where that gains nothing, one a thread."""
    if jax.default_backend() != "cpu":
        return replay_lanes([lane[2] for lane in lanes], problem, [lane[3] for lane in lanes], **options)

    def one(lane: tuple[Any, int, Trace, Any]) -> Run:
        return replay(lane[2], problem, lane[3], **options)

    return list(pool.map(one, lanes))


def _method(name: str, given: Policy | Method) -> Method:
    if isinstance(given, Policy):
        return Method(given)
    if not isinstance(given, Method):
        checks.fail(f"methods[{name!r}]", given, "a Policy or a Method")
    return given
