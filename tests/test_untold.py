"""Programs whose text does not say all that they compute: never taken for another one, never kept."""

import contextlib
import dataclasses
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane, same_bits
from jax.experimental import io_callback
from jax.extend import core

import dmlcore as dml
from dmlcore.cluster.faults import ServerCrash
from dmlcore.experiments.comparison import _in_threads
from dmlcore.training.identity import of_code, of_optimizer
from dmlcore.training.optimizer import hoist, settings
from dmlcore.types import Aggregate

PARAMS = jnp.ones(3)
OWN = core.Primitive("add")  # of a user, with a name of JAX's
OWN.def_abstract_eval(lambda kind: kind)


def called(call, by, x):
    return call(lambda array: np.asarray(by * array, np.float32), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def seen(by, x):
    jax.debug.callback(lambda array: by, x)
    return x


CALLS = {
    "pure_callback": partial(called, jax.pure_callback),
    "io_callback": partial(called, io_callback),
    "debug_callback": seen,
    "add": lambda by, x: OWN.bind(x),
    "within": lambda by, x: jax.lax.cond(x.sum() > 0, partial(CALLS["pure_callback"], by), jnp.copy, x),
}


def changed(change, rate=0.1):
    """An optimizer that changes every gradient first."""

    def update(gradients, state, params=None):
        return jax.tree.map(change, gradients), state

    first = optax.GradientTransformation(lambda params: optax.EmptyState(), update)
    return optax.chain(first, optax.sgd(rate))


def on_host(by, kind="pure_callback"):
    return changed(partial(CALLS[kind], by))


@pytest.mark.parametrize("kind", CALLS)
def test_a_program_that_is_not_told_equals_itself_alone(kind):
    one, two = on_host(1.0, kind), on_host(2.0, kind)
    first, again, other = (
        hoist(each.update, PARAMS, each.init(PARAMS), PARAMS)[0] for each in (one, one, two)
    )
    assert first == again != other
    with pytest.raises(ValueError, match=r"optimizer: .*describes completely.*callback|with add"):
        of_optimizer(one, PARAMS)


TABLE = np.arange(3000, dtype=np.float32)


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, gradient: (gradient,))

TOLD = {
    "activation": lambda x: jax.nn.relu(x),
    "rule of one's own": clipped,
    "noise": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "other noise": lambda x: x + jax.random.normal(jax.random.key(4, impl="rbg"), x.shape),
    "solved": lambda x: jnp.linalg.solve(jnp.eye(3), x),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 0.5 * y, x),
    "again": jax.checkpoint(jnp.sin),
    "sorted": lambda x: jnp.sort(x)[jnp.argsort(x)],
    "table": lambda x: jax.lax.cond(x[0] > 0, lambda y: y + TABLE[1500:1503], lambda y: y, x),
    "long table": lambda x: jax.lax.map(lambda y: y * TABLE.sum(), x),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_program_that_is_told_has_one_hash(name):
    one, two = (of_optimizer(changed(TOLD[name]), PARAMS) for _ in range(2))
    assert one == two


def test_numbers_that_a_text_leaves_out_are_told_apart():
    other = TABLE.copy()
    other[1500] += 1
    tables = [changed(lambda x, by=by: x * jax.jit(lambda: jnp.asarray(by))().sum()) for by in (TABLE, other)]
    assert of_optimizer(tables[0], PARAMS) != of_optimizer(tables[1], PARAMS)


SETTINGS = {
    "precision": partial(jax.default_matmul_precision, "highest"),
    "numbers": partial(jax.threefry_partitionable, False),
    "keys": partial(jax.default_prng_impl, "rbg"),
    "types": partial(jax.enable_x64, True),
}


@pytest.mark.parametrize("name", [*SETTINGS, "flags"])
def test_settings_of_a_process_are_told(name, monkeypatch):
    usual = of_code()
    monkeypatch.setenv(
        "XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    )
    assert of_code() == usual  # as many results as before
    with SETTINGS.get(name, contextlib.nullcontext)():
        if name == "flags":
            monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert of_code() != usual


def trained(optimizer, engine="simulate", **options):
    given = plane(), EXPONENTIAL, dml.asp(), optimizer
    return dml.train(*given, updates=12, eval_every=12, engine=engine, **options)


@pytest.mark.parametrize("engine", ["simulate", "threads", "devices"])
def test_each_training_is_its_own(engine):
    """A factor of 1 is that of plain SGD, and one of 0 leaves the parameters as they begin."""
    still, moved, plain = (trained(each, engine) for each in (on_host(0.0), on_host(1.0), optax.sgd(0.1)))
    assert still.history["loss"].nunique() == 1
    assert moved.history["loss"].iloc[-1] < moved.history["loss"].iloc[0]
    for run, optimizer in ((still, on_host(0.0)), (moved, on_host(1.0))):
        assert same_bits(dml.replay(run.trace, plane(), optimizer, fuse=False).params, run.params)
    if engine != "threads":
        assert same_bits(moved.params, plain.params)


def test_methods_with_callbacks_are_compared_each_by_itself():
    methods = {name: dml.Method(dml.asp(), optimizer=on_host(by)) for name, by in (("0", 0.0), ("1", 1.0))}
    found = dml.compare(methods, plane(), EXPONENTIAL, None, updates=8, seeds=[0]).groupby("method")["loss"]
    assert found.nunique()["0"] == 1 < found.nunique()["1"]


def scaled(by):
    return Aggregate("scaled()", each=partial(jax.tree.map, partial(CALLS["pure_callback"], by)))


def loss_of_host(by):
    def evaluate(params, data):
        return {
            name: CALLS["pure_callback"](by, loss) for name, loss in plane().evaluate(params, data).items()
        }

    return dataclasses.replace(plane(), evaluate=evaluate)


KEPT = {
    "optimizer": lambda: {"optimizer": on_host(1.0)},
    "aggregate": lambda: {"aggregate": scaled(1.0)},
    "local, optimizer": lambda: {"local": dml.local_steps(2, on_host(1.0))},
    "problem, evaluate": lambda: {"problem": loss_of_host(1.0)},
}


@pytest.mark.parametrize("engine", ["simulate", "threads"])
@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_told_is_not_kept(name, engine, tmp_path):
    given = {"problem": plane(), "optimizer": optax.sgd(0.1), "cluster": EXPONENTIAL} | KEPT[name]()
    with pytest.raises(ValueError, match=f"{name}: expected one that .*pure_callback"):
        dml.train(**given, policy=dml.asp(), updates=4, checkpoint=tmp_path / "run", engine=engine)
    if engine == "simulate":
        with pytest.raises(ValueError, match=f"{name}: expected one that .*pure_callback"):
            dml.compare({"asp": dml.asp()}, updates=4, seeds=[0], save=tmp_path / "kept", **given)


def test_a_crash_of_the_server_needs_no_identity():
    """Its checkpoints are of one run, in a folder of its own."""
    cluster = EXPONENTIAL.with_faults(ServerCrash(0.05, 0.02))
    run = dml.train(plane(), cluster, dml.asp(), on_host(1.0), updates=12, engine=dml.engines.threads(0.05))
    assert len(run.trace.updates) == 12


@pytest.mark.parametrize("name", SETTINGS)
def test_threads_have_the_settings_of_their_caller(name):
    found = []
    with SETTINGS[name]():
        _in_threads(lambda _: found.append(settings()), [0], lambda *_: None)
        assert found == [settings()]
