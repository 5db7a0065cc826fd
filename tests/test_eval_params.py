"""What a run keeps of its optimizer, and evaluations of other parameters than those that are trained."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane, same_bits

import dmlcore as dml
from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.space import as_space, possible

FREE = optax.contrib.schedule_free_sgd(0.3, warmup_steps=2)
GIVEN = plane(), EXPONENTIAL, dml.ssp(2)
OPTIONS = {"updates": 20, "eval_every": 5}


def polyak(state, params):
    """The mean of the parameters so far, which a state of one's own sums."""
    total, count = state
    return jax.tree.map(lambda own, leaf: jax.numpy.where(count == 0, own, leaf / count), params, total)


def summing(rate):
    """SGD that sums the parameters it reaches."""

    def init(params):
        return jax.tree.map(jax.numpy.zeros_like, params), jax.numpy.zeros(())

    def update(gradient, state, params):
        steps = optax.tree.scale(-rate, gradient)
        reached = optax.apply_updates(params, steps)
        return steps, (jax.tree.map(jax.numpy.add, state[0], reached), state[1] + 1)

    return optax.GradientTransformation(init, update)


CASES = {
    "schedule-free": (FREE, optax.contrib.schedule_free_eval_params),
    "mean": (summing(0.3), polyak),
}


def engines():
    return {"simulate": "simulate", "devices": "devices", "threads": dml.engines.threads(time_scale=0.02)}


# The engine of several devices evaluates as the simulated one does.
@pytest.mark.parametrize("engine", ["simulate", pytest.param("devices", marks=pytest.mark.full), "threads"])
@pytest.mark.parametrize("case", CASES)
def test_evaluated_on_every_engine(case, engine):
    optimizer, eval_params = CASES[case]
    run = dml.train(*GIVEN, optimizer, eval_params=eval_params, engine=engines()[engine], **OPTIONS)
    at_end = plane().evaluate(eval_params(run.opt_state, run.params), plane().eval_data)["loss"]
    trained = plane().evaluate(run.params, plane().eval_data)["loss"]
    assert float(at_end) == pytest.approx(run.history["loss"].iloc[-1], rel=1e-5)
    assert float(trained) != pytest.approx(run.history["loss"].iloc[-1], rel=1e-3)
    again = dml.replay(run.trace, plane(), optimizer, eval_params=eval_params, eval_every=5)
    assert again.history.equals(run.history) or engine == "devices"
    assert same_bits(again.opt_state, run.opt_state) or engine == "devices"


def test_lanes_are_evaluated_each_by_its_own_state():
    optimizer, eval_params = CASES["mean"]
    run = dml.train(*GIVEN, optimizer, eval_params=eval_params, **OPTIONS)
    both = dml.replay_lanes(
        [run.trace] * 2, plane(), [optimizer, summing(0.1)], eval_params=eval_params, eval_every=5
    )
    np.testing.assert_allclose(both[0].history["loss"], run.history["loss"], rtol=1e-5)
    assert abs(both[1].history["loss"].iloc[-1] / run.history["loss"].iloc[-1] - 1) > 1e-2


def test_comparisons_and_sweeps(tmp_path):
    optimizer, eval_params = CASES["mean"]
    given = {"ssp": GIVEN[2]}, *GIVEN[:2]
    run = dml.train(*GIVEN, optimizer, eval_params=eval_params, **OPTIONS)
    asked = {"seeds": [0], "save": tmp_path, **OPTIONS}
    for _ in range(2):  # the second time from the folder
        found = dml.compare(*given, optimizer, eval_params=eval_params, **asked)
        assert [*found["loss"]] == [*run.history["loss"]]
    trained = dml.compare(*given, optimizer, **asked)
    assert trained["loss"].iloc[-1] != found["loss"].iloc[-1]  # not taken from the folder
    swept = dml.sweep(*given, summing, [0.1, 0.3], eval_params=eval_params, **asked)
    assert [*swept[swept["learning_rate"] == 0.3]["loss"]] == [*run.history["loss"]]
    target = float(run.history["loss"].iloc[2])
    cut = dml.compare(
        *given, optimizer, eval_params=eval_params, until={"loss": target}, resolve=True, **asked
    )
    assert 5 < cut["update"].iloc[-1] <= 10
    with pytest.raises(
        ValueError, match=r"^methods\['own'\], eval_params: expected a function of the optimizer's state"
    ):
        dml.compare({"own": dml.Method(GIVEN[2], optimizer=optax.adam(0.1))}, *GIVEN[:2], None,
                    eval_params=eval_params, **asked)  # fmt: skip


