"""Lanes in one compiled loop: marks of their own, targets, shared traces, slots in place."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import plane
from wheels import wheels

import dmlcore as dml
from dmlcore.experiments import comparison
from dmlcore.training import replay
from dmlcore.training.replay import Grid, Replay

PROBLEM = plane()
OPTIMIZERS = {"sgd": optax.sgd, "adam": optax.adam}
LANES = {"one": (1, 1), "rates": (1, 3), "seeds": (3, 1), "seeds x rates": (2, 3)}


def traces_of(policy, seeds, **length):
    return [dml.simulate(policy, EXPONENTIAL, seed=seed, **length) for seed in range(seeds)]


def lanes_of(traces, rates, make=optax.sgd):
    """Every trace with every rate."""
    return [trace for trace in traces for _ in rates], [make(rate) for _ in traces for rate in rates]


def close(one, two, rtol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), one, two)


def alike(lane, alone):
    close(lane.params, alone.params)
    assert lane.history.drop(columns=[*PROBLEM.metrics]).equals(
        alone.history.drop(columns=[*PROBLEM.metrics])
    )
    np.testing.assert_allclose(lane.history["loss"], alone.history["loss"], rtol=1e-4)


@pytest.mark.parametrize("policy", [dml.asp(), dml.k_batch_async(3), dml.ssp(2)], ids=str)
def test_every_lane_has_marks_of_its_own(policy, monkeypatch):
    """Runs of so many seconds end at different updates; each is evaluated where it alone would be, also where
    windows of rows end on the way."""
    monkeypatch.setattr(replay, "MANY_TASKS", 64)
    seen = []
    loop = replay.advance_to_marks
    monkeypatch.setattr(replay, "advance_to_marks", lambda *given: seen.append(given) or loop(*given))
    traces, rates = traces_of(policy, 2, seconds=2.0), [0.1, 0.3]
    assert len(traces[0].updates) != len(traces[1].updates)
    given, optimizers = lanes_of(traces, rates)
    lanes = dml.replay_lanes(given, PROBLEM, optimizers, eval_every=17)
    rows = max(len(trace.tasks["update"].loc[lambda update: update >= 0]) for trace in traces)
    assert len(seen) <= rows // 64 + 1, "one call for each window"
    for lane, trace, optimizer in zip(lanes, given, optimizers, strict=True):
        alike(lane, dml.replay(trace, PROBLEM, optimizer, eval_every=17))


def test_a_lane_at_its_target_stays_there(monkeypatch):
    """Also while the others go on in the next windows of rows."""
    monkeypatch.setattr(replay, "MANY_TASKS", 32)
    traces, rates = traces_of(dml.asp(), 2, updates=150), [0.02, 0.1, 0.4]
    until = {"loss": 3.0}
    given, optimizers = lanes_of(traces, rates)
    lanes = dml.replay_lanes(given, PROBLEM, optimizers, until=until, eval_every=10)
    ends = [lane.history["update"].iloc[-1] for lane in lanes]
    assert len({*ends}) > 2, "they end at different updates"
    for lane, trace, optimizer in zip(lanes, given, optimizers, strict=True):
        alike(lane, dml.replay(trace, PROBLEM, optimizer, until=until, eval_every=10))


@pytest.mark.full  # the test before does it with parameters that are shared
def test_local_parameters_of_a_lane_at_its_target_stay_too(monkeypatch):
    monkeypatch.setattr(replay, "MANY_TASKS", 16)
    problem, add = wheels(), optax.identity()
    traces = [
        dml.train(problem, MIXED, dml.asp(), add, updates=60, batch_size=2, seed=seed).trace
        for seed in range(2)
    ]
    whole = dml.replay(traces[0], problem, add, eval_every=5)
    goal = {"loss": float(whole.history["loss"].iloc[4])}
    lanes = dml.replay_lanes(traces, problem, [add] * 2, until=goal, eval_every=5)
    for lane, trace in zip(lanes, traces, strict=True):
        alone = dml.replay(trace, problem, add, until=goal, eval_every=5)
        assert len(lane.history) == len(alone.history)
        close(lane.params, alone.params)


def test_a_shared_trace_is_held_and_drawn_once():
    given, optimizers = lanes_of(traces_of(dml.asp(), 2, updates=40), [0.1, 0.2, 0.3])
    driver = Replay(given, PROBLEM, optimizers)
    driver.advance(40)
    assert Grid(given).shape == (2, 3)
    assert {len(leaf) for leaf in jax.tree.leaves(driver._rows)} <= {2, 2 * len(driver._rows.last[0])}
    assert driver._rows.samples.shape[0] == 2
    order = [0, 3, 1, 4, 2, 5]  # no two neighbours have the same trace
    apart = Replay([given[lane] for lane in order], PROBLEM, [optimizers[lane] for lane in order])
    apart.advance(40)
    for place, lane in enumerate(order):
        close(apart.params(place), driver.params(lane))


def test_nothing_waits_for_the_device_on_the_way(monkeypatch):
    """Metrics are read when all calls have been made: nothing reads a result before."""
    monkeypatch.setattr(replay, "MANY_TASKS", 16)
    calls, loop = [], replay.advance_to_marks

    class Unread:
        """A result of the loop that may be handed on, and fails where it is read."""

        def __init__(self, value):
            self.value = value

        def __getattr__(self, name):
            raise AssertionError(f"{name} of a result, on the way")

        def __bool__(self):
            raise AssertionError("a result is read on the way")

        __array__ = __index__ = __int__ = __float__ = __bool__

    def call(*given):
        calls.append(1)
        return [Unread(each) for each in loop(*(g.value if isinstance(g, Unread) else g for g in given))]

    monkeypatch.setattr(replay, "advance_to_marks", call)
    driver = Replay(traces_of(dml.asp(), 2, updates=60), PROBLEM, [optax.sgd(0.1)] * 2)
    found = driver._go([[0, 30, 60]] * 2, {}, looking=True)
    assert len(calls) == 4
    found = [each._replace(columns=each.columns.value, done=each.done.value) for each in found]
    assert [len(lane) for lane in driver._read(found)] == [3, 3]


def copied(text):
    """Shapes that are copied or selected by an instruction of a compiled loop, or of what its body calls."""
    bodies, name = {}, ""
    for line in text.splitlines():
        if begun := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            name = begun[1]
            bodies[name] = []
        elif name:
            bodies[name].append(line)
    named = re.compile(r"(?:calls|to_apply|body|condition|\w+_computations?)=\{?((?:%[\w.\-]+(?:, )?)+)")
    left, seen, found = re.findall(r"body=%([\w.\-]+)", text), set(), set()
    assert left
    while left:
        if (name := left.pop()) in seen or name not in bodies:
            continue
        seen.add(name)
        for line in bodies[name]:
            left += [each for group in named.findall(line) for each in re.findall(r"[\w.\-]+", group)]
            if made := re.match(r"\s+(?:ROOT )?%\S+ = \w+\[([\d,]*)\]\S* (?:copy|select)\(", line):
                found.add(tuple(map(int, filter(None, made[1].split(",")))))
    return found


def test_copies_in_loops_are_found():
    """The old value is still read after the store, so it is copied in every turn."""

    def loop(slots):
        def turn(i, carried):
            return carried[0].at[i].set(carried[0][i + 1] + 1.0), carried[0]

        return jax.lax.fori_loop(0, 5, turn, (slots, slots))

    assert (7, 11) in copied(jax.jit(loop).lower(jnp.zeros((7, 11))).compile().as_text())


@pytest.mark.parametrize(("lanes", "optimizer"), zip(LANES, ["adam", "sgd", "adam", "adam"], strict=True))
@pytest.mark.parametrize("policy", [dml.asp(), dml.ssp(2)], ids=str)
def test_slots_are_written_in_place(policy, lanes, optimizer, monkeypatch):
    """No turn of the compiled loop copies the slots, or selects between two of them."""
    texts, loop = [], replay.advance_to_marks

    def compile(*given):
        texts.append(loop.compile(*given).as_text())
        return loop(*given)

    monkeypatch.setattr(replay, "advance_to_marks", compile)
    seeds, rates = LANES[lanes]
    given = lanes_of(
        traces_of(policy, seeds, updates=20), np.arange(1, rates + 1) / 10, OPTIMIZERS[optimizer]
    )
    driver = Replay(given[0], PROBLEM, given[1])
    driver.advance(20)
    slots = {leaf.shape for leaf in jax.tree.leaves(driver.state().slots)}
    assert slots
    assert not slots & copied(texts[0])


@pytest.mark.full  # on a CPU steps are not unrolled by default
@pytest.mark.parametrize("lanes", [1, 2])
def test_unrolled_steps_are_the_same_steps(lanes):
    traces, rates = traces_of(dml.ssp(2), lanes, updates=50), [optax.sgd(0.3)] * lanes
    drivers = [Replay(traces, PROBLEM, rates, unroll=unroll) for unroll in (1, 4)]
    marks = [[0, 7, 30, 50]] * lanes
    one, two = ([*driver.looks(marks, {}, ahead=True)] for driver in drivers)
    for before, after in zip(one, two, strict=True):
        close(before, after)
    for lane in range(lanes):
        close(*(driver.params(lane) for driver in drivers))


@pytest.mark.full  # the next test does it for a method and seed
def test_a_sweep_on_an_accelerator_trains_lanes(monkeypatch):
    """What it returns is what it returns on a CPU, up to rounding."""
    given = {"BSP": dml.bsp(), "SSP": dml.ssp(1)}, PROBLEM, EXPONENTIAL, optax.sgd, [0.1, 0.3]
    options = {"seeds": range(2), "seconds": 1.0, "until": {"loss": 6.2}}
    alone = dml.sweep(*given, **options)
    assert 0 < (alone.groupby(["method", "learning_rate", "seed"])["loss"].min() <= 6.2).sum() < 8
    lanes, make = [], replay.Grid
    monkeypatch.setattr(replay, "Grid", lambda traces: lanes.append(make(traces)) or lanes[-1])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    beside = dml.sweep(*given, **options)
    assert [grid.shape for grid in lanes] == [(2, 2)] * 2
    metrics = [*PROBLEM.metrics]
    assert beside.drop(columns=metrics).equals(alone.drop(columns=metrics))
    np.testing.assert_allclose(beside[metrics], alone[metrics], rtol=1e-3)


def test_lanes_at_once_are_bounded_and_kept(monkeypatch, tmp_path):
    """However many rates there are; what is kept is not made again."""
    given = {"SSP": dml.ssp(1)}, PROBLEM, EXPONENTIAL, optax.sgd, [0.05, 0.1, 0.2]
    alone = dml.sweep(*given, seeds=range(1), updates=20)
    lanes, make = [], replay.Grid
    monkeypatch.setattr(replay, "Grid", lambda traces: lanes.append(len(traces)) or make(traces))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(comparison, "LANES_AT_ONCE", 2)
    first = dml.sweep(*given, seeds=range(1), updates=20, save=tmp_path)
    assert lanes == [2, 1]
    metrics = [*PROBLEM.metrics]
    np.testing.assert_allclose(first[metrics], alone[metrics], rtol=1e-3)
    assert dml.sweep(*given, seeds=range(1), updates=20, save=tmp_path).equals(first)
    more = dml.sweep(*given, seeds=range(2), updates=20, save=tmp_path)
    assert lanes[2:] == [2, 1]
    old = more[more["seed"] < 1].sort_values(["learning_rate", "seed", "update"], ignore_index=True)
    assert old.equals(first.sort_values(["learning_rate", "seed", "update"], ignore_index=True))


def test_rates_share_a_trace_whose_rounds_change():
    """Its rows are in stretches of several widths, which lanes of several traces do not have."""
    trace = dml.simulate(dml.k_sync_schedule([(0.0, 1), (0.5, 4)]), EXPONENTIAL, updates=60)
    optimizers = [optax.sgd(rate) for rate in (0.05, 0.1, 0.2)]
    lanes = dml.replay_lanes([trace] * 3, PROBLEM, optimizers, eval_every=20)
    for lane, optimizer in zip(lanes, optimizers, strict=True):
        alike(lane, dml.replay(trace, PROBLEM, optimizer, eval_every=20))


def test_an_aggregate_leaves_traces_shared(monkeypatch):
    held, grid = [], Grid.__init__
    monkeypatch.setattr(Grid, "__init__", lambda self, traces: grid(self, traces) or held.append(self.shape))
    given, optimizers = lanes_of(traces_of(dml.k_sync(3), 2, updates=4), [0.1, 0.2, 0.3])
    dml.replay_lanes(given, PROBLEM, optimizers, aggregate="median")
    assert held == [(2, 3)]
