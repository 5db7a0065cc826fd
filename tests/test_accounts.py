"""Accounts: what a run has computed and sent by each update."""

import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from watched import simulate

import dmlcore as dml
from dmlcore.engines.service import Service
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.problems.validation import RESERVED
from dmlcore.trace import metrics
from dmlcore.types import Decision, Policy, Start


def test_accounts_of_k_sync():
    """Every round assigns n b samples and uses k b, broadcasts n times and hears from k."""
    schedule = dml.k_sync_schedule([(0, 3, 10)])
    trace = dml.simulate(schedule, EXPONENTIAL, updates=50, seed=0, parameter_bytes=1000)
    rounds = np.arange(51)
    found = metrics.accounts(trace)
    assert found["samples"].tolist() == (30 * rounds).tolist()
    assert found["assigned_samples"].tolist() == (40 * rounds).tolist()
    assert found["uplinks"].tolist() == (3 * rounds).tolist()
    assert found["downlinks"].tolist() == (4 * rounds).tolist()
    assert found["bytes"].tolist() == (7000 * rounds).tolist()


def test_bytes_of_pushes_and_pulls_differ():
    transport = "coded(push=one_bit())"
    trace = dml.simulate(dml.k_sync(1), EXPONENTIAL, updates=30, parameter_bytes=4000, transport=transport)
    pull, push = trace.metadata["transfer_bytes"]
    last = metrics.accounts(trace).iloc[-1]
    assert 10 * push < pull == 4000
    assert 2 * last["uplinks"] < last["downlinks"], "most tasks are cancelled"
    assert last["bytes"] == push * last["uplinks"] + pull * last["downlinks"]


@pytest.mark.parametrize("name", ALL_POLICIES)
def test_accounts_end_with_all_that_was_begun(name):
    trace = simulate(ALL_POLICIES[name](), MIXED, updates=60, seed=0)
    found, tasks = metrics.accounts(trace), trace.tasks
    assert (found.diff().dropna() >= 0).to_numpy().all()
    assert found.iloc[0].tolist() == [0] * 6
    last, end = found.iloc[-1], trace.end_time
    begun = tasks["pull_start"].fillna(tasks["compute_start"]) < end
    assert last["assigned_samples"] == tasks["batch_size"][begun].sum()
    assert last["uplinks"] == tasks["push_end"].notna().sum()
    assert last["downlinks"] == (tasks["pull_start"] < end).sum()


SERVICE = {"seconds_per_push": 0.004, "seconds_per_update": 0.002, "seconds_per_pull": 0.001}


def by_part(trace):
    """Busy shares at the end: processor, link in, link out; and the utilisation."""
    last = metrics.accounts(trace).iloc[-1]
    return [last[f"{part}_utilisation"] for part in ("processor", "link_in", "link_out")], last["utilisation"]


@pytest.mark.parametrize("policy", ["asp", "bsp"])
@pytest.mark.parametrize("workers", [1, 3])
def test_each_part_of_a_server_is_busy_for_its_own_seconds(workers, policy):
    """Its work for a message times messages a second, of which a lone worker makes 1 / cycle."""
    cluster = dml.Cluster.uniform(workers, samples_per_second=3200).with_server(bandwidth=1e6, **SERVICE)
    trace = dml.simulate(ALL_POLICIES[policy](), cluster, updates=500, parameter_bytes=5000)
    parts, utilisation = by_part(trace)
    link, processor = 0.005, sum(SERVICE.values())
    if workers == 1:
        cycle = 0.01 + 2 * link + processor
        np.testing.assert_allclose(parts, [processor / cycle, link / cycle, link / cycle], rtol=0.005)
    rounds, tasks = len(trace.updates), trace.tasks["push_end"].notna().sum()
    spent = tasks * (SERVICE["seconds_per_push"] + SERVICE["seconds_per_pull"]) + rounds * 0.002
    np.testing.assert_allclose(parts[:2], np.array([spent, tasks * link]) / trace.end_time, rtol=0.01)
    assert utilisation == max(parts)