def test_studies_and_recommendations():
    options = {"optimizer": summing, "eval_params": polyak, "seeds": range(8)}
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    given = problem, GIVEN[1], {"loss": 30.0}
    found = dml.study([dml.asp(), dml.bsp()], *given, budget=12, **options)
    goal = next(iter(found.answers.values())).goal
    judged = goal.key({"asp": dml.Method(dml.asp(), optimizer=summing(0.1))}, {})
    plainly = dataclasses.replace(goal, eval_params=None)
    assert judged != plainly.key({"asp": dml.Method(dml.asp(), optimizer=summing(0.1))}, {})
    run = dml.train(
        *given[:2], found.best, None, updates=400, until={"loss": 30.0}, eval_params=polyak, eval_every=1
    )
    assert run.history["loss"].iloc[-1] <= 30.0
    few = {"methods": ["ASP", "BSP"], "trials": 3, "budget": 1e6, "progress": False}
    advice = dml.recommend(*given, **few, **options)
    assert [each.goal.eval_params for each in advice.answers.values()] == [polyak]


def test_methods_that_it_does_not_suit_are_left_out():
    goal = Goal(GIVEN[0], GIVEN[1], "loss", 0.5, 32, eval_params=polyak)
    spaces, notes = {"ssp": as_space("ssp", GIVEN[2])}, []
    assert not possible(spaces, optax.sgd, goal.check, notes)
    assert notes[0].startswith("ssp is left out (eval_params: expected")
    assert [*possible(spaces, summing, goal.check, notes)] == ["ssp"]


def test_a_target_is_reached_by_what_is_evaluated():
    optimizer, eval_params = CASES["mean"]
    run = dml.train(*GIVEN, optimizer, eval_params=eval_params, **OPTIONS)
    target = float(run.history["loss"].iloc[2])
    cut = dml.train(*GIVEN, optimizer, eval_params=eval_params, until={"loss": target}, **OPTIONS)
    assert len(cut.history) == 3
    assert len(cut.trace.updates) == 10


def test_the_state_is_that_of_the_optimizer():
    run = dml.train(*GIVEN, optax.adam(0.1), **OPTIONS)
    assert int(run.opt_state[0].count) == 20
    assert jax.tree.structure(run.opt_state) == jax.tree.structure(optax.adam(0.1).init(run.params))


def test_a_checkpoint_of_other_evaluations_is_refused(tmp_path):
    optimizer, eval_params = CASES["mean"]
    run = dml.train(*GIVEN, optimizer, eval_params=eval_params, checkpoint=tmp_path, **OPTIONS)
    again = dml.train(*GIVEN, optimizer, eval_params=eval_params, checkpoint=tmp_path, **OPTIONS)
    assert again.history.equals(run.history)
    assert same_bits(again.opt_state, run.opt_state)
    with pytest.raises(ValueError, match="of another run"):
        dml.train(*GIVEN, optimizer, checkpoint=tmp_path, **OPTIONS)


@pytest.mark.parametrize(
    "wrong", [3, lambda state: state, lambda state, params: 0.0, lambda state, params: state], ids=range(4)
)
def test_a_wrong_function_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^eval_params: expected a function of the optimizer's state"):
        dml.train(*GIVEN, optax.adam(0.1), eval_params=wrong, **OPTIONS)
