"""Pushes of tasks that begin together: however they are kept until they arrive, a run stays the same."""

import pytest
from clusters import CLUSTERS
from watched import simulate

import dmlcore as dml
from dmlcore.engines import virtual
from dmlcore.methods.policies import ALL_POLICIES


@pytest.mark.parametrize("cancelled", [0, 1000])  # from how many on cancelled pushes are swept out
@pytest.mark.parametrize("cluster", ["exponential", "lock_step", "contended"])
@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_wave_changes_nothing(policy, cluster, cancelled, monkeypatch):
    def run(fewest):
        monkeypatch.setattr(virtual, "FEWEST", fewest)
        return simulate(ALL_POLICIES[policy](), CLUSTERS[cluster].resized(7), updates=60, seed=3)

    heap = run(1000)
    monkeypatch.setattr(virtual, "MANY_CANCELLED", cancelled)
    waves = run(1)
    assert waves.tasks.equals(heap.tasks)
    assert waves.updates.equals(heap.updates)
    assert waves.end_time == heap.end_time


def test_cancelled_pushes_do_not_pile_up(monkeypatch):
    """Of rounds that take the first push of 40 and cancel the rest, at most three rounds are kept."""
    most, place = [], virtual.Wave.begin

    def begin(wave, heap):
        place(wave, heap)
        most.append(sum(len(each.pushes) for each in clocks[0].waves) + len(wave.pushes) + len(heap))

    clocks, init = [], virtual.VirtualClock.__init__

    def remember(clock, *args):
        init(clock, *args)
        clocks.append(clock)

    monkeypatch.setattr(virtual, "MANY_CANCELLED", 0)
    monkeypatch.setattr(virtual.Wave, "begin", begin)
    monkeypatch.setattr(virtual.VirtualClock, "__init__", remember)
    cluster = CLUSTERS["exponential"].resized(40)
    dml.simulate(dml.k_sync(1), cluster, updates=200)
    assert len(most) == 200
    assert max(most) <= 3 * 40
