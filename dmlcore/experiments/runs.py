"""Runs: an engine makes a timeline, and replay trains along it."""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optax
import pandas as pd

from dmlcore import checks, notebook
from dmlcore.checks import check_kind
from dmlcore.cluster import Cluster
from dmlcore.engines.engine import Engine, resolve
from dmlcore.engines.job import Job
from dmlcore.engines.segments import TrainingWatch
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.histories import (
    Looks,
    check_one_state,
    check_optimizer,
    driver_with,
    history,
    trained,
)
from dmlcore.methods.aggregate import resolve as resolve_aggregate
from dmlcore.methods.local import check_aggregated, check_counted
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.aggregation import check_aggregate
from dmlcore.training.coding import memory_of
from dmlcore.training.identity import check_once, told
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.loop import EvalParams
from dmlcore.training.optimizer import check_update
from dmlcore.training.replay import Replay
from dmlcore.training.turns import check_additive, void_tasks
from dmlcore.types import Aggregate, Load, LocalSteps, Method, Policy, Transport


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a training run: its trace, its history and its final parameters.

    Args:
        trace: which worker computed which task, when, and on which version. For an additive problem its
            metadata have `void_tasks`: the number of tasks that were skipped (weight 0), since their worker
            had not yet received its own previous change to the same samples.
        history: a frame with one row for each evaluation; row 0 is the start. Its columns are `update`;
            `time`, in seconds; `samples`, `assigned_samples`, `uplinks`, `downlinks` and `bytes` until then,
            as `metrics.accounts` counts them; if the server takes time, the columns that say how busy it was;
            `loss` and the problem's other metrics.
        params: the parameters after the last update, a pytree.
        opt_state: the state of the server's optimizer then, a pytree. On a real clock it is that of the
            replayed trace. Default: None, not known.

    >>> import dmlcore as dml
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> run = train(problem, dml.Cluster.uniform(2), dml.asp(), optax.sgd(1e-5), updates=4, eval_every=2)
    >>> run.history[["update", "time", "samples"]].values.tolist()
    [[0.0, 0.0, 0.0], [2.0, 0.032, 64.0], [4.0, 0.064, 128.0]]
    """

    trace: Trace
    history: pd.DataFrame
    params: Any
    opt_state: Any = None

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        policy, last = self.trace.metadata["policy"], self.history.iloc[-1]
        return f"Run({policy}, {last['update']:g} updates, {last['time']:g} s, loss {last['loss']:.4g})"


def train(
    problem: Problem,
    cluster: Cluster,
    policy: Policy | Method,
    optimizer: optax.GradientTransformation | None,
    *,
    updates: int | None = None,
    seconds: float | None = None,
    samples: int | None = None,
    until: Mapping[str, float] | None = None,
    batch_size: int = 32,
    load: Load | str | None = None,
    transport: Transport | str | None = None,
    compensation: float = 0.0,
    local: LocalSteps | None = None,
    aggregate: Aggregate | str | None = None,
    engine: Any = "simulate",
    seed: int = 0,
    eval_every: int | None = None,
    eval_params: EvalParams | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains a problem on a cluster under a policy.

    The engine makes the timeline, and replay computes the gradients along it. Task and transfer times,
    batches and initial parameters are functions of the seed. So the same call gives the same bits, and with
    the same seed other policies have the same stragglers.

    Args:
        problem: the problem to train, such as `dml.problems.digits_mlp()`.
        cluster: the cluster to train on.
        policy: the server's policy, such as `ssp(staleness=3)`; or a `Method`, with its own load, transport,
            compensation, aggregate or optimizer.
        optimizer: optax optimizer, which the server applies to the weighted gradient of every update. If its
            updates do not depend on the scale of gradients, weights scale them instead (`weigh_gradients`).
            Its schedules count server updates, of which policies make different numbers for as many samples;
            `schedule_in` counts samples or seconds.
            For additive problems `optax.identity()`, or `optax.scale` if their parameters are not whole
            numbers. None: a `Method` has its own.
        updates: stop after this number of server updates. Give exactly one of `updates`, `seconds` and
            `samples`; the other two are None.
        seconds: stop at this time of the engine's clock, in seconds, or None.
        samples: stop when this number of samples is in applied updates, or None.
        until: metric -> target, such as `dict(loss=0.1)`: stop earlier, at the first evaluation that reaches
            the target. An accuracy reaches it from below, any other metric from above. Default: no target.
        batch_size: samples per task, or per local step. A load rule divides the samples of all workers'
            tasks.
        load: rule for the batch sizes, object or name, unless the policy sets them. Default: `equal`.
        transport: what is sent, object or name. Default: `plain`.
        compensation: lambda of delay compensation, >= 0: the server replaces a gradient g, computed on
            w_read, by g + lambda g * g * (w - w_read), where w are its current parameters (DC-ASGD, Zheng et
            al. 2017).
        local: `dml.local_steps(steps, optimizer)`: a task takes several steps of a local optimizer on
            mini-batches of `batch_size` samples, and pushes the change of the parameters. Default: None, a
            task is one gradient.
        aggregate: how the pushes of one update are combined into one gradient, as an object or a call as
            text: `dml.aggregate.mean()`, the weighted sum, `median()`, `trimmed_mean(fraction)` or
            `clipped(c)`. Default: `mean`. Additive problems support only `mean`.
        engine: "simulate", "devices", "threads" or "ray"; or an engine of `dml.engines` with its own
            settings, such as `dml.engines.threads(time_scale=0.1)`. On a real clock (threads, ray) the
            history is that of the replayed trace, and `until` cuts the run afterwards.
        seed: of all random numbers.
        eval_every: updates between evaluations. Default: a fiftieth of the run.
        eval_params: state of the server's optimizer, parameters -> the parameters that are evaluated, such as
            an average or `optax.contrib.schedule_free_eval_params`. The history has their metrics. Policies
            that watch the training see the losses of the parameters themselves. Default: None, the
            parameters.
        checkpoint: folder in which the state is saved from time to time. If the folder has a checkpoint of
            the same call, the run continues from it: on a virtual clock to the same bits, on a real clock
            with no push lost or counted twice. A checkpoint of another call raises ValueError; on a real
            clock, a policy that is not of this package is identified by its name alone. What calls Python on
            the host, as `jax.pure_callback` does, has no identity and is refused here. Default: None, nothing
            is saved.

    Returns:
        The run: trace, history and final parameters. A warning says if no update was made, or if training
        diverged.

    Raises:
        ValueError: an argument is wrong; the message names it.

    Example:
        >>> import optax
        >>> from scipy import stats
        >>> import dmlcore as dml
        >>> cluster = dml.Cluster.uniform(8, samples_per_second=1000, jitter=stats.expon())
        >>> run = dml.train(dml.problems.digits_mlp(), cluster, dml.ssp(3), optax.sgd(0.1), updates=400)
        >>> bool(run.history["loss"].iloc[-1] < run.history["loss"].iloc[0])
        True
    """
    check_once(problem)
    if isinstance(policy, Method):
        optimizer = policy.optimizer or optimizer
    check_optimizer(optimizer, problem, eval_params)
    looks = Looks.checked(problem, until, eval_every, eval_params)
    stop = {"updates": updates, "seconds": seconds, "samples": samples}
    how = {"batch_size": batch_size, "load": load, "transport": transport, "compensation": compensation}
    how |= {"local": local, "aggregate": aggregate, "seed": seed, "eval_params": eval_params}
    spec = run_spec(problem, policy, cluster, **stop, **how)
    ran = run(problem, spec, optimizer, resolve(engine), looks, checkpoint)
    _warn_of_divergence(ran)
    return ran


