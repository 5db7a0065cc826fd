"""Timers: they fire exactly when they are due, in a defined order, once, whatever else happens."""

import math

import numpy as np
import optax
import pytest
from clusters import CONTENDED, EXPONENTIAL, LOCK_STEP, MIXED
from engine_runs import check_replay, plane, same_timeline
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlcore as dml
from dmlcore.cluster.faults import Crash, ServerCrash
from dmlcore.engines.server import Server
from dmlcore.engines.spec import RunSpec
from dmlcore.types import Decision, Policy, Start

SGD = optax.sgd(0.1)


def with_timers(on_wake, policy=None):
    """ASP, or another policy, that also does `on_wake(token, time) -> decision`."""

    def called(state, token, time):
        return state, on_wake(token, time)

    return (policy or dml.asp())._replace(name="timed()", on_wake=called)


def ticking(log, seconds=1.0):
    """A policy that wakes up once every so many seconds, and logs it."""

    def on_wake(token, time):
        log.append((token, time))
        return Decision(wake=(seconds, 0 if token is None else token + 1))

    return with_timers(on_wake)


delays = st.one_of(st.sampled_from([0.0, 0.032, 0.1, math.inf]), st.floats(0, 1))


@settings(max_examples=80)
@given(
    st.lists(delays, max_size=30),
    st.sampled_from([EXPONENTIAL, LOCK_STEP, CONTENDED, MIXED]),
    st.sampled_from([None, "pipelined()"]),
)
def test_timers_fire_in_order_and_exactly_when_they_are_due(seconds, cluster, transport):
    """Set by pushes and by timers, also where the server is busy: they count from the end of an update."""
    left, due, fired, asp = [*enumerate(seconds)], [], [], dml.asp()
    takes = cluster.server.seconds_per_update if cluster.server else 0.0
    last = 0.0  # update

    def wake(time):
        if not left:
            return None
        token, delay = left.pop(0)
        due.append((time + delay, token))
        return delay, token

    def on_push(state, push):
        nonlocal last
        state, decision = asp.on_push(state, push)
        last = push.time + takes
        return state, decision._replace(wake=wake(last))

    def on_wake(token, time):
        if token is not None:
            fired.append((time, token))
        return Decision(wake=wake(max(time, last)))

    policy = with_timers(on_wake, asp._replace(on_push=on_push))
    trace = dml.simulate(policy, cluster, seconds=2.0, transport=transport)
    assert fired == sorted(each for each in due if each[0] <= 2.0)
    assert [time for time, _, _ in trace.metadata["wakes"][1:]] == [time for time, _ in fired]


def test_every_second_on_the_virtual_clock():
    log = []
    trace = dml.simulate(ticking(log), MIXED, seconds=20.0)
    assert log == [(None, 0.0), *((k, k + 1.0) for k in range(20))]
    plain = dml.simulate(dml.asp(), MIXED, seconds=20.0)
    assert same_timeline(trace, plain), "what a policy does not decide changes nothing"
    steps = [*dml.follow(ticking([]), trace)]
    assert [(s.push.token, s.push.time) for s in steps if s.row == -1] == log
    assert [s.push for s in steps if s.row >= 0] == [s.push for s in dml.follow(dml.asp(), plain)]


def test_every_second_on_threads():
    """As soon as the server can: never early, and the next one second later."""
    log = []
    engine, problem = dml.engines.threads(time_scale=0.05), plane()
    run = dml.train(problem, EXPONENTIAL, ticking(log), SGD, seconds=10.0, engine=engine, eval_every=10**6)
    times = [time for _, time in log]
    assert log[0] == (None, 0.0)
    assert [token for token, _ in log[1:]] == [*range(len(log) - 1)]
    assert 3 <= len(log) <= 11
    assert (np.diff(times) >= 1.0 - 1e-9).all()
    assert [time for time, _, _ in run.trace.metadata["wakes"]] == times
    check_replay(run, problem, SGD)


@pytest.mark.full  # other engines keep the same timers, and test_conformance runs deadlines on Ray
@pytest.mark.parametrize("scale", [pytest.param(0.1, id="on-ray-actors")])  # run with the other tests of Ray
def test_every_second_on_ray(scale, ray_cluster):
    """The server process keeps the timers; the trace says when each fired, and after how many pushes."""
    engine, problem = dml.engines.ray(time_scale=scale, keep=True), plane()
    # 600 tasks take 2.5 s or more of modelled time, however late the first one comes.
    run = dml.train(problem, EXPONENTIAL, ticking([]), SGD, updates=600, engine=engine, eval_every=10**6)
    times, pushes, numbers = zip(*run.trace.metadata["wakes"], strict=True)
    assert numbers == (*range(len(numbers)),)
    assert times[0] == pushes[0] == 0
    assert (np.diff(times) >= 1.0 - 1e-9).all()
    arrived = run.trace.tasks["push_end"].dropna().to_numpy()
    assert [int((arrived <= time).sum()) for time in times] == [*pushes]
    assert pushes[-1] > 0
    check_replay(run, problem, SGD)