def test_a_link_whose_directions_take_turns_is_half_used():
    """A lone worker that hardly computes: always one direction carries something, and neither is full."""
    cluster = dml.Cluster.uniform(1, samples_per_second=1e9).with_server(bandwidth=1e6)
    parts, utilisation = by_part(dml.simulate(dml.asp(), cluster, updates=500, parameter_bytes=5000))
    assert parts == pytest.approx([0.0, 0.5, 0.5], abs=0.002)
    assert utilisation == max(parts)


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_pushes_that_are_read_in_vain_keep_the_link_busy(sharing):
    """Of three workers, two make a round; the third's push is under way when they have.

    First come, first served: copies are there at 0.4, 0.8 and 1.2 s, pushes of 0.4 s at 1.8, 2.2 and, of a
    task of 0.89 s, 2.6 s. Shared: copies at 1.2 s, pushes at 3 s, to which the third, sent at 2.8 s, adds.
    """
    cluster = dml.Cluster.from_speeds([32, 32, 36 if sharing == "fifo" else 20])
    cluster = cluster.with_server(bandwidth=1000.0, sharing=sharing)
    trace = dml.simulate(dml.k_sync(2), cluster, updates=200, parameter_bytes=400)
    (_, into, out), _ = by_part(trace)
    rounds = trace.end_time / 0.4 / len(trace.updates)  # seconds of a round, in transfers
    assert into == pytest.approx(3 / rounds, rel=0.01)
    assert out == pytest.approx(3 / rounds, rel=0.01)
    assert metrics.accounts(trace)["uplinks"].iloc[-1] == 400


def test_workers_that_are_cancelled_without_an_update_were_computing():
    """A push drops itself and lets all begin anew: what the others computed was not sent, so never read."""

    def on_push(pushes, push):
        others, everyone = [w for w in range(4) if w != push.worker], [Start(w) for w in range(4)]
        if pushes % 2:
            return pushes + 1, Decision([(push.worker, push.clock, 1.0)], start=[Start(push.worker)])
        return pushes + 1, Decision(drop=[(push.worker, push.clock)], cancel=others, start=everyone)

    policy = Policy("restarts", lambda num_workers: 0, on_push)
    trace = dml.simulate(policy, EXPONENTIAL.resized(4).with_server(seconds_per_push=1e-5), updates=100)
    assert trace.tasks["push_end"].isna().sum() > 250
    last = metrics.accounts(trace).iloc[-1]
    spent = last["processor_utilisation"] * trace.end_time / 1e-5
    assert spent == pytest.approx(last["uplinks"], rel=0.02), (
        "hardly one was on its way when it was cancelled"
    )


@pytest.mark.parametrize("name", ["k_sync", "k_batch_sync", "deadline", "asp", "bsp"])
@pytest.mark.parametrize("bandwidth", [1e5, np.inf])
def test_busy_seconds_are_those_of_what_the_server_took(name, bandwidth, monkeypatch):
    """Counted at the queues themselves; at the end, what is still in them is not read yet."""
    taken, made = [], Service.__init__

    def counting(self, *given):
        made(self, *given)
        take = self.take
        self.take = lambda *push: taken.append(push) or take(*push)

    monkeypatch.setattr(Service, "__init__", counting)
    cluster = EXPONENTIAL.with_server(bandwidth=bandwidth, **SERVICE)
    trace = dml.simulate(ALL_POLICIES[name](), cluster, updates=300, parameter_bytes=500)
    last = metrics.accounts(trace).iloc[-1]
    spent = len(taken) * 0.004 + 300 * 0.002 + last["downlinks"] * 0.001
    assert last["processor_utilisation"] == pytest.approx(min(spent / trace.end_time, 1), rel=0.02)
    link = 500 / bandwidth * len(taken) / trace.end_time
    assert last["link_in_utilisation"] == pytest.approx(link, rel=0.02)


def test_columns_of_a_history_are_no_names_of_metrics():
    problem = dml.problems.linear_regression()
    cluster = dml.Cluster.uniform(2).with_server(**SERVICE)
    run = dml.train(problem, cluster, dml.asp(), optax.sgd(1e-4), updates=3)
    assert {*run.history} - {*problem.metrics} <= RESERVED
