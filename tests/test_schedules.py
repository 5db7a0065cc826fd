"""Order statistics, error bounds and the schedules made of them, before anything runs."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlcore import theory

KNOWN = theory.Constants(learning_rate=0.001, smoothness=2.0, strong_convexity=1.0, gradient_variance=10.0)
LOADS = [1, 2, 4, 8, 16, 32, 40]
# The mean computation of 40 samples takes a second.
LAWS = {
    "exponential": lambda communication: theory.exponential(1 / communication, 40.0),
    "erlang": lambda communication: theory.erlang(1 / communication, 40.0),
    "shifted": lambda communication: theory.shifted(1 / communication, 80.0, 0.0125),
}


@pytest.mark.parametrize("communication", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("law", LAWS)
def test_survival_is_that_of_what_is_drawn(law, communication):
    response = LAWS[law](communication)
    for b in (1, 8, 40):
        drawn = response.sample(b, (200_000,), np.random.default_rng(0))
        assert drawn.mean() == pytest.approx(response.mean(b), rel=0.01)
        levels = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
        np.testing.assert_allclose(response.survival(np.quantile(drawn, 1 - levels), b), levels, rtol=0.06)


@pytest.mark.parametrize("make", [theory.exponential, theory.erlang, lambda x, y: theory.shifted(x, y, 0.1)])
def test_without_communication_and_with_equal_rates(make):
    """The limits of the closed forms: infinite rates, and stages that are equally fast."""
    times = np.linspace(0, 3, 50)
    alone = make(math.inf, 4.0)
    np.testing.assert_allclose(alone.survival(times, 3), alone.computation(3).sf(times), atol=1e-12)
    for b, y in ((1, 4.0), (3, 4.0), (3, 12.0)):
        equal, near = make(4.0, y), make(4.0 * (1 + 1e-7), y)
        np.testing.assert_allclose(equal.survival(times, b), near.survival(times, b), atol=1e-6)


@pytest.mark.parametrize("n", [5, 10, 50, 200])
@pytest.mark.parametrize("law", LAWS)
def test_mean_round_against_monte_carlo(law, n):
    response, rng = LAWS[law](1.0), np.random.default_rng(n)
    for b in (1, 40):
        drawn = np.mean([np.sort(response.sample(b, (1000, n), rng)).mean(0) for _ in range(40)], axis=0)
        np.testing.assert_allclose(theory.mean_round(response, n, [b])[:, 0], drawn, rtol=0.01)


@pytest.mark.parametrize("n", [1, 2, 50, 200, 1000])
def test_order_statistics_of_exponential_times(n):
    expected = np.cumsum(1 / np.arange(n, 0, -1)) / 3.0
    np.testing.assert_allclose(theory.kth_of(lambda t: math.exp(-3 * t), n, 1 / 3), expected, rtol=1e-7)


def test_switching_times_of_the_unit_test():
    mu = np.cumsum(1 / np.arange(5, 0, -1)) / 5
    found = theory.switching_times(mu, KNOWN, 10, 100.0)
    np.testing.assert_allclose(found, [496.92, 621.62, 793.65, 1102.52], atol=0.005)


@st.composite
def problems(draw):
    number = st.floats(0.01, 10)
    constants = theory.Constants(draw(st.floats(1e-4, 0.1)), draw(number), draw(number), draw(number))
    assume(constants.learning_rate * constants.strong_convexity < 0.5)
    n = draw(st.integers(2, 12))
    mu = np.cumsum(1 / np.arange(n, 0, -1)) * draw(number)
    b = draw(st.integers(1, 100))
    error = theory.floor(constants, 1, b) * draw(st.floats(20, 1e6))
    return constants, mu, b, float(error)


@given(problems())
@settings(max_examples=300)
def test_at_a_switch_the_bound_falls_as_fast_with_one_worker_more(problem):
    """The condition that the theorem solves: (E - phi_k) / mu_k = (E - phi_(k+1)) / mu_(k+1)."""
    constants, mu, b, error = problem
    alpha, before = theory.decay(constants), 0.0
    for k, time in enumerate(theory.switching_times(mu, constants, b, error), start=1):
        here, after = (theory.floor(constants, k + more, b) for more in (0, 1))
        error = here + (error - here) * math.exp(-alpha * (time - before) / mu[k - 1])
        slopes = (error - here) / mu[k - 1], (error - after) / mu[k]
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-6) or time == before
        before = time


@given(problems())
@settings(max_examples=300)
def test_with_one_batch_size_the_schedule_is_the_theorem(problem):
    constants, mu, b, error = problem
    times = theory.switching_times(mu, constants, b, error)
    schedule = theory.greedy_schedule(mu[:, None], [b], constants, error)
    assert [phase.k for phase in schedule.phases] == list(range(1, len(mu) + 1))
    np.testing.assert_allclose([phase.start for phase in schedule.phases[1:]], times, rtol=1e-6)


@given(problems(), st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True), st.floats(0.01, 10))
@settings(max_examples=200)
def test_no_option_falls_faster_than_the_one_that_runs(problem, loads, communication):
    constants, mu, _, error = problem
    table = mu[:, None] * np.array(loads) / 10 + communication
    schedule = theory.greedy_schedule(table, loads, constants, error)
    phi = theory.floor(constants, np.arange(1, len(mu) + 1)[:, None], np.array(loads))
    for phase, after in zip(schedule.phases, schedule.phases[1:], strict=False):
        for level in np.linspace(phase.error, after.error, 7):
            best = ((level - phi) / table).max()
            assert (level - phase.floor) / phase.round_seconds >= best * (1 - 1e-9)
    assert schedule.phases[-1].floor == phi.min()


def bound_level(law, communication):
    table = theory.mean_round(LAWS[law](communication), 50, LOADS)
    joint = theory.greedy_schedule(table, LOADS, KNOWN, 100.0)
    only_k = theory.greedy_schedule(table[:, -1:], LOADS[-1:], KNOWN, 100.0)
    return joint.account(1e-5), only_k.account(1e-5)


@pytest.mark.parametrize("communication", [0.2, 1.0, 5.0])
def test_bound_level_gain_for_exponential_computation(communication):
    """Speed-up 1.14 to 1.18, computation 0.47 to 0.48, uplinks 1.01 to 1.02, as others found."""
    joint, only_k = bound_level("exponential", communication)
    assert 1.13 <= only_k.seconds / joint.seconds <= 1.185
    assert 0.465 <= joint.assigned_samples / only_k.assigned_samples <= 0.485
    assert 1.005 <= joint.uplinks / only_k.uplinks <= 1.025


@pytest.mark.parametrize("law", ["erlang", "shifted"])
def test_bound_level_gain_is_larger_where_computation_is_surer(law):
    """And then it takes more communication."""
    for communication in (0.2, 1.0, 5.0):
        joint, only_k = bound_level(law, communication)
        assert only_k.seconds / joint.seconds > 1.3
        assert joint.assigned_samples / only_k.assigned_samples < 0.4
        assert joint.uplinks / only_k.uplinks > 1.05


def test_accounts_add_up():
    schedule = theory.greedy_schedule(np.array([[0.1, 0.2], [0.3, 0.6]]), [1, 2], KNOWN, 100.0)
    account = schedule.account(0.003)
    assert schedule.error(account.seconds) == pytest.approx(0.003)
    assert schedule.error(0.0) == 100.0
    assert account.assigned_samples >= account.used_samples
    assert account.downlinks == pytest.approx(2 * account.rounds)
    assert math.isinf(schedule.account(0.002).seconds), "below the lowest floor"
    assert schedule.account(200.0).seconds == 0


WRONG = {
    "learning_rate: expected a number < 1.*, got 2.0": lambda: theory.greedy_schedule(
        np.ones((2, 1)), [1], KNOWN._replace(learning_rate=2.0), 1.0
    ),
    "round_seconds, shape: expected": lambda: theory.greedy_schedule(np.ones((2, 3)), [1], KNOWN, 1.0),
    "sample_rate: expected .*, got 0": lambda: theory.erlang(1.0, 0),
    "communication_rate: expected .*, got nan": lambda: theory.exponential(math.nan, 1.0),
    "batch_sizes: expected .*, got 0": lambda: theory.mean_round(theory.erlang(1.0, 1.0), 2, [0]),
    "target: expected .*, got 0": lambda: theory.fixed_schedule(1.0, 2, 1, 1, KNOWN, 1.0).account(0),
    "learning_rate: expected a number < 1.*, got 3.0": lambda: theory.decay(
        KNOWN._replace(learning_rate=3.0)
    ),
    "smoothness: expected .*, got nan": lambda: theory.floor(KNOWN._replace(smoothness=math.nan), 1, 1),
    "k, batch_size: expected": lambda: theory.floor(KNOWN, [0, 1], 8),
    "k: expected .*, got 5": lambda: theory.fixed_schedule(1.0, 4, 5, 8, KNOWN, 1.0),
    "round_seconds: expected .*, got nan": lambda: theory.fixed_schedule(math.nan, 4, 2, 8, KNOWN, 1.0),
    "error: expected .*, got 0": lambda: theory.fixed_schedule(1.0, 4, 2, 8, KNOWN, 0),
    "seconds: expected .*, got -1": lambda: theory.fixed_schedule(1.0, 4, 2, 8, KNOWN, 1.0).error(-1),
    "communication, computation: expected": lambda: theory.fit_response("erlang", [0.1], [math.nan], 8),
    "uneven: expected .*, got 0.5": lambda: theory.round_speedup(0.5, 1.0, 8),
    "communication: expected .*, got -1": lambda: theory.round_speedup(1.5, -1, 8),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_one_clear_error(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()
