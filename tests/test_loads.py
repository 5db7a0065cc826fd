"""Load rules: what they share out is the batch, within bounds, and ends in balance."""

import copy
import itertools

import jax
import numpy as np
import optax
import pytest
from clusters import CLUSTERS, MIXED, UNEQUAL
from engine_runs import check_counts, plane, relative_error, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import replay_reference
from watched import simulate

import dmlcore as dml
from dmlcore.methods import loads
from dmlcore.methods.loads import LOADS, finish_together, share_out
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training.batches import BATCHES, run_key, task_indices
from dmlcore.training.stepper import Stepper
from dmlcore.types import Push

DYNAMIC = sorted(set(LOADS) - {"equal", "fixed"})
# Rules that promise balance within ten rounds; in samples, a tenth of a percent of their shares is one.
PROMPT = {
    "equal_finish_time": loads.equal_finish_time(),
    "speed_proportional": loads.speed_proportional(),
    "dynamic_batching": loads.dynamic_batching(dead_band=0.02),
}
speed = st.floats(1e-2, 1e4)


@st.composite
def problems(draw):
    """(speeds, total, least, caps, delays) that go together."""
    workers = draw(st.integers(1, 6))
    least = draw(st.integers(1, 5))
    caps = draw(st.lists(st.integers(least, 300), min_size=workers, max_size=workers))
    total = draw(st.integers(workers * least, sum(caps)))
    speeds = draw(st.lists(speed, min_size=workers, max_size=workers))
    delays = draw(st.lists(st.floats(0, 10), min_size=workers, max_size=workers))
    return speeds, total, least, caps, delays


@given(problems())
def test_shares_sum_to_the_batch_within_bounds(given):
    speeds, total, least, caps, delays = given
    sizes = share_out(speeds, total, least=least, caps=caps, delays=delays)
    assert sum(sizes) == total
    assert all(least <= size <= cap for size, cap in zip(sizes, caps, strict=True))


@given(problems())
def test_whoever_is_within_bounds_finishes_at_one_time(given):
    """Nobody who could have fewer finishes after somebody who could have more."""
    speeds, total, least, caps, delays = given
    shares = finish_together(speeds, total, least, caps, delays)
    assert shares.sum() == pytest.approx(total, rel=1e-6)
    times = np.array(delays) + shares / speeds
    could_less, could_more = shares > least + 1e-6, shares < np.array(caps) - 1e-6
    if could_less.any() and could_more.any():
        assert times[could_less].max() <= times[could_more].min() * (1 + 1e-6), (
            "else one would give the other"
        )


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=3),
    st.integers(3, 24),
    st.lists(st.integers(1, 24), min_size=3, max_size=3),
    st.lists(st.floats(0, 3), min_size=3, max_size=3),
)
def test_no_other_shares_finish_much_sooner(speeds, total, caps, delays):
    """Against all ways to share out few samples: the last is done as soon as in the best, up to rounding."""
    workers = len(speeds)
    caps, delays = caps[:workers], delays[:workers]
    if sum(caps) < total:
        with pytest.raises(ValueError, match=r"caps: expected room for.*, got .* in all"):
            share_out(speeds, total, caps=caps, delays=delays)
        return

    def last(sizes):
        return max(o + size / v for o, size, v in zip(delays, sizes, speeds, strict=True))

    ways = itertools.product(*(range(1, cap + 1) for cap in caps))
    best = min(last(sizes) for sizes in ways if sum(sizes) == total)
    sizes = share_out(speeds, total, caps=caps, delays=delays)
    assert best <= last(sizes) <= best + 1 / min(speeds) + 1e-9


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(100, 400),
)
def test_proportional_shares_are_those_of_the_formula(speeds, least, per_worker, cap):
    """b_i = clip(round(B P_i / sum P), b_min, b_max), where these sum to B; else one off, or on a bound."""
    total = max(per_worker, least) * len(speeds)
    state = loads.speed_proportional(least=least, caps=cap)
    sizes = settled(state, speeds, total)
    exact = [total * each / sum(speeds) for each in speeds]
    formula = [min(max(round(each), least), cap) for each in exact]
    assert sum(sizes) == total
    tied = any(each % 1 == 0.5 for each in exact)
    if all(least <= each <= cap for each in exact):
        assert all(abs(size - each) < 1 for size, each in zip(sizes, exact, strict=True))
        assert sum(formula) != total or tied or sizes == formula
    else:
        bound = [each for each in range(len(speeds)) if formula[each] == least > exact[each]]
        assert all(sizes[each] == least for each in bound if sum(formula) >= total)


