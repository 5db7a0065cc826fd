"""What is trained, and how, is told from all else by what is computed."""

import dataclasses
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane

import dmlcore as dml
from dmlcore.training.evaluation import device_data
from dmlcore.training.identity import of_optimizer, of_problem, of_training, told
from dmlcore.types import Decision, Policy, Start

problems = dml.problems
DIGITS = problems.digits_mlp(8)


def changed_data():
    inputs = np.array(DIGITS.data["inputs"])
    inputs[3, 5] += 1
    return dataclasses.replace(DIGITS, data={**DIGITS.data, "inputs": inputs})


def loss_of(params, eval_data):
    return DIGITS.evaluate(params, eval_data)["loss"]


def with_gradient(scale):
    """Its losses are the same whatever the scale; their gradients are of one's own."""

    @jax.custom_vjp
    def losses(params, batch):
        return DIGITS.losses(params, batch)

    def forward(params, batch):
        return losses(params, batch), jax.grad(lambda given: DIGITS.losses(given, batch).sum())(params)

    def backward(gradient, _):
        return optax.tree.scale(scale, gradient), None

    losses.defvjp(forward, backward)
    return dataclasses.replace(DIGITS, losses=lambda params, batch: losses(params, batch))


PAIRS = {
    "data": lambda: (DIGITS, changed_data()),
    "penalty": lambda: tuple(problems.logistic_regression(l2=each) for each in (0.1, 0.2)),
    "penalty of factors": lambda: tuple(problems.matrix_factorization(l2=each) for each in (0.0, 0.1)),
    "l1": lambda: tuple(problems.lasso(l1=each) for each in (0.1, 0.2)),
    "priors": lambda: tuple(problems.lda(alpha=each) for each in (0.1, 0.2)),
    "start": lambda: (DIGITS, dataclasses.replace(DIGITS, init=lambda key: DIGITS.init(jax.random.key(5)))),
    "gradient": lambda: (with_gradient(1.0), with_gradient(2.0)),
    "number of rows": lambda: tuple(
        dataclasses.replace(
            DIGITS, losses=lambda params, batch, by=by: DIGITS.losses(params, batch) / by(batch)
        )
        for by in (lambda batch: 2, lambda batch: len(batch["labels"]))
    ),
    "metric": lambda: tuple(
        dataclasses.replace(DIGITS, evaluate=lambda *given, by=by: {"loss": by * loss_of(*given)})
        for by in (1.0, 2.0)
    ),
    "owners": lambda: tuple(
        problems.logistic_regression().sharded(np.roll(np.arange(1437) % 4, by)) for by in (0, 1)
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_problems_that_differ_are_told_apart(pair):
    one, two = PAIRS[pair]()
    assert of_problem(one) == of_problem(dataclasses.replace(one))
    assert of_problem(one) != of_problem(two)


def test_training_data_are_as_they_were_when_the_first_training_began():
    """A store that large arrays of NumPy would share with JAX if it were not copied."""
    inputs = np.zeros((512, *DIGITS.data["inputs"].shape[1:]), np.float32)
    data = {"inputs": inputs, "labels": np.zeros(512, np.int32)}
    problem = dataclasses.replace(DIGITS, data=data)
    kept = device_data(problem)[0]["inputs"]
    inputs += 1
    assert not kept.any()


SOME = {
    "inject_hyperparams": lambda by: optax.inject_hyperparams(optax.sgd)(learning_rate=by),
    "adagrad": lambda by: optax.adagrad(0.1, initial_accumulator_value=by),
    "noise": lambda by: optax.add_noise(0.1, 0.5, seed=int(10 * by)),
    "schedule": lambda by: optax.sgd(optax.linear_schedule(0.1, by, 10)),
    "decay": lambda by: optax.adamw(0.1, weight_decay=by),
}


@pytest.mark.parametrize("name", SOME)
def test_optimizers_that_differ_are_told_apart(name):
    one, again, two = (of_optimizer(SOME[name](by), DIGITS.shapes) for by in (0.1, 0.1, 0.2))
    assert one == again != two


def test_columns_of_64_bits_are_told_apart_without_a_warning():
    """JAX makes them columns of 32 bits, and warns where it is asked for more."""
    assert plane().data["labels"].dtype == np.int64
    assert of_problem(plane()) != of_problem(plane(seed=1))


SCRIPT = """
import optax, dmlcore as dml
from dmlcore.training.identity import of_training
print(of_training(dml.problems.digits_mlp(8), optax.adam(0.1)))
"""


def test_every_process_says_the_same():
    command, options = [sys.executable, "-c", SCRIPT], {"capture_output": True, "text": True, "check": True}
    there = subprocess.run(command, timeout=300, **options).stdout
    assert there.strip() == str(of_training(DIGITS, optax.adam(0.1)))


OTHERS = {  # made where they are used, since every process that collects tests would compute their optimum
    "problem": lambda: (problems.logistic_regression(l2=1.0), optax.sgd(0.1)),
    "optimizer": lambda: (problems.logistic_regression(l2=0.1), SOME["inject_hyperparams"](0.5)),
}


def scaling(weight):
    """A policy of one's own, told from another one by its weights alone."""

    def on_push(state, push):
        return state, Decision(apply=[(push.worker, push.clock, weight)], start=[Start(push.worker)])

    return Policy("mine", lambda num_workers: {}, on_push)


def test_a_checkpoint_of_another_timeline_is_refused(tmp_path):
    given = problems.logistic_regression(l2=0.1), EXPONENTIAL
    options = {"updates": 10, "checkpoint": tmp_path}
    dml.train(*given, scaling(1.0), optax.sgd(0.1), **options)
    with pytest.raises(ValueError, match=r"of another run .*another timeline"):
        dml.train(*given, scaling(0.5), optax.sgd(0.1), **options)


def test_a_trace_replayed_on_other_data_says_so(tmp_path):
    """Of problems of one name and size; a trace from before there was a hash is replayed in silence."""
    assert told(DIGITS) == told(dataclasses.replace(DIGITS, eval_data={})) != told(changed_data())
    problem, optimizer = problems.logistic_regression(l2=0.1), optax.sgd(0.1)
    trace = dml.train(problem, EXPONENTIAL, dml.bsp(), optimizer, updates=10).trace
    trace.save(tmp_path / "trace.parquet")
    dml.replay(dml.Trace.load(tmp_path / "trace.parquet"), problem, optimizer)
    trace.metadata["data_sha256"] = told(changed_data())["data_sha256"]
    with pytest.warns(UserWarning, match="problem: the training data of logistic_regression.* differ"):
        dml.replay(trace, problem, optimizer)
    del trace.metadata["data_sha256"]
    dml.replay(trace, problem, optimizer)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_training_is_refused(what, engine, tmp_path):
    options = {"updates": 10, "checkpoint": tmp_path, "engine": engine}
    optimizer = SOME["inject_hyperparams"](0.1) if what == "optimizer" else optax.sgd(0.1)
    dml.train(problems.logistic_regression(l2=0.1), EXPONENTIAL, dml.bsp(), optimizer, **options)
    problem, optimizer = OTHERS[what]()
    with pytest.raises(ValueError, match=f"of another run .*another {what}"):
        dml.train(problem, EXPONENTIAL, dml.bsp(), optimizer, **options)
