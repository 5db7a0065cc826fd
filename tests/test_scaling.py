"""Weights of pushes under optimizers whose updates do not depend on the scale of gradients."""

import warnings

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import plane, relative_error, same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.training import scaling
from dmlcore.training.identity import of_optimizer
from dmlcore.training.scaling import scale_free

FULL = pytest.mark.full  # AdamW and the policies that are left say the same
PARAMS = {"w": jnp.ones((8, 3)), "b": jnp.ones(3)}
FREE = [
    "adam",
    "adamw",
    "lion",
    "adafactor",
    "rmsprop",
    "sign_sgd",
    "signum",
    "lamb",
    "lars",
    "radam",
    "adamax",
]
NOT = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "decay": optax.chain(optax.add_decayed_weights(1.0), optax.sgd(0.1)),
    "clip": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    "adagrad": optax.adagrad(0.1),  # its accumulator does not begin at 0
    "schedule": optax.sgd(optax.linear_schedule(0.1, 0.0, 100)),
    "schedule-free": optax.contrib.schedule_free_adamw(0.1),
}


@pytest.mark.parametrize("name", FREE)
def test_scale_free(name):
    optimizer = getattr(optax, name)(0.01)
    assert scale_free(optimizer, PARAMS)
    assert scale_free(optax.chain(optax.clip_by_global_norm(1.0), optimizer), PARAMS)
    assert not scale_free(dml.weigh_gradients(optimizer), PARAMS)


@pytest.mark.parametrize("name", NOT)
def test_not_scale_free(name):
    assert not scale_free(NOT[name], PARAMS)


DELAYED = optax.join_schedules([optax.constant_schedule(0.0), optax.constant_schedule(0.1)], [5000])


@pytest.mark.parametrize(
    "schedule", [DELAYED, dml.schedule_in("samples", DELAYED)], ids=["updates", "samples"]
)
def test_a_rate_may_be_0_at_first(schedule):
    assert scale_free(optax.inject_hyperparams(optax.adam)(schedule), PARAMS)
    assert not scale_free(optax.inject_hyperparams(optax.sgd)(schedule), PARAMS)


def test_parts_of_the_parameters_may_have_their_own_optimizers():
    parts = {"w": optax.adam(0.1), "b": optax.sgd(0.1)}
    assert scale_free(
        optax.partition({"w": optax.adam(0.1), "b": optax.lion(0.1)}, {"w": "w", "b": "b"}), PARAMS
    )
    assert scale_free(optax.partition(parts, {"w": "w", "b": "b"}), PARAMS)
    assert not scale_free(optax.partition(parts, {"w": "b", "b": "b"}), PARAMS)


AVERAGE = optax.GradientTransformation(
    lambda params: params, lambda updates, state, params: (updates, optax.apply_updates(params, updates))
)


@pytest.mark.parametrize(
    ("optimizer", "held"),
    [
        pytest.param(  # the average beside it, and that its own is not scale-free, above
            optax.contrib.schedule_free_adamw(0.1), lambda run: run.opt_state.z, marks=FULL
        ),
        (optax.chain(optax.adam(0.1), AVERAGE), lambda run: run.opt_state[1]),
    ],
    ids=["schedule-free", "average"],
)
def test_parameters_in_the_state_stay_with_those_of_the_server(optimizer, held, optimised):
    """So gradients are weighed, which is told, and an average of decay 0 is the parameters."""
    scaling.say_once.cache_clear()
    with pytest.warns(UserWarning, match="hardly any effect"):
        run = trained(STALE["damping"], optimizer)
    other = trained(STALE["damping"], dml.weigh_gradients(optimizer))
    assert same_bits((run.params, held(run)), (other.params, held(other)))
    assert not scale_free(optimizer, PARAMS)
    assert scale_free(optax.contrib.dog(), PARAMS), "its state has where it began, which stays"
    if held(run) is run.opt_state[1]:
        assert relative_error(held(run), run.params) < 1e-6


def test_half_the_weight_moves_all_parts_less_where_one_is_scale_free():
    parts = {"weights": optax.adam(0.1), "bias": optax.sgd(0.1)}
    mixed = optax.partition(parts, {name: name for name in parts})
    start = trained(dml.asp(), optax.set_to_zero()).params
    runs = [trained(dml.asp(weight=weight), mixed, updates=4).params for weight in (1.0, 0.5)]
    for name in parts:
        whole, half = (float(jnp.linalg.norm(run[name] - start[name])) for run in runs)
        assert 0.3 * whole < half < 0.7 * whole, name