def settled(load, speeds, total, rounds=3):
    """The sizes after some rounds of workers of these speeds."""
    state = load.init(len(speeds), total)
    for clock in range(rounds):
        asked = [load.size(state, worker) for worker in range(len(speeds))]
        for worker, (samples, each) in enumerate(zip(asked, speeds, strict=True)):
            push = Push(worker, clock, clock, float(clock), samples / each, samples)
            state = load.observe(state, push)
    return [load.size(state, worker) for worker in range(len(speeds))]


def rounds(trace):
    """Of each round of lock-step: compute seconds and sizes of all workers, (rounds, workers)."""
    done = trace.tasks[trace.tasks["update"] >= 0]
    seconds = (done["compute_end"] - done["compute_start"]).groupby([done["clock"], done["worker"]]).sum()
    return seconds.unstack().to_numpy(), done.pivot(
        index="clock", columns="worker", values="batch_size"
    ).to_numpy()


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(PROMPT)),
    speeds=st.lists(st.floats(100, 800), min_size=2, max_size=5),
    factor=st.sampled_from([1 / 8, 1 / 3, 2.0, 8.0]),
)
def test_balance_within_ten_rounds_of_a_change(name, speeds, factor):
    cluster = dml.Cluster.from_speeds(speeds).with_speed_change(factor, clock=11, workers=[0])
    trace = dml.simulate(dml.bsp(), cluster, updates=22, load=PROMPT[name], batch_size=10_000)
    seconds, sizes = rounds(trace)
    assert (sizes.sum(1) == 10_000 * len(speeds)).all()
    spread = np.ptp(seconds, axis=1) / seconds.max(1)
    assert spread[10] < 0.05
    assert spread[11] > 0.2
    assert spread[21] < 0.05


@pytest.mark.parametrize("told", [True, False])
def test_overheads_and_transfers_are_part_of_the_finish(told):
    """Told, balance comes at once; an overhead that is not told passes for slowness, with the same end."""
    overhead = [0.0, 0.1, 0.2, 0.0]
    cluster = dml.Cluster.from_speeds([1000, 2000, 1000, 500], overhead=overhead)
    load = loads.equal_finish_time(overhead=overhead if told else 0.0)
    seconds, _ = rounds(dml.simulate(dml.bsp(), cluster, updates=20, load=load, batch_size=1000))
    spread = np.ptp(seconds, axis=1) / seconds.max(1)
    assert (spread[1 if told else 10 :] < 0.005).all()
    assert told or spread[1] > 0.05
    links = dml.Cluster.from_speeds([1000, 1000], latency=[0.0, 0.25])
    load = loads.equal_finish_time(transfer=[0.0, 0.5])
    trace = dml.simulate(dml.bsp(), links, updates=4, load=load, batch_size=1000)
    arrived = trace.tasks[trace.tasks["update"] == 3]["push_end"]
    assert np.ptp(arrived) < 0.002