def test_the_order_at_equal_times():
    """Faults, then pushes in the order in which their tasks began, then timers as they were set."""
    log, asp = [], dml.asp()

    def logged(name, hook):
        def call(state, *happened):
            log.append((name, happened[0].worker if name == "push" else happened[0]))
            return hook(state, *happened)

        return call

    def on_wake(token, time):
        if token is None:
            return Decision(wake=(0.0, 0))
        log.append(("wake", token))
        # At 0 s three timers in a row; the last of them was set first for 32 ms.
        return Decision(wake=(0.032, token + 10) if token < 3 else None) if time else chained(token)

    def chained(token):
        return Decision(wake=(0.032, 10)) if token == 2 else Decision(wake=(0.0, token + 1))

    hooks = {"on_push": logged("push", asp.on_push), "on_leave": logged("leave", asp.on_leave)}
    policy = with_timers(on_wake, asp._replace(**hooks))
    dml.simulate(policy, LOCK_STEP.with_faults(Crash(worker=2, time=0.032)), seconds=0.05)
    assert log == [
        *(("wake", k) for k in range(3)),
        ("leave", 2),
        *(("push", k) for k in (0, 1, 3)),
        ("wake", 10),
    ]


@pytest.mark.parametrize("engine", ["simulate", dml.engines.threads(time_scale=0.05)], ids=str)
@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
def test_a_pending_timer_is_no_deadlock(engine, transport):
    """Workers that have pushed wait for the next full second, all of them."""

    def on_push(state, push):
        state[push.worker] = (push.worker, push.clock, 1.0)
        return state, Decision(apply=[state[push.worker]])

    def on_wake(state, token, time):
        start = [Start(worker) for worker in sorted(state)]
        state.clear()
        return state, Decision(start=start, wake=(1.0, ()))

    policy = Policy("by_the_second()", lambda num_workers: {}, on_push, on_wake=on_wake)
    options = {"updates": 40, "engine": engine, "transport": transport, "eval_every": 10**6}
    run = dml.train(plane(), LOCK_STEP, policy, SGD, **options)
    wakes = {time for time, _, _ in run.trace.metadata["wakes"]}
    assert {*run.trace.tasks["pull_start"]} <= wakes
    assert run.trace.end_time >= 9
    if engine == "simulate":
        assert wakes == {*map(float, range(10))}


@pytest.mark.parametrize(
    ("wake", "message"),
    [
        ((-1.0, 0), "seconds of wake: expected a number >= 0.*, got -1.0"),
        ((math.nan, 0), "seconds of wake: expected a number >= 0.*, got nan"),
        (("1", 0), "seconds of wake: expected a number >= 0.*, got '1'"),
        ((True, 0), "seconds of wake: expected a number >= 0.*, got True"),
        (1.0, r"wake: expected a pair \(seconds, token\).*, got 1.0"),
        ((1.0,), r"wake: expected a pair \(seconds, token\).*, got \(1.0,\)"),
        ((), r"wake: expected a pair \(seconds, token\).*, got \(\)"),
    ],
)
@pytest.mark.parametrize("hook", ["on_push", "on_wake"])
def test_a_wrong_timer_is_one_clear_error(hook, wake, message):
    def decide(state, happened, *_):
        apply = [(happened.worker, happened.clock, 1.0)] if hook == "on_push" else ()
        return state, Decision(apply, wake=wake)

    policy = with_timers(lambda token, time: Decision())._replace(**{hook: decide})
    with pytest.raises(ValueError, match=rf"timed\(\), {message}"):
        dml.simulate(policy, LOCK_STEP, updates=10)
    if hook == "on_push":
        with pytest.raises(ValueError, match=r"timed\(\) sets a timer, wake=.*, but has no on_wake"):
            dml.simulate(policy._replace(on_wake=None), LOCK_STEP, updates=10)


def test_an_answer_that_is_no_decision():
    policy = with_timers(lambda token, time: None)
    with pytest.raises(ValueError, match=r"timed\(\), on_wake: expected a state and.*, got .*None"):
        dml.simulate(policy, LOCK_STEP, updates=10)


def test_timers_alone_do_not_keep_a_run_from_its_end(monkeypatch):
    monkeypatch.setattr("dmlcore.engines.server.MOST_TASKS", 500)
    silent = dml.asp()._replace(on_push=lambda state, push: (state, Decision()))
    every = with_timers(lambda token, time: Decision(wake=(1.0, 0)), silent)
    with pytest.raises(RuntimeError, match=r"timed\(\) makes no progress: 500 timers .* update 0, by 500 s"):
        dml.simulate(every, LOCK_STEP, updates=10)
    assert dml.simulate(every, LOCK_STEP, seconds=2000.0).end_time == 2000
    standing = with_timers(lambda token, time: Decision(wake=(0.0, 0)), silent)
    with pytest.raises(RuntimeError, match="500 timers fired since update 0, by 0 s"):
        dml.simulate(standing, LOCK_STEP, seconds=10.0)