def run_spec(
    problem: Problem, method: Policy | Method, cluster: Cluster, eval_params: Any = None, **options: Any
) -> RunSpec:
    """Returns the specification of a run for arguments of `train`, with the sizes of the parameters."""
    sizes: dict[str, Any] = {
        "parameter_bytes": problem.parameter_bytes,
        "tensor_shapes": problem.tensor_shapes,
    }
    spec = RunSpec.checked(method, cluster, **options, **sizes)
    with checks.noting(f"init of {spec.policy.name}, for {spec.cluster.num_workers} workers"):
        spec.policy.init(spec.cluster.num_workers)  # raises if the policy does not support it
    problem.check_batch(spec.batch_size)
    problem.check_workers(spec.cluster.num_workers)
    if spec.local is not None:
        check_update("local, optimizer", spec.local.optimizer, problem.shapes, told=False)
        if spec.local.normalised:
            check_counted("local, optimizer", spec.local.optimizer, problem.shapes)
    sized = spec.load.name != "equal()" or spec.policy.batch_size is not None
    if problem.coupled and spec.local is not None and sized:
        expected = f"None (losses of {problem.name} are coupled, and tasks may end in a smaller batch)"
        checks.fail("local", spec.local, expected)
    check_one_state(eval_params, spec.local)
    if spec.transport.own_steps and spec.faults.forget:
        expected = "one without own_steps (a worker that was away, or a new server, begins a pipeline anew)"
        checks.reject("transport", spec.transport.name, expected)
    check_aggregate(spec.aggregate, problem.shapes)
    if problem.additive:
        size = spec.batch_size if spec.policy.batch_size is None else spec.policy.batch_size
        check_additive(problem, spec.metadata(""), [size, *spec.policy.sizes])
    return spec


