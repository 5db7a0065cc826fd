"""Runs that several tests look at, one of each policy on each engine and cluster."""

import functools

import jax
import numpy as np
import optax
import pytest
from clusters import CLUSTERS

import dmlcore as dml
from dmlcore.engines import ALL_ENGINES
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training.program import compile_trace

# Real clocks run faster than the clusters' time, and on Ray for fewer updates.
ENGINES = {
    "simulate": (dml.engines.simulated(), 120),
    "devices": (dml.engines.devices(), 120),
    "threads": (dml.engines.threads(time_scale=0.05), 120),
    "ray": (dml.engines.ray(time_scale=0.05, keep=True), 40),
}
assert set(ENGINES) == set(ALL_ENGINES)

RECORDED = [dml.asp(), dml.ssp(3), dml.k_batch_async(3)]  # of these real clocks replay long runs


def same_bits(one, two):
    return all(
        (np.asarray(a) == np.asarray(b)).all() for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True)
    )


def same_timeline(one, two):
    return one.tasks.equals(two.tasks) and one.updates.equals(two.updates)


def relative_error(one, two):
    flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (one, two)]
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])


def check_replay(run, problem, optimizer):
    """The trace replays to the bits of the parameters that the run ended with; where the compiled loop makes
    one gradient of all tasks of an update, only up to rounding."""
    again = dml.replay(run.trace, problem, optimizer, eval_every=10**6, fuse=False)
    assert same_bits(run.params, again.params)
    if compile_trace(run.trace).rows.worker.shape[1] > 1:
        fused = dml.replay(run.trace, problem, optimizer, eval_every=10**6)
        # A ReLU that is rounded to the other side of 0 shows, now and then.
        most = {np.float32: 1e-3, np.float64: 1e-9}[jax.tree.leaves(run.params)[0].dtype.type]
        assert relative_error(run.params, fused.params) <= most


def check_counts(trace, *, updates=None, samples=None):
    """No update lost, none doubled: each (worker, clock) once, and just so many updates or samples are in."""
    applied = trace.tasks[trace.tasks["update"] >= 0]
    assert not applied.duplicated(["worker", "clock"]).any()
    assert applied["batch_size"].sum() == trace.updates["samples"].sum()
    if samples is None:
        assert len(trace.updates) == updates
    else:
        assert trace.updates["samples"].iloc[:-1].sum() < samples <= trace.updates["samples"].sum()


@functools.cache
def run(policy, engine, cluster, seed=3):
    """A run on the digits, of `ENGINES[engine][1]` updates."""
    made, updates = ENGINES[engine]
    problem, rule = dml.problems.digits_mlp(), ALL_POLICIES[policy]()
    options = {"updates": updates, "seed": seed, "engine": made, "eval_every": updates}
    return dml.train(problem, CLUSTERS[cluster], rule, optax.sgd(0.1), **options)


def table(policies=ALL_POLICIES, clusters=CLUSTERS, engines=ENGINES):
    """Rows of (policy, engine, cluster), those on Ray on one cluster only."""
    return [
        pytest.param((policy, engine, cluster), id=f"{policy}-{engine}-{cluster}")
        for policy in policies
        for engine in engines
        for cluster in clusters
        if engine != "ray" or cluster == "exponential"
    ]
