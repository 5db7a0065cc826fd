"""Transports: pipelines take the time and make the updates they should; codecs round in the training too."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from engine_runs import check_counts, check_replay, everywhere, plane
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import pack
from reference import replay_reference
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.faults import Crash
from dmlcore.methods import codecs
from dmlcore.methods.transport import coded, pipelined, plain, resolve
from dmlcore.training.stepper import Stepper

PROBLEM = plane()
CLUSTER = dml.Cluster.from_speeds([1000, 800, 500], latency=0.002, bandwidth=2e6, jitter=stats.expon())
TRANSPORTS = {
    "stochastic": coded("affine(bits=8)"),
    "feedback": coded("error_feedback(one_bit())"),
    "difference": coded(pull="difference(affine(bits=8, stochastic=False))"),
    "both ways": coded("error_feedback(affine(bits=4))", "difference(affine(bits=6))"),
    "sparse": coded(
        "error_feedback(top_k(fraction=0.4))", "difference(random_k(fraction=0.5, unbiased=False))"
    ),
    "low rank": coded("error_feedback(power_sgd(rank=2))"),
    "rounded parameters": coded("terngrad()", "affine(bits=8)"),
    "pipelined": pipelined(),
    "own steps": pipelined(own_steps=True),
    "all": pipelined(coded("qsgd(levels=8)", "affine(bits=8)"), own_steps=True),
}


def largest_difference(first, second):
    return max(
        float(abs(a - b).max()) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


@pytest.mark.parametrize("latency", [0.0, 0.1, 0.5, 0.8, 3.0])
@pytest.mark.parametrize("speeds", [[32.0] * 3, [32.0, 16.0, 8.0]], ids=["even", "uneven"])
def test_a_pipelined_round_takes_the_longer_of_computing_and_transfers(latency, speeds):
    cluster = dml.Cluster.from_speeds(speeds, latency=latency)
    trace = dml.simulate(dml.bsp(), cluster, updates=40, transport=pipelined())
    rounds = np.diff(trace.updates["time"])[5:]
    computing = 32 / min(speeds)
    np.testing.assert_allclose(rounds, max(computing, 2 * latency), rtol=1e-12)
    one_after_the_other = dml.simulate(dml.bsp(), cluster, updates=40)
    np.testing.assert_allclose(np.diff(one_after_the_other.updates["time"]), computing + 2 * latency)


@given(
    seed=st.integers(0, 99),
    latency=st.sampled_from([0.0, 0.01, 0.1]),
    policy=st.sampled_from([dml.bsp(), dml.asp(), dml.essp(1), dml.k_async(2)]),
)
@settings(max_examples=30)
def test_a_pipelined_worker_computes_one_task_after_the_other_on_what_it_has(seed, latency, policy):
    cluster = dml.Cluster.uniform(4, latency=latency, jitter=stats.expon(), latency_jitter=stats.expon())
    trace = dml.simulate(policy, cluster, updates=60, seed=seed, transport=pipelined())
    for _, tasks in trace.tasks.sort_values("clock").groupby("worker"):
        start, end, arrival = (
            tasks[name].to_numpy() for name in ("compute_start", "compute_end", "push_end")
        )
        assert tasks["clock"].tolist() == list(range(len(tasks)))
        assert (start[1:] >= end[:-1]).all()
        there = np.isfinite(arrival)
        # A push sets off when the next task begins, and takes the link's time from there.
        assert (arrival[:-1] >= start[1:])[there[:-1]].all()
        # The copy of a task was sent when the push before the last had arrived.
        assert (tasks["pull_start"].to_numpy()[2:] >= arrival[:-2])[there[:-2]].all()


def gradient_of_round(stepper, params, clock, workers, weight):
    parts = [stepper.weighed(weight, stepper.task(params, w, clock, 32)[0]) for w in range(workers)]
    return stepper.total(parts)


@pytest.mark.parametrize("workers", [1, 3])
def test_delay_one_is_its_recurrence(workers):
    """w_{k+1} = w_k - eta G(w_{k-1})."""
    problem, optimizer = plane(), optax.sgd(0.3)
    cluster = dml.Cluster.uniform(workers, latency=0.01)
    run = dml.train(problem, cluster, dml.bsp(), optimizer, updates=30, transport=pipelined())
    stepper = Stepper(problem, optimizer, seed=0)
    states = [stepper.start()]
    for k in range(30):
        gradient = gradient_of_round(stepper, states[max(k - 1, 0)][0], k, workers, 1 / workers)
        states.append(stepper.step(gradient, states[-1]))
    difference = largest_difference(run.params, states[-1][0])
    assert difference == 0 if workers == 1 else difference < 1e-6  # several are one gradient, by rounding


def test_own_steps_are_their_recurrence():
    """w_i = w_{k-1} - eta g_i(its view at k - 1), w_{k+1} = w_k - eta mean_i g_i(w_i)."""
    problem, eta, workers = plane(), 0.3, 3
    cluster = dml.Cluster.uniform(workers, latency=0.01)
    run = dml.train(
        problem, cluster, dml.bsp(), optax.sgd(eta), updates=30, transport=pipelined(own_steps=True)
    )
    stepper = Stepper(problem, optax.sgd(eta), seed=0)
    versions = [stepper.start()[0]]
    own = [jax.tree.map(jnp.zeros_like, versions[0])] * workers
    for k in range(30):
        views = [jax.tree.map(jnp.add, versions[max(k - 1, 0)], delta) for delta in own]
        gradients = [stepper.task(view, w, k, 32)[0] for w, view in enumerate(views)]
        own = [jax.tree.map(lambda g: -eta * g, gradient) for gradient in gradients]
        mean = jax.tree.map(lambda *parts: sum(parts) / workers, *gradients)
        versions.append(jax.tree.map(lambda w, g: w - eta * g, versions[-1], mean))
    assert largest_difference(run.params, versions[-1]) < 1e-5


WITHOUT_ROUNDS = ("both ways", "pipelined", "all")  # by default only with other policies than BSP


@pytest.mark.parametrize(
    ("policy", "name", "optimizer"),
    [
        pytest.param(dml.bsp(), name, optax.sgd(2e-3), marks=[pytest.mark.full] * (name in WITHOUT_ROUNDS))
        for name in TRANSPORTS
    ]
    + [(dml.asp(), name, optax.sgd(2e-3)) for name in ("both ways", "pipelined")]
    + [pytest.param(dml.asp(), "all", optax.sgd(2e-3), marks=pytest.mark.full)]
    + [(dml.k_async(2), "all", optax.adam(0.01))],
    ids=lambda value: getattr(value, "name", value if isinstance(value, str) else ""),
)
def test_compiled_equals_reference(policy, name, optimizer):
    with jax.enable_x64(True):
        problem = dml.problems.linear_regression(num_samples=64, num_features=5, dtype="float64")
        options = {"updates": 40, "transport": TRANSPORTS[name], "batch_size": 8}
        run = dml.train(problem, CLUSTER, policy, optimizer, **options)
        assert largest_difference(run.params, replay_reference(run.trace, problem, optimizer)) <= 1e-10


@pytest.mark.parametrize(("policy", "engine"), everywhere(dml.asp()), ids=str)
def test_exact_codecs_change_nothing(policy, made_engine):
    cluster = dml.Cluster.from_speeds([1000, 800, 500], latency=0.002, jitter=stats.expon())
    given = plane(), cluster, policy, optax.sgd(0.1)
    runs = [
        dml.train(*given, updates=60, transport=transport, engine=made_engine)
        for transport in (plain(), coded("exact()", "exact()"), coded("top_k(1)", "random_k(1)"))
    ]
    assert [largest_difference(runs[0].params, run.params) for run in runs] == [0, 0, 0]
    assert runs[0].trace.metadata["transfer_bytes"] == runs[1].trace.metadata["transfer_bytes"]


def test_a_codec_of_ones_own_stands_in_the_table_under_its_name(monkeypatch):
    own = codecs.one_bit()._replace(name="mine()")

    def train():
        return dml.train(PROBLEM, CLUSTER, dml.bsp(), optax.sgd(0.1), updates=3, transport=coded(own))

    with pytest.raises(ValueError, match=r"mine.*put its function into dml\.codecs\.CODECS"):
        train()
    monkeypatch.setitem(codecs.CODECS, "mine", lambda: own)
    check_replay(train(), PROBLEM, optax.sgd(0.1))


@pytest.mark.parametrize("codec", [codecs.affine(5), codecs.top_k(0.01), codecs.power_sgd(2)], ids=str)
def test_the_clock_is_charged_what_the_message_weighs(codec):
    problem = plane()
    params = problem.init(jax.random.key(0))
    message, _ = codec.encode(jax.random.key(1), codec.init(params), params)
    slow = dml.Cluster.uniform(2, bandwidth=1000.0)
    trace = dml.simulate(
        dml.asp(),
        slow,
        updates=2,
        transport=coded(codec),
        parameter_bytes=problem.parameter_bytes,
        tensor_shapes=problem.tensor_shapes,
    )
    pulled, pushed = trace.metadata["transfer_bytes"]
    assert pushed == len(pack(message)) == codec.num_bytes(problem.tensor_shapes)
    assert pulled == problem.parameter_bytes
    task = trace.tasks.iloc[0]
    assert task["push_end"] - task["compute_end"] == pytest.approx(pushed / 1000)
    assert task["compute_start"] - task["pull_start"] == pytest.approx(pulled / 1000)


@pytest.mark.full  # test_train does it in a sweep with a codec
def test_lanes_side_by_side_are_those_alone(both_dtypes):
    """In 64 bits: lanes are rounded otherwise, and a value at the edge between two codes may take the other
    one, which in 32 bits happens to one of some thousand values."""
    problem, optimizer = plane("float64"), optax.sgd(0.2)
    transport = coded("error_feedback(one_bit())", "difference(affine(bits=8))")
    runs = [
        dml.train(problem, CLUSTER, dml.asp(), optimizer, updates=30, transport=transport, seed=seed)
        for seed in range(2)
    ]
    lanes = dml.replay_lanes([run.trace for run in runs], problem, [optimizer] * 2)
    for run, lane in zip(runs, lanes, strict=True):
        assert largest_difference(run.params, lane.params) < 1e-9


def test_a_saved_trace_says_how_values_travelled(tmp_path):
    problem, optimizer = plane(), optax.sgd(0.2)
    run = dml.train(problem, CLUSTER, dml.bsp(), optimizer, updates=10, transport=TRANSPORTS["all"])
    run.trace.save(tmp_path / "trace.parquet")
    again = dml.replay(dml.Trace.load(tmp_path / "trace.parquet"), problem, optimizer)
    assert largest_difference(run.params, again.params) == 0
    sizes = {"parameter_bytes": problem.parameter_bytes, "tensor_shapes": problem.tensor_shapes}
    simulated = dml.simulate(dml.bsp(), CLUSTER, updates=1, transport=TRANSPORTS["all"], **sizes)
    assert run.trace.metadata["transfer_bytes"] == simulated.metadata["transfer_bytes"]


def test_names_make_the_same_transport():
    for transport in TRANSPORTS.values():
        assert resolve(transport.name) == transport


def test_coded_training_is_its_recurrence():
    """Feedback: g + e_i is sent, e_i is what rounding took. Differences: c_i += Q(w - c_i) is computed on."""
    problem, workers = plane(), 3
    up, down = codecs.one_bit(), codecs.affine(4, stochastic=False)
    transport = coded(codecs.error_feedback(up), codecs.difference(down))
    cluster = dml.Cluster.uniform(workers)
    run = dml.train(problem, cluster, dml.bsp(), optax.sgd(0.3), updates=20, transport=transport)
    stepper = Stepper(problem, optax.sgd(0.3), seed=0)
    state = stepper.start()
    residual = [jax.tree.map(jnp.zeros_like, state[0])] * workers
    copy = [state[0]] * workers
    for k in range(20):
        parts = []
        for i in range(workers):
            change = jax.tree.map(jnp.subtract, state[0], copy[i])
            copy[i] = jax.tree.map(jnp.add, copy[i], codecs.transmit(down, None, (), change)[0])
            total = jax.tree.map(jnp.add, stepper.task(copy[i], i, k, 32)[0], residual[i])
            sent = codecs.transmit(up, None, (), total)[0]
            residual[i] = jax.tree.map(jnp.subtract, total, sent)
            parts.append(stepper.weighed(1 / workers, sent))
        state = stepper.step(stepper.total(parts), state)
    plainly = dml.train(problem, cluster, dml.bsp(), optax.sgd(0.3), updates=20)
    assert largest_difference(run.params, plainly.params) > 0.05
    assert largest_difference(run.params, state[0]) < 1e-3


@pytest.mark.parametrize(
    "transport",
    [
        coded("error_feedback(one_bit())", "difference(affine(bits=2, stochastic=False))"),
        TRANSPORTS["sparse"],
    ],
    ids=str,
)
def test_threads_round_as_the_replay_does(transport):
    problem, optimizer = plane(), optax.sgd(0.1)
    engine = dml.engines.threads(time_scale=0.2)
    options = {"updates": 40, "transport": transport, "engine": engine}
    run = dml.train(problem, CLUSTER, dml.asp(), optimizer, **options)
    plainly = dml.Trace(run.trace.tasks, run.trace.updates, run.trace.metadata | {"changes_values": False})
    assert largest_difference(run.params, dml.replay(run.trace, problem, optimizer).params) == 0
    assert largest_difference(run.params, dml.replay(plainly, problem, optimizer).params) > 0.01


@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp(), dml.k_async(2)])
def test_a_pipelined_trace_cut_short_is_that_of_a_shorter_run(policy):
    cluster = dml.Cluster.uniform(3, latency=0.01, jitter=stats.expon(), latency_jitter=stats.expon())
    longer, shorter = (
        dml.simulate(policy, cluster, updates=updates, transport=pipelined()) for updates in (9, 4)
    )
    pd.testing.assert_frame_equal(longer.until(4).tasks, shorter.tasks)


def test_who_does_not_compute_in_a_pipeline_waits():
    trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=6, transport=pipelined())
    phases = dml.metrics.phases(trace)
    spent = (phases["end"] - phases["start"]).groupby([phases["worker"], phases["kind"]]).sum()
    assert set(phases["kind"]) == {"compute", "wait"}
    assert spent[1, "compute"] == trace.end_time
    assert spent[0, "wait"] + spent[0, "compute"] == trace.end_time


def test_a_pipeline_widens_the_window_by_one():
    cluster = dml.Cluster.uniform(4, latency=0.01, jitter=stats.expon())
    for policy, bound in ((dml.bsp(), 1), (dml.essp(1), 2)):
        trace = dml.simulate(policy, cluster, updates=100, transport=pipelined())
        assert trace.metadata["max_lead"] == bound
        assert not len(dml.metrics.read_window_violations(trace, bound))
        assert len(dml.metrics.read_window_violations(trace, bound - 1))


WRONG = {
    "keeps copies": (
        dml.ssp(2),
        {"transport": pipelined()},
        "policy: expected .*whose tasks all pull.*, got ssp",
    ),
    "keeps coded copies": (dml.ssp(2), {"transport": coded("affine(bits=8)")}, "whose tasks all pull"),
    "drops": (
        dml.ringmaster(1),
        {"transport": coded("error_feedback(one_bit())")},
        "transport: expected .*a transport without memory.*under ringmaster.*in no update.*, got coded",
    ),
    "drops on a real clock": (
        dml.ringmaster(1),
        {"transport": coded("error_feedback(one_bit())"), "engine": "threads"},
        "transport: expected .*under ringmaster.* a push was dropped.*, got coded",
    ),
    "own steps with cancelled tasks": (
        dml.k_sync(2),
        {"transport": pipelined(own_steps=True)},
        "transport: expected .*a transport without memory.*under k_sync.*in no update.*, got pipelined",
    ),
    "a codec": (
        dml.bsp(),
        {"transport": dml.codecs.affine(8)},
        "a Transport, or a call as text of.*; try coded.push=",
    ),
    "own steps on a real clock": (
        dml.bsp(),
        {"transport": pipelined(own_steps=True), "engine": "threads"},
        r"transport: expected one without own_steps.*, got pipelined\(plain\(\), own_steps=True\)",
    ),
    "resumable on a real clock": (
        dml.bsp(),
        {"transport": coded("error_feedback(one_bit())"), "engine": "threads", "checkpoint": "nowhere"},
        "transport: expected .*a transport without memory",
    ),
    "no such codec": (dml.bsp(), {"transport": "coded(push=zip())"}, "zip"),
    "no transport": (
        dml.bsp(),
        {"transport": "affine(bits=8)"},
        "transport: expected a Transport, or a call as text of one of plain, coded, pipelined",
    ),
    "no call": (
        dml.bsp(),
        {"transport": "coded(push=__import__('os'))"},
        "transport: expected a call of one of plain, coded.*, got .*__import__",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses(name):
    policy, options, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        dml.train(plane(), CLUSTER, policy, optax.sgd(0.1), updates=20, **options)


def test_own_steps_do_not_survive_a_crash():
    rough = CLUSTER.with_faults(Crash(worker=0, time=0.1, seconds=0.1))
    with pytest.raises(
        ValueError, match=r"transport: expected one without own_steps .a worker that was away"
    ):
        dml.train(PROBLEM, rough, dml.bsp(), optax.sgd(0.1), updates=3, transport=TRANSPORTS["own steps"])


FAULTY = dml.Cluster.uniform(4, latency=0.002, jitter=stats.expon()).with_faults(
    *dml.faults.random_faults(4, 0.8, seed=2), patience=0.05, checkpoint_every=10
)


@pytest.mark.parametrize(
    ("policy", "transport"),
    [(policy, "both") for policy in (dml.bsp(), dml.asp(), dml.k_sync(2), dml.k_batch_async(3))]
    + [(dml.k_sync(2), "pipelined()"), (dml.asp(), "coded(push=affine(bits=8))")],
    ids=str,
)
def test_faults_with_pipelines_and_codecs(policy, transport):
    """Every push counts once, and the replay is what the readable reference makes of the trace."""
    transport = "pipelined(coded(push=affine(bits=8)))" if transport == "both" else transport
    run = dml.train(PROBLEM, FAULTY, policy, optax.sgd(0.1), updates=60, transport=transport, seed=1)
    check_counts(run.trace, updates=60)
    kinds = {incident["kind"] for incident in run.trace.metadata["incidents"]}
    assert kinds >= {"leave", "join", "freeze", "down"}
    tasks = run.trace.tasks.sort_values(["worker", "compute_start"])
    before = tasks.groupby("worker")["compute_end"].shift()
    assert not (tasks["compute_start"] < before - 1e-9).any(), "a worker computes one task at a time"
    wanted = replay_reference(run.trace, PROBLEM, optax.sgd(0.1))
    assert largest_difference(run.params, wanted) < (1e-3 if "affine" in transport else 1e-5)


@pytest.mark.parametrize("policy", [dml.k_sync(2), dml.k_batch_sync(3)], ids=str)
def test_a_pipeline_that_is_cancelled_is_filled_anew(policy):
    """Two tasks on the version that the worker pulls, as at the start of a run."""
    trace = dml.simulate(policy, CLUSTER, updates=40, transport=pipelined(), parameter_bytes=9640)
    assert trace.tasks["push_end"].isna().sum() > 40, "tasks were cancelled"
    started = trace.tasks.groupby(["worker", "pull_start"])["clock"].nunique()
    assert set(started) == {1, 2}


@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp(), dml.k_sync(2)], ids=str)
def test_pipelines_on_threads(policy):
    """A worker begins a task on parameters without its last push, which is under way; the trace replays."""
    cluster, engine = dml.Cluster.uniform(3, samples_per_second=320, latency=0.05), dml.engines.threads()
    options = {"updates": 12, "transport": pipelined(), "eval_every": 10**6}
    run = dml.train(PROBLEM, cluster, policy, optax.sgd(0.1), engine=engine, **options)
    check_replay(run, PROBLEM, optax.sgd(0.1))
    simulated = dml.train(PROBLEM, cluster, policy, optax.sgd(0.1), **options)
    assert simulated.trace.end_time <= run.trace.end_time
    tasks = run.trace.tasks.sort_values(["worker", "clock"])
    before = tasks.groupby("worker")["update"].shift()  # of the task before; its version is one more
    counted = before >= 0
    assert counted.sum() >= 5
    assert (tasks["version_read"] <= before)[counted].all()


def test_wrong_arguments():
    waiting = dml.simulate(dml.asp(), CLUSTER, updates=9, transport=pipelined())
    for make, message in (
        (lambda: pipelined(pipelined()), "transport: expected .*one that is not pipelined.*, got pipelined"),
        (lambda: pipelined(own_steps="yes"), "own_steps: expected True or False.*, got 'yes'"),
        (lambda: coded(push=3), "codec: expected .*, got 3"),
        (
            lambda: resolve(["plain"]),
            "transport: expected a Transport, or a call as text of.*, got .'plain'.",
        ),
        (lambda: resolve("affine({[]: 1})"), "arguments are literals"),
        (lambda: dml.calibrate(waiting), "trace: expected a trace without a pipeline.*, got pipelined"),
        (lambda: resolve("coded("), "transport: expected .*, got 'coded.'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("communication", [0.2, 1.0, 2.0])
@pytest.mark.parametrize("uneven", [1.0, 1.7, 3.0])
def test_the_time_model_of_three_mechanisms(uneven, communication, bits):
    """A round is (h + c) / max(1, c k / 32) times sooner than one of BSP."""
    workers, batch, values = 8, 1024, 1_000_000
    speeds = 1000 * np.linspace(2 - 1 / uneven, 1 / uneven, workers)  # mean over least: h
    bandwidth = 2 * 4 * values / (communication * batch / 1000)
    cluster = dml.Cluster.from_speeds(speeds, bandwidth=bandwidth)

    def round_seconds(**options):
        size = {"parameter_bytes": 4 * values, "tensor_shapes": [values]}
        trace = dml.simulate(dml.bsp(), cluster, updates=40, batch_size=batch, **size, **options)
        return np.diff(trace.updates["time"])[19:].mean()

    codec = codecs.affine(bits)
    ours = round_seconds(load="equal_finish_time", transport=pipelined(coded(codec, codec)))
    expected = dml.theory.round_speedup(uneven, communication, bits)
    assert round_seconds() / ours == pytest.approx(expected, rel=0.03)
