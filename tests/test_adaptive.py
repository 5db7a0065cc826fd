"""K-sync whose k and batch size change: along schedules, and by what it sees of its training."""

import math

import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, LOCK_STEP, MIXED
from engine_runs import plane, relative_error, same_bits, same_timeline
from watched import simulate

import dmlcore as dml
from dmlcore import theory
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.jitter import SizedJitter
from dmlcore.trace import metrics
from dmlcore.types import Observation

KNOWN = theory.Constants(learning_rate=0.05, smoothness=2.0, strong_convexity=1.0, gradient_variance=10.0)
LAWS = {
    "exponential": theory.exponential(1.0, 40.0),
    "erlang": theory.erlang(1.0, 40.0),
    "shifted": theory.shifted(1.0, 80.0, 0.0125),
}
SGD = optax.sgd(0.1)


# Schedules


def test_with_the_batch_size_fixed_the_joint_scheme_is_adaptive_k():
    """One greedy over (k, b), one theorem over k alone: the same run, to the last bit."""
    mu, size = theory.mean_round(LAWS["exponential"], 10, [16]), 16
    joint = theory.greedy_schedule(mu, [size], KNOWN, 50.0)
    times = theory.switching_times(mu[:, 0], KNOWN, size, 50.0)
    phases = [(time, k + 1, size) for k, time in enumerate([0.0, *times])]
    cluster, problem = dml.Cluster.from_response(10, LAWS["exponential"]), plane()
    runs = [
        dml.train(problem, cluster, dml.k_sync_schedule(each), SGD, seconds=1.2 * times[-1], seed=3)
        for each in ([phase[:3] for phase in joint.phases], phases)
    ]
    assert runs[0].trace.updates["num_tasks"].nunique() == 10
    assert same_timeline(runs[0].trace, runs[1].trace)
    assert same_bits(runs[0].params, runs[1].params)


@pytest.mark.parametrize("cluster", [EXPONENTIAL, MIXED, LOCK_STEP])
def test_limits_of_a_schedule(cluster):
    def run(policy):
        return dml.train(plane(), cluster, policy, SGD, updates=60, seed=1)

    for one, two in (
        ([(0, 4)], dml.bsp()),
        ([(0, 4, 32)], dml.bsp()),
        ([(0, 2)], dml.k_sync(2)),
        ([(0, 2), (1e9, 4)], dml.k_sync(2)),
    ):
        left, right = run(dml.k_sync_schedule(one)), run(two)
        assert same_timeline(left.trace, right.trace)
        assert same_bits(left.params, right.params)


def test_a_round_has_the_k_and_batch_size_of_when_it_began():
    phases = [(0.0, 1, 8), (0.5, 3, 16), (1.0, 2, 4)]
    trace = dml.simulate(dml.k_sync_schedule(phases), EXPONENTIAL, seconds=2.0, seed=0)
    began = np.append(0.0, trace.updates["time"].to_numpy()[:-1])
    which = np.searchsorted([start for start, *_ in phases], began, side="right") - 1
    assert set(which) == {0, 1, 2}
    assert trace.updates["num_tasks"].tolist() == [phases[i][1] for i in which]
    assert trace.updates["samples"].tolist() == [math.prod(phases[i][1:]) for i in which]
    twice = dml.simulate(dml.k_sync_schedule([(0, 1, 8), (0, 2, 16)]), EXPONENTIAL, updates=1)
    assert twice.updates["samples"].tolist() == [32]


def test_rows_of_a_long_schedule_have_shapes_of_their_own():
    """So that a phase of few samples does not cost what one of many does; the parameters stay the same."""
    from reference import replay_reference

    from dmlcore.training.program import compile_trace

    policy = dml.k_sync_schedule([(0, 1, 1), (0.2, 2, 16), (1.5, 4, 40)])
    run = dml.train(plane(), EXPONENTIAL, policy, SGD, seconds=4.0, seed=0)
    assert [stretch[1:] for stretch in compile_trace(run.trace).stretches] == [(1, 8), (2, 16), (4, 40)]
    assert relative_error(run.params, replay_reference(run.trace, plane(), SGD)) < 1e-5


@pytest.mark.parametrize("law", LAWS)
def test_rounds_take_as_long_as_the_theory_says(law):
    """A cluster made of a law of answers: mu(k, b) within 2%."""
    cluster = dml.Cluster.from_response(12, LAWS[law])
    mu = theory.mean_round(LAWS[law], 12, [1, 16])
    for k, b in ((1, 16), (6, 1), (12, 16)):
        trace = dml.simulate(dml.k_sync_schedule([(0, k, b)]), cluster, updates=3000, seed=5)
        assert trace.end_time / 3000 == pytest.approx(mu[k - 1, [1, 16].index(b)], rel=0.02)


