"""The simulator: a policy on a virtual clock, with times from the cluster's draws and no gradients."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.draws import PULL, PUSH, Draws
from dmlcore.engines.breakdowns import simulate_breakdowns
from dmlcore.engines.server import (
    MOST_TASKS,
    back_in_time,
    keeps_copies,
    never_updates,
    next_look,
    no_decision,
)
from dmlcore.engines.setup import Setup
from dmlcore.trace import Trace
from dmlcore.trace.record import not_at_server, tasks_frame, updates_frame
from dmlcore.types import Load, Policy, Progress, Push, Transport, Watch


def simulate(
    policy: Policy,
    cluster: Cluster,
    *,
    updates: int | None = None,
    seconds: float | None = None,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    load: Load | str | None = None,
    transport: Transport | str | None = None,
    parameter_bytes: int = 0,
    tensor_sizes: Sequence[int] | None = None,
    watch: Watch | None = None,
) -> Trace:
    """Runs a policy on a virtual clock and returns its trace.

    A task's whole life - pull, compute, push - is drawn when it starts, so it is one event: its arrival.
    Where the transport is pipelined, it is pushed when the answer to the push before it has come.
    Events at equal times are taken in the order in which their tasks started. The server takes no time.

    Args:
        policy: the server's rule.
        cluster: speeds, links, stragglers.
        updates: stop after so many server updates; give exactly one of `updates`, `seconds`, `samples`.
        seconds: stop at this virtual time.
        samples: stop when so many samples are in applied updates.
        seed: of all draws; the same seed means the same stragglers under every policy.
        batch_size: samples of one worker's task; a load rule shares out `batch_size * num_workers`.
        load: rule for the batch sizes, where the policy does not size tasks itself. Default: `equal`.
        transport: what is sent. Default: `plain`.
        parameter_bytes: size of the parameters, which travel both ways.
        tensor_sizes: how many numbers each tensor of the parameters has, for transports that round. Default:
            one tensor, of 4 bytes a number.
        watch: what shows a policy that watches losses or gradients how its training goes; `train` has one.

    Returns:
        The trace, validated.

    Raises:
        ValueError: an argument is wrong, or what the policy, the load or a jitter of one's own does; the
            message names it, the worker and the clock.
        RuntimeError: the policy deadlocks: every worker waits and nothing is in flight.

    Example:
        >>> from dmlcore.methods.policies import ssp
        >>> trace = simulate(ssp(staleness=3), Cluster.uniform(4), updates=100)
        >>> len(trace.updates), round(trace.end_time, 6)
        (100, 0.8)
    """
    setup = Setup.checked(
        policy,
        cluster,
        updates=updates,
        seconds=seconds,
        samples=samples,
        seed=seed,
        batch_size=batch_size,
        load=load,
        transport=transport,
        parameter_bytes=parameter_bytes,
        tensor_sizes=tensor_sizes,
    )
    if policy.on_observation is None:
        watch = None
    elif watch is None:
        checks.fail("policy", policy, "one that watches no training, where there is none: `train` it")
    if cluster.faults.events:
        return simulate_breakdowns(setup, watch)
    # The run makes no cycles, and the collector would look through all tasks in flight again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _run(setup, watch)
    finally:
        if collects:
            gc.enable()


def _run(setup: Setup, watch: Watch | None) -> Trace:
    policy, cluster, stop, load = setup.policy, setup.cluster, setup.stop, setup.load
    draws = Draws(cluster, setup.seed)
    pull_bytes, push_bytes = setup.transferred_bytes()
    num_workers = cluster.num_workers
    state = policy.init(num_workers)
    load_state = load.init(num_workers, setup.batch_size * num_workers)
    compute_seconds, transfer_seconds = draws.compute_seconds, draws.transfer_seconds
    narrow = min(cluster.bandwidth_bytes_per_second) < math.inf
    pulls_take = any(cluster.pull_latency_seconds or cluster.latency_seconds) or (narrow and pull_bytes > 0)
    pushes_take = any(cluster.latency_seconds) or (narrow and push_bytes > 0)
    on_push, observe, size = policy.on_push, load.observe, load.size
    last_update, last_second, last_sample = stop
    sizes = [size(load_state, w) for w in range(num_workers)] if observe is None else []  # that never change
    new, nan = tuple.__new__, math.nan
    pipelined = setup.transport.pipelined
    # Where pipelined: the task of each worker that is not pushed yet.
    computing: list[tuple | None] = [None] * num_workers
    clock = [-1] * num_workers
    version = [0] * num_workers  # of the copy that each worker has
    flight: list[tuple | None] = [None] * num_workers  # each worker's task
    heap: list[tuple] = []  # tasks; one that is in flight no more is skipped when it comes to the top
    place: Callable[[Any, Any], Any] = heappush
    sequence = 0
    record: list[tuple] = []
    patience = MOST_TASKS if last_second == math.inf else math.inf  # rows until an update must have come
    landed: list[tuple] = []  # row, update, weight
    update_rows: list[tuple] = []  # time, tasks, samples
    num_updates = applied_samples = 0
    pending: dict[tuple[int, int], tuple[int, int]] = {}  # pushes kept at the server: (row, samples)
    worker, now, computed = 0, 0.0, 0.0  # who pushed last, when it arrived and when it was computed
    start: Sequence[tuple[int, int | None, bool, int | None]]
    start = [(w, policy.batch_size, True, None) for w in range(num_workers)] * (1 + pipelined)
    look = 0 if watch is not None else math.inf  # after so many updates the policy sees its training
    looked = 0
    while True:
        for w, asked, pull, k in start:
            if not 0 <= w < num_workers or flight[w] is not None:
                fault = "is busy" if 0 <= w < num_workers else "is not there"
                raise ValueError(f"{policy.name} starts worker {w}, which {fault}, at {now:g} s")
            if pipelined and k is not None:
                k = max(k, clock[w] + 1)  # the policy does not know of the task that is being computed
            clock[w] = c = clock[w] + 1 if k is None else _ahead(policy, w, k, clock[w])
            b = asked
            if b is None:
                b = sizes[w] if sizes else size(load_state, w)
            if type(b) is not int or b < 1:
                rule = policy.name if asked is not None else load.name
                b = checks.integer(f"{rule}, worker {w}, clock {c}", b, low=1, why="samples of a task")
            if pull:
                version[w] = num_updates
                pulled = now
                begun = now + transfer_seconds(PULL, w, c, pull_bytes) if pulls_take else now
            else:
                if setup.pulls_only:
                    raise keeps_copies(policy, w)
                # A worker that keeps its copy waits for no answer: it went on when it had pushed.
                pulled = nan
                begun = computed if w == worker else now
            if pipelined:
                # With the copy on which this task is computed comes leave to push the task before it.
                before = computing[w]
                if before is not None:
                    begun = max(begun, before[8])
                    arrival = begun + transfer_seconds(PUSH, w, before[3], push_bytes)
                    flight[w] = task = (arrival, *before[1:])
                    place(heap, task)
                    place = heappush
                end = begun + compute_seconds(w, c, b)
                computing[w] = (nan, sequence, w, c, b, version[w], pulled, begun, end)
                sequence += 1
                continue
            end = begun + compute_seconds(w, c, b)
            # Pushes of one worker arrive in order.
            arrival = max(end + transfer_seconds(PUSH, w, c, push_bytes), now) if pushes_take else end
            flight[w] = task = (arrival, sequence, w, c, b, version[w], pulled, begun, end)
            place(heap, task)
            place = heappush
            sequence += 1
        if num_updates >= look:
            assert watch is not None
            assert policy.on_observation is not None
            live = {num_updates, *(task[5] for task in flight + computing if task is not None)}
            live.update(record[row][5] for row, _ in pending.values())
            progress = Progress(now, num_updates, record, landed, live, looked)
            state = policy.on_observation(state, watch(progress))
            looked, look = num_updates, next_look(policy, num_updates)
        while heap:
            task = heap[0]
            if flight[task[2]] is task:
                break
            heappop(heap)
        else:
            raise RuntimeError(
                f"{policy.name} deadlocks at {now:g} s after {num_updates} updates: all {num_workers} "
                "workers wait; on_push must start somebody whenever nothing else is in flight"
            )
        if task[0] > last_second:
            break
        now, _, worker, c, b, v, _, begun, computed = task
        flight[worker] = None
        place = heapreplace  # the next task to start takes this one's place: half the work of pop and push
        push = new(Push, (worker, c, v, now, computed - begun, b))
        if observe is not None:
            load_state = observe(load_state, push)
        answer = on_push(state, push)
        try:
            state, (apply, drop, cancel, start) = answer
            if len(apply):
                first, its_clock, weight = apply[0]
            if len(start):
                _, _, _, _ = start[0]
        except (TypeError, ValueError, LookupError):
            raise no_decision(policy, "on_push", answer) from None
        row = len(record)
        record.append(task)
        if len(apply) == 1 and first == worker and its_clock == c:  # as a rule, and then nothing is kept
            in_update = b
            landed.append((row, num_updates, weight))
        else:
            in_update = 0
            pending[worker, c] = (row, b)
            for w, k, weight in apply:
                try:
                    row, count = pending.pop((w, k))
                except KeyError:
                    raise not_at_server(policy, "applies", (w, k)) from None
                in_update += count
                landed.append((row, num_updates, weight))
        if apply:
            num_updates += 1
            if patience < math.inf:
                patience = len(record) + MOST_TASKS
            applied_samples += in_update
            update_rows.append((now, len(apply), in_update))
            if num_updates >= last_update or applied_samples >= last_sample:
                break
        elif len(record) > patience:
            raise never_updates(policy, now, num_updates)
        for key in drop:
            if pending.pop(key, None) is None:
                raise not_at_server(policy, "drops", key)
        if cancel and pipelined:
            checks.fail("policy", policy, "one that cancels no task, where the transport is pipelined")
        for w in cancel:
            if not 0 <= w < num_workers:
                raise ValueError(f"{policy.name} cancels worker {w}, which is not there, at {now:g} s")
            _cut(record, flight, w, now)
    if last_second < math.inf:
        now = last_second
    for w in range(num_workers):
        _cut(record, flight, w, now)
        _cut(record, computing, w, now)
    frames = tasks_frame(record, landed), updates_frame(update_rows)
    trace = Trace(*frames, setup.metadata("simulate") | {"end_time": now})
    try:
        return trace.validate()
    except ValueError as error:
        raise ValueError(f"{policy.name} on {cluster} leaves no valid trace: {error}") from error


def _ahead(policy: Policy, worker: int, clock: int, last: int) -> int:
    """Returns a clock that a policy asks for, if it lies ahead."""
    if clock <= last:
        raise back_in_time(policy, worker, clock, last)
    return clock


def _cut(record: list[tuple], flight: list[tuple | None], worker: int, now: float) -> None:
    """Records a worker's task that never arrives, if it has one: its last phase ends now."""
    task = flight[worker]
    if task is not None:
        flight[worker] = None
        _, *head, begun, end = task
        record.append((math.nan, *head, min(begun, now), min(end, now)))
