"""Schedules that count samples or seconds: their values are those of the trace, on every engine."""

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import same_bits

import dmlcore as dml
from dmlcore.training.scaling import scale_free

PROBLEM = dml.problems.linear_regression(num_samples=64, num_features=3)
ADDITIVE = dml.problems.lasso(num_samples=40, num_features=16, num_nonzeros=2)
OPTIONS = {"updates": 20, "batch_size": 8, "eval_every": 10}
HORIZON = {"samples": 2000, "seconds": 10.0}
POLICIES = {"bsp": dml.bsp(), "ssp": dml.ssp(2), "asp": dml.asp(), "adasync": dml.adasync(1)}


def falling(unit, make=optax.adam, rate=0.1):
    schedule = optax.linear_schedule(rate, 0.0, HORIZON[unit])
    return optax.inject_hyperparams(make)(learning_rate=dml.schedule_in(unit, schedule))


def expected(trace, unit, rate=0.1):
    """The rate of the last update: that at the version before it."""
    made = trace.updates.iloc[:-1]
    progress = made["samples"].sum() if unit == "samples" else made["time"].iloc[-1]
    return rate * max(0.0, 1 - progress / HORIZON[unit])


def train(policy, optimizer, **options):
    return dml.train(PROBLEM, EXPONENTIAL, policy, optimizer, **OPTIONS | options)


def last_rate(run):
    return float(run.opt_state.hyperparams["learning_rate"])


@pytest.mark.parametrize("unit", HORIZON)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_rate_is_that_of_the_trace_on_every_engine(policy, unit):
    optimizer, policy = falling(unit), POLICIES[policy]
    several = ["devices"] if policy is POLICIES["ssp"] else []
    for engine in ("simulate", dml.engines.threads(time_scale=0.05), *several):
        run = train(policy, optimizer, engine=engine)
        assert last_rate(run) == pytest.approx(expected(run.trace, unit), rel=1e-5)
        assert 0 < last_rate(run) < 0.1
        again = dml.replay(run.trace, PROBLEM, falling(unit), eval_every=10, fuse=policy is POLICIES["bsp"])
        assert same_bits(again.params, run.params) or engine == "devices" or policy is POLICIES["bsp"]
        assert last_rate(again) == last_rate(run)


def test_a_constant_schedule_is_the_constant():
    constant = optax.inject_hyperparams(optax.adam)(dml.schedule_in("seconds", lambda seconds: 0.05))
    plain = optax.inject_hyperparams(optax.adam)(0.05)
    for policy in (dml.ssp(2), dml.asp(damping="inverse")):
        assert same_bits(train(policy, constant).params, train(policy, plain).params)


def test_comparisons_sweeps_and_studies(tmp_path):
    given = {"asp": dml.asp()}, PROBLEM, EXPONENTIAL
    run = train(dml.asp(), falling("samples"))
    frames = [dml.compare(*given, falling("samples"), seeds=[0], save=tmp_path, **OPTIONS) for _ in range(2)]
    assert [*frames[0]["loss"]] == [*frames[1]["loss"]] == [*run.history["loss"]]
    other = dml.compare(*given, falling("seconds"), seeds=[0], save=tmp_path, **OPTIONS)
    assert other["loss"].iloc[-1] != run.history["loss"].iloc[-1]  # nothing kept of the other schedule
    swept = dml.sweep(*given, lambda rate: falling("samples", rate=rate), [0.1, 0.2], seeds=[0], **OPTIONS)
    at = swept[swept["learning_rate"] == 0.1]["loss"]
    assert [*at] == [*run.history["loss"]]
    assert swept["loss"].nunique() > at.nunique()
    made = lambda rate: falling("samples", optax.sgd, rate)  # noqa: E731
    found = dml.study(*given, {"loss": 30.0}, optimizer=made, budget=8, batch_size=8)
    assert found.best.optimizer is not None


