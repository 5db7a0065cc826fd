"""Laws by name are those of scipy, with mean 1; what is none is refused by one message."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.jitter import LAWS, resolve_jitter

SAME = {
    "exponential": stats.expon(),
    "gamma(4)": stats.gamma(4, scale=0.25),
    "gamma(shape=0.5)": stats.gamma(0.5, scale=2),
    "lognormal(0.5)": stats.lognorm(0.5, scale=np.exp(-0.125)),
    "pareto(3)": stats.pareto(3, scale=2 / 3),
}
UNIFORM = (np.arange(100_000) + 0.5) / 100_000


@pytest.mark.parametrize("name", SAME)
def test_quantiles_are_those_of_scipy(name):
    np.testing.assert_allclose(
        resolve_jitter("jitter", name).ppf(UNIFORM), SAME[name].ppf(UNIFORM), rtol=1e-9
    )


@pytest.mark.parametrize("name", SAME)
def test_the_mean_is_1(name):
    assert resolve_jitter("jitter", name).ppf(UNIFORM).mean() == pytest.approx(1, rel=2e-2)


def test_every_law_is_held_against_scipy():
    assert {name.split("(")[0] for name in SAME} == set(LAWS)


def test_runs_are_those_of_the_distribution():
    runs = [
        dml.simulate(
            dml.ssp(2),
            dml.Cluster.uniform(4, latency=0.01, **law).with_server(**law, seconds_per_push=0.01),
            updates=200,
        )
        for law in ({"jitter": "exponential"}, {"jitter": stats.expon()})
    ]
    # Up to the last bits of a logarithm, of which NumPy and SciPy have their own.
    pd.testing.assert_frame_equal(runs[0].tasks, runs[1].tasks, rtol=1e-12, atol=1e-12)
    assert runs[0].metadata["cluster"]["jitter"] == "exponential()"


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("normal", "jitter: expected a call of one of exponential, gamma, lognormal, pareto.*, got 'normal'"),
        ("gamma", "jitter: expected a call with the arguments that gamma takes.*, got 'gamma'"),
        ("gamma(-1)", "shape: expected .*, got -1"),
        ("pareto(1)", "alpha: expected a number > 1.*, got 1"),
        ("lognormal(1e200)", "sigma: expected .*, got 1e"),
        ("lognormal('a')", "sigma: expected .*, got 'a'"),
        (3, "jitter: expected a law by name.*, got 3"),
    ],
)
def test_what_is_no_law_is_refused(law, message):
    for wrong in (
        lambda: dml.Cluster.uniform(4, jitter=law),
        lambda: dml.Cluster.uniform(4).with_server(seconds_per_push=1, jitter=law),
    ):
        with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
            wrong()


def test_clusters_with_laws_by_name_are_equal_and_can_be_sent():
    cluster = dml.Cluster.uniform(4, jitter="gamma(4)", latency_jitter="pareto(3)")
    assert cluster == dml.Cluster.uniform(4, jitter="gamma(shape=4)", latency_jitter="pareto(3)")
    assert cluster != dml.Cluster.uniform(4, jitter="gamma(5)", latency_jitter="pareto(3)")
    assert pickle.loads(pickle.dumps(cluster)) == cluster