def test_jitter_by_size_draws_the_same_luck_for_every_size():
    law = LAWS["erlang"]
    draws = Draws(dml.Cluster.from_response(3, law), seed=2)
    assert "erlang" in repr(draws.cluster)
    assert "shifted" in repr(dml.Cluster.from_response(3, LAWS["shifted"]))
    one, many = (np.array([draws.compute_seconds(1, c, b) for c in range(200)]) for b in (1, 32))
    assert (np.argsort(one) == np.argsort(many)).all()
    assert many.mean() == pytest.approx(32 / 40, rel=0.05)
    assert np.std(many) / many.mean() < np.std(one) / one.mean() / 4
    jitter = SizedJitter("mine", lambda b: lambda uniform: np.full_like(uniform, np.nan))
    with pytest.raises(ValueError, match=r"jitter of 32 samples of worker 0, clock 0: expected .*, got nan"):
        dml.simulate(dml.bsp(), dml.Cluster.uniform(2, jitter=jitter), updates=1)


def test_a_link_may_be_slow_one_way_only():
    cluster = dml.Cluster.uniform(2, latency=0.5, pull_latency=0.0)
    task = dml.simulate(dml.bsp(), cluster, updates=1).tasks.iloc[0]
    assert task["compute_start"] == task["pull_start"]
    assert task["push_end"] - task["compute_end"] == pytest.approx(0.5)
    down = dml.Cluster.uniform(2, pull_latency=0.5)
    task = dml.simulate(dml.bsp(), down, updates=1).tasks.iloc[0]
    assert task["compute_start"] - task["pull_start"] == pytest.approx(0.5)
    assert "latency 0.5 s down" in repr(down)
    assert down.describe()["pull_latency_seconds"] == 0.5


# Rules


def drive(policy, workers, observations):
    """The k that a policy waits for after each observation."""
    state, found = policy.init(workers), []
    for seen in observations:
        state = policy.on_observation(state, seen)
        found.append(state.k)
    return found


def test_pflug_is_its_pseudo_code():
    rng = np.random.default_rng(0)
    products = rng.normal(size=600) + np.linspace(0.2, -1.5, 600)
    k, count, since, expected = 2, 0, 0, []
    for product in products:  # c: sign changes; one look after each update
        count, since = count + (1 if product < 0 else -1), since + 1
        if count > 3 and since > 40 and k <= 8 - 2:
            k, count, since = k + 2, 0, 0
        expected.append(k)
    seen = [Observation(i, 0.0, 1.0, [k], [k], [1.0], [p]) for i, p in enumerate(products)]
    policy = dml.pflug(2, step=2, most=8, threshold=3, burn_in=40)
    assert drive(policy, 10, seen) == expected
    assert expected[-1] == 8


def test_adasync_solves_its_equation():
    losses = [8.0, 4.0, 2.0, 1.0, 0.1, 0.01, 0.0]
    seen = [Observation(i, 0.0, loss) for i, loss in enumerate(losses)]
    ks = drive(dml.adasync(3), 20, seen)
    for k, loss in zip(ks[:-1], losses[:-1], strict=True):
        wanted = 9 / 17 * 8.0 / loss  # K^2 / (P - K)
        assert (k - 0.5) ** 2 / (20 - k + 0.5) <= wanted <= (k + 0.5) ** 2 / max(20 - k - 0.5, 1e-9)
    assert ks[0] == 3
    assert ks[-1] == 20
    assert drive(dml.adasync(3, batch_async=True), 20, seen) == [3, 4, 6, 8, 20, 20, 20]
    assert drive(dml.adasync(8, batch_async=True), 8, [seen[3], seen[1], seen[3]]) == [8, 4, 8]
    odd = [Observation(i, 0.0, loss) for i, loss in enumerate([-1.0, 2.0, math.inf, math.nan])]
    assert drive(dml.adasync(3, batch_async=True), 20, odd)[-1] == 20


def best_gain(mu, sizes, G, V, q):
    """The (k, b) with the largest gain a second, tried one by one."""
    return max(
        ((G - q * (G + V / (k * b))) / mu[k - 1, i], k, b)
        for k in range(1, len(mu) + 1)
        for i, b in enumerate(sizes)
    )[1:]


