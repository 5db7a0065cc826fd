"""Calibration: a known cluster comes back from its trace, and so does what other policies make of it."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache

import numpy as np
import pytest
from clusters import GROWING, MIXED, UNEQUAL
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from threadpoolctl import threadpool_limits
from watched import simulate

import dmlcore as dml
from dmlcore.cluster import Cluster
from dmlcore.methods.policies import ALL_POLICIES, asp, bsp, k_sync, ssp
from dmlcore.trace import Trace, metrics
from dmlcore.trace.calibration.laws import LAWS, Empirical, Times, maximise
from dmlcore.trace.calibration.laws import _loss as loss_of_workers

GAMMA = stats.gamma(4, scale=0.25)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The optimizer's matrices are tiny: threads would only get in each other's way."""
    with threadpool_limits(1):
        yield


TASKS = 4800
CALM = {
    "exponential": Cluster.uniform(8, jitter=stats.expon()),
    "mixed": dataclasses.replace(MIXED, stragglers=()),
    "gamma": Cluster.from_speeds([1000, 800, 600, 1000], jitter=GAMMA, latency=0.01, latency_jitter=GAMMA),
    "lock_step": Cluster.from_speeds([1000, 800, 600, 1000], overhead=0.01, latency=0.01),
    "shifted": Cluster.uniform(4, jitter=stats.expon(loc=0.5, scale=0.5), latency=0.002),
    "straggler": Cluster.uniform(8, jitter=stats.gamma(16, scale=1 / 16), latency=0.005).with_stragglers(
        3, fraction=1, workers=[0]
    ),
}
EPISODES = {"episodes": Cluster.uniform(8, jitter=GAMMA).with_stragglers(3, mean_tasks=5), "mixed": MIXED}
POLICIES = {"asp": asp(), "bsp": bsp(), "ssp": ssp(staleness=3), "k_sync": k_sync(2)}


@cache
def calibrated(kind: str, name: str, policy: str) -> Cluster:
    cluster = {"calm": CALM, "episodes": EPISODES}[kind][name]
    samples = 32 * (TASKS // 2 if policy == "k_sync" else TASKS)
    return dml.calibrate(dml.simulate(POLICIES[policy], cluster, samples=samples, seed=1))


def task_seconds(cluster: Cluster, samples: int = 32) -> np.ndarray:
    """Mean time of each worker's task."""
    seconds = np.array(cluster.overhead_seconds) + samples / np.array(cluster.samples_per_second)
    for each in cluster.stragglers:
        slow = range(cluster.num_workers) if each.workers is None else each.workers
        seconds[list(slow)] *= 1 + each.fraction * (each.slowdown - 1)
    return seconds


@cache
def rate(policy: str, cluster: Cluster) -> float:
    return metrics.updates_per_second(dml.simulate(POLICIES[policy], cluster, updates=2000, seed=7))


@pytest.mark.parametrize("name", CALM)
def test_task_times_and_latencies_come_back(name):
    cluster, found = CALM[name], calibrated("calm", name, "asp")
    trace = dml.simulate(asp(), cluster, samples=32 * TASKS, seed=1)
    counts = trace.tasks["worker"].value_counts().sort_index().to_numpy()
    spread = 0.0 if cluster.jitter is None else cluster.jitter.std()
    error = np.abs(task_seconds(found) / task_seconds(cluster) - 1)
    assert (error < 4 * spread / np.sqrt(counts) + 1e-6).all()  # four standard errors of a mean
    np.testing.assert_allclose(found.latency_seconds, cluster.latency_seconds, rtol=0.1, atol=1e-12)
    assert not found.stragglers


# By default each cluster, each policy that was recorded and each that is predicted; further pairs of them.
PAIRS = [(name, "asp", target) for name in CALM for target in ("bsp", "ssp", "k_sync")]
PAIRS += [(name, "bsp", "asp") for name in CALM]
PAIRS += [(name, "k_sync", "bsp") for name in ("exponential", "gamma")]
PREDICTED = [
    *PAIRS[:18:4],
    ("lock_step", "asp", "k_sync"),
    ("gamma", "bsp", "asp"),
    ("gamma", "k_sync", "bsp"),
]
FURTHER = [each for each in PAIRS if each not in PREDICTED]


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [*PREDICTED, *(pytest.param(*each, marks=pytest.mark.full) for each in FURTHER)],
)
def test_other_policies_are_predicted(name, source, target):
    assert rate(target, calibrated("calm", name, source)) == pytest.approx(rate(target, CALM[name]), rel=0.05)


