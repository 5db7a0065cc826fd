"""Tasks of local steps: FedAvg and DiLoCo written out by hand, limits, bits, and what is refused."""

import dataclasses
import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import ENGINES, EVERY, everywhere, plane, relative_error, same_bits, uniform
from jax.flatten_util import ravel_pytree
from killing import cut_at_a_checkpoint
from reference import replay_reference

import dmlcore as dml
from dmlcore.cluster.faults import Crash, ServerCrash
from dmlcore.engines.real import Serving
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices
from dmlcore.training.local_steps import of_fragments, within
from dmlcore.training.replay import Replay

PLANE = plane()
FED_AVG = dml.local_steps(8, optax.sgd(0.1))
DILOCO = dml.local_steps(8, optax.adamw(3e-3), keep_state=True)
streamed = functools.partial(dml.local_steps, *DILOCO[1:3], keep_state=True, fragments=3)
NESTEROV = optax.sgd(0.7, momentum=0.9, nesterov=True)
KINDS = {
    "FedAvg": (FED_AVG, optax.sgd(1.0)),
    "DiLoCo": (DILOCO, NESTEROV),
    "FedProx": (dml.local_steps(8, optax.sgd(0.1), prox=0.5), optax.sgd(1.0)),
    "SCAFFOLD": (dml.local_steps(8, optax.sgd(0.1), control_variates=True), optax.sgd(0.9)),
    "FedDyn": (dml.local_steps(8, optax.sgd(0.1), prox=0.5, dynamic=True), optax.sgd(1.0)),
    "Streaming DiLoCo": (streamed(mixing=0.5), NESTEROV),
}
REMEMBER = [name for name, (local, _) in KINDS.items() if local.remembers]
ALONE = [name for name, (local, _) in KINDS.items() if not local.streams]  # need no push of every worker
THREADS = ENGINES["threads"][0]


def policy_of(kind):
    return dml.asp() if kind in ALONE else dml.bsp()


@functools.cache
def inner_step_of(local):
    """One local step, compiled once for all runs; what is remembered between tasks is the loops' affair."""

    @jax.jit
    def inner_step(params, state, indices, pulled, own, control):
        batch = {name: jnp.asarray(column)[indices] for name, column in PLANE.data.items()}
        gradient = jax.grad(lambda p: PLANE.losses(p, batch).mean())(params)
        gradient = jax.tree.map(lambda g, c_i, c: g - c_i + c, gradient, own, control)
        gradient = jax.tree.map(lambda g, w, w0: g + local.prox * (w - w0), gradient, params, pulled)
        updates, state = local.optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    return inner_step


def by_hand(local, outer, samples, workers=4, size=32, seed=0):
    """Rounds of local steps of some workers and one outer step, in a plain loop.

    With the proximal term it is algorithm 2 of Li et al. 2020, with control variates algorithm 1 of
    Karimireddy et al. 2020 with option II, whose local learning rate is 0.1, and FedDyn is algorithm 1 of
    Acar et al. 2021, where `controls` are the workers' gradients and `h` is the server's.
    """
    params = PLANE.init(run_key(seed, INIT))
    outer_state, inner_states = outer.init(params), [local.optimizer.init(params)] * workers
    nothing = jax.tree.map(jnp.zeros_like, params)
    control, controls, clocks, h = nothing, [nothing] * workers, [0] * workers, nothing
    inner_step = inner_step_of(local)

    for sample in samples:
        reached, changes = [], []
        for worker in sample:
            mine, own = params, controls[worker]
            state = inner_states[worker] if local.keep_state else local.optimizer.init(params)
            who = worker, clocks[worker]
            drawn = task_indices(run_key(seed, BATCHES), *who, local.steps * size, PLANE.num_samples)
            for indices in np.reshape(drawn, (local.steps, size)):
                mine, state = inner_step(mine, state, indices, params, own, control)
            inner_states[worker], clocks[worker] = state, clocks[worker] + 1
            reached.append(mine)
            if local.dynamic:
                alpha = local.prox
                controls[worker], h = (
                    jax.tree.map(lambda c, x, y, a=a: c - a * (y - x), each, params, mine)
                    for each, a in ((own, alpha), (h, alpha / workers))
                )
            if local.control_variates:
                steps = local.steps * 0.1
                controls[worker] = jax.tree.map(
                    lambda c_i, c, x, y, steps=steps: c_i - c + (x - y) / steps, own, control, params, mine
                )
                changes.append(jax.tree.map(jnp.subtract, controls[worker], own))
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *reached)
        if changes:
            control = jax.tree.map(lambda c, *each: c + sum(each) / workers, control, *changes)
        if local.dynamic:
            mean = jax.tree.map(lambda leaf, of_h: leaf - of_h / local.prox, mean, h)
        difference = jax.tree.map(jnp.subtract, params, mean)
        updates, outer_state = outer.update(difference, outer_state, params)
        params = optax.apply_updates(params, updates)
    return params


