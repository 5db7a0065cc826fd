"""HelloSSP, the conformance test of the original system: one row holds how far every worker is.

Each worker reads the row, checks that nobody is further behind than it may be, and counts itself on.
"""

import itertools
import os

import jax.numpy as jnp
import numpy as np
import optax

import dmlcore as dml
from dmlcore.engines.job import Job
from dmlcore.engines.spec import RunSpec
from dmlcore.problems.problem import Problem
from dmlcore.training.stepper import Stepper

WORKERS, CLOCKS = 4, 15
READS = itertools.count()


def problem():
    row = jnp.zeros(WORKERS)
    data = np.zeros((1, 1), np.float32)
    return Problem(
        "hello",
        lambda key: row,
        data,
        lambda p, d: {"loss": p[0]},
        data,
        losses=lambda p, b: b[:, 0] * p.sum(),
    )


class HelloStepper(Stepper):
    """Its gradient is the check, and then a step of one for its own worker."""

    staleness = 0

    def task(self, params, worker, clock, batch_size, kept):
        row = np.asarray(params)
        assert (row >= clock - self.staleness).all(), f"worker {worker} at clock {clock} reads {row}"
        assert row[worker] == clock, f"worker {worker} at clock {clock} misses its own writes in {row}"
        assert (row == row.astype(int)).all()
        assert row.max() <= clock + self.staleness + 1
        next(READS)
        return -jnp.zeros(WORKERS).at[worker].set(1.0), kept


def with_stepper(kind):
    """The class of jobs that compute with `kind`."""

    class OwnJob(Job):
        def stepper(self, device=None):
            stepper = kind(self.problem, self.optimizer, self.spec.seed, device)
            stepper.staleness = self.spec.policy.max_lead
            return stepper

    return OwnJob


HelloJob = with_stepper(HelloStepper)


def job(policy, **options):
    cluster = dml.Cluster.uniform(WORKERS, samples_per_second=32 / 0.05, jitter=lambda u: 2 * u)
    spec = RunSpec.checked(policy, cluster, samples=32 * WORKERS * CLOCKS, **options)
    return HelloJob(spec, problem(), optax.sgd(1.0), time_scale=0.3)


def check(recording, policy):
    """Every push counted once, and nobody ever read what it must not."""
    tasks = recording.trace.tasks
    counted = tasks[tasks["update"] >= 0].groupby("worker").size()
    assert (np.asarray(recording.params) == counted.reindex(range(WORKERS), fill_value=0)).all()
    assert dml.metrics.clock_gap(recording.trace) <= policy.max_lead
    assert dml.metrics.read_window_violations(recording.trace, policy.max_lead).empty


class FailingStepper(HelloStepper):
    """Its gradient raises once."""

    def task(self, params, worker, clock, batch_size, kept):
        if (worker, clock) == (2, 3):
            raise ArithmeticError("the loss is not finite")
        return super().task(params, worker, clock, batch_size, kept)


def dying(marker):
    """The arithmetic whose process ends once, at clock 3 of worker 2, and leaves a file to say so."""

    class DyingStepper(HelloStepper):
        def task(self, params, worker, clock, batch_size, kept):
            if (worker, clock) == (2, 3) and not os.path.exists(marker):
                open(marker, "w").close()
                os._exit(1)
            # The others are further ahead of who is gone than else, and go on without it: no check.
            return -jnp.zeros(WORKERS).at[worker].set(1.0), kept

    return DyingStepper


FailingJob = with_stepper(FailingStepper)