@pytest.mark.parametrize("target", ["bsp", "ssp", "k_sync"])
@pytest.mark.parametrize("name", EPISODES)
def test_other_policies_are_predicted_with_slow_episodes(name, target):
    found = calibrated("episodes", name, "asp")
    assert rate(target, found) == pytest.approx(rate(target, EPISODES[name]), rel=0.15)


def test_slow_episodes_are_found():
    (found,), (true,) = (x.stragglers for x in (calibrated("episodes", "mixed", "asp"), MIXED))
    assert found.slowdown == pytest.approx(true.slowdown, rel=0.1)
    assert found.fraction == pytest.approx(true.fraction, rel=0.3)  # of some 200 episodes
    assert found.mean_tasks == pytest.approx(true.mean_tasks, rel=0.3)
    assert found.workers is None


def test_slow_episodes_of_one_worker_are_found():
    cluster = Cluster.uniform(4, jitter=GAMMA).with_stragglers(4, fraction=0.3, mean_tasks=8, workers=[2])
    (found,) = dml.calibrate(dml.simulate(bsp(), cluster, updates=600)).stragglers
    assert found.workers == (2,)
    assert found.slowdown == pytest.approx(4, rel=0.15)


def test_cancelled_tasks_count():
    """With K = 2 of 8 only the fastest quarter of the tasks ends."""
    cluster = Cluster.uniform(8, jitter=GAMMA)
    trace = dml.simulate(k_sync(2), cluster, updates=1000)
    ended = trace.tasks[trace.tasks["push_end"].notna()]
    naive = (ended["compute_end"] - ended["compute_start"]).mean()
    true = task_seconds(cluster)[0]
    assert naive < 0.7 * true
    assert task_seconds(dml.calibrate(trace)).mean() == pytest.approx(true, rel=0.03)


def test_overhead_is_told_from_speed_where_sizes_vary():
    cluster = CALM["mixed"]
    found = dml.calibrate(dml.simulate(asp(), cluster, updates=6000, load=GROWING, seed=1))
    assert sum(found.overhead_seconds) == pytest.approx(sum(cluster.overhead_seconds), rel=0.15)
    np.testing.assert_allclose(found.samples_per_second, cluster.samples_per_second, rtol=0.06)


def test_overhead_is_in_the_speed_where_sizes_do_not_vary():
    cluster = Cluster.uniform(4, overhead=0.01)
    found = dml.calibrate(dml.simulate(bsp(), cluster, updates=10, load=UNEQUAL))
    assert not any(found.overhead_seconds)
    for worker in range(4):
        size = 8 << worker
        assert task_seconds(found, size)[worker] == pytest.approx(task_seconds(cluster, size)[worker])


def test_multipliers_of_no_law_come_back_as_quantiles():
    two = Cluster.uniform(4, jitter=lambda u: np.where(u < 0.8, 0.5, 3.0))
    found = dml.calibrate(dml.simulate(asp(), two, updates=4000))
    assert found.jitter(np.array([0.1, 0.7, 0.9])) == pytest.approx([0.5, 0.5, 3], rel=0.15)
    assert found.describe()["jitter"] == "empirical"
    assert rate("bsp", found) == pytest.approx(rate("bsp", two), rel=0.05)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30).filter(lambda values: sum(values) > 1e-3))
def test_empirical_multipliers_have_mean_1(values):
    seen = np.sort(values)
    jitter = Empirical.of(stats.ecdf(seen).cdf)
    assert jitter((np.arange(100_000) + 0.5) / 100_000).mean() == pytest.approx(1, rel=1e-3)


# A fit to a few updates may be far off, and says so.
@pytest.mark.filterwarnings("ignore:calibrate. simulated on the fitted cluster")
@pytest.mark.filterwarnings("ignore:calibrate. the fitted laws miss")
@settings(max_examples=5)
@example(policy="mindflayer", seed=0, updates=10, load=GROWING)
@example(policy="dssp", seed=588, updates=18, load=None)
@given(
    policy=st.sampled_from(sorted(ALL_POLICIES)),
    seed=st.integers(0, 1000),
    updates=st.integers(1, 40),
    load=st.sampled_from([None, UNEQUAL, GROWING]),
)
def test_any_trace_gives_a_cluster_or_names_the_worker(policy, seed, updates, load):
    trace = simulate(ALL_POLICIES[policy](), MIXED, updates=updates, seed=seed, load=load)
    finished = trace.tasks.loc[trace.tasks["push_end"].notna(), "worker"].nunique()
    error = None
    try:
        found = dml.calibrate(trace)
    except ValueError as raised:
        error = str(raised)
    if error is not None:
        assert re.match(r"trace, worker \d: expected at least one finished task", error)
        assert finished < MIXED.num_workers
        return
    # Also where a task was computed whose push was still under way at the end.
    json.dumps(found.describe(), allow_nan=False)
    dml.simulate(bsp(), found, updates=5)


