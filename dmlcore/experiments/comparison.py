"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.checks import check_kind, check_seed, several
from dmlcore.cluster import Cluster
from dmlcore.engines.engine import Engine
from dmlcore.engines.engine import resolve as resolve_engine
from dmlcore.engines.job import described
from dmlcore.engines.on_ray.connection import spread
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.journal import Journal, folder_for
from dmlcore.experiments.runs import (
    check_one_state,
    check_optimizer,
    check_until,
    driver_with,
    histories,
    resolved_history,
    run,
    run_spec,
    timeline,
    train,
)
from dmlcore.problems.problem import Problem
from dmlcore.provenance import versions
from dmlcore.trace import Trace
from dmlcore.training.compiling import inherited
from dmlcore.training.identity import check_once
from dmlcore.training.loop import EvalParams
from dmlcore.training.replay import Repeated, Replay
from dmlcore.types import Method, Policy

ELSEWHERE = {
    "checkpoint": ("no such argument (only a single run has checkpoints)", "save="),
    "seed": ("no such argument (a comparison has several)", "seeds="),
}
OPTIONS = [name for name in inspect.getfullargspec(train).kwonlyargs if name not in ELSEWHERE]


# On an accelerator, runs of one method that are trained side by side, and then saved together.
LANES_AT_ONCE = 256


class Work(NamedTuple):
    """The arguments that all runs of a comparison share, and how they are run."""

    problem: Problem
    optimizers: Mapping[float, optax.GradientTransformation]  # by learning rate; key 0: no rates were given
    engine: Any
    until: Mapping[str, float] | None
    eval_every: int | None
    eval_params: EvalParams | None
    resolve: bool
    executor: Any
    save: Any
    progress: Any
    journal: Journal | None = None


Item = tuple[RunSpec, Any]  # a run, and the optimizer of its method or None


