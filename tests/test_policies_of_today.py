"""Recent policies: what they are in the limit, the bounds they promise, and the papers' own algorithms."""

import math
from heapq import heapify, heappop, heappush

import numpy as np
import optax
import pytest
from clusters import CLUSTERS, EXPONENTIAL, LOCK_STEP, MIXED, UNEQUAL
from engine_runs import check_counts, check_replay, plane, same_timeline
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.draws import Draws
from dmlcore.trace import metrics

SGD = optax.sgd(0.1)
FAULTY = {
    f"faults {seed}": EXPONENTIAL.with_faults(
        *dml.faults.random_faults(4, 1.3, seed=seed), patience=0.1, checkpoint_every=10
    )
    for seed in range(3)
}
SECONDS = [math.sqrt(number) for number in (1, 2, 5, 11, 29, 307)]  # of each worker's tasks: no ties
SIX = dml.Cluster.from_speeds([1 / seconds for seconds in SECONDS])


# Limits


LIMITS = [
    (dml.ringmaster(math.inf), dml.asp()),
    (dml.ringmaster(math.inf, stop=True), dml.asp()),
    (dml.delay_adaptive(10**9), dml.asp()),
    (dml.fedasync(1), dml.asp()),
    (dml.fedasync(0.3), dml.asp(weight=0.3)),
    (dml.fedasync(1, "hinge", b=10**9), dml.asp()),
    (dml.fedbuff(3, 0), dml.k_batch_async(3)),
    (dml.backup(0), dml.bsp()),
    (dml.backup(1), dml.k_sync(3)),
    (dml.backup(3), dml.k_sync(1)),
    (dml.backup(1, timeout=1e9), dml.k_sync(3)),
    (dml.backup(0, timeout=0.04), dml.deadline(0.04)),
]
# Where no worker leaves: one that comes back may skip clocks under one of the two, or make more trials.
WHOLE = [
    (dml.rennala(1), dml.ringmaster(1)),
    (dml.fedbuff(1, 0), dml.asp()),
    (dml.mindflayer(math.inf), dml.bsp()),
    (dml.mindflayer(1e9, 1), dml.bsp()),
    *((dml.sampled(4, policy), policy) for policy in (dml.bsp(), dml.k_sync(2), dml.deadline(0.04))),
    *((dml.sampled(4, policy), policy) for policy in (dml.fedbuff(3), dml.asp(), dml.mindflayer(0.05, 2))),
]


@pytest.mark.parametrize("cluster", [*CLUSTERS, *FAULTY])
def test_limits(cluster):
    """Row by row of the trace, weights included."""
    where = (CLUSTERS | FAULTY)[cluster]
    for one, two in LIMITS if cluster in FAULTY else LIMITS + WHOLE:
        if (one, two) == LIMITS[7] and cluster in FAULTY:
            continue  # a worker that comes back to `bsp` may skip clocks
        traces = [dml.simulate(policy, where, updates=100, seed=2) for policy in (one, two)]
        assert same_timeline(*traces), f"{one.name} is not {two.name}"


def test_delay_adaptive_is_asp_where_all_tasks_take_as_long():
    one, two = (dml.simulate(policy, LOCK_STEP, updates=100) for policy in (dml.delay_adaptive(), dml.asp()))
    assert same_timeline(one, two)


@pytest.mark.parametrize("one", [dml.fedasync(1, "polynomial", a=1), dml.fedbuff(1, 1)], ids=str)
def test_powers_of_the_age(one):
    one, two = (dml.simulate(p, MIXED, updates=100) for p in (one, dml.asp(damping="inverse")))
    assert one.tasks.drop(columns="weight").equals(two.tasks.drop(columns="weight"))
    np.testing.assert_allclose(one.tasks["weight"], two.tasks["weight"])


# The papers' algorithms, on workers whose tasks always take as long. Each yields updates: when, and of every
# gradient in it the worker, the iterate that it was taken at, and its weight.