@functools.cache
def flat_step_of(optimizer):
    """One local step on flat parameters, compiled once for all runs."""
    shaped = ravel_pytree(PLANE.init(run_key(0, INIT)))[1]

    @jax.jit
    def inner_step(flat, state, indices):
        batch = {name: jnp.asarray(column)[indices] for name, column in PLANE.data.items()}
        gradient = jax.grad(lambda flat: PLANE.losses(shaped(flat), batch).mean())(flat)
        updates, state = optimizer.update(gradient, state, flat)
        return flat + updates, state

    return inner_step


def streaming_by_hand(local, outer, updates, overlap, workers=4, size=32, seed=0):
    """Algorithm 2 of Douillard et al. 2025: a loop over steps of all workers, on flat parameters.

    A fragment is sent every P * steps steps, and one of them every `steps`; `overlap` is the paper's tau.
    """
    flat, shaped = ravel_pytree(PLANE.init(run_key(seed, INIT)))
    bounds = [flat.size * number // local.fragments for number in range(local.fragments + 1)]
    parts = [slice(*bound) for bound in itertools.pairwise(bounds)]
    anchors, own = flat, [flat] * workers
    outer_states = [outer.init(flat[part]) for part in parts]
    inner_states, sent = [local.optimizer.init(flat)] * workers, []
    inner_step = flat_step_of(local.optimizer)

    for step in range(1, updates * local.steps + overlap + 1):
        clock, place = divmod(step - 1, local.steps)
        for worker in range(workers):
            drawn = task_indices(run_key(seed, BATCHES), worker, clock, local.steps * size, PLANE.num_samples)
            indices = np.reshape(drawn, (local.steps, size))[place]
            own[worker], inner_states[worker] = inner_step(own[worker], inner_states[worker], indices)
        if place == local.steps - 1:
            part = parts[clock % local.fragments]
            sent.append((step + overlap, clock % local.fragments, sum(anchors[part] - x[part] for x in own)))
        for due, number, total in sent:
            if due == step:
                part = parts[number]
                given = total / workers, outer_states[number], anchors[part]
                moved, outer_states[number] = outer.update(*given)
                anchors = anchors.at[part].add(moved)
                alpha, come = local.mixing, anchors[part]
                own = [x.at[part].set(alpha * x[part] + (1 - alpha) * come) for x in own]
    return shaped(anchors)


@pytest.mark.parametrize("engine", EVERY)
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_by_hand(kind, made_engine):
    local, outer = KINDS[kind]
    run = dml.train(PLANE, EXPONENTIAL, dml.bsp(), outer, updates=20, local=local, engine=made_engine)
    hand = streaming_by_hand(local, outer, 20, 0) if local.streams else by_hand(local, outer, [range(4)] * 20)
    assert relative_error(run.params, hand) < 1e-5


PLAIN = optax.sgd(1.0)  # has no state; those of the others are of their fragments


@pytest.mark.parametrize(
    "outer",
    [NESTEROV, optax.adam(0.02), pytest.param(PLAIN, marks=pytest.mark.full)],
    ids=["nesterov", "adam", "sgd"],
)
@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
@pytest.mark.parametrize("mixing", [0, 0.5])
def test_streaming_by_hand(mixing, transport, outer):
    """With a pipeline a fragment travels during the steps of one task."""
    local = streamed(mixing=mixing)
    run = train(local=local, optimizer=outer, updates=11, transport=transport)
    overlap = local.steps * (transport == "pipelined()")
    assert relative_error(run.params, streaming_by_hand(local, outer, 11, overlap)) < 1e-5


@pytest.mark.parametrize("engine", EVERY)
def test_one_fragment_without_mixing_is_diloco(made_engine):
    assert streamed(fragments=1, mixing=0) == DILOCO
    hardly = DILOCO._replace(name="hardly", mixing=1e-30)  # a worker keeps its parameters, and takes others
    options = {"optimizer": NESTEROV, "engine": made_engine}
    one, two = (train(**options, local=local) for local in (hardly, DILOCO))
    assert relative_error(one.params, two.params) < 1e-6


def test_fragments_move_in_turn():
    """An update moves its own fragment only, and the momentum of no other one."""
    size = PLANE.parameter_bytes // 4
    trace = train(local=streamed(), optimizer=NESTEROV, updates=4).trace
    driver = Replay([trace], PLANE.with_steps(streamed(), 32), [NESTEROV])
    states = []
    for update in range(5):
        driver.advance(update)
        params, momentum = driver.state().params, driver.state().optimizer_state[0]
        states.append([np.asarray(ravel_pytree(tree)[0]) for tree in (params, momentum)])
    for update, pair in enumerate(itertools.pairwise(states)):
        for before, after in zip(*pair, strict=True):
            places = np.flatnonzero(before != after)
            first, end = (size * (update % 3 + more) // 3 for more in (0, 1))
            assert first <= places.min() <= places.max() < end
            assert len(places) > 0.9 * (end - first)


OUTER = {
    "adam": optax.adam(0.1),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(optax.linear_schedule(1, 0, 4), 0.9)),
    "momentum, clipped": optax.chain(optax.sgd(0.1, 0.9), optax.clip_by_global_norm(0.1)),
    "factored": optax.adafactor(0.1, min_dim_size_to_factor=2),
    "parts": optax.partition({"w": optax.sgd(0.1, 0.9), "b": optax.adam(0.1)}, {"weights": "w", "bias": "b"}),
}


@pytest.mark.parametrize("outer", OUTER)
def test_each_fragment_has_an_optimizer_of_its_own(outer):
    """That of fragment p is given the updates p, p + P, and so on."""
    outer, rng = OUTER[outer], np.random.default_rng(0)
    like = {"weights": jnp.ones((4, 3), "float32"), "bias": jnp.ones(3, "float32")}
    whole = of_fragments(outer, 3)
    params, state, states = like, whole.init(like), [outer.init(like)] * 3
    for update in range(7):
        here = within(like, update, 3)
        pushed = jax.tree.map(lambda mine: jnp.where(mine, rng.normal(size=mine.shape), 0), here)
        wanted, states[update % 3] = outer.update(pushed, states[update % 3], params)
        moved, state = whole.update(pushed, state, params, samples=0.0, seconds=0.0)
        assert same_bits(moved, jax.tree.map(lambda mine, each: jnp.where(mine, each, 0), here, wanted))
        params = optax.apply_updates(params, moved)


# Steps of several sizes are compiled one by one; test_compiled_equals_reference has them on a virtual clock.
@pytest.mark.parametrize("load", ["equal", pytest.param("speed_proportional", marks=pytest.mark.full)])
@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
def test_fragments_on_threads_replay_to_the_same_bits(transport, load):
    local, options = streamed(mixing=0.5), {"optimizer": NESTEROV, "transport": transport}
    run = train(**options, local=local, engine=THREADS, load=load)
    again = dml.replay(run.trace, PLANE, NESTEROV, local=local)
    assert same_bits(run.params, again.params)


def test_a_message_has_a_fragment():
    cluster = dml.Cluster.uniform(4, latency=0.0, bandwidth=1e5)
    runs = [train(cluster=cluster, local=local, updates=6) for local in (DILOCO, streamed())]
    for run, fragments in zip(runs, (1, 3), strict=True):
        size = math.ceil(PLANE.parameter_bytes / fragments)
        assert run.trace.metadata["transfer_bytes"] == [size, size]
        assert run.history["bytes"].iloc[-1] == 2 * 6 * 4 * size
    seconds = [(run.trace.tasks["push_end"] - run.trace.tasks["compute_end"]).mean() for run in runs]
    assert seconds[0] / seconds[1] == pytest.approx(3, rel=1e-2)


@pytest.mark.parametrize("kind", [kind for kind in REMEMBER if kind in ALONE])
def test_rounds_of_samples_by_hand(kind):
    """A worker that is not drawn keeps its memory, and the server's control variate counts all workers."""
    local, outer = KINDS[kind]
    run = dml.train(PLANE, EXPONENTIAL, dml.sampled(2), outer, updates=20, local=local)
    samples = run.trace.tasks.dropna(subset="push_end").groupby("update")["worker"].agg(sorted)
    assert relative_error(run.params, by_hand(local, outer, samples)) < 1e-5


@pytest.mark.parametrize("engine", EVERY)
def test_fedprox_without_its_term_is_fedavg(made_engine):
    none = dml.local_steps(8, optax.sgd(0.1), prox=0)
    one, two = (train(updates=10, local=local, engine=made_engine) for local in (none, FED_AVG))
    assert same_bits(one.params, two.params)


def scaffold_from_fedavg(**options):
    """Their relative difference where all rows are equal: every batch has the gradient of all data."""
    rows = jax.tree.map(lambda column: column[:1], PLANE.data)
    problem = dataclasses.replace(PLANE, name="row", data=rows, eval_data=rows)
    options |= {"problem": problem, "optimizer": optax.sgd(1.0), "updates": 6}
    one, two = (train(**options, local=local) for local in (KINDS["SCAFFOLD"][0], FED_AVG))
    return relative_error(one.params, two.params)


@pytest.mark.parametrize("engine", EVERY)
def test_scaffold_with_equal_full_batches_is_fedavg(made_engine):
    assert scaffold_from_fedavg(engine=made_engine) < 1e-5


@pytest.mark.parametrize("policy", [dml.sampled(2), dml.k_sync(3)], ids=str)
def test_scaffold_differs_unless_all_take_part(policy):
    """In the first round of a worker its control variate is 0, and the server's may not be.

    In simulated time: on a real clock chance says who takes part, and the difference may vanish.
    """
    assert scaffold_from_fedavg(policy=policy) > 1e-5


def test_messages_with_control_variates_are_twice_as_large():
    sizes = []
    for transport in (None, "coded(pull=affine(bits=8))"):
        for kind in ("FedAvg", "SCAFFOLD"):
            run = train(local=KINDS[kind][0], transport=transport, updates=3)
            sizes.append(np.array(run.trace.metadata["transfer_bytes"]))
            assert run.history["bytes"].iloc[-1] == 3 * 4 * sizes[-1].sum()
    assert (sizes[1] == 2 * sizes[0]).all()
    assert (sizes[3] == 2 * sizes[2]).all()


def two_shards():
    """Worker 0 owns 96 samples of value 1, worker 1 owns 32 of value -1, whose mean minimises the loss."""

    def losses(params, batch):
        return (params - batch) ** 2 / 2

    rows = np.repeat([1.0, -1.0], [96, 32]).astype("float32")
    problem = dml.Problem(
        "two shards",
        lambda key: jnp.zeros(()),
        rows,
        lambda params, data: {"loss": losses(params, data).mean()},
        rows,
        losses=losses,
    )
    return problem.sharded((rows < 0).astype(int))


# By default each rate once, on two engines: a run of 900 updates, at the low rate, is on the virtual clock.
EPOCHS = [(0.01, "simulate"), (0.5, "threads")]
EPOCHS += [(0.01, "threads"), (0.5, "simulate"), (0.5, "devices"), (0.5, "ray")]


@pytest.mark.parametrize(
    ("normalised", "rate", "engine"),
    [
        pytest.param(normalised, *each, marks=[pytest.mark.full] * (each in EPOCHS[2:]))
        for normalised, each in itertools.product([False, True], EPOCHS)
    ],
)
def test_an_epoch_of_unequal_shards(normalised, rate, engine):
    """FedAvg counts a large shard twice, by its weight and by its steps, and FedNova once: closed forms."""
    problem, local = two_shards(), dml.local_steps(1, optax.sgd(rate), normalised=normalised)
    options = {"local": local, "load": dml.loads.fixed(problem.shard_sizes), "engine": ENGINES[engine][0]}
    run = train(problem=problem, cluster=dml.Cluster.uniform(2), updates=int(9 / rate), **options)
    steps, shares = np.array([3, 1]), np.array([0.75, 0.25])
    weights = shares * (shares @ steps / steps if normalised else 1)
    tasks = run.trace.tasks.query("update == 3").sort_values("worker")
    assert tasks["batch_size"].tolist() == [96, 32]
    assert tasks["weight"].to_numpy() == pytest.approx(weights)
    pulls = weights * (1 - (1 - rate) ** steps)
    assert float(run.params) == pytest.approx(pulls @ [1, -1] / pulls.sum(), abs=1e-3)
    if rate == 0.01:
        assert (abs(float(run.params) - 0.5) < 0.01) == normalised


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_where_the_gradients_of_workers_cancel(engine):
    """FedDyn and SCAFFOLD end there, whatever steps and weights are: at 0, where FedProx ends at a half."""
    problem, ends = two_shards(), []
    for kind in ({"prox": 1.0, "dynamic": True}, {"control_variates": True}, {"prox": 1.0}):
        local = dml.local_steps(1, optax.sgd(0.5), **kind)
        options = {"local": local, "load": dml.loads.fixed(problem.shard_sizes), "engine": ENGINES[engine][0]}
        options |= {"cluster": dml.Cluster.uniform(2), "optimizer": optax.sgd(1.0)}
        ends.append(float(train(problem=problem, updates=60, **options).params))
    assert ends == pytest.approx([0, 0, 0.5], abs=1e-3)


@pytest.mark.parametrize(
    ("policy", "engine"), everywhere(dml.bsp(), dml.k_batch_async(3), dml.asp()), ids=str
)
def test_normalised_pushes_of_equal_steps_are_not_changed(policy, made_engine):
    one, two = (
        train(policy, local=dml.local_steps(8, optax.sgd(0.1), normalised=normalised), engine=made_engine)
        for normalised in (True, False)
    )
    assert relative_error(one.params, two.params) < 1e-6


@pytest.mark.parametrize("policy", [dml.asp(weight=0.5), dml.k_batch_async(3), dml.sampled(2)], ids=str)
@pytest.mark.parametrize("outer", [optax.sgd(1.0), optax.adam(0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("kind", ["SCAFFOLD", "FedDyn"])
def test_the_server_has_the_mean_of_what_workers_remember(kind, policy, outer):
    """Whatever the weights of pushes, once those under way are counted; also if weights scale updates."""
    local = KINDS[kind][0]
    trace = train(policy, local=local, updates=40).trace
    driver = Replay([trace], PLANE.with_steps(local, 32), [outer])
    driver.advance(40)
    state = driver.state()
    mean = jax.tree.map(lambda leaves: leaves[:4].mean(0), state.local[1])
    assert relative_error(state.params.control, mean) < 1e-4
    assert not same_bits(mean, jax.tree.map(jnp.zeros_like, mean))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "median()"}, "aggregate: expected mean"),
        ({"transport": "coded(push=affine(bits=8))"}, "transport: expected one that sends pushes exactly"),
        ({"cluster": MIXED.with_faults(Crash(1, 0.1, 0.1))}, "cluster: expected faults after which"),
        ({"cluster": MIXED.with_faults(ServerCrash(0.1, 0.1))}, "cluster: expected faults after which"),
    ],
    ids=["aggregate", "codec", "crash", "restart"],
)
def test_what_would_part_the_control_variates_is_refused(options, message):
    local, outer = KINDS["SCAFFOLD"]
    with pytest.raises(ValueError, match=message):
        dml.train(PLANE, options.pop("cluster", MIXED), dml.bsp(), outer, updates=4, local=local, **options)
    trace = dml.simulate(dml.Method(dml.bsp(), local=local), MIXED, updates=2)
    with pytest.raises(ValueError, match="aggregate: expected mean"):
        dml.replay(trace, PLANE, outer, local=local, aggregate="median()")


