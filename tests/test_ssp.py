"""The SSP conditions of Ho et al. 2013, section 2, in every schedule that hypothesis can find."""

import copy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlcore.methods.policies import dssp, essp, ssp
from dmlcore.trace import metrics
from dmlcore.types import Push


class Exploration:
    """Drives a policy by hand: any worker that has a task may finish it next; records a trace's columns."""

    def __init__(self, policy, num_workers):
        self.policy, self.num_workers = policy, num_workers
        self.state = policy.init(num_workers)
        self.version, self.now = 0, 0.0
        self.clock = [0] * num_workers
        self.running = {}  # version, pull, start
        self.told = {}
        self.tasks, self.updates = {}, []
        for worker in range(num_workers):
            self.pull(worker)

    def pull(self, worker):
        assert worker not in self.running, "a worker has one task at a time"
        self.running[worker] = (self.version, self.now, self.now)
        if self.policy.on_pull is not None:
            self.told[worker] = self.policy.on_pull(self.state, worker)

    def finish(self, worker):
        """Lets the worker's task arrive and carries the decision out."""
        self.now += 1.0
        version, pull, start = self.running.pop(worker)
        clock = self.clock[worker]
        row = [worker, clock, 1, version, pull, start, self.now, self.now, -1, 0.0]
        self.tasks[worker, clock] = row
        self.clock[worker] += 1
        kept = self.policy.keep_copy
        keeps = kept is not None and kept(self.told[worker][0], self.clock[worker])
        if keeps:
            self.running[worker] = (version, float("nan"), self.now)
        push = Push(worker, clock, version, self.now, self.now - start, 1, keeps)
        self.state, decision = self.policy.on_push(self.state, push)
        if decision.apply:
            for w, c, weight in decision.apply:
                assert self.tasks[w, c][8] == -1, "a push is applied once"
                self.tasks[w, c][8:] = [self.version, weight]
            self.updates.append((self.now, len(decision.apply), len(decision.apply)))
            self.version += 1
        for start in decision.start:
            self.pull(start.worker)
        assert self.running, "somebody is always at work"

    def trace(self):
        from dmlcore.trace.trace import TASK_COLUMNS, UPDATE_COLUMNS, Trace

        # Tasks under way have read already, and so count.
        for worker, (version, pull, start) in self.running.items():
            row = [worker, self.clock[worker], 1, version, pull, start, self.now, np.nan, -1, 0.0]
            self.tasks[worker, self.clock[worker]] = row
        tasks = pd.DataFrame(list(self.tasks.values()), columns=list(TASK_COLUMNS)).astype(TASK_COLUMNS)
        updates = pd.DataFrame(self.updates, columns=list(UPDATE_COLUMNS)).astype(UPDATE_COLUMNS)
        return Trace(tasks, updates, {"num_workers": self.num_workers, "end_time": self.now})


schedules = st.lists(st.integers(0, 1000), min_size=1, max_size=120)


def explore(policy, num_workers, choices):
    exploration = Exploration(policy, num_workers)
    for choice in choices:
        workers = sorted(exploration.running)
        exploration.finish(workers[choice % len(workers)])
    return exploration.trace().validate()


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from([ssp, essp]), schedules)
def test_clock_gap_and_read_window(num_workers, staleness, policy, choices):
    trace = explore(policy(staleness), num_workers, choices)
    assert metrics.clock_gap(trace) <= staleness
    assert metrics.read_window_violations(trace, staleness).empty


@settings(max_examples=100)
@given(st.integers(1, 5), st.integers(0, 3), st.sampled_from([ssp, essp]), schedules)
def test_read_window_by_plain_counting(num_workers, staleness, policy, choices):
    """The same guarantee, spelled out: a read at clock c holds every update of clocks <= c - s - 1."""
    tasks = explore(policy(staleness), num_workers, choices).tasks
    landed = {(t.worker, t.clock): t.update for t in tasks.itertuples()}
    for task in tasks.itertuples():
        for other in range(num_workers):
            if other == task.worker:
                continue  # its own are in its copy
            for clock in range(task.clock - staleness):
                update = landed[other, clock]
                assert 0 <= update < task.version_read


@settings(max_examples=100)
@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 4), schedules)
def test_dssp_never_stalls_and_waits_only_beyond_its_lower_bound(num_workers, lower, extra, choices):
    trace = explore(dssp(lower, lower + extra), num_workers, choices)
    if extra == 0:
        assert metrics.clock_gap(trace) <= lower


def interleavings(policy, num_workers, clocks):
    """Yields the end of every order of arrival in which no worker goes beyond `clocks` clocks."""
    stack = [Exploration(policy, num_workers)]
    while stack:
        exploration = stack.pop()
        open_ends = [worker for worker in exploration.running if exploration.clock[worker] < clocks]
        for worker in open_ends:
            branch = copy.deepcopy(exploration)
            branch.finish(worker)
            stack.append(branch)
        if not open_ends:
            yield exploration


@pytest.mark.full  # test_interleavings tries every order of three workers, on the server
def test_every_interleaving_of_a_small_cluster():
    """Exhaustive: 2 workers x 4 clocks and 3 workers x 2 clocks, s = 0, 1, 2."""
    count = 0
    for num_workers, clocks in ((2, 4), (3, 2)):
        for staleness in (0, 1, 2):
            for policy in (ssp, essp):
                for exploration in interleavings(policy(staleness), num_workers, clocks):
                    assert exploration.clock == [clocks] * num_workers, "nobody is stuck before the end"
                    trace = exploration.trace()
                    assert metrics.clock_gap(trace) <= staleness
                    assert metrics.read_window_violations(trace, staleness).empty
                    count += 1
    assert count > 500


def test_dssp_controller_by_hand():
    """Sim_slow = 6.4, 9.6, ... and Sim_0[r] = 4.2 + 2.2 r meet at r = 1: one extra clock, as in the paper."""
    policy = dssp(lower=1, upper=6)
    state = policy.init(2)

    def push(worker, clock, time):
        _, decision = policy.on_push(state, Push(worker, clock, 0, time, 1.0, 1))
        return [start.worker for start in decision.start]

    assert push(0, 0, 1.0) == [0], "within the lower bound"
    assert push(0, 1, 2.0) == [], "beyond it, and nothing is known of worker 1 yet"
    assert push(1, 0, 3.2) == [0, 1]
    assert push(0, 2, 4.2) == [0]
    assert state.credit == [1, 0]
    assert push(0, 3, 5.2) == [0], "on credit"
    assert state.credit == [0, 0]