def rennala(s):
    """Tyurin and Richtarik 2023: wait for S gradients at x^k, ignore all others."""
    k, busy = 0, [(seconds, i, 0) for i, seconds in enumerate(SECONDS)]
    while True:
        batch = []
        while len(batch) < s:
            time, i, at = heappop(busy)
            if at == k:
                batch.append((i, at, 1 / s))
            if len(batch) < s:
                heappush(busy, (time + SECONDS[i], i, k))
        yield time, sorted(batch)
        k += 1
        heappush(busy, (time + SECONDS[i], i, k))


def ringmaster(r, stop):
    """Maranjyan et al. 2025, Algorithm 4; with `stop`, Algorithm 5."""
    k, busy = 0, [(seconds, i, 0) for i, seconds in enumerate(SECONDS)]
    while True:
        time, i, at = heappop(busy)
        if k - at < r:
            yield time, [(i, at, 1.0)]
            k += 1
        heappush(busy, (time + SECONDS[i], i, k))
        if stop:
            busy = [(time + SECONDS[j], j, k) if k - at >= r else (end, j, at) for end, j, at in busy]
            heapify(busy)


def ringleader():
    """Maranjyan and Richtarik 2025, with the updates of phase 2 taken as one."""
    k, busy = 0, [(seconds, i, 0) for i, seconds in enumerate(SECONDS)]
    table = [[] for _ in SECONDS]
    while True:
        time, i, at = heappop(busy)
        table[i].append(at)
        if all(table):
            shares = [1 / (len(SECONDS) * len(row)) for row in table]
            yield time, sorted((j, at, share) for j, share in enumerate(shares) for at in table[j])
            k, table = k + 1, [[] for _ in SECONDS]
        heappush(busy, (time + SECONDS[i], i, k))


def delay_adaptive(n):
    """Mishchenko et al. 2022, asynchronous SGD with steps of min(1, n / tau)."""
    k, busy = 0, [(seconds, i, 0) for i, seconds in enumerate(SECONDS)]
    while True:
        time, i, at = heappop(busy)
        tau = k - at
        yield time, [(i, at, 1.0 if tau <= n else n / tau)]
        k += 1
        heappush(busy, (time + SECONDS[i], i, k))


def updates_of(trace):
    applied = trace.tasks[trace.tasks["update"] >= 0]
    for update, time in enumerate(trace.updates["time"]):
        rows = applied[applied["update"] == update]
        yield time, sorted(zip(rows["worker"], rows["version_read"], rows["weight"], strict=True))


def check_against(algorithm, trace):
    for (time, tasks), (wanted_time, wanted) in zip(updates_of(trace), algorithm, strict=False):
        assert time == pytest.approx(wanted_time)
        assert [task[:2] for task in tasks] == [task[:2] for task in wanted]
        assert [task[2] for task in tasks] == pytest.approx([task[2] for task in wanted])