def test_wrong_arguments():
    with pytest.raises(
        ValueError, match=r"trace: expected a DataFrame, or the path of a log .*, got 'trace'"
    ):
        dml.calibrate("trace")
    trace = dml.simulate(asp(), Cluster.from_speeds([1000, 1]), updates=5)
    with pytest.raises(
        ValueError, match=r"trace, worker 1: expected at least one finished task.*, got none; try recording"
    ):
        dml.calibrate(trace)
    still = trace.tasks.assign(compute_end=trace.tasks["compute_start"])
    with pytest.raises(ValueError, match="trace, worker 0: "):
        dml.calibrate(Trace(still, trace.updates, trace.metadata))


@pytest.mark.parametrize(("law", "scipy_law"), [(0, stats.gamma), (1, stats.lognorm), (2, stats.weibull_min)])
def test_one_worker_is_fitted_as_by_scipy(law, scipy_law):
    drawn = np.random.default_rng(0).gamma(4, 0.5, 300)
    whole = drawn < 2.5
    seconds = np.minimum(drawn, 2.5)
    make, low, high = LAWS[law]
    times = Times(seconds, whole, np.zeros(300, int))
    (shape,), mean = maximise(
        lambda shared, mean: loss_of_workers(times, mean, make(shared[0])),
        [(low, 0.0, high)],
        seconds[whole].mean(keepdims=True),
    )
    censored = stats.CensoredData(uncensored=seconds[whole], right=seconds[~whole])
    fitted = scipy_law(*scipy_law.fit(censored, floc=0))
    assert mean[0] == pytest.approx(fitted.mean(), rel=1e-3)
    assert mean[0] * make(shape).std() == pytest.approx(fitted.std(), rel=1e-3)


SECONDS = (0.0003, 0.0005, 0.0002)  # a push, an update, a pull
SERVER = {"seconds_per_push": 0.0003, "seconds_per_update": 0.0005, "seconds_per_pull": 0.0002}


