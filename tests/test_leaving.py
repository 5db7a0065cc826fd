"""Whoever leaves, joins, sends twice or is restarted when: nobody is stuck, and every push counts once."""

import itertools

import numpy as np
import pytest
from clusters import MIXED
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import RandomWatch

import dmlcore as dml
from dmlcore.engines.server import Server
from dmlcore.engines.spec import RunSpec
from dmlcore.methods.policies import ALL_POLICIES

WORKERS = 4


@pytest.mark.parametrize("policy", [dml.ssp(1), dml.essp(1), dml.dssp(1, 1)], ids=str)
def test_a_push_that_is_held_while_its_worker_leaves_counts_as_one_of_a_mean(policy):
    """Workers 0 and 1 wait for worker 2, and 0 leaves: an update has three pushes, but two are present."""
    cluster = dml.Cluster.from_speeds([3200, 1600, 320]).with_faults(dml.faults.Crash(0, 0.06))
    tasks = dml.simulate(policy, cluster, updates=4).tasks
    weights = tasks[tasks["update"] == 2]["weight"]
    assert weights.tolist() == pytest.approx([1 / 3] * 3)
    assert tasks[tasks["update"] == 3]["weight"].tolist() == pytest.approx([1 / 2] * 2)


class Exploration:
    """Keeps a server's book by hand: any task may arrive next, anybody may leave or come back."""

    def __init__(self, policy):
        self.policy, self.now, self.serial = policy, 0.0, itertools.count()
        self.watch, self.life = RandomWatch(0), 0
        self.server = self.new()
        self.server.begin()
        self.fire(0.0)
        self.sent = []
        self.saved = []

    def new(self):
        cluster = dml.Cluster.uniform(WORKERS)
        spec = RunSpec.checked(self.policy, cluster, updates=10**6, batch_size=1)
        return Server(spec, self.plan, self.serial)

    def plan(self, order):
        return order.time, order.time, 0.0

    def fire(self, until):
        while self.server.due <= until:
            self.server.wake(self.now)

    def step(self, kind, choice):
        self.now += 1.0
        server = self.server
        flying = [order for orders in server.flight for order in orders]
        if kind == "push" and flying:
            order = flying[choice % len(flying)]
            self.sent.append(order)
            answer = self.push(order)
            assert answer is not None
            if answer[0] and not server.pending:
                self.saved = server.journal[:]
        elif kind == "wake" and server.timers:
            if server.wake(self.now)[0] and not server.pending:
                self.saved = server.journal[:]
        elif kind == "again" and self.sent:
            assert self.push(self.sent[choice % len(self.sent)]) is None, "what came before does not count"
        elif kind == "leave":
            present = sorted(server.present)
            if len(present) > 1:
                server.leave(present[choice % len(present)], self.now)
        elif kind == "join":
            away = sorted({*range(WORKERS)} - server.present)
            if away:
                server.join(away[choice % len(away)], self.now)
        elif kind == "restart":
            present = server.present
            self.server = server = self.new().restore(self.saved)
            self.life += 1
            server.resume(self.now)
            for worker in sorted(server.present - present):
                server.leave(worker, self.now)
            for worker in sorted(present - server.present):
                server.join(worker, self.now)
            self.fire(self.now)
        if self.server.looks:
            self.server.observe(*self.watch(self.server.progress(self.now)._replace(life=self.life)))
        server.check_alive(self.now)

    def push(self, order):
        found = self.server.find(order.worker, order.clock, order.attempt)
        return None if found is None else self.server.push(found, self.now, order.time, self.now)


kinds = st.sampled_from(["push"] * 8 + ["again", "leave", "join", "restart", "wake"])
histories = st.lists(st.tuples(kinds, st.integers(0, 1000)), min_size=1, max_size=80)


