"""Comparisons: several methods on the same problem, cluster and seeds, as one tidy frame."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.checks import check_kind, check_optax, check_seed, several
from dmlcore.cluster import Cluster
from dmlcore.engines.engine import Engine
from dmlcore.engines.engine import resolve as resolve_engine
from dmlcore.engines.job import described
from dmlcore.engines.on_ray.connection import spread
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.histories import (
    Looks,
    check_optimizer,
    driver_with,
    histories,
    resolved_history,
)
from dmlcore.experiments.journal import Journal, folder_for
from dmlcore.experiments.runs import run, run_spec, timeline, train
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
    """What all runs of a comparison share."""

    problem: Problem
    engine: Engine
    looks: Looks
    resolve: bool
    journal: Journal | None


class Rates(dict[float, optax.GradientTransformation]):
    """The optimizers of a sweep by learning rate, which `compare` takes in place of one optimizer."""


Key = tuple[str, int]  # the name of a method, and a seed
Item = tuple[RunSpec, Sequence[Any]]  # a run, and its optimizer at every learning rate


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
    check_given(methods, problem, cluster, options)
    seeds, engine = several("seeds", seeds, check_seed), resolve_engine(options.pop("engine", "simulate"))
    looks = Looks.checked(problem, until, eval_every, eval_params)
    if checks.boolean("resolve", resolve) and not until:
        checks.fail("resolve", resolve, "False (there is no target to resolve)", "until=")
    checks.one_of("threads", "ray")("executor", executor)
    if executor == "ray" and engine.record is not None:
        checks.fail("executor", executor, "'threads' (the engine has a real clock)")
    rates = optimizer if isinstance(optimizer, Rates) else Rates({0.0: optimizer})
    items = _items(methods, problem, cluster, rates, seeds, eval_params, options)
    about = {"engine": str(engine), "until": until, "eval_every": eval_every}
    about |= {"resolve": True} if resolve else {}
    folder = folder_for(save)
    journal = None if folder is None else Journal(folder, about)
    work = Work(problem, engine, looks, resolve, journal)
    found: dict[Key, list[pd.DataFrame]] = {}
    interrupted, asked = False, len(rates) * len(items)
    with bar(checks.boolean("progress", progress), asked) as advance:

        def finished(key: Key, of_run: list[pd.DataFrame]) -> None:
            found[key] = of_run
            advance(len(rates))

        try:
            _make(work, items, executor, finished)
        except KeyboardInterrupt:
            if not found:
                raise
            interrupted = True
    frames = {
        (name, rate, seed): found[name, seed][place]
        for name, (place, rate), seed in itertools.product(methods, enumerate(rates), seeds)
        if (name, seed) in found
    }
    if len(frames) < asked:
        told = f"the frame has the {len(frames)} of {asked} runs that are finished"
        warnings.warn(f"interrupted: {told}", stacklevel=3 if rates is optimizer else 2)
    levels = ["method", "learning_rate", "seed"]
    table = pd.concat(frames, names=levels).reset_index(levels).reset_index(drop=True)
    table = table if rates is optimizer else table.drop(columns="learning_rate")
    table.attrs = {
        "methods": list(methods),
        "seeds": seeds,
        "cluster": cluster.describe(),
        "versions": versions(),
        "finished": [len(frames), asked],
        "interrupted": interrupted,
    }
    return table


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
    made: Any = Rates({rate: check_factory(optimizer, rate) for rate in rates})
    options |= {"seeds": seeds, "until": until, "eval_every": eval_every, "eval_params": eval_params}
    options |= {"resolve": resolve, "executor": executor, "save": save, "progress": progress}
    return compare(methods, problem, cluster, made, **options)


def check_factory(optimizer: Any, rate: float = 0.1) -> optax.GradientTransformation:
    """Calls a function of the learning rate and returns the optimizer that it makes.

    Raises:
        ValueError: `optimizer` is not such a function.
    """
    try:
        made: optax.GradientTransformation = optimizer(rate)
        check_optax("optimizer", made)
    except (TypeError, ValueError) as error:
        expected = "a function of the learning rate that returns an optax optimizer, such as optax.sgd"
        raise ValueError(checks.message("optimizer", f"{optimizer!r} ({error})", expected)) from error
    return made


def check_given(methods: Any, problem: Any, cluster: Any, options: Mapping[str, Any]) -> None:
    """Checks problem, cluster, the names of methods and those of options."""
    check_once(problem)
    check_kind("cluster", cluster, Cluster)
    if not isinstance(methods, Mapping) or not methods:
        checks.fail("methods", methods, "a mapping of at least one name to a Policy or a Method")
    for name, given in methods.items():
        if not isinstance(name, str):
            checks.fail("methods", name, "a string as the name of each Policy or Method")
        policy = given.policy if isinstance(given, Method) else given
        if not isinstance(policy, Policy):
            checks.fail(f"methods[{name!r}]", given, "a Policy or a Method", checks.calling(policy))
    known = dict.fromkeys([*inspect.getfullargspec(compare).kwonlyargs, *OPTIONS])
    for name, value in options.items():
        if name in ELSEWHERE:
            checks.fail(name, value, *ELSEWHERE[name])
        checks.choice("argument", name, known)


def _items(
    methods: Mapping[str, Policy | Method],
    problem: Problem,
    cluster: Cluster,
    rates: Rates,
    seeds: Sequence[int],
    eval_params: EvalParams | None,
    options: Mapping[str, Any],
) -> dict[Key, Item]:
    """Checks methods and optimizers, and returns the runs."""
    each = {name: Method(given) if isinstance(given, Policy) else given for name, given in methods.items()}
    for optimizer in rates.values():
        if optimizer is not None or any(method.optimizer is None for method in each.values()):
            check_optimizer(optimizer, problem, eval_params)
    specs: dict[tuple[int, ...], list[RunSpec]] = {}  # of methods that differ in their optimizer only
    made = {}
    for name, method in each.items():
        # Messages name the method for its own options, and not for the options of all methods.
        own = {field for field, value in method._asdict().items() if value is not None}
        with checks.within(f"methods[{name!r}]", {*OPTIONS} - own - {"eval_params"}):
            if method.optimizer is not None:
                check_optimizer(method.optimizer, problem, eval_params)
            parts = tuple(map(id, method._replace(optimizer=None)))
            if parts not in specs:
                spec = run_spec(problem, method, cluster, eval_params=eval_params, **options)
                specs[parts] = [dataclasses.replace(spec, seed=seed) for seed in seeds]
        optimizers = [method.optimizer or each for each in rates.values()]
        made[name] = [(spec, optimizers) for spec in specs[parts]]
    # Methods in turn, so that runs in parallel threads compile different loops.
    return {(name, seed): made[name][place] for place, seed in enumerate(seeds) for name in made}


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
    work: Work,
    items: Mapping[Key, Item],
    executor: str,
    finished: Callable[[Key, list[pd.DataFrame]], None],
) -> None:
    """Makes the runs and calls `finished` after each, with its histories at every learning rate."""
    ray, alone = executor == "ray", work.engine.record is not None or work.engine.driver is not None
    lanes = not ray and not alone and jax.default_backend() != "cpu"
    batches = [[key] for key in items]
    if lanes:
        num_rates = len(next(iter(items.values()))[1])
        seeds, of_methods = max(1, LANES_AT_ONCE // num_rates), _grouped(items, lambda key: key[0])
        batches = [own[start : start + seeds] for own in of_methods for start in range(0, len(own), seeds)]
    elif not ray and not alone:
        alike = _grouped(items, lambda key: id(items[key][0]))  # runs that differ in their optimizer only
        batches = alike if len(alike) >= (os.cpu_count() or 1) else batches

    def told(place: int, made: list[list[pd.DataFrame]]) -> None:
        for key, of_run in zip(batches[place], made, strict=True):
            finished(key, of_run)

    each = [[items[key] for key in batch] for batch in batches]
    function = functools.partial(_histories, work, at_once=LANES_AT_ONCE if lanes else 1)
    if ray or alone or lanes:  # one after the other: a real clock needs the whole machine
        for place, made in enumerate(spread(_histories, work, each) if ray else map(function, each)):
            told(place, made)
    else:
        _in_threads(function, each, told)


def _grouped(keys: Iterable[Key], of: Callable[[Key], Any]) -> list[list[Key]]:
    """Returns groups of keys for which `of` returns the same, in the order of their first keys."""
    groups: dict[Any, list[Key]] = {}
    for key in keys:
        groups.setdefault(of(key), []).append(key)
    return [*groups.values()]


def _histories(work: Work, items: Sequence[Item], at_once: int = 1) -> list[list[pd.DataFrame]]:
    """Returns the histories of runs at every learning rate: those of one method, or of one timeline.

    So many are trained side by side, and then saved, as lanes of one `vmap`: one run leaves an accelerator
    idle. Runs with the same spec share its timeline if it is made without training.
    """
    first, engine, looks, journal = items[0][0], work.engine, work.looks, work.journal
    problem = first.steps_of(work.problem)
    lanes = {(id(spec), id(own)): (spec, own) for spec, optimizers in items for own in optimizers}
    known, found = dict[Any, dict[str, Any]](), dict[Any, pd.DataFrame]()
    if journal is not None:
        known = {at: described(spec, problem, own, looks.params) for at, (spec, own) in lanes.items()}
        found = {at: kept for at in known if (kept := journal.load(known[at])) is not None}
    replays = driver_with(Replay, first.aggregate, looks.params)
    driver = Repeated(replays) if at_once == 1 else replays
    traces: dict[int, Trace] = {}
    timeline_first = engine.record is None and engine.driver is None and first.policy.on_observation is None

    def trained(some: Sequence[tuple[RunSpec, Any]]) -> list[pd.DataFrame]:
        specs, optimizers = zip(*some, strict=True)
        if not timeline_first:  # it may depend on the optimizer
            ((spec, own),) = some
            ran = run(problem, spec, own, engine, looks)
            if not work.resolve:
                return [ran.history]
            rows = ran.history[["update", *problem.metrics]].to_dict("records")
            seen: Any = [(int(row.pop("update")), row) for row in rows]
            return [resolved_history(ran.trace, problem, own, looks.until, replays, seen)]
        for spec in specs:
            if id(spec) not in traces:
                traces[id(spec)] = timeline(work.problem, spec, None, engine)
        own_traces = [traces[id(spec)] for spec in specs]
        return histories(own_traces, problem, optimizers, looks, driver, work.resolve)

    lacking, size = [at for at in lanes if at not in found], at_once if timeline_first else 1
    for some in (lacking[start : start + size] for start in range(0, len(lacking), size)):
        for at, history in zip(some, trained([lanes[at] for at in some]), strict=True):
            found[at] = history
            if journal is not None:
                journal.save(known[at], history)
    return [[found[id(spec), id(own)] for own in optimizers] for spec, optimizers in items]


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
        untold = dict(numbers)
        try:
            for future in as_completed(numbers):
                finished(untold.pop(future), future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for future, number in untold.items():
                if not future.cancelled() and future.exception() is None:
                    finished(number, future.result())
            raise
