"""What functions of a user's own raise is raised again as it is, with a note of what was going on."""

import dataclasses
import re

import hello
import jax.numpy as jnp
import optax
import pytest
from clusters import LOCK_STEP

import dmlcore as dml
from dmlcore.cluster.jitter import SizedJitter
from dmlcore.engines import on_threads
from dmlcore.engines.job import Job
from dmlcore.problems.validation import check_problem
from dmlcore.types import Decision, Load, Policy, Start, Transport

ASP = dml.asp()
CRASH = LOCK_STEP.with_faults(dml.faults.Crash(1, 0.05, 0.1))


def raises(*args):
    raise KeyError("mine")


def late(function, calls):
    """The function, until it has been called so often."""
    left = iter(range(calls))
    return lambda *args: function(*args) if next(left, None) is not None else raises()


def loaded(**hooks):
    return {"load": Load("my_load()", lambda *_: None, lambda state, worker: 32)._replace(**hooks)}


RULED = r"raised under asp\(.*\), load equal\(\): "
OWN_LOAD = r"raised under asp\(.*\), load my_load\(\): "
CASES = {
    "init": (ASP._replace(init=raises), {}, r"raised by init under asp\(\), load equal\(\), 4 workers"),
    "on_push": (
        ASP._replace(on_push=late(ASP.on_push, 5)),
        {},
        RULED + r"push of worker 1, clock 1, at 0\.064 s",
    ),
    "on_leave": (ASP._replace(on_leave=raises), {"cluster": CRASH}, RULED + r"worker 1 leaves, at 0\.05 s"),
    "on_join": (ASP._replace(on_join=raises), {"cluster": CRASH}, RULED + r"worker 1 joins, at 0\.15 s"),
    "on_wake": (ASP._replace(on_wake=raises), {}, RULED + r"timer None, at 0 s"),
    "keep_copy": (
        dml.ssp(3)._replace(keep_copy=raises),
        {},
        r"raised under ssp\(.*\), load equal\(\): push of worker 0, clock 0, at 0\.032 s",
    ),
    "on_pull": (
        dml.ssp(3)._replace(on_pull=raises),
        {},
        r"raised under ssp\(.*\), load equal\(\): start of worker 0, clock 0, at 0 s",
    ),
    "size": (
        ASP,
        loaded(observe=lambda state, push: state, size=late(lambda *_: 32, 6)),
        OWN_LOAD + r"start of worker 2, clock 1, at 0\.032 s",
    ),
    "observe": (ASP, loaded(observe=raises), OWN_LOAD + r"push of worker 0, clock 0, at 0\.032 s"),
    "load's on_leave": (
        ASP,
        loaded(on_leave=raises) | {"cluster": CRASH},
        OWN_LOAD + r"worker 1 leaves, at 0\.05 s",
    ),
    "jitter": (
        ASP,
        {"cluster": dml.Cluster.uniform(4, jitter=raises)},
        r"raised by jitter of workers 0 to 3, clocks 0 to 31, with seed 0",
    ),
    "jitter by size": (
        ASP,
        {"cluster": dml.Cluster.uniform(4, jitter=SizedJitter("mine", raises))},
        r"raised by jitter of 32 samples, for worker 0, clock 0",
    ),
    "transport": (
        ASP,
        {"transport": Transport("mine()", raises, raises)},
        r"raised by transport mine\(\), asked for its bytes",
    ),
}


@pytest.mark.parametrize("who", CASES)
def test_a_run_notes_who_raised_and_when(who):
    policy, options, note = CASES[who]
    with pytest.raises(KeyError, match="mine") as caught:
        dml.simulate(policy, **{"cluster": LOCK_STEP, "updates": 40} | options)
    (told,) = caught.value.__notes__
    assert re.fullmatch(note, told)


def test_threads_note_it_too():
    with pytest.raises(KeyError) as caught:
        on_threads.record(hello.job(ASP._replace(on_push=raises)))
    assert "push of worker" in caught.value.__notes__[0]


def test_threads_give_up_a_policy_that_never_updates(monkeypatch):
    monkeypatch.setattr("dmlcore.engines.real.MOST_SECONDS", 0.0)
    monkeypatch.setattr("dmlcore.engines.real.MOST_TASKS", 2)

    def on_push(state, push):
        return state, Decision(drop=[(push.worker, push.clock)], start=[Start(push.worker)])

    job = hello.job(Policy("mine()", lambda num_workers: None, on_push))
    with pytest.raises(RuntimeError, match=r"mine\(\) makes no update: .* tasks arrived since update 0"):
        on_threads.record(Job(job.spec, job.problem, job.optimizer, job.time_scale))


def test_an_evaluation_that_has_no_hash_is_one():
    problem = dml.problems.linear_regression()

    class Evaluation(list):
        def __call__(self, *given):
            return problem.evaluate(*given)

    own = dataclasses.replace(problem, evaluate=Evaluation())
    dml.train(own, LOCK_STEP, ASP, optax.sgd(0.01), updates=4)


def test_a_problem_notes_on_which_batch():
    """`check_problem` tries a small batch; what raises on others is noted when it is traced."""

    def losses(params, batch):
        return (batch["x"] - params) ** 2 if len(batch["x"]) <= 4 else raises()

    data = {"x": jnp.zeros(8)}
    problem = dml.Problem(
        "mine", lambda key: jnp.zeros(()), data, lambda p, d: {"loss": p}, None, losses=losses
    )
    check_problem(problem)
    with pytest.raises(KeyError) as caught:
        dml.train(problem, LOCK_STEP, ASP, optax.sgd(0.1), updates=1)
    assert "raised by losses of problem 'mine', on a batch of 32 samples" in caught.value.__notes__