@pytest.mark.parametrize(
    ("policy", "algorithm"),
    [
        *[(dml.rennala(s), lambda s=s: rennala(s)) for s in (1, 2, 5, 20)],
        *[
            (dml.ringmaster(r, stop), lambda r=r, stop=stop: ringmaster(r, stop))
            for r in (1, 2, 5, 20)
            for stop in (False, True)
        ],
        (dml.ringleader(), ringleader),
        (dml.delay_adaptive(), lambda: delay_adaptive(6)),
        (dml.delay_adaptive(3), lambda: delay_adaptive(3)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_papers_algorithms(policy, algorithm):
    check_against(algorithm(), dml.simulate(policy, SIX, updates=150, batch_size=1))


def mindflayer(allotted, trials, expected, seconds_of):
    """Maranjyan et al. 2025, Algorithms 1 and 2; `seconds_of` worker and number of its trial."""
    k, begin, number = 0, 0.0, [0] * len(trials)
    while True:
        got, ends = [], []
        for i, count in enumerate(trials):  # in parallel
            time = begin
            for _ in range(count):
                seconds = seconds_of(i, number[i])
                number[i] += 1
                if seconds <= allotted[i]:
                    got.append((i, k))
                time += min(seconds, allotted[i])
            ends.append(time)
        begin = max(ends)
        if got:
            weight = 1 / (expected or len(got))
            yield begin, sorted((i, at, weight) for i, at in got)
            k += 1


@pytest.mark.parametrize("expected", [None, 5.0])
@pytest.mark.parametrize(
    ("allotted", "trials"),
    [
        ([0.02] * 4, [1] * 4),
        ([0.01, 0.1, 0.03, 0.05], [5, 1, 2, 2]),
        ([0.001, math.inf, 0.02, 0.04], [9, 1, 2, 2]),
    ],
)
def test_mindflayer_of_the_paper(allotted, trials, expected):
    draws = Draws(EXPONENTIAL, 3)
    algorithm = mindflayer(allotted, trials, expected, lambda i, number: draws.compute_seconds(i, number, 32))
    trace = dml.simulate(dml.mindflayer(allotted, trials, expected), EXPONENTIAL, updates=100, seed=3)
    check_against(algorithm, trace)
    assert (metrics.staleness(trace) == 0).all()
    assert trace.tasks["push_end"].isna().sum() > 50, "some trials are cut"


# What they guarantee


def seconds_for(r, taus):
    """t(r), the optimal time of r gradients at one point but for a constant (Tyurin and Richtarik 2023)."""
    m = np.arange(1, len(taus) + 1)
    return ((r + m) / np.cumsum(1 / np.sort(taus))).min()


@pytest.mark.parametrize("r", [1, 7, 40, 300])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_rennala_and_ringmaster_take_the_optimal_time(r, power):
    """Half of t(r) is a lower bound of r gradients at one point, twice t(r) the policies' upper bound."""
    taus = np.arange(1.0, 201.0) ** power
    cluster, best = dml.Cluster.from_speeds(1 / taus), seconds_for(r, taus)
    ends = dml.simulate(dml.rennala(r), cluster, updates=20, batch_size=1).updates["time"]
    rounds = np.diff(ends, prepend=0.0)
    assert rounds.min() >= best / 2 - 1e-9
    m = np.arange(1, 201)
    bound = ((r + 2 * m) / np.cumsum(1 / taus)).min()
    assert rounds.max() <= bound + 1e-9 <= 2 * best + 1e-6
    for stop in (False, True):
        trace = dml.simulate(dml.ringmaster(r, stop), cluster, updates=5 * r + 50, batch_size=1)
        ends = np.append(0.0, trace.updates["time"])
        assert (ends[r:] - ends[:-r]).max() <= bound + 1e-9


@pytest.mark.parametrize("s", [5, 20, 80])
def test_late_work_that_goes_on_costs_time(s):
    """K-batch-sync cancels it, so on workers of speeds 1 / i its rounds are shorter than those of Rennala."""
    cluster = dml.Cluster.from_speeds(1 / np.arange(1.0, 101))
    cancelled, dropped = (
        dml.simulate(policy, cluster, updates=60, batch_size=1).end_time
        for policy in (dml.k_batch_sync(s), dml.rennala(s))
    )
    assert 0.7 * dropped < cancelled < 0.95 * dropped


@pytest.mark.parametrize("make", [dml.ringmaster, dml.rennala])
def test_slow_workers_do_not_matter(make):
    """Workers 1, 2, ..., n times as slow as the first: the time of an update does not depend on n, as that of
    BSP does."""
    seconds, rounds = [], []
    for workers in (100, 1_000, 10_000):
        cluster = dml.Cluster.from_speeds(1 / np.arange(1.0, workers + 1))
        updates = 400 if make is dml.ringmaster else 20
        seconds.append(dml.simulate(make(20), cluster, updates=updates, batch_size=1).end_time / updates)
        rounds.append(dml.simulate(dml.bsp(), cluster, updates=2, batch_size=1).end_time / 2)
    assert max(seconds) <= 1.02 * min(seconds)
    assert rounds == pytest.approx([100, 1_000, 10_000])


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
@pytest.mark.parametrize("cluster", [*CLUSTERS, *FAULTY])
def test_the_staleness_of_ringmaster(cluster, transport, stop):
    for r in (1, 2, 3):
        options = {"updates": 150, "seed": 1, "transport": transport}
        trace = dml.simulate(dml.ringmaster(r, stop), (CLUSTERS | FAULTY)[cluster], **options)
        assert metrics.staleness(trace).max() == r - 1
        arrived = trace.tasks[trace.tasks["push_end"].notna()]
        assert stop or (arrived["update"] < 0).any(), "what is older is dropped"


def test_ringmaster_stops_a_task_when_it_is_too_old():
    """Neither before, nor after: then it is cut, its worker begins anew, and nothing arrives in vain."""
    trace = dml.simulate(dml.ringmaster(4, stop=True), SIX, updates=200, batch_size=1)
    tasks, made = trace.tasks, trace.updates["time"].to_numpy()
    cut = tasks[tasks["push_end"].isna() & (tasks["compute_end"] < trace.end_time)]
    assert {*cut["worker"]} == {2, 3, 4, 5}
    np.testing.assert_allclose(cut["compute_end"], made[cut["version_read"] + 3])
    assert (tasks[tasks["push_end"].notna()]["update"] >= 0).all()
    for _, own in tasks.groupby("worker"):
        own = own.sort_values("clock")
        assert own["pull_start"].to_numpy()[1:] == pytest.approx(own["compute_end"].to_numpy()[:-1])


@pytest.mark.parametrize("cluster", [*CLUSTERS, *FAULTY])
@pytest.mark.parametrize("load", ["equal", UNEQUAL], ids=str)
def test_every_worker_counts_the_same_in_ringleader(cluster, load):
    trace = dml.simulate(dml.ringleader(), (CLUSTERS | FAULTY)[cluster], updates=100, seed=1, load=load)
    applied = trace.tasks[trace.tasks["update"] >= 0]
    assert metrics.staleness(trace).max() == 1
    for _, rows in applied.groupby("update"):
        shares = rows.groupby("worker")["weight"].sum()
        np.testing.assert_allclose(shares, 1 / len(shares))
        assert cluster in FAULTY or len(shares) == 4
    for _, rows in applied.groupby(["update", "worker"]):
        np.testing.assert_allclose(
            rows["weight"] / rows["weight"].sum(), rows["batch_size"] / rows["batch_size"].sum()
        )
    assert applied.groupby(["update", "worker"]).size().max() > 1 or cluster == "lock_step"


def test_updates_of_ringleader_are_as_far_apart_as_the_slowest_task():
    trace = dml.simulate(dml.ringleader(), SIX, updates=50, batch_size=1)
    np.testing.assert_allclose(np.diff(trace.updates["time"], prepend=0.0), SECONDS[-1])


def test_only_stragglers_make_shorter_steps():
    cluster = EXPONENTIAL.with_stragglers(20, fraction=0.05, mean_tasks=5)
    trace = dml.simulate(dml.delay_adaptive(), cluster, updates=2_000)
    weights, tau = trace.tasks["weight"][trace.tasks["update"] >= 0], metrics.staleness(trace)
    assert 0.7 < (weights == 1).mean() < 1
    assert (weights * tau).max() <= 4 + 1e-9
    np.testing.assert_allclose(weights, np.minimum(1, 4 / np.maximum(tau, 1)))


def test_trials_with_exponential_times():
    """A trial of t seconds succeeds with p = 1 - exp(-t / m); cutting gains nothing: a gradient costs m."""
    mean, allotted, trials = 0.25, 0.2, 3
    cluster = dml.Cluster.uniform(20, samples_per_second=1 / mean, jitter=stats.expon())
    p = 1 - math.exp(-allotted / mean)
    expected = 20 * trials * p
    trace = dml.simulate(
        dml.mindflayer(allotted, trials, expected), cluster, updates=1_000, batch_size=1, seed=1
    )
    assert trace.updates["num_tasks"].mean() == pytest.approx(expected, rel=0.01)
    assert trace.tasks["weight"].sum() / 1_000 == pytest.approx(1, rel=0.01)
    spent = trace.tasks["compute_end"] - trace.tasks["compute_start"]
    assert spent.sum() / trace.tasks["push_end"].notna().sum() == pytest.approx(mean, rel=0.02)
    rounds = np.diff(trace.updates["time"], prepend=0.0)
    assert rounds.max() <= trials * allotted + 1e-9


def test_trials_with_heavy_tails():
    """Tasks of which one in a hundred never ends hold up BSP, and cost MindFlayer the time allotted."""
    never = dml.Cluster.uniform(4, 32.0).with_stragglers(1e6, fraction=0.01, mean_tasks=1)
    options = {"seconds": 1_000.0, "seed": 1}
    stuck, cut = (dml.simulate(p, never, **options) for p in (dml.bsp(), dml.mindflayer(1.5)))
    assert len(stuck.updates) < 200 < 900 < len(cut.updates)


def test_a_worker_without_trials_takes_no_part():
    trace = dml.simulate(dml.mindflayer(0.1, [2, 0, 1, 1]), LOCK_STEP, updates=10)
    out = trace.tasks[trace.tasks["worker"] == 1]
    assert out[["clock", "compute_end", "update"]].to_numpy().tolist() == [[0, 0, -1]]
    assert (trace.updates["num_tasks"] == 4).all()
    np.testing.assert_allclose(trace.updates["time"], 0.064 * np.arange(1, 11))


def test_a_round_without_gradients_makes_no_update():
    trace = dml.simulate(dml.mindflayer(0.03), LOCK_STEP, seconds=1.0)
    assert len(trace.updates) == 0
    assert len(trace.tasks) == 4 * 34, "tasks of 32 ms, cut after 30"


@pytest.mark.parametrize("server", [MIXED, CLUSTERS["contended"]], ids=["mixed", "contended"])
def test_every_trial_has_its_time(server):
    """Counted from when its round has begun, after the update, to the instant, also where pulls take time."""
    trace = dml.simulate(dml.mindflayer(0.05, 2), server, updates=200, seed=1)
    tasks = trace.tasks[trace.tasks["pull_start"] < trace.end_time - 0.06]
    arrived = tasks["push_end"].notna()
    assert (tasks["push_end"] - tasks["pull_start"])[arrived].max() <= 0.05 + 1e-9
    assert 0.05 < 1 - arrived.mean() < 0.9
    following = tasks.sort_values("clock").groupby("worker")["pull_start"].shift(-1)[~arrived]
    assert (following - tasks["pull_start"][~arrived]).min() == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("policy", "length", "workers"),
    [
        (dml.backup(1, timeout=2.5), 2.5, [0, 1]),
        (dml.backup(1, timeout=5), 3.0, [0, 1, 2]),
        (dml.backup(2, timeout=5), 2.0, [0, 1]),
        (dml.backup(0, timeout=0.5), 1.0, [0]),
    ],
    ids=str,
)
def test_rounds_of_backup_by_hand(policy, length, workers):
    """Tasks of 1, 2, 3 and 7 s: a round ends with the count or the timeout, but has one push."""
    trace = dml.simulate(policy, dml.Cluster.from_speeds([42, 21, 14, 6]), updates=4, batch_size=42)
    assert trace.updates["time"].tolist() == pytest.approx([length * (k + 1) for k in range(4)])
    applied = trace.tasks[trace.tasks["update"] >= 0]
    assert applied.groupby("update")["worker"].apply(sorted).tolist() == [workers] * 4
    np.testing.assert_allclose(applied["weight"], 1 / len(workers))


# Workers that leave and come back


@pytest.mark.parametrize(
    "policy", [dml.ringleader(), dml.mindflayer(60.0), dml.backup(0, timeout=60.0)], ids=str
)
def test_the_workers_that_are_left_go_on(policy):
    """Tasks of 1, 1.5 and 20 s; the slow worker is away from 30 to 100 s, and then in every update again."""
    crash = dml.faults.Crash(worker=2, time=30.0, seconds=70.0)
    cluster = dml.Cluster.from_speeds([1, 1 / 1.5, 1 / 20]).with_faults(crash, patience=1.0)
    trace = dml.simulate(policy, cluster, seconds=200, batch_size=1)
    made = trace.updates["time"].to_numpy()
    between = np.histogram(made, [0, 29, 33, 99, 201])[0]
    assert between[0] == 1
    assert between[2] == pytest.approx(66 / 1.5, abs=1), "without it an update takes as long as the others"
    assert 3 <= between[3] <= 6
    applied = trace.tasks[trace.tasks["update"] >= 0].assign(
        time=made[trace.tasks["update"][trace.tasks["update"] >= 0]]
    )
    for _, rows in applied.groupby("update"):
        away = 33 < rows["time"].iloc[0] <= 100
        assert {*rows["worker"]} == ({0, 1} if away else {0, 1, 2}) or 29 <= rows["time"].iloc[0] <= 33
        assert rows["weight"].sum() == pytest.approx(1)


def test_trials_on_threads():
    """Workers are cut off in the middle of a task; what arrived in time replays to the same bits."""
    problem, engine = plane(), dml.engines.threads(time_scale=0.5)
    policy = dml.mindflayer([0.03, 0.06, 0.06, 0.5], trials=2)
    run = dml.train(problem, EXPONENTIAL, policy, SGD, updates=15, engine=engine, eval_every=10**6)
    assert run.trace.tasks["push_end"].isna().sum() > 4
    check_replay(run, problem, SGD)


@pytest.mark.parametrize("transport", ["pipelined()", "coded(push=qsgd(levels=4))"])
def test_transports(transport):
    policies = (
        dml.rennala(3),
        dml.ringmaster(3, True),
        dml.ringleader(),
        dml.mindflayer(0.2, 2),
        dml.fedbuff(3),
    )
    for cluster in (MIXED, CLUSTERS["contended"], FAULTY["faults 0"]):
        for policy in policies:
            check_counts(dml.simulate(policy, cluster, updates=100, transport=transport), updates=100)


# Arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dml.rennala(0), "s: expected a whole number >= 1.*, got 0"),
        (lambda: dml.ringmaster(0), "r: expected a whole number >= 1 .or math.inf.*, got 0"),
        (lambda: dml.ringmaster(2.5), "r: expected .*, got 2.5"),
        (lambda: dml.ringmaster(2, stop="yes"), "stop: expected True or False.*, got 'yes'"),
        (lambda: dml.delay_adaptive(0), "concurrency: expected .*, got 0"),
        (lambda: dml.fedbuff(0), "k: expected .*, got 0"),
        (lambda: dml.fedbuff(2, -1), "alpha: expected a number >= 0.*, got -1"),
        (lambda: dml.fedasync(0), "alpha: expected a number > 0 and <= 1.*, got 0"),
        (lambda: dml.fedasync(1.5), "alpha: expected .*, got 1.5"),
        (lambda: dml.fedasync(0.5, "linear"), "decay: expected one of 'constant', .*, got 'linear'"),
        (lambda: dml.fedasync(0.5, a=1), "a: expected None.*, got 1.0"),
        (lambda: dml.fedasync(0.5, "polynomial", b=1), "b: expected None.*, got 1.0"),
        (lambda: dml.fedasync(0.5, "polynomial", a=0), "a: expected a number > 0.*, got 0"),
        (lambda: dml.backup(-1), "b: expected .*, got -1"),
        (lambda: dml.backup(1, timeout=0), "timeout: expected a number > 0.*, got 0"),
        (
            lambda: dml.backup(4).init(4),
            r"b: expected .* from 0 to 3 \(the number of workers minus 1\).*, got 4",
        ),
        (lambda: dml.mindflayer(0), "seconds: expected a number > 0.*, got 0"),
        (lambda: dml.mindflayer([1, -1]), r"seconds\[1\]: expected a number > 0.*, got -1"),
        (lambda: dml.mindflayer("1"), "seconds: expected .*, got '1'"),
        (lambda: dml.mindflayer(1, trials=[1, 0.5]), r"trials\[1\]: expected a whole number >= 0.*, got 0.5"),
        (lambda: dml.mindflayer(1, trials=[0, 0]), "trials: expected at least one.*, got .0, 0."),
        (lambda: dml.mindflayer(1, trials=0), "trials: expected at least one.*, got 0"),
        (lambda: dml.mindflayer(1, expected=0), "expected: expected a number > 0.*, got 0"),
        (lambda: dml.mindflayer([1, 2]).init(4), "seconds: expected .*for each of 4 workers, got 2 values"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