class TestServer:
    """What the server takes comes back from pushes that waited, or it is said that this cannot be told."""

    BASE = Cluster.uniform(4, samples_per_second=3200, jitter=GAMMA)

    @staticmethod
    def traces(cluster, policies=("asp", "bsp", "ssp")):
        return [simulate(POLICIES[name], cluster, samples=32 * 2000, seed=3) for name in policies]

    @pytest.mark.parametrize("workers", [4, 8, 16])
    @pytest.mark.parametrize("latency", [0.0, 0.002])
    def test_comes_back(self, workers, latency):
        """Within four standard errors, which are no larger than a tenth of the whole."""
        cluster = dataclasses.replace(self.BASE, latency_seconds=(latency,) * 4).resized(workers)
        found = dml.service_times(*self.traces(cluster.with_server(**SERVER, jitter=GAMMA)))
        assert (np.abs(found["seconds"] - SECONDS) < 4 * found["standard_error"]).all()
        assert (found["standard_error"] < sum(SECONDS) / 10).all()

    @pytest.mark.parametrize("workers", [4, 16])
    def test_the_times_of_fixed_service_are_exact(self, workers):
        found = dml.service_times(*self.traces(self.BASE.resized(workers).with_server(**SERVER)))
        np.testing.assert_allclose(found["seconds"], SECONDS, rtol=1e-6)

    def test_asp_alone_does_not_tell_pushes_from_updates(self):
        """Each push makes an update: what both take is counted with the update."""
        cluster = self.BASE.with_server(seconds_per_push=0.0008, seconds_per_pull=0.0002)
        found = dml.service_times(*self.traces(cluster, ["asp"]))
        # The first pulls, which are answered one after the other, tell what a pull takes.
        assert found["seconds"].tolist() == pytest.approx([0.0, 0.0008, 0.0002], rel=0.01)
        assert found["standard_error"].isna().tolist() == [True, False, False]

    def test_a_hang_does_not_hide_what_a_pull_takes(self):
        cluster = self.BASE.with_server(seconds_per_push=0.0008, seconds_per_pull=0.0002)
        calm = simulate(POLICIES["bsp"], cluster, updates=1000).tasks.set_index(["worker", "clock"])
        pulling = calm.loc[(0, 50), "pull_start"] + 1e-4
        hangs = cluster.with_faults(dml.faults.Hang(worker=0, time=pulling, seconds=0.5), patience=9)
        trace = simulate(POLICIES["bsp"], hangs, updates=1000)
        assert (trace.tasks["compute_start"] - trace.tasks["pull_start"]).max() > 0.5
        assert dml.service_times(trace)["seconds"]["pull"] == pytest.approx(0.0002, rel=0.01)

    @pytest.mark.parametrize("policy", ["asp", "bsp", "ssp", "k_sync"])
    def test_updates_of_a_virtual_clock_are_seen(self, policy):
        """Since they are later than their pushes; what is read of cancelled tasks is not taken for them."""
        server = {"seconds_per_push": 0.004, "seconds_per_update": 0.003, "seconds_per_pull": 0.002}
        cluster = Cluster.uniform(8, jitter=stats.expon()).with_server(**server)
        trace = simulate(POLICIES[policy], cluster, updates=1000)
        np.testing.assert_allclose(dml.service_times(trace)["seconds"], [0.004, 0.003, 0.002], rtol=0.03)
        if policy != "k_sync":  # of whose tasks two of eight end: the longest are never seen
            assert rate("bsp", dml.calibrate(trace)) == pytest.approx(rate("bsp", cluster), rel=0.05)

    @pytest.mark.parametrize("workers", [4, pytest.param(16, marks=pytest.mark.full)])  # above there are 16
    @pytest.mark.parametrize("latency", [0.002, 0.01])
    @pytest.mark.parametrize("law", [GAMMA, stats.expon()], ids=["gamma", "expon"])
    def test_links_that_vary_are_no_server(self, workers, latency, law):
        cluster = dataclasses.replace(self.BASE, latency_seconds=(latency,) * 4, latency_jitter=law)
        traces = self.traces(cluster.resized(workers))
        assert dml.service_times(*traces)["seconds"].isna().all()
        assert dml.calibrate(*traces).server is None

    def test_an_idle_server_is_said_to_be_one(self):
        cluster = self.BASE.resized(2).with_server(seconds_per_push=1e-7)
        with pytest.warns(UserWarning, match=r"calibrate: \d+ of \d+ pushes seem to have waited, too few"):
            found = dml.calibrate(*self.traces(cluster, ["asp"]))
        assert found.server is None

    @pytest.mark.parametrize("workers", [4, 16, 48])
    @pytest.mark.parametrize("policy", POLICIES)
    def test_more_workers_are_predicted(self, policy, workers):
        """From 4 workers under two policies, on which the server is idle for five sixths of the time."""
        true = self.BASE.with_server(**SERVER, jitter=GAMMA)
        found = calibrated_with_server()
        rates = [
            metrics.updates_per_second(simulate(POLICIES[policy], each.resized(workers), samples=32 * 4000))
            for each in (found, true)
        ]
        assert rates[0] == pytest.approx(rates[1], rel=0.08)

    def test_links_and_speeds_come_back_besides(self):
        cluster = dataclasses.replace(self.BASE, latency_seconds=(0.002,) * 4).with_server(**SERVER)
        found = dml.calibrate(*self.traces(cluster))
        np.testing.assert_allclose(found.latency_seconds, 0.002, rtol=0.03)
        np.testing.assert_allclose(found.samples_per_second, 3200, rtol=0.05)

    def test_traces_of_other_machines_are_refused(self):
        one, two = (simulate(asp(), self.BASE.resized(n), updates=50) for n in (2, 3))
        with pytest.raises(ValueError, match=r"traces: expected .*, got traces of 2 and 3 workers"):
            dml.calibrate(one, two)
        with pytest.raises(ValueError, match="traces: expected"):
            dml.service_times()
        assert dml.service_times(simulate(asp(), self.BASE, updates=1))["seconds"].isna().all()


