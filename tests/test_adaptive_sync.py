"""Adaptive synchronous parallel and its relatives: by hand, at their limits, and in all interleavings."""

import copy
import itertools
import math

import optax
import pytest
from clusters import EXPONENTIAL, LOCK_STEP, MIXED
from engine_runs import plane, same_bits, same_timeline
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dmlcore as dml
from dmlcore.methods.policies.groups import Group, SyncState
from dmlcore.types import Push

INF = math.inf
ALL_FAST = {"behind": INF, "patience": INF}


@pytest.mark.parametrize("cluster", [EXPONENTIAL, MIXED, LOCK_STEP])
@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (dml.adaptive_sync(INF), dml.asp()),
        (dml.adaptive_sync(INF, gap="clocks"), dml.asp()),
        (dml.adaptive_sync(-1, **ALL_FAST), dml.bsp()),
        (dml.adaptive_sync(-1, shares="uniform", **ALL_FAST), dml.bsp()),
        (dml.a2s(epoch=10**6), dml.asp()),
        (dml.sync_switch(0), dml.asp()),
        (dml.sync_switch(0, weight=None), dml.asp(weight=None)),
        (dml.sync_switch(60), dml.bsp()),
    ],
    ids=str,
)
def test_limits(policy, limit, cluster):
    """To the last bit."""
    one, two = (
        dml.train(plane(), cluster, each, optax.sgd(0.1), updates=60, seed=1) for each in (policy, limit)
    )
    assert same_timeline(one.trace, two.trace)
    assert same_bits(one.params, two.params)


def by_hand(policy, num_workers):
    """Returns a function that pushes and tells what is applied and who starts."""
    state = policy.init(num_workers)
    version, clocks, read = [0], [0] * num_workers, [0] * num_workers

    def push(worker, time, samples=32):
        arrived = Push(worker, clocks[worker], read[worker], time, 1.0, samples)
        clocks[worker] += 1
        _, decision = policy.on_push(state, arrived)
        version[0] += bool(decision.apply)
        started = [start.worker for start in decision.start]
        for each in started:
            read[each] = version[0]
        return [(w, weight) for w, _, weight in decision.apply], started, state

    return push


def test_three_states_by_hand():
    """Two workers of 1 s, one of 10 s: normal, fast, and then the slow one lags."""
    push = by_hand(dml.adaptive_sync(2, behind=3, patience=4), 3)
    assert push(0, 1.0)[:2] == ([(0, 1.0)], [0]), "copies 0 0 0"
    assert push(1, 1.5)[:2] == ([(1, 1.0)], [1]), "copies 1 0 0"
    assert push(0, 2.0)[:2] == ([(0, 1.0)], [0]), "copies 1 2 0"
    assert push(1, 2.5)[:2] == ([], []), "copies 3 2 0, too far apart: it waits"
    assert push(0, 3.0)[:2] == ([], []), "likewise; worker 2 is no straggler yet, and they wait for it"
    applied, started, state = push(2, 10.0)
    assert state.kind == ["fast", "fast", "lagging"]
    # Worker 2 missed 3 versions; 0 read version 3 and 1 read 2, of 3.
    assert applied == [(0, pytest.approx(2 / 3)), (1, pytest.approx(1 / 3)), (2, 1 / 4)]
    assert started == [0, 1, 2], "it is nobody to wait for, so the group is complete"
    assert push(0, 11.0)[2].kind[0] == "normal", "all have version 4"


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"shares": "uniform"}, [0.5, 0.5, 1 / 4]),
        ({"shares": "pushes"}, [0.6, 0.4, 1 / 4]),
        ({"damping": "none"}, [2 / 3, 1 / 3, 1]),
    ],
)
def test_its_parts_by_hand(options, weights):
    push = by_hand(dml.adaptive_sync(2, behind=3, patience=4, **options), 3)
    for worker, time in ((0, 1.0), (1, 1.5), (0, 2.0), (1, 2.5), (0, 3.0)):
        push(worker, time)
    assert [weight for _, weight in push(2, 10.0)[0]] == pytest.approx(weights)


def test_patience_counts_pushes_of_any_kind():
    push = by_hand(dml.adaptive_sync(-1, behind=1, slow=2, patience=2), 5)
    for worker in (0, 1):
        assert push(worker, 1.0)[:2] == ([], [])
    assert push(2, 1.0)[:2] == ([(w, pytest.approx(1 / 3)) for w in (0, 1, 2)], [0, 1, 2]), "fast"
    assert push(0, 2.0)[:2] == ([], [])
    assert push(3, 9.0)[:2] == ([(3, 1 / 2)], [3]), "lagging"
    assert push(4, 9.0)[:2] == ([(0, 1.0), (4, 1 / 3)], [0, 4]), "lagging, and it opens"