def test_watched_and_evaluated_are_the_parameters():
    """A policy that watches sees the model's loss, and `eval_params` gets the model's parameters."""
    local = KINDS["SCAFFOLD"][0]
    run = train(dml.adasync(1), local=local, updates=12, eval_every=4)
    same = train(
        dml.adasync(1), local=local, updates=12, eval_every=4, eval_params=lambda state, params: params
    )
    assert same.history["loss"].equals(run.history["loss"])
    assert jax.tree.structure(run.params) == jax.tree.structure(PLANE.shapes)
    assert PLANE.evaluate(run.params, PLANE.eval_data)["loss"] == pytest.approx(run.history["loss"].iloc[-1])


POLICIES = [dml.asp(), dml.ssp(2), dml.k_batch_async(3)]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kind", ALONE)
def test_asynchronous_threads_replay_to_the_same_bits(kind, policy):
    local, outer = KINDS[kind]
    engine = THREADS
    run = dml.train(PLANE, EXPONENTIAL, policy, outer, updates=30, local=local, engine=engine)
    assert same_bits(run.params, dml.replay(run.trace, PLANE, outer, local=local).params)


CODED, PIPELINED = "coded(push=affine(bits=8))", "pipelined()"


# By default each kind and each transport, and a state that is kept beside a codec; above, rounds are by hand,
# and FedProx without its term has the bits of FedAvg.
FEW = [("DiLoCo", CODED), ("FedProx", None), ("SCAFFOLD", PIPELINED), ("Streaming DiLoCo", PIPELINED)]
EXACT = "SCAFFOLD", "FedDyn", "Streaming DiLoCo"  # send values exactly


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        pytest.param(*pair, marks=[pytest.mark.full] * (pair not in FEW))
        for pair in itertools.product(KINDS, [None, CODED, PIPELINED])
        if pair not in [(kind, CODED) for kind in EXACT]
    ],
)
def test_compiled_equals_reference(kind, transport):
    """Codecs are for the difference that is pushed; the last mini-batch of a task may be smaller."""
    local, outer = KINDS[kind]
    with jax.enable_x64(True):
        problem = plane("float64")
        options = {"updates": 30, "local": local, "load": "speed_proportional", "batch_size": 24}
        policy, pipelined = policy_of(kind), transport == PIPELINED
        run = dml.train(problem, MIXED, policy, outer, transport=transport, **options)
        sizes = run.trace.tasks["batch_size"]
        assert sizes.nunique() > 1
        assert (sizes % 24 > 0).any()
        wanted = replay_reference(run.trace, problem.with_steps(local, 24, pipelined), outer)
        assert relative_error(run.params, wanted) <= 1e-10


