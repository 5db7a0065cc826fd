"""Changes of speed happen to the tasks they name, whatever else a cluster draws."""

import json

import numpy as np
import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.draws import Draws

PLAIN = dml.Cluster.uniform(40, overhead=0.01)
JITTERED = dml.Cluster.uniform(40, overhead=0.01, jitter=stats.expon()).with_stragglers(4, mean_tasks=5)


@pytest.mark.parametrize("cluster", [PLAIN, JITTERED], ids=str)
def test_a_change_multiplies_the_times_of_its_tasks(cluster):
    changed = cluster.with_speed_change(3, clock=20, until=70, workers=[1, 35])
    changed = changed.with_speed_change(0.5, clock=50)
    before, after = Draws(cluster, seed=2), Draws(changed, seed=2)
    for worker in (0, 1, 35):
        for clock in (0, 19, 20, 31, 32, 49, 50, 69, 70, 200):
            factor = (3 if worker and 20 <= clock < 70 else 1) * (0.5 if clock >= 50 else 1)
            expected = factor * before.compute_seconds(worker, clock, 32)
            assert after.compute_seconds(worker, clock, 32) == pytest.approx(expected, rel=1e-12)


def test_a_change_is_in_the_trace_and_in_the_name():
    changed = PLAIN.with_speed_change(2, clock=5, until=9, workers=[0]).with_speed_change(0.5, clock=3)
    assert "2x as long from task 5 to 9 of 1 worker, 0.5x as long from task 3)" in repr(changed)
    described = dml.simulate(dml.bsp(), changed, updates=12).metadata["cluster"]
    assert json.loads(json.dumps(described, allow_nan=False)) == changed.describe() | {
        "changes": [
            {"slowdown": 2.0, "clock": 5, "until": 9, "workers": [0]},
            {"slowdown": 0.5, "clock": 3, "until": None, "workers": None},
        ]
    }
    assert "changes" not in PLAIN.describe()


def test_simulated_rounds_show_it():
    cluster = dml.Cluster.uniform(2).with_speed_change(2, clock=3, until=5, workers=[1])
    rounds = np.diff(dml.simulate(dml.bsp(), cluster, updates=7).updates["time"], prepend=0.0)
    np.testing.assert_allclose(rounds, [0.032] * 3 + [0.064] * 2 + [0.032] * 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"slowdown": 0, "clock": 1}, "slowdown: got 0"),
        ({"slowdown": 2, "clock": -1}, "clock: got -1"),
        ({"slowdown": 2, "clock": 4, "until": 4}, "until: got 4, allowed is a whole number >= 5"),
        ({"slowdown": 2, "clock": 4, "workers": [40]}, "workers: got 40"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        PLAIN.with_speed_change(**wrong)
