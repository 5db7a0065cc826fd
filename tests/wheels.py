"""Additive problems that tests share: a tiny one, each sample a wheel that its owner turns; and topics."""

import functools

import jax.numpy as jnp
import numpy as np
from engine_runs import uniform

from dmlcore.problems.problem import Problem

PLACES = 5


@functools.cache
def wheels(num_wheels=96):
    """Each task turns its wheels on by 1 to 4 places; the server counts how many wheels are at each place.

    So the state of a wheel is its owner's alone, and the counts are everybody's. An update that is lost in
    part, made twice or made on a view without the one before takes wheels off their places.
    """
    numbers = np.arange(num_wheels, dtype=np.int32)
    numbers.flags.writeable = False

    def init(key):
        counts = jnp.zeros(PLACES, jnp.int32).at[0].set(num_wheels)
        nothing = jnp.zeros(num_wheels, jnp.int32)
        return {"place": nothing, "turns": nothing, "counts": counts}

    def update(view, batch, key):
        before = view["place"]
        moves = 1 + (uniform(key, len(batch)) * (PLACES - 1)).astype(jnp.int32)
        after = (before + moves) % PLACES
        return {
            "place": after - before,
            "turns": jnp.ones_like(before),
            "counts": jnp.zeros_like(view["counts"]).at[after].add(1).at[before].add(-1),
        }

    return Problem(
        "wheels",
        init,
        numbers,
        lambda params, _: {"loss": params["place"].mean()},
        (),
        update=update,
        local=("place", "turns"),
    )


def check_wheels(params):
    """All wheels are at one of the places, and are counted there."""
    place, counts = np.asarray(params["place"]), np.asarray(params["counts"])
    assert ((place >= 0) & (place < PLACES)).all()
    assert (np.bincount(place, minlength=PLACES) == counts).all()


def turned(trace, num_wheels, counts=lambda task: True):
    """How often each wheel is turned, from a trace alone: worker w of P has w, w + P, ... and goes round."""
    turns = np.zeros(num_wheels, int)
    for task in trace.tasks[trace.tasks["update"] >= 0].itertuples():
        own = np.arange(task.worker, num_wheels, trace.num_workers)
        places = task.clock * task.batch_size + np.arange(task.batch_size)
        turns[own[places % len(own)]] += counts(task)
    return turns


def check_topics(problem, params):
    """Word-topic counts are those of the tokens' topics, so they sum to the tokens and none is negative."""
    words, length, topic = problem.data["words"], problem.data["length"], np.asarray(params["topic"])
    there = np.arange(words.shape[1]) < length[:, None]
    counts = np.asarray(params["word_topic"])
    expected = np.zeros_like(counts)
    assert ((topic >= 0) & (topic < counts.shape[1])).all()
    np.add.at(expected, (words[there], topic[there]), 1)
    assert (counts == expected).all()
    assert (counts.sum(0) == params["total"]).all()
    assert counts.sum() == length.sum()
    assert counts.min() >= 0
