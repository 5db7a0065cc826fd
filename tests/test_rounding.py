"""What training is up to rounding: plain SGD, SGD on large batches, the readable replay, runs one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import MIXED
from engine_runs import plane, relative_error
from reference import replay_reference
from test_exactness import OPTIMIZERS, train

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices

# Optimizers with a state, with one policy of each kind of update; every policy without.
WITH_STATE = ("bsp", "ssp", "asp", "k_async", "k_batch_async")
EACH = [(name, kind) for name in ALL_POLICIES for kind in (OPTIMIZERS if name in WITH_STATE else ["sgd"])]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [32, 20])  # tasks of 20 samples are padded to 32; the padding does not count
def test_asp_with_one_worker_is_plain_sgd(optimizer, size):
    """In 64 bits: in a loop written by hand, XLA fuses a gradient with what surrounds it."""
    with jax.enable_x64(True):
        problem, optimizer = plane("float64"), OPTIMIZERS[optimizer]()
        run = train(dml.asp(), dml.Cluster.uniform(1), optimizer, problem, batch_size=size)
        params = problem.init(run_key(4, INIT))
        state = optimizer.init(params)

        @jax.jit
        def step(params, state, clock):
            indices = task_indices(run_key(4, BATCHES), 0, clock, size, problem.num_samples)
            batch = jax.tree.map(lambda column: jnp.asarray(column)[indices], problem.data)
            gradient = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        for clock in range(200):
            params, state = step(params, state, clock)
        assert relative_error(run.params, params) <= 1e-12


def test_bsp_is_large_batch_sgd():
    """One round of P workers with b samples is one step on the P b samples together."""
    problem = plane()
    run = train(dml.bsp(), optimizer=optax.sgd(0.1))
    params, data = problem.init(run_key(4, INIT)), jax.tree.map(jnp.asarray, problem.data)
    draw = jax.vmap(
        lambda worker, clock: task_indices(run_key(4, BATCHES), worker, clock, 32, problem.num_samples)
    )

    @jax.jit
    def step(params, clock):
        indices = draw(jnp.arange(4), jnp.full(4, clock)).ravel()
        batch = jax.tree.map(lambda column: column[indices], data)
        gradient = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    for clock in range(200):
        params = step(params, clock)
    assert relative_error(run.params, params) < 1e-5


@pytest.mark.parametrize(("policy", "optimizer"), EACH)
def test_compiled_equals_reference(policy, optimizer):
    """In 64 bits; that 32 bits give the same to the last bit, where nothing is fused, is in test_bits."""
    make = OPTIMIZERS[optimizer]
    with jax.enable_x64(True):
        problem = plane("float64")
        run = train(ALL_POLICIES[policy](), optimizer=make(), problem=problem, updates=60, eval_every=60)
        assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(run.params))
        assert relative_error(run.params, replay_reference(run.trace, problem, make())) <= 1e-10


LANES = [ALL_POLICIES[name]() for name in ("bsp", "ssp", "k_async", "k_batch_async", "asp")]


@pytest.mark.parametrize("policy", [*LANES, dml.ssp(2, weight=1.0)], ids=str)
def test_lanes_equal_single_runs(policy):
    """Seeds and learning rates side by side under vmap are the runs one by one."""
    problem = plane()
    rates = [0.05, 0.1, 0.2]
    traces = [dml.simulate(policy, MIXED, seconds=3.0, seed=seed) for seed in range(3)]
    lanes = dml.replay_lanes(
        traces, problem, [optax.sgd(rate, momentum=0.5) for rate in rates], eval_every=40
    )
    for trace, rate, lane in zip(traces, rates, lanes, strict=True):
        alone = dml.replay(trace, problem, optax.sgd(rate, momentum=0.5), eval_every=40)
        assert relative_error(lane.params, alone.params) < 1e-5
        np.testing.assert_allclose(lane.history["loss"], alone.history["loss"], rtol=1e-4)
        assert (lane.history["time"] == alone.history["time"]).all()