@pytest.mark.full  # test_train sweeps over local steps
@pytest.mark.parametrize("kind", REMEMBER)
def test_lanes_side_by_side(kind):
    local, outer = KINDS[kind]
    method = dml.Method(policy_of(kind), local=local)
    traces = [dml.simulate(method, MIXED, updates=20, seed=seed) for seed in range(3)]
    lanes = dml.replay_lanes(traces, PLANE, [outer] * 3, local=local)
    for trace, lane in zip(traces, lanes, strict=True):
        assert relative_error(lane.params, dml.replay(trace, PLANE, outer, local=local).params) < 1e-4


@pytest.mark.parametrize(
    ("policy", "engine"), everywhere(dml.bsp(), dml.ssp(2), dml.k_batch_async(3)), ids=str
)
def test_one_step_of_size_1_is_the_gradient(policy, made_engine):
    with jax.enable_x64(True):
        given = plane("float64"), MIXED, policy, optax.adam(0.01)
        one, plain = (
            dml.train(*given, updates=40, local=local, engine=made_engine).params
            for local in (dml.local_steps(1, optax.sgd(1.0)), None)
        )
    assert relative_error(one, plain) < 1e-10


def test_a_task_counts_and_takes_the_time_of_its_steps():
    """Its timeline is that of a gradient of as many samples."""
    local = dml.simulate(dml.Method(dml.ssp(2), local=FED_AVG), MIXED, updates=30, batch_size=16)
    plain = dml.simulate(dml.ssp(2), MIXED, updates=30, batch_size=8 * 16)
    assert local.tasks.equals(plain.tasks)
    assert (local.metadata["local"], local.metadata["step_size"]) == ("local_steps(8)", 16)


