"""What notebooks/08_real_stragglers.ipynb measures: why recorded jobs are slow, and clusters made of them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dmlcore as dml
from dmlcore import checks, data, pages, units
from dmlcore.reading.log import read, sized
from dmlcore.reading.pipeline import BACKWARD, COLUMNS, FORWARD, Operation, Pipeline
from dmlcore.reading.sources import table_of
from dmlcore.reproduce.papers.real_stragglers import LAST, SLOWDOWN, SLOWEST, RealStragglersParameters
from dmlcore.reproduce.parsing import columns_as_text, columns_of
from dmlcore.reproduce.recommending import events_of
from dmlcore.trace.calibration import fit_cluster

# The assumed model, since that of the jobs is not published: Llama 2 7B, 6,738,415,616 parameters of 16 bits.
MODEL = 2 * 6_738_415_616
STEPS = 4  # local steps of a task
UNEVEN, WAITING = "uneven tasks of a stage", "waiting for other ranks"
SLOW_WORKER, UNEVEN_TASKS = "slowest worker", "uneven tasks of each worker"  # of a log without a pipeline
FEWEST = 20  # tasks of a worker; fewer are a short record
# result-, mw- and ms-AR.json and -SE.json of the authors' repository.
PUBLISHED = {
    "AR": {SLOWDOWN: 1.973045, SLOWEST: 1.001701, LAST: -0.001212},
    "SE": {SLOWDOWN: 1.537361, SLOWEST: 0.025062, LAST: 0.687711},
}


class Job(NamedTuple):
    """A recorded job.

    Args:
        tasks: a task for each step of a data-parallel rank; or the tasks of any log.
        lanes: links of a worker, one for each pipeline stage, which together carry the model.
        pipeline: the graph of operations; None: the log has none.
        stages: name of the stage -> its micro-batches.
    """

    tasks: dml.TaskLog
    lanes: int = 1
    pipeline: Pipeline | None = None
    stages: Mapping[str, dml.TaskLog] = {}


def recorded(*, whole: bool) -> dict[str, Job]:
    """Returns both published jobs: `whole`, or four steps of their operations, and the tasks of all steps."""
    frames = data.straggler_jobs() if whole else data.straggler_steps()
    return {name: of_operations(frame, data.straggler_tasks()[name]) for name, frame in frames.items()}


def of_operations(frame: pd.DataFrame, tasks: pd.DataFrame | None = None) -> Job:
    """Returns the job of a table of operations; its tasks are made if they are not given."""
    pipeline = Pipeline(frame)
    stages = {
        f"stage {stage}": dml.read_tasks(
            frame, {"batch_size": 1}, events={"optype": [FORWARD, BACKWARD], "stage": int(stage)}
        )
        for stage in np.unique(frame["stage"])
    }
    return Job(dml.read_tasks(pipeline.tasks() if tasks is None else tasks), len(stages), pipeline, stages)


def of_log(given: RealStragglersParameters) -> Job:
    """Returns the job of a log that `read_tasks` reads; with operations of a pipeline, as of the two jobs."""
    frame = table_of("job", given.job).frame
    if {*COLUMNS} <= {*frame} and not (given.columns or given.events):
        return of_operations(frame)
    columns = dict(columns_of(given.columns)) if given.columns else None
    events = events_of([given.events]) if given.events else None
    try:
        return Job(sized(read("job", given.job, columns, None, events), given.batch_size))
    except ValueError as error:  # columns are given as text here
        raise ValueError(columns_as_text(str(error), "columns=")) from None


def rates_of(given: RealStragglersParameters) -> tuple[float, ...]:
    """Returns the rates of the job's links in Gb/s; infinite if it does not say them."""
    return (units.quantity("link", given.link, "rate") / 1e9 * 8 if given.link else math.inf,)


def causes(job: Job) -> pd.Series:
    """Returns the slowdown of a job, and the share of it that goes with each cause, by itself."""
    return of_pipeline(job.pipeline) if job.pipeline else _of_rounds(job.tasks)


def slowest_worker(log: dml.TaskLog) -> int:
    """Returns the worker with the longest tasks on average."""
    return int(in_rounds(log).mean(axis=1).argmax())


