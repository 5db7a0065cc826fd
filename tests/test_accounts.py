"""Accounts: what a run has computed and sent by each update."""

import numpy as np
import pytest
from clusters import EXPONENTIAL, MIXED
from watched import simulate

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import metrics


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