def server_of(policy, cluster=EXPONENTIAL):
    return Server(RunSpec.checked(policy, cluster, updates=100), lambda order: (order.time, order.time, 0.0))


def test_a_restored_server_has_set_its_timers_again():
    def on_wake(token, time):
        return Decision(wake=(1.0 + time, [token]))

    one = server_of(with_timers(on_wake))
    one.begin()
    one.wake(0.0)
    one.push(one.flight[2][0], 0.5, 0.0, 0.5)
    one.wake(1.25)  # late
    other = server_of(with_timers(on_wake)).restore(one.journal)
    assert one.timers == other.timers == [(3.5, 2, [[None]])]
    assert one.due == 3.5


def test_timers_of_a_server_that_was_down():
    """Those that were due fire when it is back, in the order in which they were due, the others in time."""

    def on_wake(token, time):
        chain = {None: (0.0, "a"), "a": (3.0, "three"), "three": None}
        return Decision(wake=chain.get(token))

    def on_push(state, push):
        state, decision = dml.asp().on_push(state, push)
        wake = (1.9 - push.time, "two") if push.clock == push.worker == 0 else None
        return state, decision._replace(wake=wake or ((8.0, "late") if push.clock == 1 else None))

    cluster = dml.Cluster.uniform(1, samples_per_second=64).with_faults(
        ServerCrash(time=1.6, seconds=3.0), checkpoint_every=1
    )
    policy = with_timers(on_wake, dml.asp()._replace(on_push=on_push))
    trace = dml.simulate(policy, cluster, seconds=12.0)
    names = [None, "a", "three", "two", "late"]  # in the order in which they are set
    fired = [(names[number], time) for time, _, number in trace.metadata["wakes"]]
    assert fired == [(None, 0.0), ("a", 0.0), ("two", 4.6), ("three", 4.6), ("late", 9.0)]


@pytest.mark.parametrize("engine", ["simulate", dml.engines.threads(time_scale=0.1)], ids=str)
def test_a_server_that_is_killed_before_its_first_checkpoint_is_woken_anew(engine):
    log = []
    cluster = LOCK_STEP.with_faults(ServerCrash(time=1.5, seconds=2.0), checkpoint_every=10**6)
    options = {"seconds": 6.0, "engine": engine, "eval_every": 10**6}
    dml.train(plane(), cluster, ticking(log), SGD, **options)
    times = [time for _, time in log]
    assert [token for token, _ in log][:4] == [None, 0, None, 0]
    assert times[2] >= 3.5
    if engine == "simulate":
        assert times == [0, 1, 3.5, 4.5, 5.5]


def test_a_timer_interrupts_a_push_that_is_being_read():
    """By hand: pushes come at 1 s, and are read until 2 and 3 s; at 2.5 s comes an update of 0.25 s."""
    cluster = dml.Cluster.uniform(2, samples_per_second=32)
    cluster = cluster.with_server(seconds_per_push=1.0, seconds_per_update=0.25)

    def policy(cancel):
        def on_push(state, push):
            return state | {push.worker}, Decision()

        def on_wake(state, token, time):
            if token is None:
                return state, Decision(wake=(2.5, 0))
            if 0 not in state:  # a busy machine
                return state, Decision(wake=(0.1, 0))
            if token:
                return state, Decision()
            start = [Start(0), *(Start(worker) for worker in cancel)]
            return state, Decision([(0, 0, 1.0)], (), cancel, start, wake=(100.0, 1))

        return Policy("hand()", lambda num_workers: set(), on_push, on_wake=on_wake)

    trace = dml.simulate(policy([]), cluster, seconds=20.0)
    assert list(trace.updates["time"]) == [2.75]
    assert list(trace.tasks["push_end"]) == [2.0, 3.25, 4.75]
    assert list(trace.tasks["push_queued"]) == [0.0, 1.25, 0.0]
    # Where its task is cancelled the push is read to its end all the same, and once; so are those after it.
    trace = dml.simulate(policy([1]), cluster, seconds=20.0)
    assert list(trace.tasks["push_end"].dropna()) == [2.0, 4.75, 5.75]
    engine = dml.engines.threads(time_scale=0.1)
    run = dml.train(plane(), cluster, policy([]), SGD, seconds=8.0, engine=engine)
    update, ended = run.trace.updates["time"][0], run.trace.tasks["push_end"]
    assert update >= 2.75
    assert (ended >= [2.0, 3.25 if update < 3.25 else 3.0, 4.75]).all()