def test_both_ways_have_an_identity():
    one = optax.adam(0.1)
    assert of_optimizer(one, PARAMS) != of_optimizer(dml.weigh_gradients(one), PARAMS)


def trained(policy, optimizer, cluster=EXPONENTIAL, **options):
    options = {"updates": 12, "eval_every": 12} | options
    return dml.train(plane(), cluster, policy, optimizer, **options)


MAKERS = {"adamw": optax.adamw, "lion": optax.lion, "rmsprop": optax.rmsprop, "sgd": optax.sgd}


@pytest.mark.parametrize(
    "name", ["adamw", "sgd", *(pytest.param(name, marks=FULL) for name in ("lion", "rmsprop"))]
)
def test_half_the_weight_is_half_the_rate(name):
    """As for plain SGD, whatever the optimizer; decay of weights is part of the update."""
    make = MAKERS[name]
    half = trained(dml.asp(weight=0.5), make(0.1)).params
    rate = trained(dml.asp(), make(0.05)).params
    assert relative_error(half, rate) < 1e-5
    whole = trained(dml.asp(), make(0.1)).params
    unlike = trained(dml.asp(weight=0.5), dml.weigh_gradients(make(0.1))).params
    assert (relative_error(unlike, whole) < 0.05) == (name != "sgd")


# The other policies give weights in the same ways.
STALE = {
    "damping": dml.asp(damping="inverse"),
    "fedasync": dml.fedasync(0.6, "polynomial"),
    "delay_adaptive": dml.delay_adaptive(),
    "fedbuff": dml.fedbuff(3),
    "ssp": dml.ssp(2),
    "backup": dml.k_sync(2),
}


# Devices make the gradients, for which test_devices is; the update is that of the virtual clock.
@pytest.mark.parametrize("engine", ["simulate", pytest.param("devices", marks=FULL), "threads"])
@pytest.mark.parametrize(
    "policy",
    [pytest.param(name, marks=() if name in ("damping", "ssp") else FULL) for name in STALE],
)
def test_the_same_on_every_engine_and_in_replay(policy, engine, optimised):
    clock = dml.engines.threads(time_scale=0.02) if engine == "threads" else engine
    run = trained(STALE[policy], optax.adam(0.05), MIXED, engine=clock)
    again = dml.replay(run.trace, plane(), optax.adam(0.05), eval_every=12, fuse=engine == "simulate")
    same = same_bits if engine != "devices" else lambda *both: relative_error(*both) < 1e-5
    assert same(again.params, run.params)
    assert relative_error(replay_reference(run.trace, plane(), optax.adam(0.05)), again.params) < 1e-5


def test_weights_that_sum_to_1_change_no_bit(optimised):
    runs = [trained(dml.k_sync(3), made) for made in (optax.adam(0.1), dml.weigh_gradients(optax.adam(0.1)))]
    assert same_bits(runs[0].params, runs[1].params)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"policy": dml.asp(weight=0.5)}, "turns this off"),
        ({"aggregate": "clipped(0.1)"}, r"clipped\(0.1\) limits"),
    ],
    ids=["weights", "clipped"],
)
def test_it_is_said_once(options, told):
    scaling.say_once.cache_clear()
    options = {"policy": dml.asp(), "optimizer": optax.adam(0.1)} | options
    with pytest.warns(UserWarning, match=f"optimizer: its updates do not depend .*{told}"):
        trained(**options, updates=2)
    with warnings.catch_warnings(action="error"):
        trained(**options, updates=2)


@pytest.mark.full  # half the weight is half the rate, above, of every update
@pytest.mark.parametrize("turn", [lambda made: made, pytest.param(dml.weigh_gradients, marks=FULL)])
def test_damping_steadies_adamw_where_updates_are_stale(turn):
    """At a rate too large for a staleness of 15: damped updates are a smaller rate for the stalest ones."""
    cluster, options = dml.Cluster.uniform(16, jitter="exponential"), {"updates": 800, "eval_every": 40}

    def loss(policy):
        runs = [
            dml.train(
                dml.problems.digits_mlp(8), cluster, policy, turn(optax.adamw(0.03)), seed=seed, **options
            )
            for seed in range(3)
        ]
        return np.median([run.history["loss"].iloc[-5:].median() for run in runs])

    ratio = loss(dml.asp(damping="inverse")) / loss(dml.asp())
    assert ratio < 0.25 if turn is not dml.weigh_gradients else ratio > 0.25
