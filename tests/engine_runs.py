"""Runs that several tests look at, one of each policy on each engine and cluster."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import CLUSTERS
from watched import simulate

import dmlcore as dml
from dmlcore.engines import ALL_ENGINES
from dmlcore.methods.policies import ALL_POLICIES

# Real clocks run faster than the clusters' time, and on Ray for fewer updates.
ENGINES = {
    "simulate": (dml.engines.simulated(), 120),
    "devices": (dml.engines.devices(), 120),
    "threads": (dml.engines.threads(time_scale=0.05), 120),
    "ray": (dml.engines.ray(time_scale=0.05, keep=True), 40),
}
assert set(ENGINES) == set(ALL_ENGINES)
# Their names, for the fixture `made_engine`; on Ray tests are only run with `--all`.
EVERY = [pytest.param(name, marks=[pytest.mark.full] * (name == "ray")) for name in ENGINES]


def everywhere(*policies):
    """Rows of (policy, engine): on the virtual clock these, on real ones BSP, which time cannot change."""
    real = [pytest.param(dml.bsp(), *each.values, marks=each.marks) for each in EVERY[2:]]
    return [(policy, name) for policy in policies for name in ("simulate", "devices")] + real


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
    """The trace replays to the bits of the parameters that the run ended with."""
    again = dml.replay(run.trace, problem, optimizer, eval_every=10**6, fuse=False)
    assert same_bits(run.params, again.params)


def check_fused(trace, problem, optimizer):
    """One gradient of all tasks of an update differs by rounding only. In 64 bits: in 32, a ReLU may be
    rounded to the other side of 0, after which two runs part."""
    assert jax.config.jax_enable_x64
    options = {"eval_every": 10**6}
    fused, single = (dml.replay(trace, problem, optimizer, fuse=fuse, **options) for fuse in (True, False))
    assert relative_error(single.params, fused.params) <= 1e-12


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
def plane(dtype="float32", seed=0):
    """Least squares with as many parameters as the digits' network; it compiles in a third of the time.

    Its gradient is a product of matrices, too, and there are two arrays of parameters. Rates up to 0.5 are
    stable. The labels are for shards.
    """
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(512, 240)) / 4, rng.normal(size=(240, 10)) / 4
    y = x @ weights + 0.5 + rng.normal(size=(512, 10)) / 4
    data = {"x": x.astype(dtype), "y": y.astype(dtype), "labels": rng.integers(0, 10, 512)}

    def init(key):
        return {"weights": jax.random.normal(key, (240, 10), dtype) / 4, "bias": jnp.zeros(10, dtype)}

    def losses(params, batch):
        return ((batch["x"] @ params["weights"] + params["bias"] - batch["y"]) ** 2).sum(-1) / 2

    return dml.Problem(
        "plane", init, data, lambda params, data: {"loss": losses(params, data).mean()}, data, losses=losses
    )


def uniform(key, size):
    """Numbers from 0 to 1 that follow from a key; those of `jax.random` take ten times as long to compile."""
    first, second = jax.random.key_data(key)
    mixed = (first ^ jnp.arange(1, size + 1, dtype="uint32") * np.uint32(0x9E3779B1)) * (second | 1)
    mixed = (mixed ^ mixed >> 15) * np.uint32(0x85EBCA6B)
    return (mixed >> 8).astype("float32") / 2**24


@functools.cache
def trace_of(policy, engine, cluster, seed=3):
    """The trace of a run of `ENGINES[engine][1]` updates, which the virtual clock does not train."""
    made, updates = ENGINES[engine]
    if engine == "simulate":
        size = {"parameter_bytes": plane().parameter_bytes, "tensor_shapes": plane().tensor_shapes}
        return simulate(ALL_POLICIES[policy](), CLUSTERS[cluster], seed=seed, updates=updates, **size)
    options = {"updates": updates, "seed": seed, "engine": made, "eval_every": updates}
    return dml.train(plane(), CLUSTERS[cluster], ALL_POLICIES[policy](), optax.sgd(0.1), **options).trace


# On devices the timeline is that of `simulate`, processes take long to start, and real clocks take real time.
# A few policies, one of each kind of update, are run on every cluster on threads, too.
ON_FEW_CLUSTERS = {
    "ray": ("exponential",),
    "devices": ("mixed", "contended"),
    "threads": ("mixed", "contended"),
}
ON_ALL_CLUSTERS = {("threads", name) for name in ("bsp", "ssp", "asp", "k_sync", "k_batch_async")}
ON_ALL_CLUSTERS |= {("ray", "asp")}
# One policy of each kind of decision: gates, groups, buffers, timers, cancelled tasks, watched training.
# By default other engines than the virtual clock run only these: what they add does not depend on the rule.
KINDS = ("bsp", "asp", "ssp", "k_sync", "k_batch_async", "deadline", "adaptive_sync", "mindflayer", "pflug")


def table(policies=ALL_POLICIES, clusters=CLUSTERS, engines=ENGINES):
    """Rows of (policy, engine, cluster): every policy on every engine, on few clusters where that is slow."""

    def row(*words):
        more = words[0] not in KINDS and words[1] != "simulate"
        more |= words[1] == "ray" and words[2] not in ON_FEW_CLUSTERS["ray"]
        return pytest.param(words, id="-".join(words), marks=[pytest.mark.full] * more)

    return [
        row(policy, engine, cluster)
        for policy in policies
        for engine in engines
        for cluster in clusters
        if cluster in ON_FEW_CLUSTERS.get(engine, clusters) or (engine, policy) in ON_ALL_CLUSTERS
    ]