def measured(policy, sizes):
    """A state of the policy that has measured how long rounds of five workers take, and these seconds."""
    state, rng = policy.init(5), np.random.default_rng(0)
    state.explore, state.measured_size = 0, sizes[-1]
    state.round_seconds = np.sort(rng.uniform(0.1, 1, (5, 1)), axis=0) + np.linspace(0.1, 1, len(sizes))
    return state


def same(update, count, used, square, product, loss):
    """An observation of `count` updates that are alike."""
    first = 0.0 if update == count else product
    products = [first, *[product] * (count - 1)]
    return Observation(update, 0.0, loss, [5] * count, [used] * count, [square] * count, products)


@pytest.mark.parametrize("count", [1, 10, 1000])  # between two looks; more than are averaged, too
@pytest.mark.parametrize("q", [0.01, 0.2])
def test_by_gain_finds_what_it_measures(q, count):
    """Numbers of a known G, V and q: the choice is the best of the formula."""
    eta, G, V, sizes = 0.1, 4.0, 200.0, [1, 4, 16]
    policy = dml.adaptive_load(eta, sizes)
    state, used = measured(policy, sizes), 5 * 16
    square = G + V / used
    loss, found = 100.0, []
    policy.on_observation(state, Observation(0, 0.0, loss))
    for look in range(1, max(400 // count, 12)):
        state.k, state.batch_size, state.chosen = 5, 16, False  # it is shown the same once more
        loss -= count * eta * (G - q * square)
        policy.on_observation(state, same(look * count, count, used, square, G - 2 * q * square, loss))
        found.append(abs(state.q - q))
    assert found == sorted(found, reverse=True) or max(found[1:]) < 1e-6  # it comes closer at every look
    assert state.q == pytest.approx(q, rel=0.2)
    assert (state.k, state.batch_size) == best_gain(state.round_seconds, sizes, G, V, state.q)


def test_from_gradients_it_never_looks_at_the_loss():
    """The product of successive gradients says what the fall of the loss would, for the q that is assumed."""
    G, V, sizes, q = 4.0, 200.0, [1, 4, 16], 0.05
    policy = dml.adaptive_load(0.1, sizes, estimate_from="gradients")
    state, used = measured(policy, sizes), 5 * 16
    square = G + V / used
    for loss in (1.0, 1e9, -5.0):
        state.k, state.batch_size, state.chosen = 5, 16, False
        seen = Observation(1, 0.0, loss, [5], [used], [square], [G - 2 * q * square])
        policy.on_observation(state, seen)
        assert state.gain == pytest.approx((G - q * square) / square)
        assert (state.k, state.batch_size) == best_gain(state.round_seconds, sizes, G, V, q)


def test_what_has_diverged_is_no_observation():
    for source in ("loss", "gradients"):
        policy = dml.adaptive_load(0.1, [1, 4], estimate_from=source)
        state = measured(policy, [1, 4])
        before = (state.k, state.batch_size)
        policy.on_observation(state, Observation(1, 0.0, math.inf, [5], [20], [math.nan], [math.nan]))
        assert (state.k, state.batch_size, state.gain) == (*before, None)


def test_after_a_look_that_is_left_out_no_fall_reaches_back():
    """The loss fell by 1 during each look: the one with an infinite gradient is neither seen nor counted."""
    policy = dml.adaptive_load(1.0, [1, 4])
    state = measured(policy, [1, 4])
    before = state.known
    policy.on_observation(state, Observation(0, 0.0, 10.0))
    for update, loss, square in ((1, 9.0, 2.0), (2, 8.0, math.inf), (3, 7.0, 2.0)):
        policy.on_observation(state, Observation(update, 0.0, loss, [5], [20], [square], [0.0]))
        assert state.gain == pytest.approx(0.5)
    assert state.known == before  # q needs two looks in a row
    for loss, gain in (
        (math.inf, 0.5),
        (6.0, 0.5),
        (5.0, 0.5),
    ):  # the first finite loss says only where it is
        policy.on_observation(state, Observation(4, 0.0, loss, [5], [20], [2.0], [0.0]))
        assert state.gain == pytest.approx(gain)


def test_from_gradients_an_infinite_loss_is_not_seen():
    policy = dml.adaptive_load(0.1, [1, 4], estimate_from="gradients")
    state = measured(policy, [1, 4])
    policy.on_observation(state, Observation(1, 0.0, math.inf, [5], [20], [2.0], [1.0]))
    assert state.gain is not None


@pytest.mark.parametrize("law", LAWS)
def test_a_law_is_fitted_from_answers(law):
    rng, truth = np.random.default_rng(1), LAWS[law]
    waits = rng.exponential(1.0, 20_000)
    computes = truth.computation(8).rvs(20_000, random_state=rng)
    found = theory.fit_response(law, waits, computes, 8)
    for b in (1, 8, 40):
        np.testing.assert_allclose(
            theory.mean_round(found, 6, [b]), theory.mean_round(truth, 6, [b]), rtol=0.03
        )


def test_a_small_grid_is_walked_step_by_step():
    """Where no k b is within a factor of 2, the next one is."""
    policy = dml.adaptive_load(0.1, [1, 100], estimate_from="gradients")
    state = policy.init(2)
    state.explore, state.chosen = 0, True
    (state.k, state.batch_size), state.round_seconds = (2, 1), np.array([[0.1, 1.0], [0.2, 1.005]])
    for wanted in ((1, 100), (2, 100), (2, 100)):
        seen = Observation(1, 0.0, 1.0, [2], [2], [1.0], [-0.1])  # all noise
        policy.on_observation(state, seen)
        assert (state.k, state.batch_size) == wanted


@pytest.mark.full  # test_adaptive_k_load has such comparisons, every tenth by default
@pytest.mark.parametrize("source", ["loss", "gradients"])
def test_online_needs_fewer_samples_and_less_time_than_waiting_for_all(source):
    """Against waiting for all at full load, on the group's data: to the same excess loss."""
    problem = dml.problems.linear_regression(num_features=20, standardize=True)
    cluster = dml.Cluster.from_response(10, LAWS["exponential"])
    methods = {"online": dml.adaptive_load(0.05, [4, 16, 40], estimate_from=source), "all": dml.bsp()}
    options = {"seeds": range(2), "seconds": 600.0, "batch_size": 40, "eval_every": 1}
    runs = dml.compare(methods, problem, cluster, optax.sgd(0.05), **options)
    for column in ("time", "assigned_samples"):
        needed = metrics.time_to(runs, "loss", problem.optimum + 0.05, column=column)
        assert (needed["online"] < 0.7 * needed["all"]).all()


WRONG = {
    "phases, starts: expected": lambda: dml.k_sync_schedule([(1, 2)]),
    r"phases, batch sizes: expected .*, got \[None, 8\]": lambda: dml.k_sync_schedule([(0, 2), (1, 2, 8)]),
    "phases: expected .*, got 3": lambda: dml.k_sync_schedule(3),
    r"phases\[0\]: expected \(start, k\).*, got 3": lambda: dml.k_sync_schedule([3, 4]),
    r"phases\[0\]: expected .*, got \(0, 2, 3, 4\)": lambda: dml.k_sync_schedule([(0, 2, 3, 4)]),
    "batch_sizes: expected .*, got 8": lambda: dml.adaptive_load(0.1, 8),
    "batch_sizes: expected .*, got \\[\\]": lambda: theory.mean_round(LAWS["erlang"], 3, []),
    "survival: expected .*, got 1 at": lambda: theory.kth_of(lambda t: 1.0, 3, 1.0),
    "round_seconds: expected": lambda: theory.switching_times([0.3, 0.2, 0.1], KNOWN, 10, 100.0),
    r"phases\[1\], k: expected .*, got 0": lambda: dml.k_sync_schedule([(0, 2), (1, 0)]),
    r"phases\[0\], batch size: expected .*, got 0": lambda: dml.k_sync_schedule([(0, 2, 0)]),
    "k: expected .*number of workers.*, got 9": lambda: dml.simulate(
        dml.k_sync_schedule([(0, 9)]), LOCK_STEP, updates=1
    ),
    "policy: expected one that watches no training.*, got pflug": lambda: dml.simulate(
        dml.pflug(), LOCK_STEP, updates=1
    ),
    "law: expected .*, got 'normal'": lambda: dml.dbw(0.1, law="normal"),
    "explore: expected .*, got 1": lambda: dml.dbw(0.1, explore=1),
    "learning_rate: expected .*, got 0": lambda: dml.adaptive_load(0, [1]),
    "estimate_from: expected .*, got 'guess'": lambda: dml.adaptive_load(0.1, [1], estimate_from="guess"),
    "batch_sizes: expected": lambda: dml.adaptive_load(0.1, []),
    "most: expected .*, got 1": lambda: dml.pflug(2, most=1),
    "k: expected .*, got 4": lambda: simulate(dml.adasync(4), LOCK_STEP, updates=1),
    "pull_latency: expected .*, got -1": lambda: dml.Cluster.uniform(2, pull_latency=-1),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_one_clear_error(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()