@pytest.mark.parametrize("policy", ALL_POLICIES)
@settings(max_examples=60)
@given(histories)
def test_nobody_is_stuck_and_nothing_counts_twice(policy, history):
    exploration = Exploration(ALL_POLICIES[policy]())
    for kind, choice in history:
        exploration.step(kind, choice)
    exploration.now += 1.0
    server, before = exploration.server, exploration.server.num_updates
    for _ in range(100):  # a policy that cuts tasks off sets a timer for the next ones, and so on
        if server.timers and server.num_updates == before:
            server.wake(exploration.now)
    server.check_alive(exploration.now)  # also after all timers have fired
    trace = server.trace(exploration.now, {"num_workers": WORKERS})  # validates
    applied = trace.tasks[trace.tasks["update"] >= 0]
    assert not applied.duplicated(["worker", "clock"]).any()
    most = 2 if policy == "adaptive_sync" else 1  # a group's mean, and the gradient that opened its barrier
    assert applied.groupby("update")["weight"].sum().le(most + 1e-9).all()


@settings(max_examples=200)
@given(st.sampled_from([dml.ssp, dml.essp]), st.integers(0, 3), histories)
def test_the_window_holds_for_those_present(policy, staleness, history):
    """Whoever begins a clock is at most `staleness` ahead of the slowest of those who are there."""
    exploration = Exploration(policy(staleness))
    for kind, choice in history:
        exploration.step(kind, choice)
        server = exploration.server
        finished = server.state.finished
        slowest = min(finished[worker] for worker in server.present)
        for orders in server.flight:
            for order in orders:
                assert order.clock == finished[order.worker]
                assert order.clock - slowest <= staleness


@pytest.mark.parametrize(
    "policy", [dml.bsp(), dml.k_sync(3), dml.k_async(4), dml.ssp(0), dml.k_batch_sync(6)], ids=str
)
def test_the_rest_go_on_when_all_others_leave(policy):
    exploration = Exploration(policy)
    for _ in range(7):
        exploration.step("push", 0)
    for worker in (3, 1, 0):
        exploration.step("leave", worker)
    before = exploration.server.num_updates
    for _ in range(12):
        exploration.step("push", 0)
    assert exploration.server.num_updates >= before + 2


def test_bsp_takes_the_mean_over_those_who_are_there():
    exploration = Exploration(dml.bsp())
    exploration.step("leave", 2)
    for _ in range(6):
        exploration.step("push", 0)
    trace = exploration.server.trace(exploration.now, {"num_workers": WORKERS})
    applied = trace.tasks[trace.tasks["update"] >= 0]
    np.testing.assert_allclose(applied["weight"], 1 / 3)
    assert list(trace.updates["num_tasks"]) == [3, 3]


def test_who_comes_back_is_sent_ahead_to_the_slowest():
    exploration = Exploration(dml.ssp(2))
    exploration.step("leave", 0)
    for turn in range(30):
        exploration.step("push", turn)
    slowest = exploration.server.state.slowest
    assert slowest > 5
    exploration.step("join", 0)
    assert exploration.server.flight[0][0].clock == slowest


def test_a_policy_without_hooks_says_so():
    policy = dml.asp()._replace(on_leave=None)
    cluster = MIXED.with_faults(dml.faults.Crash(1, 0.1))
    with pytest.raises(ValueError, match=r"asp\(\) has no on_leave, but worker 1 leaves or joins"):
        dml.simulate(policy, cluster, updates=50)


def test_a_restored_server_is_the_same():
    exploration = Exploration(dml.ssp(2))
    for kind, choice in [("push", 3), ("leave", 1), ("push", 1), ("push", 2), ("join", 0), ("push", 0)] * 5:
        exploration.step(kind, choice)
    one = exploration.server
    other = exploration.new().restore(one.journal)
    kept = ("worker", "clock", "batch_size", "version", "pull", "time", "told")
    flights = [
        [[getattr(order, name) for name in kept] for orders in each.flight for order in orders]
        for each in (one, other)
    ]
    assert flights[0] == flights[1]
    assert vars(one.state) == vars(other.state)
    traces = [each.trace(100.0, {"num_workers": WORKERS}) for each in (one, other)]
    assert traces[0].tasks.equals(traces[1].tasks)
    assert traces[0].updates.equals(traces[1].updates)