class TestPrediction:
    """A fitted cluster is held against the traces that it was fitted to."""

    @pytest.mark.parametrize(
        ("kind", "policies"),
        [
            ("latency", ["asp", "bsp"]),
            ("server", ["asp", "bsp"]),
            ("server", ["ssp", "k_sync"]),
            ("episodes", ["asp"]),
        ],
    )
    def test_what_can_be_fitted_is_predicted(self, kind, policies):
        """Warnings are errors here: there is none; and the cluster says how well it predicts."""
        base = TestServer.BASE.resized(8)
        cluster = {
            "latency": dataclasses.replace(base, latency_seconds=(0.002,) * 8),
            "server": base.with_server(**SERVER),
            "episodes": EPISODES["episodes"],
        }[kind]
        traces = TestServer.traces(cluster, policies)
        found = dml.calibrate(*traces)
        errors = dml.prediction_errors(found, *traces)
        assert (errors["error"].abs() < 0.05 + 3 * errors["spread"]).all()
        assert errors["policy"].tolist() == [POLICIES[name].name for name in policies]
        shares = [
            f"{1 + error:.2f}x the updates/s of {name}" for name, error in errors[["policy", "error"]].values
        ]
        assert found.fitted.startswith(f"predicts {', '.join(shares)}")
        for other in (found.resized(16), found.with_server(seconds_per_push=1.0), found.with_stragglers(2.0)):
            assert not other.fitted, "of another cluster nothing is known"
        assert shares[0] in found._repr_html_()
        assert dml.prediction_errors(found, *traces).equals(errors)

    def test_a_shared_link_is_warned_of(self):
        """Shared equally, transfers under way slow each other down: no processor with a queue does that."""
        cluster = TestServer.BASE.resized(8).with_server(bandwidth=4e5, sharing="fair")
        traces = [
            simulate(POLICIES[name], cluster, samples=32 * 1000, parameter_bytes=1000, seed=3)
            for name in ("asp", "bsp")
        ]
        with pytest.warns(UserWarning, match="calibrate: simulated on the fitted cluster") as caught:
            found = dml.calibrate(*traces)
        message = str(caught[-1].message)
        errors = dml.prediction_errors(found, *traces)
        worst = errors.loc[errors["error"].abs().idxmax()]
        assert abs(worst["error"]) > 0.15
        assert f"{worst['policy']} makes {abs(worst['error']):.0%} " in message
        assert "workers share the server's link, which is not fitted" in message
        assert str(round(1 + worst["error"], 2)) in found.fitted

    def test_messages_of_different_sizes_are_told(self):
        cluster = Cluster.uniform(4, samples_per_second=3200, bandwidth=1e6, jitter=GAMMA)
        one = simulate(POLICIES["asp"], cluster, updates=800, parameter_bytes=4000)
        two = simulate(POLICIES["bsp"], cluster, updates=200, parameter_bytes=40_000)
        with pytest.warns(UserWarning, match="the traces' messages are of different sizes, and one latency"):
            dml.calibrate(one, two)

    def test_contention_of_a_recording_is_warned_of(self):
        """Times depend on the policy: where all compute at once, under BSP, they do so at half the speed."""
        fast, slow = (Cluster.uniform(4, samples_per_second=speed, jitter=GAMMA) for speed in (3200, 1600))
        logs = [simulate(POLICIES["asp"], fast, updates=2000), simulate(POLICIES["bsp"], slow, updates=500)]
        traces = []
        for log in logs:
            known = {name: value for name, value in log.metadata.items() if name != "cluster"}
            traces.append(Trace(log.tasks, log.updates, known))
        with (
            pytest.warns(UserWarning, match="the fitted laws miss .*; whole rounds are drawn instead"),
            pytest.warns(UserWarning, match=r"asp\(\) makes \d\d% fewer .*, which is not fitted\. Pred"),
        ):
            dml.calibrate(*traces)

    def test_what_cannot_be_simulated_is_not_compared(self):
        cluster = TestServer.BASE
        mine = simulate(asp()._replace(name="mine()"), cluster, updates=200)
        short = simulate(asp(), cluster, updates=5)
        watches = simulate(ALL_POLICIES["pflug"](), cluster, updates=100)
        crash = cluster.with_faults(dml.faults.Hang(worker=0, time=0.1, seconds=0.1), patience=9)
        errors = dml.prediction_errors(cluster, mine, short, watches, simulate(bsp(), crash, updates=100))
        assert errors["error"].isna().all()
        assert "updates/s" not in dml.calibrate(mine).fitted

    def test_other_clusters_are_compared_too(self):
        """Of more workers, as long as trace and cluster have as many."""
        measured = simulate(asp(), TestServer.BASE.resized(16), updates=2000)
        assert dml.prediction_errors(TestServer.BASE.resized(16), measured)["error"].abs()[0] < 0.05
        with pytest.raises(ValueError, match="trace: expected a trace of 4 workers, got 16"):
            dml.prediction_errors(TestServer.BASE, measured)


@cache
def calibrated_with_server() -> Cluster:
    true = TestServer.BASE.with_server(**SERVER, jitter=GAMMA)
    return dml.calibrate(*TestServer.traces(true, ["asp", "bsp"]))