def _of_rounds(log: dml.TaskLog) -> pd.Series:
    """Returns them from the tasks alone; a round lasts as long as the longest of its tasks."""
    took = in_rounds(log)
    without = np.where(np.arange(len(took))[:, None] == slowest_worker(log), took.mean(axis=0), took)
    even = np.broadcast_to(took.mean(axis=1, keepdims=True), took.shape)
    lost = took.max(axis=0).mean() - took.mean()
    shares = [
        (took.max(axis=0) - each.max(axis=0)).mean() / lost if lost > 0 else 0.0 for each in (without, even)
    ]
    return pd.Series({SLOWDOWN: 1 + lost / took.mean(), SLOW_WORKER: shares[0], UNEVEN_TASKS: shares[1]})


def of_pipeline(pipeline: Pipeline) -> pd.Series:
    """Returns them from the graph of operations."""
    slowest, stages = pipeline.slowest(), {stage for *_, stage in pipeline.took}
    tasks = pipeline.tasks()
    own = (tasks["compute_end"] - tasks["compute_start"]).to_numpy().reshape(pipeline.shape)
    lost = (pipeline.seconds(pipeline.took) - pipeline.seconds(pipeline.ideal)).mean()

    def of_slowest(each: Operation) -> np.ndarray:
        return np.isin(np.arange(pipeline.shape[1]), [rank for rank, stage in slowest if stage == each[2]])

    return pd.Series(
        {
            SLOWDOWN: pipeline.slowdown(pipeline.took),
            SLOWEST: pipeline.mended(of_slowest),
            LAST: pipeline.mended(lambda each: each[2] == max(stages)),
            UNEVEN: pipeline.mended(
                lambda each: each[0] in (FORWARD, BACKWARD), pipeline.even(lambda each: (each[0], each[2]))
            ),
            WAITING: (own.max(axis=1) - own.mean(axis=1)).mean() / lost,
        }
    )


def samples(log: dml.TaskLog) -> int:
    """Returns the samples of a task; ValueError if tasks differ in their number."""
    if log.batch_size is None:
        checks.reject("job", "tasks with different numbers of samples", "tasks with one number of samples")
    return log.batch_size


def by_worker(log: dml.TaskLog) -> list[np.ndarray]:
    """Returns the seconds of each worker's tasks, in their order."""
    return [own["seconds"].to_numpy() for _, own in log.tasks.groupby("worker")]


def in_rounds(log: dml.TaskLog) -> np.ndarray:
    """Returns the seconds of tasks (workers, rounds) until a worker has no further one."""
    workers = by_worker(log)
    return np.array([own[: min(map(len, workers))] for own in workers])


def recorded_round(log: dml.TaskLog) -> float:
    """Returns the mean seconds of a recorded round, whose k-th one has the k-th task of every worker."""
    return float(in_rounds(log).max(axis=0).mean())


def simulated_round(cluster: dml.Cluster, log: dml.TaskLog, rounds: int, seed: int = 0) -> float:
    """Returns the mean seconds of a round of BSP on a cluster, without links."""
    trace = dml.simulate(dml.bsp(), cluster, updates=rounds, batch_size=samples(log), seed=seed)
    return trace.end_time / rounds


def replayed_round(log: dml.TaskLog) -> float:
    """Returns the same on a cluster that replays the recorded tasks."""
    return simulated_round(dml.Cluster.from_durations(log, "error"), log, in_rounds(log).shape[1])


def in_a_row(log: dml.TaskLog, count: int) -> dml.TaskLog:
    """Returns the log of tasks that are as many of a worker's tasks in a row; the first follows the last.

    A task of several local steps is drawn from these, since else one slow step would make all of them slow.
    """
    parts = [
        pd.DataFrame({"worker": worker, "seconds": sum(np.roll(own, -place) for place in range(count))})
        for worker, own in enumerate(by_worker(log))
    ]
    return dml.read_tasks(pd.concat(parts, ignore_index=True).assign(batch_size=count * samples(log)))


def drawing(log: dml.TaskLog) -> dml.Cluster:
    """Returns the cluster that draws each worker's recorded tasks at random."""
    return dml.Cluster.from_durations(log, "bootstrap")


