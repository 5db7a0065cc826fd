"""Losses that depend on the whole batch: a task is computed on exactly its own rows, on every engine."""

import jax
import numpy as np
import optax
import pytest
from engine_runs import relative_error, same_bits
from every_bit import sizes
from reference import replay_reference

import dmlcore as dml
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices
from dmlcore.training.local_steps import contribution_of

RNG = np.random.default_rng(1)
DATA = {"x": RNG.normal(size=(40, 3)).astype(np.float32), "y": RNG.normal(size=40).astype(np.float32)}
SGD = optax.sgd(0.02)


def losses(params, batch):
    """Squared errors of a linear model on inputs that are standardised over the batch."""
    x = batch["x"]
    x = (x - x.mean(0)) / (x.std(0) + 0.1)
    return (x @ params["w"] - batch["y"]) ** 2


def init(key):
    return {"w": jax.random.normal(key, (3,))}


PROBLEM = dml.Problem(
    "standardised", init, DATA, lambda p, d: {"loss": losses(p, d).mean()}, DATA, losses=losses, coupled=True
)


def train(policy, **options):
    """Tasks of three sizes, two of them no power of two."""
    cluster = dml.Cluster.from_speeds([1000, 600, 1700])
    given = {"updates": 8, "batch_size": 9, "load": sizes(9, 5, 8), "seed": 3, "eval_every": 8}
    return dml.train(PROBLEM, cluster, policy, SGD, **given | options)


def by_hand(trace):
    """The run of a policy whose tasks all pull, written down directly in float64."""
    key = run_key(trace.metadata["seed"], BATCHES)
    versions = [np.asarray(init(run_key(trace.metadata["seed"], INIT))["w"], float)]
    with jax.enable_x64(True):
        for _, tasks in trace.tasks[trace.tasks["update"] >= 0].groupby("update"):
            total = 0.0
            for task in tasks.itertuples():
                rows = np.asarray(task_indices(key, task.worker, task.clock, task.batch_size, 40))
                batch = {name: np.asarray(leaf[rows], float) for name, leaf in DATA.items()}
                slope = jax.grad(lambda w, batch=batch: losses({"w": w}, batch).mean())
                total += task.weight * np.asarray(slope(versions[task.version_read]))
            versions.append(versions[-1] - 0.02 * total)
    return {"w": versions[-1]}


@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp(), dml.k_batch_sync(2)], ids=str)
def test_every_task_is_of_its_own_rows(policy):
    run = train(policy)
    assert len(run.trace.tasks["batch_size"].unique()) > 2
    assert relative_error(run.params, by_hand(run.trace)) < 1e-5
    assert same_bits(run.params, replay_reference(run.trace, PROBLEM, SGD))


def test_nothing_is_fused():
    trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(3), updates=10, batch_size=6, parameter_bytes=12)
    fused, single = (dml.replay(trace, PROBLEM, SGD, fuse=fuse) for fuse in (True, False))
    assert same_bits(fused.params, single.params)
    assert relative_error(fused.params, by_hand(trace)) < 1e-5


@pytest.mark.full  # test_bits has a coupled network on threads; test_devices has the other engine
@pytest.mark.parametrize("engine", ["devices", dml.engines.threads(0.02)], ids=str)
@pytest.mark.parametrize("policy", [dml.bsp(), dml.ssp(2)], ids=str)
def test_every_engine_gives_the_bits_of_its_replay(policy, engine):
    run = train(policy, engine=engine)
    assert same_bits(run.params, dml.replay(run.trace, PROBLEM, SGD).params)


@pytest.mark.full  # test_keys does it with losses that are computed sample by sample
def test_policies_that_watch():
    run = train(dml.pflug(1), load=None)
    assert same_bits(run.params, dml.replay(run.trace, PROBLEM, SGD).params)


@pytest.mark.full  # of several sizes is every run above; lanes are in test_keys
def test_lanes_whose_tasks_differ_in_size():
    traces = [train(dml.asp(), seed=seed).trace for seed in (3, 4)]
    lanes = dml.replay_lanes(traces, PROBLEM, [SGD] * 2)
    for lane, trace in zip(lanes, traces, strict=True):
        assert relative_error(lane.params, by_hand(trace)) < 1e-5


def test_what_is_coupled_is_not_filled_up():
    kind = contribution_of(PROBLEM)
    assert [kind.width(size) for size in (1, 5, 9)] == [1, 5, 9]
    assert not kind.fuses


def test_only_losses_are_declared_coupled():
    with pytest.raises(ValueError, match=r"coupled: expected False .an update always.*, got True"):
        dml.Problem("odd", init, DATA, lambda p, d: {"loss": 0.0}, (), update=lambda v, *_: v, coupled=True)
    with pytest.raises(ValueError, match=r"coupled: expected True or False.*, got 'yes'"):
        dml.Problem("odd", init, DATA, lambda p, d: {"loss": 0.0}, (), losses=losses, coupled="yes")