def test_a_few_samples_at_most_move_in_lb_bsp():
    """The longest task never gets longer and the shortest never shorter, and the two only trade `step`."""
    cluster = dml.Cluster.from_speeds([1000, 300, 2000, 700, 1500], overhead=0.02)
    for step in (None, 16):
        load = loads.lb_bsp(step=step)
        seconds, sizes = rounds(dml.simulate(dml.bsp(), cluster, updates=120, load=load, batch_size=400))
        assert (np.diff(seconds.max(1)) <= 1e-9).all()
        assert (np.diff(seconds.min(1)) >= -1e-9).all()
        moved = np.abs(np.diff(sizes, axis=0))
        assert (moved.sum(1) % 2 == 0).all()
        assert ((moved > 0).sum(1) <= 2).all()
        assert step is None or moved.max() == step
        assert np.ptp(seconds[-1]) < 0.05 * seconds[-1].max()


def test_a_dead_band_keeps_what_is_near_enough():
    cluster = dml.Cluster.from_speeds([1000, 1040, 980, 1000])
    _, sizes = rounds(dml.simulate(dml.bsp(), cluster, updates=6, load="dynamic_batching", batch_size=1000))
    assert (sizes == 1000).all()
    load = loads.dynamic_batching(dead_band=0.01)
    _, sizes = rounds(dml.simulate(dml.bsp(), cluster, updates=6, load=load, batch_size=1000))
    assert (sizes[0] == 1000).all()
    np.testing.assert_allclose(sizes[1], np.array([1000, 1040, 980, 1000]) / 1.005, atol=1)
    assert (sizes[1:] == sizes[1]).all()


@pytest.mark.parametrize("name", DYNAMIC)
def test_memory_that_fluctuates(name):
    """In every round the batch is shared out, and no task is beyond the memory that its worker then has."""
    memory = lambda worker, round: 100 + 40 * ((worker + round) % 3)  # noqa: E731
    cluster = CLUSTERS["mixed"]
    load = getattr(loads, name)(memory, least=20)
    _, sizes = rounds(dml.simulate(dml.bsp(), cluster, updates=60, load=load, batch_size=90))
    caps = np.array([[memory(worker, clock) for worker in range(4)] for clock in range(60)])
    assert (sizes.sum(1) == 360).all()
    assert (sizes <= caps).all()
    assert (sizes >= 20).all()
    assert len(np.unique(sizes, axis=0)) > 3


def test_memory_that_shrinks_too_far_is_an_error():
    load = loads.equal_finish_time(lambda worker, round: 40 - round)
    with pytest.raises(
        ValueError, match=r"caps: expected .*128 samples.*, got \[31, 31, 31, 31\], 124 in all"
    ):
        dml.simulate(dml.bsp(), MIXED, updates=60, load=load)


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("policy", [dml.asp(), dml.ssp(2), dml.k_sync(2), dml.k_batch_async(3)], ids=str)
def test_the_newest_sizes_sum_to_the_batch_whoever_waits(policy, name):
    """At every push; also where the slowest is always cancelled, and so never measured."""
    load, seen = LOADS[name](), []

    def observe(state, push):
        state = load.observe(state, push)
        sizes = [load.size(state, worker) for worker in range(4)]
        assert sum(sizes) == 800
        assert min(sizes) >= 1
        seen.append(tuple(sizes))
        return state

    cluster = dml.Cluster.from_speeds([1000, 100, 900, 800])
    trace = dml.simulate(policy, cluster, updates=80, load=load._replace(observe=observe), batch_size=200)
    assert len(set(seen)) > 1
    if not (name == "lb_bsp" and trace.metadata["policy"] == "k_sync(k=2)"):  # it moves what it has seen
        assert seen[-1][1] < 200, "the slow worker has less"


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp()], ids=str)
def test_the_batch_is_that_of_those_who_are_there(policy, name):
    crash = dml.faults.Crash(worker=2, time=0.5, seconds=1.0)
    cluster = dml.Cluster.from_speeds([1000, 500, 2000, 1000]).with_faults(crash)
    trace = dml.simulate(policy, cluster, seconds=2.5, load=name, batch_size=50)
    begun = trace.tasks["pull_start"]
    for when, workers in (((0.7, 1.4), 3), ((1.9, 2.4), 4)):
        newest = trace.tasks[begun.between(*when)].groupby("worker")["batch_size"].last()
        assert len(newest) == workers
        assert newest.sum() == 200