def resampled(log: dml.TaskLog) -> dml.Cluster:
    """Returns the cluster that draws recorded tasks at random: whole rounds, if workers are slow together."""
    if not slow_together(log):
        return drawing(log)
    took = in_rounds(log)
    workers = np.repeat(np.arange(len(took)), took.shape[1])
    frame = {"worker": workers, "seconds": took.ravel(), "batch_size": samples(log)}
    return dml.Cluster.from_durations(pd.DataFrame(frame), "rounds")


def slow_together(log: dml.TaskLog) -> bool:
    """Returns whether tasks drawn alone make longer rounds, by 3% and by more than chance explains."""
    took, rng = in_rounds(log), np.random.default_rng(0)
    rounds = took.max(axis=0)
    alone = np.max([rng.choice(own, 20_000) for own in took], axis=0).mean()
    chance = 3 * rounds.std() / np.sqrt(len(rounds))
    return bool(len(rounds) >= FEWEST and alone > rounds.mean() + max(0.03 * rounds.mean(), chance))


def modelled(log: dml.TaskLog) -> dml.Cluster:
    """Returns the cluster of laws that are fitted to the tasks, and not to rounds as `calibrate` does."""
    return fit_cluster(dml.Trace.from_tasks(log))


def with_links(cluster: dml.Cluster, rate: float, lanes: int) -> dml.Cluster:
    """Returns the cluster with `lanes` links of `rate` Gb/s for each worker."""
    bandwidth = (lanes * rate * 1e9 / 8,) * cluster.num_workers
    return dataclasses.replace(cluster, bandwidth_bytes_per_second=bandwidth)


def gain_of_not_waiting(cluster: dml.Cluster, problem: dml.Problem, batch_size: int) -> float:
    """Returns the samples per second of workers that never wait / those of workers that wait for all."""
    options = {"batch_size": batch_size, "parameter_bytes": problem.parameter_bytes}
    wait, never = (
        dml.simulate(policy, cluster, updates=updates, **options)
        for policy, updates in ((dml.bsp(), 300), (dml.asp(), 300 * cluster.num_workers))
    )
    return (len(never.tasks) / never.end_time) / (len(wait.tasks) / wait.end_time)


def searched(answers: Sequence[Any], among: Sequence[str] = ()) -> str:
    """Returns the method with the least median time on the seeds of the searches, of all or `among` some."""
    found = {
        name: float(best[2])
        for answer in answers
        for record in answer.settings().values()
        for name, best in record["best"].items()
    }
    return min((name for name in found if not among or name in among), key=found.__getitem__)


def outcomes(answers: Sequence[Any], column: str = "seconds") -> pd.DataFrame:
    """Returns what the judged runs of studies on one cluster needed to the target, by method and seed."""
    return pd.concat([answer.measured[column].unstack("seed") for answer in answers])


def transfers(problem: dml.Problem, rate: float, lanes: int) -> float:
    """Returns the seconds that a task's pull and push take on links of a rate in Gb/s."""
    return 2 * problem.parameter_bytes / (lanes * rate * 1e9 / 8)


def answer(name: str, job: Job, table: pd.DataFrame, links: str, moved: float, seeds: int, full: bool) -> str:
    """Returns what was found for another job, for its console: why it waits, and what methods take.

    Args:
        name: of the job.
        job: the job.
        table: one row per method, as the notebook makes it.
        links: what links are like, in words.
        moved: seconds of a task's transfers.
        seeds: number of seeds that judged.
        full: whether all methods were compared.
    """
    log, why, took = job.tasks, causes(job), in_rounds(job.tasks)
    slow = {SLOW_WORKER: f"{SLOW_WORKER} ({log.names[slowest_worker(log)]})"}
    faster = table[(table["high"] < 1) & (table["method"] != "BSP")]
    return pages.template(__file__, "real_stragglers.txt.jinja").render(
        log=log,
        samples=samples(log),
        together=slow_together(log),
        rounds=took.shape[1],
        fewest=FEWEST,
        name=name,
        long=recorded_round(log),
        mean=took.mean(),
        moved=moved,
        slowdown=why[SLOWDOWN],
        shares=[f"{slow.get(str(cause), cause)} {share:.0%}" for cause, share in why.iloc[1:].items()],
        links=links,
        seeds=seeds,
        faster=faster.to_dict("records"),
        rows=table.to_dict("records"),
        full=full,
    )