def test_slow_workers_take_fewer_steps():
    cluster = dml.Cluster.from_speeds([1000, 3000])
    method = dml.Method(dml.bsp(), load="speed_proportional", local=FED_AVG)
    tasks = dml.simulate(method, cluster, updates=5).tasks
    steps = tasks.groupby("worker")["batch_size"].last() / 32
    assert steps.tolist() == [4, 12]


def test_a_comparison_of_methods():
    methods = {
        "BSP": dml.bsp(),
        "FedAvg": dml.Method(dml.bsp(), local=FED_AVG, optimizer=optax.sgd(1.0)),
        "DiLoCo": dml.Method(dml.bsp(), local=DILOCO, optimizer=NESTEROV),
    }
    runs = dml.compare(methods, PLANE, EXPONENTIAL, optax.sgd(0.1), seeds=[0], updates=20, eval_every=20)
    last = runs[runs["update"] == 20].set_index("method")
    assert last["samples"].to_dict() == {"BSP": 2560, "FedAvg": 20480, "DiLoCo": 20480}
    assert last["loss"]["FedAvg"] < last["loss"]["BSP"]
    alone = dml.train(PLANE, EXPONENTIAL, methods["DiLoCo"], NESTEROV, updates=20)
    assert last["loss"]["DiLoCo"] == alone.history["loss"].iloc[-1]