def test_a_lagging_push_that_closes_the_gap_leaves_the_barrier_to_the_next():
    push = by_hand(dml.adaptive_sync(4, behind=5, patience=9), 4)
    for time in (1.0, 2.0):
        for worker in (0, 1):
            push(worker, time)
    push(2, 2.5)
    assert push(0, 3.0)[:2] == ([], []), "copies 3 4 5 0: it waits"
    applied, started, state = push(3, 30.0)
    assert state.kind[3] == "lagging"
    assert (applied, started) == ([(3, 1 / 6)], [3]), "copies 3 4 5 6, close again, but nobody is normal"
    assert push(1, 31.0)[:2] == ([(0, 1.0), (1, 1.0)], [0, 1])


def test_after_a_server_restart_copies_are_as_old_as_they_are():
    """Tasks in flight begin again on what the server has: nobody is ahead of anybody."""
    policy = dml.adaptive_sync(2, behind=3, patience=4)
    state = policy.init(3)
    for worker, clock, read, time in ((0, 0, 0, 1.0), (1, 0, 0, 1.5), (0, 1, 1, 2.0)):
        policy.on_push(state, Push(worker, clock, read, time, 1.0, 32))
    assert state.read == [3, 2, 0]
    assert policy.on_push(state, Push(1, 1, 3, 9.0, 1.0, 32))[0].kind[1] == "normal"
    assert state.read == [3, 4, 3]
    assert state.seconds[1] == 1.5, "the outage does not count"


def test_gap_in_clocks():
    push = by_hand(dml.adaptive_sync(1, gap="clocks"), 2)
    assert push(0, 1.0)[2].kind[0] == "normal", "1 and 0 clocks"
    assert push(0, 2.0)[2].kind[0] == "fast", "2 and 0"
    assert push(1, 3.0)[:2] == ([(0, 1.0), (1, 1.0)], [0, 1]), "normal, and it opens"


def test_a2s_is_its_pseudo_code():
    push = by_hand(dml.a2s(epoch=2, patience=1), 3)
    for time in range(1, 7):
        assert push(0, time)[0] == [(0, 1.0)]
    for time in range(7, 11):
        push(1, time)
    push(2, 11)
    # Worker 2 finishes its first epoch: 3, 2 and 1 epochs; the 2 that are ahead are the group.
    assert push(2, 12)[:2] == ([(2, 1.0)], [2])
    assert push(0, 13)[:2] == ([], [])
    applied, started, state = push(1, 14)
    assert applied == [(0, pytest.approx(7 / 12)), (1, pytest.approx(5 / 12))]
    assert started == [0, 1]
    assert not state.members
    assert push(0, 15)[0] == [(0, 1.0)]


def test_sync_switch_is_bsp_and_then_asp():
    trace = dml.simulate(dml.sync_switch(20), MIXED, updates=100, seed=0)
    assert trace.updates["num_tasks"].tolist() == [4] * 20 + [1] * 80
    first = dml.simulate(dml.bsp(), MIXED, updates=20, seed=0)
    assert first.updates["time"].tolist() == trace.updates["time"].tolist()[:20]


def copied(state):
    """As deep as the policy changes it."""
    new = {name: copy.copy(value) for name, value in vars(state).items()}
    new["group"] = Group(**{name: copy.copy(value) for name, value in vars(state.group).items()})
    return SyncState(**new)


def told_apart(state):
    """All that decides on what follows, where times do not."""
    sets = [frozenset(state.present), frozenset(state.stragglers), tuple(state.group.pushes)]
    return (*sets, tuple(state.read), tuple(state.clocks), state.group.passed, state.version)


def explored(num_workers, clocks, slows=(0,), **options):
    """Every state that any order of arrivals leads to, and checks on each step.

    Time stands still. With `slow=0` whoever is late by version is a straggler, with `slow=INF` nobody is; of
    several each push is tried with all.
    """
    policies = [dml.adaptive_sync(slow=slow, **options) for slow in slows]
    flight = dict.fromkeys(range(num_workers), (0, 0))  # clock, version read
    stack = [(policies[0].init(num_workers), flight, 0, frozenset())]
    seen, branches = set(), 0
    while stack:
        state, flight, version, applied = stack.pop()
        key = told_apart(state), frozenset(flight.items()), applied
        if key in seen:
            continue
        seen.add(key)
        assert flight, "somebody is at work"
        awaited = state.present - state.stragglers - state.group.waiting
        assert not state.group or (awaited and awaited <= {*flight}), "whom the group waits for will come"
        for (worker, (clock, read)), policy in itertools.product(flight.items(), policies):
            if clock == clocks:  # beyond what is explored: it never arrives
                continue
            after = copied(state)
            _, decision = policy.on_push(after, Push(worker, clock, read, 1.0, 1.0, 32))
            tasks = {(w, c) for w, c, _ in decision.apply}
            assert not tasks & applied
            assert len(tasks) == len(decision.apply)
            made = version + bool(tasks)
            following = {w: task for w, task in flight.items() if w != worker}
            for start in decision.start:
                assert start.worker not in following
                last = max([c for w, c in applied | tasks if w == start.worker])
                following[start.worker] = (last + 1, made)
            still = after.present - after.stragglers - after.group.waiting
            if state.group and after.group and state.group.pushes[0] == after.group.pushes[0]:
                assert still <= awaited - {worker}, "the group waits for ever fewer"
            spared = version - read >= state.behind and worker not in after.stragglers
            branches += spared and after.kind[worker] == "fast"
            stack.append((after, following, made, applied | tasks))
    return len(seen), branches


