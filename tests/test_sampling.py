"""Client sampling: its limit, who is drawn and how often, FedAvg written out by hand, and who takes over."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import EVERY, plane, relative_error, same_bits
from scipy import stats

import dmlcore as dml
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices

TEN = dml.Cluster.uniform(10, samples_per_second=1000, jitter="exponential")
WEIGHTS = [1, 2, 3, 4]


@pytest.mark.parametrize("engine", EVERY)
def test_all_workers_are_a_sample_of_all(made_engine):
    options = {"updates": 10, "engine": made_engine, "eval_every": 10}
    one, two = (
        dml.train(plane(), EXPONENTIAL, policy, optax.sgd(0.1), **options)
        for policy in (dml.bsp(), dml.sampled(4))
    )
    assert same_bits(one.params, two.params)


def drawn(policy, cluster, updates, seed=0):
    """The workers of each update."""
    tasks = dml.simulate(policy, cluster, updates=updates, seed=seed).tasks
    return (
        tasks[tasks["update"] >= 0].groupby("update")["worker"].agg(lambda own: tuple(sorted(own))).tolist()
    )


def test_every_round_draws_other_workers():
    samples = drawn(dml.sampled(3), TEN, 3000)
    assert all(len({*sample}) == 3 for sample in samples)
    counts = np.bincount([*itertools.chain(*samples)], minlength=10)
    # Each is drawn with the probability 0.3, independently from round to round.
    assert np.abs(counts - 900).max() < 4 * np.sqrt(3000 * 0.3 * 0.7)
    again = np.mean([len({*one} & {*two}) for one, two in itertools.pairwise(samples)])
    assert again == pytest.approx(0.9, abs=4 * np.sqrt(0.49 / 3000))  # hypergeometric: 3 of 10, twice
    assert samples == drawn(dml.sampled(3), TEN, 3000)
    assert samples != drawn(dml.sampled(3), TEN, 3000, seed=1)


@pytest.mark.parametrize("m", [1, 2])
def test_weights(m):
    """Workers are drawn one after the other, by their weights among those that are left."""
    odds = dict.fromkeys(itertools.combinations(range(4), m), 0.0)
    for order in itertools.permutations(range(4), m):
        left, chance = sum(WEIGHTS), 1.0
        for worker in order:
            chance *= WEIGHTS[worker] / left
            left -= WEIGHTS[worker]
        odds[tuple(sorted(order))] += chance
    samples = drawn(dml.sampled(m, weights=WEIGHTS), EXPONENTIAL, 3000)
    found = [samples.count(each) for each in odds]
    assert stats.chisquare(found, 3000 * np.array([*odds.values()])).pvalue > 1e-4


@pytest.mark.parametrize("policy", [dml.fedbuff(3), dml.asp(), dml.k_async(2)], ids=str)
def test_m_workers_are_at_work(policy):
    """Without waiting, m workers compute at any moment, and none of them twice at once."""
    tasks = dml.simulate(dml.sampled(4, policy), TEN, updates=500).tasks
    begins, ends = (np.sort(tasks[name].to_numpy()) for name in ("compute_start", "compute_end"))
    at_work = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="right")
    waiting = 0 if policy.name != "k_async(k=2)" else 1  # it holds at most one back
    assert at_work.max() == 4
    assert at_work[4:].min() >= 4 - waiting
    assert tasks["worker"].nunique() == 10


def test_over_selection():
    """Of five, the round takes the first three; the other two are cancelled, and none is too late."""
    trace = dml.simulate(dml.sampled(5, dml.k_sync(3)), TEN, updates=200)
    assert trace.tasks.groupby("version_read").size().iloc[:-1].unique().tolist() == [5]
    assert trace.tasks.groupby("update").size().drop(-1).unique().tolist() == [3]
    # With exponential times of mean 32 ms a round takes (H_5 - H_2) 32 ms.
    mean = 0.032 * (1 / 3 + 1 / 4 + 1 / 5)
    assert trace.end_time / 200 == pytest.approx(mean, rel=4 * 0.6 / np.sqrt(200))


def test_rounds_by_hand():
    """Algorithm 1 of McMahan et al. 2017, with its sets S_t."""
    local, problem = dml.local_steps(4, optax.sgd(0.1)), plane()
    run = dml.train(problem, TEN, dml.sampled(3), optax.sgd(1.0), updates=15, local=local)
    params, clocks = problem.init(run_key(0, INIT)), [0] * 10
    slope = jax.jit(jax.grad(lambda params, batch: problem.losses(params, batch).mean()))
    for sample in drawn(dml.Method(dml.sampled(3), local=local), TEN, 15):
        reached = []
        for worker in sample:
            mine = params
            indices = task_indices(run_key(0, BATCHES), worker, clocks[worker], 4 * 32, problem.num_samples)
            clocks[worker] += 1
            for own in indices.reshape(4, 32):
                batch = {name: jnp.asarray(column)[own] for name, column in problem.data.items()}
                mine = jax.tree.map(lambda w, g: w - 0.1 * g, mine, slope(mine, batch))
            reached.append(mine)
        params = jax.tree.map(lambda *leaves: sum(leaves) / 3, *reached)
    assert relative_error(run.params, params) < 1e-5


def test_only_workers_that_are_present_are_drawn_and_one_that_leaves_is_replaced():
    away = [dml.faults.Crash(worker=worker, time=1.0, seconds=2.0) for worker in range(6)]
    even = dml.Cluster.uniform(10, samples_per_second=1000)  # at 1 s all three are at work
    trace = dml.simulate(dml.sampled(3), even.with_faults(*away), seconds=4.0)
    tasks = trace.tasks
    arrived = tasks[tasks["update"] >= 0]
    assert arrived.groupby("update").size().unique().tolist() == [3]
    between = arrived[(arrived["pull_start"] >= 1) & (arrived["pull_start"] < 3)]
    assert {*between["worker"]} == {6, 7, 8, 9}
    assert {*arrived[arrived["pull_start"] > 3]["worker"]} == {*range(10)}
    lost = tasks[tasks["push_end"].isna() & (tasks["compute_end"] == 1.0)]
    assert len(lost) >= 1
    assert (tasks["pull_start"] == 1.0).sum() >= len(lost), "others began for them just then"


def test_a_round_goes_on_with_those_that_are_left():
    away = [dml.faults.Crash(worker=worker, time=1.0, seconds=1.0) for worker in (0, 1, 2)]
    tasks = dml.simulate(dml.sampled(3), MIXED.with_faults(*away), seconds=3.0).tasks
    sizes = tasks[tasks["update"] >= 0].groupby("update").agg(n=("worker", "size"), t=("pull_start", "min"))
    assert sizes["n"][(sizes["t"] > 1) & (sizes["t"] < 1.9)].unique().tolist() == [1]
    assert sizes["n"].iloc[-1] == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dml.sampled(0), "m: expected a whole number >= 1.*, got 0"),
        (lambda: dml.sampled(5).init(4), "m: expected .* from 1 to 4 .the number of workers.*, got 5"),
        (lambda: dml.sampled(2, "bsp()"), "policy: expected .*, got 'bsp.*"),
        (lambda: dml.sampled(2, dml.ssp(2)), "policy: expected a policy whose tasks all pull.*, got ssp"),
        (lambda: dml.sampled(2, dml.sampled(2)), "policy: expected .* does not sample, got sampled"),
        (lambda: dml.sampled(2, weights=[1, 0]), r"weights\[1\]: expected a number > 0.*, got 0"),
        (lambda: dml.sampled(2, weights=WEIGHTS).init(3), "weights: .*each of 3 workers, got 4 values"),
        (lambda: dml.sampled(2, weights=[1e-200, 1e200]).init(2), "weights: .*ratios below 1e300"),
        (
            lambda: dml.simulate(dml.sampled(2), TEN, updates=1, transport="pipelined()"),
            "policy: expected one that starts all workers .*, got sampled",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