@pytest.mark.full  # test_shards.py and test_compiled_equals_reference
def test_shards():
    problem = PLANE.sharded(dml.shards.dirichlet(4, 0.1))
    with jax.enable_x64(True):
        problem = plane("float64").sharded(dml.shards.dirichlet(4, 0.1))
        run = dml.train(problem, MIXED, dml.k_batch_async(3), optax.sgd(1.0), updates=30, local=FED_AVG)
        wanted = replay_reference(run.trace, problem.with_steps(FED_AVG, 32), optax.sgd(1.0))
        assert relative_error(run.params, wanted) <= 1e-10


@pytest.mark.parametrize("kind", REMEMBER)
def test_a_run_goes_on_from_its_checkpoint(kind, tmp_path, monkeypatch):
    """To the same bits from the middle of the run, with what workers remember; not with other local steps."""
    local, outer = KINDS[kind]
    given = PLANE, EXPONENTIAL, policy_of(kind), outer
    options = {"updates": 20, "eval_every": 5}
    whole = dml.train(*given, local=local, **options)
    options["checkpoint"] = tmp_path / "run"
    saved = cut_at_a_checkpoint(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        dml.train(*given, local=local, **options)
    assert saved == [5, 10]
    assert same_bits(dml.train(*given, local=local, **options).params, whole.params)
    assert saved[2] == 15, "it did not begin anew"
    for other in (local._replace(optimizer=optax.adamw(1e-3)), dml.local_steps(8, local.optimizer, prox=0.1)):
        with pytest.raises(ValueError, match="checkpoint"):
            dml.train(*given, local=other, **options)


def train(policy=None, cluster=EXPONENTIAL, problem=PLANE, optimizer=None, **options):
    options = {"updates": 10, "local": FED_AVG} | options
    return dml.train(problem, cluster, policy or dml.bsp(), optimizer or optax.sgd(1.0), **options)


TRACE = dml.simulate(dml.Method(dml.bsp(), local=FED_AVG), EXPONENTIAL, updates=2)


def replay_of_a_death(local):
    """As on a real clock, where a worker may be back in time for the update."""
    trace = dml.simulate(dml.Method(dml.bsp(), local=local), EXPONENTIAL, updates=2)
    trace.metadata["incidents"] = [{"time": 0.1, "kind": "died", "worker": 1, "seconds": 0.0}]
    return dml.replay(trace, PLANE, NESTEROV, local=local)


WRONG = {
    "steps: expected a whole number from 1 to 1048576, got 0": lambda: dml.local_steps(0, optax.sgd(1.0)),
    "steps: expected a whole number from 1 to 1048576, got 2.5": lambda: dml.local_steps(2.5, optax.sgd(1.0)),
    "optimizer: expected an optax optimizer, such as optax.sgd(0.1), got 0.1": lambda: dml.local_steps(
        2, 0.1
    ),
    "keep_state: expected True or False, got 1": lambda: dml.local_steps(2, optax.sgd(1.0), 1),
    "prox: expected a number >= 0, got -1": lambda: dml.local_steps(2, optax.sgd(1.0), prox=-1),
    "control_variates: expected True or False, got 1": lambda: dml.local_steps(
        2, optax.sgd(1.0), control_variates=1
    ),
    "prox: expected FedDyn's alpha, > 0 (with dynamic=True), got 0": lambda: dml.local_steps(
        2, optax.sgd(1.0), dynamic=True
    ),
    "control_variates: expected False (with dynamic=True), got True": lambda: dml.local_steps(
        2, optax.sgd(1.0), prox=0.1, control_variates=True, dynamic=True
    ),
    "normalised: expected True or False, got 1": lambda: dml.local_steps(2, optax.sgd(1.0), normalised=1),
    "optimizer: expected one without momentum": lambda: dml.local_steps(2, optax.adam(0.1), normalised=True),
    "prox: expected 0 (with normalised=True, which counts steps of plain SGD), got 0.1": lambda: (
        dml.local_steps(2, optax.sgd(1.0), normalised=True, prox=0.1)
    ),
    "local, optimizer: expected one without momentum": lambda: train(  # known only with its parameters
        local=dml.local_steps(2, OUTER["parts"], normalised=True)
    ),
    "policy: expected a policy whose tasks all pull (weights are those of an update), got ssp": lambda: train(
        dml.ssp(2), local=dml.local_steps(2, optax.sgd(1.0), normalised=True)
    ),
    "problem: expected one that is sharded, got Problem(plane": lambda: PLANE.shard_sizes,
    "aggregate: expected mean() (with control_variates or dynamic the server": lambda: train(
        local=KINDS["SCAFFOLD"][0], aggregate="median()"
    ),
    "aggregate: expected one that sums pushes by their weights (with normalised=True": lambda: train(
        local=dml.local_steps(2, optax.sgd(1.0), normalised=True), aggregate="trimmed_mean(0.25)"
    ),
    "local: expected a LocalSteps, such as dml.local_steps(8, optax.sgd(0.1)), got 8": lambda: train(local=8),
    "steps: expected at most 524287 (of 4096 samples), got 1048576": lambda: train(
        local=dml.local_steps(2**20, optax.sgd(1.0)), batch_size=2**12
    ),
    "compensation: expected 0 (what local steps push is not a gradient), got 1.0": lambda: train(
        compensation=1.0
    ),
    "local: expected None (tasks of lasso are themselves updates), got local_steps(8)": lambda: train(
        problem=dml.problems.lasso(), optimizer=optax.identity(), batch_size=1
    ),
    "local: expected local steps without memory, unlike keep_state, control_variates, dynamic, fragments and "
    "mixing (under ringmaster": lambda: train(dml.ringmaster(1), local=DILOCO),
    "local: expected local_steps(8) with steps of 32 samples (as in the trace), got None": lambda: dml.replay(
        TRACE, PLANE, optax.sgd(1.0)
    ),
    "local: expected local_steps(8) (as in the trace), got local_steps(8, keep_state=True)": (
        lambda: dml.replay(TRACE, PLANE, optax.sgd(1.0), local=DILOCO)
    ),
    "fragments: expected a whole number >= 1, got 0": lambda: streamed(fragments=0),
    "mixing: expected a number >= 0 and < 1, got 1": lambda: streamed(mixing=1),
    "control_variates: expected False (with fragments or mixing), got True": lambda: streamed(
        control_variates=True
    ),
    "normalised: expected False (with fragments or mixing), got True": lambda: dml.local_steps(
        8, optax.sgd(0.1), normalised=True, fragments=3
    ),
    "fragments: expected at most 2410 (the number of parameters), got 2411": lambda: train(
        local=streamed(fragments=2411)
    ),
    "policy: expected one with a push of every worker in each update, as bsp() (with fragments or mixing), "
    "got asp()": lambda: train(dml.asp(), local=streamed()),
    "policy: expected one with a push of every worker in each update, as bsp() (with fragments or mixing), "
    "got k_sync(k=3)": lambda: train(dml.k_sync(3), local=dml.local_steps(8, optax.sgd(0.1), fragments=3)),
    "transport: expected one that sends values exactly (with fragments or mixing), got coded": lambda: train(
        local=streamed(), transport=CODED
    ),
    "fragments: expected at least 2 (with mixing in a pipeline": lambda: train(
        local=streamed(fragments=1, mixing=0.5), transport=PIPELINED
    ),
    "cluster: expected one that no worker leaves (with fragments or mixing), got Faults": lambda: train(
        cluster=MIXED.with_faults(Crash(1, 0.1, 0.1, keeps_memory=True)), local=streamed()
    ),
    "trace: expected one that no worker leaves (with fragments or mixing), got one with incidents ['died']": (
        lambda: replay_of_a_death(streamed())
    ),
    "trace: expected one in which no worker loses its memory (with control_variates or dynamic the server "
    "keeps the mean of what workers remember), got one with incidents ['died']": (
        lambda: replay_of_a_death(KINDS["SCAFFOLD"][0])
    ),
    "eval_params: expected None (each fragment has an optimizer's state of its own)": lambda: train(
        local=streamed(), eval_params=lambda state, params: params
    ),
    "methods['it'], eval_params: expected None (each fragment": lambda: dml.compare(
        {"it": dml.Method(dml.bsp(), local=streamed())},
        PLANE,
        EXPONENTIAL,
        NESTEROV,
        updates=2,
        seeds=[0],
        eval_params=lambda state, params: params,
    ),
    "local: expected None (tasks of lasso are themselves updates), got local_steps(8, keep": lambda: train(
        problem=dml.problems.lasso(), optimizer=optax.identity(), batch_size=1, local=streamed()
    ),
    "local: expected None (as in the trace), got local_steps(8)": lambda: dml.replay(
        dml.simulate(dml.bsp(), EXPONENTIAL, updates=2), PLANE, optax.sgd(1.0), local=FED_AVG
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message):
    with pytest.raises(ValueError, match="got") as error:
        WRONG[message]()
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("kind", ["SCAFFOLD", "FedDyn", "Streaming DiLoCo"])
def test_the_death_of_a_worker_ends_a_run_that_needs_its_memory(kind, monkeypatch):
    """As soon as the server knows of it; DiLoCo goes on."""
    deaths = []

    def lost(serving):
        if serving.server.num_updates < 3 or deaths:
            return []
        deaths.append(serving._crew.dismiss(1, False))
        return [1]

    monkeypatch.setattr(Serving, "_lost", lost)
    (local, outer), options = KINDS[kind], {"engine": THREADS, "updates": 6}
    with pytest.raises(RuntimeError, match=rf"worker 1 died at .*; {re.escape(local.name)} needs it"):
        train(local=local, optimizer=outer, **options)
    assert replay_of_a_death(DILOCO).params


def test_a_dropped_push_on_threads_is_refused_with_kept_states():
    with pytest.raises(ValueError, match=r"local: expected .*under ringmaster.*, got .*keep_state=True"):
        train(dml.ringmaster(1), local=DILOCO, engine=THREADS)


def test_steps_are_cheaper_than_as_many_rounds_when_links_are_slow():
    """What local SGD is for: with c = 4 the same samples take a round of 8 steps less than half the time."""
    cluster = dml.Cluster.uniform(4, samples_per_second=1000, latency=4 * 0.032 / 2)
    few = dml.simulate(dml.Method(dml.bsp(), local=FED_AVG), cluster, updates=10)
    many = dml.simulate(dml.bsp(), cluster, updates=80)
    assert few.updates["samples"].sum() == many.updates["samples"].sum()
    assert few.end_time / many.end_time == pytest.approx((8 + 4) / (8 * (1 + 4)), rel=1e-6)
    assert math.isclose(np.unique(few.tasks["batch_size"]).item(), 256)


def noisy(params, batch, keys):
    """Losses of inputs with some of them dropped."""
    kept = jax.vmap(lambda key: uniform(key, batch["x"].shape[1]) < 0.8)(keys)
    return PLANE.losses(params, batch | {"x": batch["x"] * kept})


@pytest.mark.full  # test_keys and test_compiled_equals_reference
def test_losses_with_keys():
    """Every sample of a task has a key of its own, whichever step it is in; threads have replay's bits."""
    problem = dataclasses.replace(PLANE, name="noisy", losses=noisy)
    run = dml.train(problem, MIXED, dml.ssp(2), NESTEROV, updates=20, local=DILOCO)
    wanted = replay_reference(run.trace, problem.with_steps(DILOCO, 32), NESTEROV)
    assert relative_error(run.params, wanted) < 1e-5
    options = {"updates": 20, "local": DILOCO, "engine": THREADS}
    run = dml.train(problem, EXPONENTIAL, dml.asp(), NESTEROV, **options)
    assert same_bits(run.params, dml.replay(run.trace, problem, NESTEROV, local=DILOCO).params)


@pytest.mark.full  # test_coupled has such losses, and test_compiled_equals_reference local steps
def test_coupled_losses():
    problem = dataclasses.replace(
        PLANE,
        name="coupled",
        losses=lambda params, batch: PLANE.losses(params, batch | {"x": centred(batch["x"])}),
        coupled=True,
    )
    run = dml.train(problem, MIXED, dml.asp(), optax.sgd(1.0), updates=20, local=FED_AVG)
    wanted = replay_reference(run.trace, problem.with_steps(FED_AVG, 32), optax.sgd(1.0))
    assert relative_error(run.params, wanted) < 1e-5
    with pytest.raises(ValueError, match=r"local: expected None .losses of coupled"):
        train(problem=problem, load="speed_proportional")


def centred(inputs):
    return inputs - inputs.mean(0)