def test_every_interleaving_of_a_small_cluster(capsys):
    """Exhaustive: 3 workers x 4 clocks. Somebody is always at work, and the barrier always opens."""
    states = 0
    for threshold, behind, patience in itertools.product((-1, 0, 3), (0, 3, INF), (2, INF)):
        states += explored(3, 4, threshold=threshold, behind=behind, patience=patience)[0]
    with capsys.disabled():
        print(f"\n{states} states of adaptive_sync")
    assert states > 10_000


@pytest.mark.parametrize("patience", [2, INF])
def test_every_interleaving_where_pushes_may_be_late_by_time_or_not(patience):
    """Late by version but not by time, a worker is waited for, and waits itself."""
    assert explored(3, 3, slows=(0, INF), threshold=2, behind=3, patience=patience)[1] > 100


@pytest.mark.parametrize("patience", [2, INF])
def test_every_interleaving_with_the_gap_in_clocks(patience):
    states, spared = explored(3, 4, slows=(0, INF), threshold=1, behind=3, patience=patience, gap="clocks")
    assert states > 200
    assert spared > 0


@settings(max_examples=60)
@given(
    st.lists(st.floats(50, 2000), min_size=1, max_size=12),
    st.sampled_from([-1, 0, 3, 10, None]),
    st.sampled_from([0, 4, INF, None]),
    st.sampled_from([1, 3, INF, None]),
    st.sampled_from(["versions", "clocks"]),
    st.integers(0, 100),
)
def test_the_barrier_opens_on_larger_clusters(speeds, threshold, behind, patience, gap, seed):
    """Always somebody is at work for whom the group waits, and it never outwaits its patience."""
    cluster = dml.Cluster.from_speeds(speeds, jitter=stats.gamma(4, scale=0.25))
    policy = dml.adaptive_sync(threshold, behind=behind, patience=patience, gap=gap)
    trace = dml.simulate(policy, cluster, samples=32 * 30 * len(speeds), seed=seed)
    for step in dml.follow(policy, trace):
        group, decision = step.state.group, step.decision
        assert not group or step.state.present - step.state.stragglers > group.waiting
        assert group.passed < step.state.patience
        assert decision.apply or step.push.worker in group.waiting


WRONG = {
    "threshold: expected .*, got -2": lambda: dml.adaptive_sync(-2),
    "behind: expected .*, got 1.5": lambda: dml.adaptive_sync(behind=1.5),
    "patience: expected .*, got 0": lambda: dml.adaptive_sync(patience=0),
    "slow: expected .*, got nan": lambda: dml.adaptive_sync(slow=math.nan),
    "damping: expected one of 'none', 'inverse'.*, got 'square'": lambda: dml.adaptive_sync(damping="square"),
    "shares: expected": lambda: dml.adaptive_sync(shares="none"),
    "gap: expected": lambda: dml.adaptive_sync(gap="seconds"),
    "epoch: expected .*, got 0": lambda: dml.a2s(0),
    "patience: expected .*, got -1": lambda: dml.a2s(1, patience=-1),
    "rounds: expected .*, got -1": lambda: dml.sync_switch(-1),
    "num_workers: expected .*, got 0": lambda: dml.presets.heterogeneous_and_unstable(0),
    "num_workers: expected .*, got 2.5": lambda: dml.presets.unstable(2.5),
    r"policy: expected the policy of the trace, bsp\(\).*, got asp\(\)": lambda: next(
        dml.follow(dml.asp(), dml.simulate(dml.bsp(), LOCK_STEP, updates=2))
    ),
    "trace: expected .*no worker left": lambda: dml.follow(
        dml.bsp(),
        dml.simulate(dml.bsp(), LOCK_STEP.with_faults(dml.faults.Crash(0, 0.01, 0.01)), updates=5),
    ),
    "policy: expected .*, got 'ssp'": lambda: dml.follow(
        "ssp", dml.simulate(dml.bsp(), LOCK_STEP, updates=2)
    ),
    "trace: expected .*, got 3": lambda: dml.follow(dml.bsp(), 3),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_one_clear_error(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()