def test_a_run_resumes(tmp_path):
    run = train(dml.asp(), falling("seconds"), eval_every=4, checkpoint=tmp_path)
    newest = max(tmp_path.glob("*.checkpoint"), key=lambda path: int(path.stem))
    newest.unlink()
    again = train(dml.asp(), falling("seconds"), eval_every=4, checkpoint=tmp_path)
    assert same_bits(again.params, run.params)
    with pytest.raises(ValueError, match="of another run"):
        train(dml.asp(), falling("samples"), eval_every=4, checkpoint=tmp_path)


def test_lanes_have_schedules_of_their_own_traces():
    optimizer = falling("seconds")
    traces = [dml.simulate(dml.asp(), EXPONENTIAL, updates=20, batch_size=8, seed=seed) for seed in (0, 1)]
    runs = dml.replay_lanes(traces, PROBLEM, [optimizer] * 2)
    assert [last_rate(run) for run in runs] == pytest.approx([expected(each, "seconds") for each in traces])


def test_restarts_of_the_server_take_the_schedule_back():
    rough = EXPONENTIAL.with_faults(dml.faults.ServerCrash(0.04, 0.02), checkpoint_every=3)
    for unit in HORIZON:
        run = dml.train(PROBLEM, rough, dml.adasync(1), falling(unit), **OPTIONS)
        assert last_rate(run) == pytest.approx(expected(run.trace, unit), rel=1e-5)
        assert same_bits(dml.replay(run.trace, PROBLEM, falling(unit)).params, run.params)


def test_wrappers_that_skip_updates_count_all_samples():
    inner = falling("samples")
    optimizer = optax.MultiSteps(inner, 4).gradient_transformation()
    run = train(dml.asp(), optimizer)
    rate = float(run.opt_state.inner_opt_state.hyperparams["learning_rate"])
    assert rate == pytest.approx(expected(run.trace, "samples"))


def test_weights_scale_the_updates_of_a_scheduled_adam():
    for make, wanted in ((optax.adam, True), (optax.sgd, False)):
        for unit in HORIZON:
            assert scale_free(falling(unit, make), PROBLEM.shapes) is wanted
    off = dml.weigh_gradients(falling("samples"))
    policy = dml.asp(damping="inverse")
    assert last_rate(train(policy, off)) == last_rate(train(policy, falling("samples")))
    assert not same_bits(train(policy, off).params, train(policy, falling("samples")).params)


def test_an_optimizer_of_ones_own_reads_progress():
    def update(gradients, state, params=None, *, samples, seconds, **others):
        return jax.tree.map(lambda leaf: -1e-3 * leaf / (1 + samples), gradients), seconds

    optimizer = optax.GradientTransformationExtraArgs(lambda params: np.float32(0), update)
    run = train(dml.asp(), optimizer)
    assert float(run.opt_state) == np.float32(run.trace.updates["time"].iloc[-2])


def telling_nothing(inner):
    return optax.GradientTransformation(
        inner.init, lambda updates, state, params=None: inner.update(updates, state, params)
    )


REFUSED = {
    "without inject_hyperparams": (
        lambda: train(dml.asp(), optax.sgd(dml.schedule_in("samples", lambda n: 0.1))),
        r"optimizer.*schedule_in\('samples', ...\).*inject_hyperparams",
    ),
    "in local steps": (
        lambda: train(dml.asp(), optax.sgd(1.0), local=dml.local_steps(2, falling("samples", optax.sgd))),
        r"^local, optimizer: .*'samples'",
    ),
    "of additive updates": (
        lambda: dml.train(ADDITIVE, EXPONENTIAL, dml.asp(), falling("samples", optax.sgd), updates=4),
        r"^optimizer: .*one that does more than add updates",
    ),
    "in a wrapper that tells nothing": (
        lambda: train(dml.asp(), telling_nothing(falling("samples"))),
        r"^optimizer: .*missing.* 'samples'",
    ),
    "of an unknown unit": (lambda: dml.schedule_in("updates", lambda n: 0.1), r"^unit: expected"),
    "of no function": (lambda: dml.schedule_in("samples", 0.1), r"^schedule: expected a function"),
    "of another": (
        lambda: dml.schedule_in("samples", dml.schedule_in("seconds", lambda n: 0.1)),
        r"^schedule: expected a function",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_uses_are_refused(case):
    attempt, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        attempt()