def run(
    problem: Problem,
    spec: RunSpec,
    optimizer: optax.GradientTransformation,
    engine: Engine,
    looks: Looks,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains a problem as `train` does, for a given specification of the run."""
    folder = None if checkpoint is None else checks.folder("checkpoint", checkpoint)
    problem = spec.steps_of(problem)
    params = None
    if engine.record is None:
        trace = timeline(problem, spec, optimizer, engine)
    else:
        if spec.transport.own_steps:
            expected = f"one without own_steps (on the real clock of {engine.name} workers do not know the "
            expected += "optimizer's state at the time of an update)"
            checks.reject("transport", spec.transport.name, expected)
        memory = memory_of(spec.transport, spec.local)
        if folder is not None and memory is not None:
            name, given, expected = memory
            checks.reject(name, given, f"{expected} (with checkpoint= on a real clock)")
        recorded = engine.record(Job(spec, problem, optimizer, engine.time_scale, folder))
        if not (isinstance(recorded, tuple) and len(recorded) == 2 and isinstance(recorded[0], Trace)):
            checks.fail(f"engine {engine.name}, record", recorded, "a pair of a Trace and the parameters")
        trace, params = recorded
        folder = None  # it has the server's checkpoints
        _warn_of_no_update(trace)
    driver = driver_with(engine.driver or Replay, spec.aggregate, looks.params)
    (ran,) = _runs([trace], problem, [optimizer], looks, driver, folder)
    cut = params is None or len(ran.trace.updates) < len(trace.updates)
    return ran if cut else dataclasses.replace(ran, params=contribution_of(problem).model(params))


def timeline(
    problem: Problem, spec: RunSpec, optimizer: optax.GradientTransformation | None, engine: Engine
) -> Trace:
    """Returns the trace of a run on a virtual clock; trains as far as a policy that watches needs it."""
    problem = spec.steps_of(problem)
    if engine.timeline is None:
        checks.fail("engine", engine, "an engine with a virtual clock (for a timeline without training)")
    watches = spec.policy.on_observation is not None
    trace = engine.timeline(spec, TrainingWatch(problem, optimizer, spec) if watches else None)
    trace.metadata.update(told(problem))
    _warn_of_no_update(trace)
    return trace


def _warn_of_no_update(trace: Trace) -> None:
    """Warns if a run ended before its first update, so that nothing was trained."""
    if len(trace.updates):
        return
    tasks = trace.tasks
    arrived = tasks["push_end"].notna().sum()
    advice = "none was applied: try decisions that apply pushes, or" if arrived else "try"
    warnings.warn(
        f"{trace.metadata['policy']}, seed {trace.metadata['seed']}: no update within {trace.end_time:g} s, "
        f"so nothing was trained; {len(tasks)} tasks were started, and {arrived} of their pushes arrived; "
        f"{advice} more seconds",
        stacklevel=2,
    )


def _warn_of_divergence(ran: Run) -> None:
    """Warns if the loss is not finite from some evaluation to the end."""
    finite = np.isfinite(ran.history["loss"].to_numpy(float))
    if len(finite) and not finite[-1]:
        first = int(finite.nonzero()[0].max(initial=-1)) + 1
        since, loss = ran.history[["update", "loss"]].iloc[first]
        known = ran.trace.metadata
        warnings.warn(
            f"{known['policy']}, seed {known['seed']}: training diverged, the loss is {loss:g} at update "
            f"{int(since)} and not finite from there on; try a smaller learning rate",
            stacklevel=3,
        )


def replay(
    trace: Trace,
    problem: Problem,
    optimizer: optax.GradientTransformation,
    *,
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
    eval_params: EvalParams | None = None,
    fuse: bool = True,
    local: LocalSteps | None = None,
    aggregate: Aggregate | str | None = None,
) -> Run:
    """Trains along a trace in a compiled loop: repeats a run from its trace alone.

    Guarantees: the same trace, problem and optimizer give the same parameters, bit for bit. They are also the
    parameters of the `train` that made the trace, bit for bit, on a virtual clock with one device and on a
    real clock. There is one exception: if all tasks of every update read the same version (BSP), replay
    computes one gradient for all of them, which differs by rounding from the sum of gradients that a real
    server computes; `fuse=False` computes that sum. The evaluations are the same if `eval_every` is the same:
    its default depends on the length of the trace, which `until` may have shortened.

    Args:
        trace: a trace from a run, or from a file.
        problem: the problem to train.
        optimizer: optax optimizer.
        until: metric -> target; the run stops at the first evaluation that reaches it, and its trace ends
            there. Default: None, the run goes to the end of the trace.
        eval_every: updates between evaluations. Default: a fiftieth of the run.
        eval_params: state of the optimizer, parameters -> the parameters that are evaluated, as for `train`.
        fuse: whether the tasks of a lock-step update become one gradient, which is faster.
        local: the local steps of a task, the same as in the run. Default: None, a task is one gradient.
        aggregate: how the pushes of one update are combined into one gradient, as for `train`; the trace of
            the returned run records it. Default: the aggregate of the trace.

    Returns:
        The run, with the evaluations along the trace.

    Raises:
        ValueError: an argument is wrong, or the trace is of another problem.

    >>> import dmlcore as dml
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> run = train(problem, dml.Cluster.uniform(2), dml.asp(), optax.sgd(1e-5), updates=4, eval_every=2)
    >>> again = replay(run.trace, problem, optax.sgd(1e-5), eval_every=2)
    >>> again.history.equals(run.history)
    True
    """
    options: Any = {"until": until, "eval_every": eval_every, "fuse": fuse, "local": local}
    options |= {"aggregate": aggregate, "eval_params": eval_params}
    return replay_lanes([trace], problem, [optimizer], **options)[0]


def replay_lanes(
    traces: Sequence[Trace],
    problem: Problem,
    optimizers: Sequence[optax.GradientTransformation],
    *,
    until: Mapping[str, float] | None = None,
    eval_every: int | None = None,
    eval_params: EvalParams | None = None,
    fuse: bool = True,
    local: LocalSteps | None = None,
    aggregate: Aggregate | str | None = None,
) -> list[Run]:
    """Trains along several traces side by side, as lanes of one `vmap`: seeds, clusters, learning rates.

    This is faster on a GPU, which one small model leaves idle; on a CPU one lane after the other is as fast.

    Args:
        traces: one trace per lane.
        problem: the problem to train.
        optimizers: one optax optimizer per lane; they may differ only in numbers, such as a learning rate.
        until: metric -> target; a lane's run stops at the first evaluation that reaches it. Default: None,
            each run goes to the end of its trace.
        eval_every: updates between evaluations. Default: a fiftieth of each lane's run.
        eval_params: state of an optimizer, parameters -> the parameters that are evaluated, as for `train`.
        fuse: whether the tasks of a lock-step update become one gradient, which is faster.
        local: the local steps of a task, the same as in the runs. Default: None, a task is one gradient.
        aggregate: how the pushes of one update are combined into one gradient, as for `train`. Default: the
            aggregate of each trace; they may differ only in numbers.

    Returns:
        One run per lane.

    Raises:
        ValueError: an argument is wrong, or a trace is of another problem.

    >>> import dmlcore as dml
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> traces = [dml.simulate(dml.asp(), dml.Cluster.uniform(2), updates=4, seed=seed) for seed in (0, 1)]
    >>> [len(run.trace.updates) for run in replay_lanes(traces, problem, [optax.sgd(1e-5), optax.sgd(1e-4)])]
    [4, 4]
    """
    driver = functools.partial(Replay, fuse=checks.boolean("fuse", fuse), eval_params=eval_params)
    if isinstance(optimizers, optax.GradientTransformation):  # a tuple itself
        checks.fail("optimizers", "one optimizer", "a sequence of one optax optimizer per lane")
    check_once(problem)
    if local is not None:
        check_kind("local", local, LocalSteps)
    looks = Looks.checked(problem, until, eval_every, eval_params)
    if aggregate is not None:
        rule = resolve_aggregate(aggregate)
        own = {id(trace): _aggregated(trace, rule) for trace in traces}  # lanes still share traces
        traces = [own[id(trace)] for trace in traces]
        check_aggregate(rule, problem.shapes)
        if local is not None:
            check_aggregated(local, rule)
        driver = functools.partial(driver, aggregate=rule)
    if local is not None:
        for trace in traces:
            if trace.metadata.get("local") != local.name:
                checks.fail("local", local, f"{trace.metadata.get('local')} (as in the trace)")
        check_one_state(eval_params, local)
        told = traces[0].metadata
        problem = problem.with_steps(local, int(told["step_size"]), told.get("pipelined", False))
    for optimizer in optimizers:
        check_optimizer(optimizer, problem, eval_params)
    return _runs(traces, problem, optimizers, looks, driver)


def _aggregated(trace: Trace, aggregate: Aggregate) -> Trace:
    """Returns the trace with metadata that name this aggregate."""
    check_kind("trace", trace, Trace)
    metadata = {name: value for name, value in trace.metadata.items() if name != "aggregate"}
    own = {} if aggregate.plain else {"aggregate": aggregate.name}
    return dataclasses.replace(trace, metadata=metadata | own)


def _runs(traces: Sequence[Trace], problem: Problem, *how: Any) -> list[Run]:
    """Trains as `trained` does, and returns the runs."""
    return [
        Run(_ended(trace, problem, evaluations[-1][0]), history(trace, evaluations), *ended)
        for trace, (evaluations, *ended) in zip(traces, trained(traces, problem, *how), strict=True)
    ]


def _ended(trace: Trace, problem: Problem, update: int) -> Trace:
    """Returns the trace up to the last trained update, with the number of skipped additive tasks."""
    trace = trace.until(update)
    if not problem.additive:
        return trace
    metadata = trace.metadata | {"void_tasks": void_tasks(trace, problem)}
    return dataclasses.replace(trace, metadata=metadata)