@pytest.mark.parametrize("name", DYNAMIC)
def test_states_follow_from_the_calls(name):
    """A state that is copied goes on as the first does: no hidden state."""
    load, rng = LOADS[name](), np.random.default_rng(0)
    pushes = [Push(int(rng.integers(4)), 0, 0, 0.0, rng.random(), 32) for _ in range(90)]
    one = load.init(4, 128)
    for push in pushes[:50]:
        one = load.observe(one, push)
    two = copy.deepcopy(one)
    for push in pushes[50:]:
        one, two = load.observe(one, push), load.observe(two, push)
        assert one == two


@pytest.mark.parametrize("name", DYNAMIC)
def test_nothing_measured_is_equal_shares(name):
    assert shares(LOADS[name](), 4, 128) == [32] * 4
    assert shares(LOADS[name](), 4, 130) == [33, 33, 32, 32]
    assert shares(getattr(loads, name)(caps=[20, 128, 128, 35]), 4, 128) == [20, 37, 36, 35]
    assert LOADS[name]().name == f"{name}()"


def shares(load, num_workers, total):
    state = load.init(num_workers, total)
    return [load.size(state, worker) for worker in range(num_workers)]


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"caps": 31},
            r"caps: expected .*the total batch of 128 samples.*, got \[31, 31, 31, 31\], 124 in all",
        ),
        ({"least": 33}, "total batch: expected at least 132 .33 for each of 4 workers.*, got 128"),
        ({"caps": [64, 64]}, "caps: expected one number, or one for each of 4 workers.*, got 2 values"),
        ({"caps": [64, 64, 64, 0]}, r"caps\[3\]: expected a whole number >= 1.*, got 0"),
        ({"caps": lambda worker, round: 40 - 40 * worker}, r"caps, worker 1, round 0: expected .*, got 0"),
        ({"caps": "a lot"}, "caps: expected .*, got 'a lot'"),
        ({"least": 0}, "least: expected .*, got 0"),
        ({"window": 0}, "window: expected .*, got 0"),
    ],
)
def test_what_does_not_go_together_is_an_error(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        dml.simulate(dml.bsp(), MIXED, updates=1, load=getattr(loads, name)(**wrong))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: loads.equal_finish_time(alpha=0), "alpha: expected .*, got 0"),
        (lambda: loads.equal_finish_time(overhead=-1), "overhead: expected .*, got -1"),
        (lambda: loads.equal_finish_time(transfer=[0.0]).init(4, 128), "transfer: expected .*, got 1 values"),
        (lambda: loads.speed_proportional(warm_up=0), "warm_up: expected .*, got 0"),
        (lambda: loads.dynamic_batching(dead_band=-0.1), "dead_band: expected .*, got -0.1"),
        (lambda: loads.lb_bsp(step=0), "step: expected .*, got 0"),
        (
            lambda: loads.fixed(0.5 * np.array([10, 53])),
            r"sizes\[0\]: expected a whole number >= 1, got 5.0$",
        ),
        (
            lambda: loads.resolve(np.array([10, 53])),
            r"load: .*, got array.*; try dml\.loads\.fixed\(\.\.\.\)",
        ),
        (lambda: loads.resolve(loads.equal), r"load: .*; try calling it: equal\(\.\.\.\)"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("policy", [dml.bsp(), dml.k_sync(3), dml.k_async(2), dml.dssp(0, 0)], ids=str)
def test_rounds_are_weighted_by_samples(policy):
    trace = dml.simulate(policy, MIXED, updates=40, load=UNEQUAL)
    applied = trace.tasks[trace.tasks["update"] >= 0]
    shares = applied["batch_size"] / applied.groupby("update")["batch_size"].transform("sum")
    assert (applied["weight"] == shares).all()
    equal = dml.simulate(policy, MIXED, updates=40).tasks
    assert (equal["weight"][equal["update"] >= 0] == 1 / trace.updates["num_tasks"].iloc[0]).all()


@pytest.mark.parametrize("load", [UNEQUAL, "equal_finish_time"], ids=str)
def test_lock_step_policies_are_one_with_any_load(load):
    traces = [
        dml.simulate(policy, MIXED, updates=40, load=load)
        for policy in (dml.bsp(), dml.ssp(0), dml.essp(0), dml.k_sync(4), dml.dssp(0, 0), dml.sync_switch(99))
    ]
    assert all(trace.tasks.equals(traces[0].tasks) for trace in traces)


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_every_policy_runs_with_every_load(policy, name):
    """A valid trace, with nothing lost and nothing doubled."""
    trace = simulate(ALL_POLICIES[policy](), CLUSTERS["mixed"], updates=60, load=name)
    assert trace.validate() is trace
    check_counts(trace, updates=60)
    if ALL_POLICIES[policy]().batch_size is None:
        assert trace.metadata["load"] == f"{name}()"
        # A worker that never pulls is never told another size.
        assert (trace.tasks["batch_size"].nunique() > 1) == (policy != "ssp_unbounded")


@pytest.mark.parametrize(("policy", "updates"), [(dml.bsp(), 6), (dml.asp(weight=None), 40)], ids=str)
def test_replay_of_batches_that_change(policy, updates):
    """The compiled replay does what the readable one does, which compiles for every size."""
    problem, load = dml.problems.linear_regression(), loads.equal_finish_time(window=4)
    run = dml.train(problem, MIXED, policy, optax.sgd(0.01), updates=updates, load=load, seed=4)
    assert run.trace.tasks["batch_size"].nunique() > 3
    assert relative_error(run.params, replay_reference(run.trace, problem, optax.sgd(0.01))) < 1e-5


def test_training_on_a_real_clock():
    """Where tasks are padded to widths that were compiled before."""
    problem, engine = plane(), dml.engines.threads(0.1)
    options = {"updates": 60, "load": "equal_finish_time", "engine": engine, "batch_size": 8}
    run = dml.train(problem, MIXED, dml.ssp(2), optax.sgd(0.1), **options)
    assert run.trace.tasks["batch_size"].nunique() > 3
    check_counts(run.trace, updates=60)
    again = dml.replay(run.trace, problem, optax.sgd(0.1), eval_every=10**6)
    assert same_bits(run.params, again.params)


@pytest.mark.full  # the test before does it with another problem
def test_linear_regression_on_a_real_clock():
    """Up to rounding, measured in 64 bits: its gradient is a product of a matrix and a vector, which JAX 0.12
    compiles otherwise in the loop of replay."""
    with jax.enable_x64(True):
        problem = dml.problems.linear_regression(dtype="float64")
        options = {"updates": 60, "load": "equal_finish_time", "engine": dml.engines.threads(0.1)}
        run = dml.train(problem, MIXED, dml.ssp(2), optax.sgd(1e-4), batch_size=8, **options)
        again = dml.replay(run.trace, problem, optax.sgd(1e-4), eval_every=10**6)
        assert relative_error(run.params, again.params) < 1e-10


@pytest.mark.parametrize("samples", [1, 8, 13])
def test_a_padded_gradient_is_that_of_its_samples(samples):
    problem = dml.problems.linear_regression()
    stepper = Stepper(problem, optax.sgd(0.1), 3)
    params = stepper.start()[0]
    indices = task_indices(run_key(3, BATCHES), 1, 2, samples, problem.num_samples)
    batch = jax.tree.map(lambda column: column[indices], problem.data)
    plain = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
    assert relative_error(stepper.task(params, 1, 2, samples)[0], plain) < 1e-6