def compare(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    optimizer: optax.GradientTransformation | None,
    *,
    seeds: Iterable[int] = range(5),
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
    eval_params: EvalParams | None = None,
    resolve: bool = False,
    executor: str = "threads",
    save: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """Trains every method with every seed and returns all histories as one tidy frame.

    With the same seed, all methods have the same stragglers, batches and initial parameters (common random
    numbers).

    Args:
        methods: name -> policy, or a `Method` with its own load, transport, aggregate or optimizer.
        problem: the problem to train.
        cluster: the cluster to train on.
        optimizer: optax optimizer of the methods that do not have their own. None: all methods have one.
        seeds: one run per method and seed, S runs per method.
        until, eval_every, eval_params: as for `train`.
        resolve: whether a run ends with the first of all its updates that reaches the target of `until`, not
            with the first evaluation that does. If its evaluations have come near the target, it is evaluated
            again after every update; of more than 1,000, where the target is near. Otherwise the time to a
            target depends on `eval_every`: a coarse grid makes fast, noisy methods slower than they are.
        executor: "threads", in this process; or "ray", which distributes methods and seeds over a Ray
            cluster: the connected one, the one that the environment variable RAY_ADDRESS names, or a local
            one. The frame is the same. Engines with a real clock need "threads", and run one after the other.
        save: folder for finished runs. A call with the same arguments reads the runs that are there instead
            of training again, also after a crash or an interrupt; see `dmlcore.experiments.journal.Journal`
            for what identifies a run. With "ray", all machines must have access to the folder. Default: None,
            the folder that the environment variable DMLCORE_SAVE names, if any.
        progress: whether to show a progress bar with the remaining time.
        **options: as for `train`: one of `updates`, `seconds` and `samples`; and `batch_size`, `load`,
            `transport`, `compensation`, `local`, `aggregate`, `engine`.

    Returns:
        A frame with the columns `method`, `seed` and those of `Run.history`. Its `attrs` have the methods in
        their order, the seeds, the cluster, versions, whether the call was interrupted (Ctrl-C), and how many
        runs are finished, of how many; a warning says so if some are missing.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import dmlcore as dml
    >>> methods = {"BSP": dml.bsp(), "ASP": dml.asp()}
    >>> runs = compare(methods, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd(0.1),
    ...                seeds=range(2), updates=10, eval_every=5)
    >>> len(runs), list(runs.columns[:5])
    (12, ['method', 'seed', 'update', 'time', 'samples'])
    """
    looks = until, eval_every, eval_params, resolve
    engine, made = options.pop("engine", "simulate"), {0.0: optimizer}
    work = Work(problem, made, engine, *looks, executor, save, progress)
    return _run_all(compare, methods, work, cluster, seeds, options)


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
    eval_params: EvalParams | None = None,
    resolve: bool = False,
    executor: str = "threads",
    save: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """Compares methods at every learning rate of a common grid, so that each method can use its best rate.

    A timeline does not depend on the learning rate, so each timeline is made once, and a further learning
    rate compiles nothing.

    Args:
        methods: as for `compare`; a method with its own optimizer is trained once per seed, and its rows are
            the same at every rate.
        optimizer: learning rate -> optax optimizer, such as `optax.sgd`.
        learning_rates: the grid.
        problem, cluster, seeds, until, eval_every, eval_params, resolve, executor, save, progress: as for
            `compare`.
        **options: as for `compare`.

    Returns:
        A frame like that of `compare`, with the column `learning_rate`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import dmlcore as dml
    >>> runs = sweep({"BSP": dml.bsp()}, dml.problems.digits_mlp(), Cluster.uniform(4), optax.sgd,
    ...              [0.1, 0.2], seeds=[0], updates=10, eval_every=10)
    >>> runs.groupby("learning_rate").size().to_dict()
    {0.1: 2, 0.2: 2}
    """
    rates = several("learning_rates", learning_rates, checks.positive)
    made = {rate: check_factory(optimizer, rate) for rate in rates}
    looks = until, eval_every, eval_params, resolve
    work = Work(problem, made, options.pop("engine", "simulate"), *looks, executor, save, progress)
    return _run_all(sweep, methods, work, cluster, seeds, options)


def check_factory(optimizer: Any, rate: float = 0.1) -> optax.GradientTransformation:
    """Calls a function of the learning rate and returns the optimizer that it makes.

    Raises:
        ValueError: `optimizer` is not such a function.
    """
    try:
        made: optax.GradientTransformation = optimizer(rate)
        check_optimizer(made)
    except (TypeError, ValueError) as error:
        expected = "a function of the learning rate that returns an optax optimizer, such as optax.sgd"
        raise ValueError(checks.message("optimizer", f"{optimizer!r} ({error})", expected)) from error
    return made


def check_given(function: Any, methods: Any, problem: Any, seeds: Any, options: dict[str, Any]) -> list[int]:
    """Checks the arguments that `compare` and `sweep` share, and returns the seeds."""
    check_once(problem)
    seeds = several("seeds", seeds, check_seed)
    if not isinstance(methods, Mapping) or not methods:
        checks.fail("methods", methods, "a mapping of at least one name to a Policy or a Method")
    for name, given in methods.items():
        if not isinstance(name, str):
            checks.fail("methods", name, "a string as the name of each Policy or Method")
        policy = given.policy if isinstance(given, Method) else given
        if not isinstance(policy, Policy):
            checks.fail(f"methods[{name!r}]", given, "a Policy or a Method", checks.calling(policy))
    for name, (expected, hint) in ELSEWHERE.items():
        if name in options:
            checks.fail(name, options[name], expected, hint)
    for name in options:
        known = [*inspect.getfullargspec(function).kwonlyargs, *OPTIONS]
        checks.choice("argument", name, dict.fromkeys(known))
    return seeds


def _run_all(
    function: Any, methods: Any, work: Work, cluster: Any, seeds: Any, options: dict[str, Any]
) -> pd.DataFrame:
    problem, optimizers, engine, until, eval_every, eval_params, resolve, executor, save, progress, _ = work
    seeds = check_given(function, methods, problem, seeds, options)
    check_kind("cluster", cluster, Cluster)
    brought = [isinstance(given, Method) and given.optimizer is not None for given in methods.values()]
    for optimizer in optimizers.values():
        if optimizer is not None or not all(brought):
            check_optimizer(optimizer, problem, eval_params)
    engine = resolve_engine(engine)
    check_until(until, problem)
    if checks.boolean("resolve", resolve) and not until:
        checks.fail("resolve", resolve, "False (there is no target to resolve)", "until=")
    checks.one_of("threads", "ray")("executor", executor)
    if executor == "ray" and engine.record is not None:
        checks.fail("executor", executor, "'threads' (the engine has a real clock)")
    each, specs = {}, {}
    alike: dict[tuple[int, ...], RunSpec] = {}  # of methods that differ in their optimizer only
    for name, given in methods.items():
        each[name] = method = Method(given) if isinstance(given, Policy) else given
        # Messages name the method for its own options, and not for the options of all methods.
        own = {field for field, value in method._asdict().items() if value is not None}
        shared = {*OPTIONS} - own - {"eval_params"}
        with checks.within(f"methods[{name!r}]", shared):
            if method.optimizer is not None:
                check_optimizer(method.optimizer, problem, eval_params)
            parts = tuple(map(id, method._replace(optimizer=None)))
            specs[name] = alike.get(parts) or run_spec(problem, method, cluster, **options)
            alike[parts] = specs[name]
            check_one_state(eval_params, method.local)
    # Methods in turn, so that runs in parallel threads compile different loops.
    runs = [(name, seed) for seed in seeds for name in each]
    seeded = {
        (id(spec), seed): dataclasses.replace(spec, seed=seed) for spec in specs.values() for seed in seeds
    }
    items = [(seeded[id(specs[name]), seed], each[name].optimizer) for name, seed in runs]
    work = work._replace(engine=engine)
    folder = folder_for(save)
    if folder is not None:
        about = {"engine": str(engine), "until": until, "eval_every": eval_every}
        about |= {"resolve": True} if resolve else {}
        work = work._replace(journal=Journal(folder, about))
    found: dict[tuple[str, int], list[pd.DataFrame]] = {}
    per_item = len(optimizers)
    with bar(checks.boolean("progress", progress), per_item * len(items)) as advance:

        def finished(number: int, of_run: list[pd.DataFrame]) -> None:
            found[runs[number]] = of_run
            advance(per_item)

        interrupted = False
        try:
            _make(work, items, len(each), finished)
        except KeyboardInterrupt:
            if not found:
                raise
            interrupted = True
    frames = {
        (name, rate, seed): found[name, seed][place]
        for name, (place, rate), seed in itertools.product(each, enumerate(optimizers), seeds)
        if (name, seed) in found
    }
    if len(found) < len(runs):
        finished_runs = f"the frame has the {len(frames)} of {per_item * len(runs)} runs that are finished"
        warnings.warn(f"interrupted: {finished_runs}", stacklevel=3)
    levels = ["method", "learning_rate", "seed"]
    table = pd.concat(frames, names=levels).reset_index(levels).reset_index(drop=True)
    table = table.drop(columns="learning_rate") if 0.0 in optimizers else table
    table.attrs = {
        "methods": list(each),
        "seeds": seeds,
        "cluster": cluster.describe(),
        "versions": versions(),
        "finished": [len(frames), per_item * len(runs)],
        "interrupted": interrupted,
    }
    return table


@contextlib.contextmanager
def bar(shown: bool, total: int | None, counted: str = "runs") -> Iterator[Callable[[int], None]]:
    """Shows a progress bar if `shown`, and yields a function that advances it by a number of runs.

    If `total` is None, the bar shows only the count.
    """
    if not shown:
        yield lambda number: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task(counted, total=total)
        yield lambda number: progress.advance(task, number)


def _make(
    work: Work, items: Sequence[Item], num_methods: int, finished: Callable[[int, list[pd.DataFrame]], None]
) -> None:
    """Makes the runs and calls `finished` after each, with the run's number and its histories."""
    ray, alone = work.executor == "ray", work.engine.record is not None or work.engine.driver is not None
    lanes = not ray and not alone and jax.default_backend() != "cpu"
    groups = [[number] for number in range(len(items))]
    if lanes:
        seeds, every = max(1, LANES_AT_ONCE // len(work.optimizers)), range(len(items))
        of_methods = [every[first::num_methods] for first in range(num_methods)]  # runs of one method each
        groups = [[*own[start : start + seeds]] for own in of_methods for start in range(0, len(own), seeds)]
    elif not ray and not alone:
        alike: dict[int, list[int]] = {}  # runs that differ in their optimizer only
        for number, (spec, _) in enumerate(items):
            alike.setdefault(id(spec), []).append(number)
        groups = [*alike.values()] if len(alike) >= (os.cpu_count() or 1) else groups
    batches = [[items[number] for number in own] for own in groups]

    def told(place: int, of_group: list[list[pd.DataFrame]]) -> None:
        for number, of_run in zip(groups[place], of_group, strict=True):
            finished(number, of_run)

    if ray:
        for place, made in enumerate(spread(_together, work, batches)):
            told(place, made)
    elif alone or lanes:  # one after the other: a real clock needs the whole machine
        for place, batch in enumerate(batches):
            told(place, _side_by_side(work, batch) if lanes else _together(work, batch))
    else:
        _in_threads(functools.partial(_together, work), batches, told)


def _together(work: Work, items: Sequence[Item]) -> list[list[pd.DataFrame]]:
    """Returns the histories of runs that differ in their optimizer only; with one timeline if they can."""
    (spec, _), problem, engine, until, journal = items[0], work.problem, work.engine, work.until, work.journal
    replays = driver_with(Replay, spec.aggregate, work.eval_params)
    problem = spec.steps_of(problem)
    made_first = _timeline_first(engine, spec)
    trace: Trace | None = None
    driver = Repeated(replays)

    def history_of(optimizer: Any) -> pd.DataFrame:
        nonlocal trace
        known = {} if journal is None else described(spec, problem, optimizer, work.eval_params)
        history = None if journal is None else journal.load(known)
        if history is None:
            if made_first:
                trace = trace or timeline(problem, spec, None, engine)
                given = [trace], problem, [optimizer], until
                history = histories(*given, work.eval_every, driver, work.resolve)[0]
            else:
                looks: Any = {"eval_every": work.eval_every, "eval_params": work.eval_params}
                ran = run(problem, spec, optimizer, engine, until, **looks)
                history = ran.history
                if work.resolve and until:
                    history = resolved_history(ran, problem, optimizer, until, replays)
            if journal is not None:
                journal.save(known, history)
        return history

    every = work.optimizers.values()
    return [[history_of(own)] * len(every) if own else [*map(history_of, every)] for _, own in items]


def _timeline_first(engine: Engine, spec: RunSpec) -> bool:
    """Returns whether the timeline is made without training, so that it does not depend on the optimizer."""
    return engine.record is None and engine.driver is None and spec.policy.on_observation is None


def _side_by_side(work: Work, items: Sequence[Item]) -> list[list[pd.DataFrame]]:
    """Returns the histories of several seeds, as lanes of one `vmap`: one run leaves an accelerator idle."""
    first, own = items[0]
    if not _timeline_first(work.engine, first):
        return [_together(work, [item])[0] for item in items]
    problem = first.steps_of(work.problem)
    distinct = [own] if own else [*work.optimizers.values()]
    lanes = [(spec, optimizer) for spec, _ in items for optimizer in distinct]
    journal = work.journal
    known: list[dict[str, Any]] = []
    found: list[Any] = [None] * len(lanes)
    if journal is not None:
        known = [described(spec, problem, optimizer, work.eval_params) for spec, optimizer in lanes]
        found = [journal.load(each) for each in known]
    every = [number for number, history in enumerate(found) if history is None]
    for missing in (every[start : start + LANES_AT_ONCE] for start in range(0, len(every), LANES_AT_ONCE)):
        specs, optimizers = zip(*(lanes[number] for number in missing), strict=True)
        traces = {spec.seed: timeline(work.problem, spec, None, work.engine) for spec in specs}
        driver = driver_with(Replay, first.aggregate, work.eval_params)
        options = work.until, work.eval_every, driver, work.resolve
        made = histories([traces[spec.seed] for spec in specs], problem, optimizers, *options)
        for number, history in zip(missing, made, strict=True):
            found[number] = history
            if journal is not None:
                journal.save(known[number], history)
    by_seed = [found[i : i + len(distinct)] for i in range(0, len(found), len(distinct))]
    return [each * len(work.optimizers) for each in by_seed] if own else by_seed


def _in_threads(
    function: Callable[[Any], Any], items: Iterable[Any], finished: Callable[[int, Any], None]
) -> None:
    """Calls `function` for each item in threads, and `finished` with the item's number and the result.

    The threads have the caller's JAX settings, including those that hold for one thread only. After an
    exception, items that are running still finish and are passed to `finished`.
    """
    settings = inherited()

    def task(item: Any) -> Any:
        with settings():
            return function(item)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        numbers = {pool.submit(task, item): number for number, item in enumerate(items)}
        told = set()

        def tell(future: Future[Any]) -> None:
            if future not in told:
                told.add(future)
                finished(numbers[future], future.result())

        try:
            for future in as_completed(numbers):
                tell(future)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for future in numbers:
                if not future.cancelled() and future.exception() is None:
                    tell(future)
            raise
