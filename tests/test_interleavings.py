"""Every order in which three workers' pushes can arrive, with a worker that leaves and comes back and timers
that fire at any moment: the server and each policy keep their promises in all states that this leads to.

A push under way is lost where its worker leaves or is cancelled. One that is sent again is only late."""

import collections
import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmlcore as dml
from dmlcore.engines.server import Order, Server
from dmlcore.engines.spec import RunSpec
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.methods.policies.gated import Gate
from dmlcore.types import Decision, Policy, Start

WORKERS = 3
MOST_WAKES = 1  # timers that fire on a path
MOMENT = 1e-6  # seconds between what happens, where policies set timers, which are due later than any push
# Of each policy, clocks of each worker and the number of states that they lead to. A number that changes is
# explained before it is written here: fewer states may mean that some orders are no longer tried.
# DMLCORE_ORDERS=all tries 4 clocks of every policy, in some minutes. Without it, those that would lead to
# more than `MANY` states have fewer: nothing holds their workers together, or times stand in the state. The
# default tries the fewest clocks here; policies with a bound on the lead have as many as reach it.
MANY = 11_000
STATES = {
    "bsp": {4: 185},
    "asp": {2: 708, 3: 5_139, 4: 23_396},
    "asp_coupled": {2: 736, 3: 5_433, 4: 24_907},
    "ssp": {4: 7_253},
    "ssp_unbounded": {4: 1_892},
    "essp": {4: 7_829},
    "dssp": {4: 4_457},
    "k_sync": {4: 307},
    "k_batch_sync": {4: 1_542},
    "k_async": {4: 1_227},
    "k_batch_async": {3: 1_636, 4: 5_908},
    "n_softsync": {3: 2_504, 4: 9_788},
    "deadline": {3: 2_992, 4: 6_675},
    "k_sync_schedule": {4: 218},
    "pflug": {4: 206},
    "adasync": {3: 1_827, 4: 6_551},
    "adaptive_load": {4: 239},
    "adaptive_load_gradients": {4: 239},
    "dbw": {4: 239},
    "adaptive_sync": {2: 446, 3: 3_605, 4: 21_290},
    "a2s": {2: 1_768, 3: 10_324, 4: 44_098},
    "sync_switch": {4: 185},
    "backup": {3: 3_198, 4: 8_822},
    "rennala": {3: 747, 4: 3_048},
    "ringmaster": {2: 716, 3: 5_752, 4: 31_609},
    "ringmaster_stop": {2: 649, 3: 6_822, 4: 49_495},
    "ringleader": {3: 1_454, 4: 6_724},
    "mindflayer": {2: 7_204, 4: 71_799},
    "delay_adaptive": {2: 708, 3: 5_139, 4: 23_396},
    "fedbuff": {3: 1_636, 4: 5_908},
    "fedasync": {2: 708, 3: 5_139, 4: 23_396},
    "sampled": {4: 533},
    "sampled_async": {3: 6_380, 4: 22_049},
}
# Where speeds are equal, the group of A2S takes the workers with the smallest numbers. Samples are of names.
BY_NAME = {"a2s", "sampled", "sampled_async"}


class Node(NamedTuple):
    """A state, and what may still happen."""

    server: dict[str, Any]  # a snapshot
    time: float = 1.0  # stands still where no timers are set: then only the order tells states apart
    leaves: int = 1  # how often a worker may still leave
    wakes: int = MOST_WAKES
    ended: tuple[Order, ...] = ()  # tasks that have arrived or were lost; they do not tell states apart


def told_apart(value):
    """All that decides on what follows, of a state of any kind, such that equal states are equal."""
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        return type(value).__name__, told_apart(vars(value))
    if isinstance(value, dict):
        return tuple(sorted(((told_apart(key), told_apart(each)) for key, each in value.items()), key=repr))
    if isinstance(value, set | frozenset):
        return frozenset(map(told_apart, value))
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return tuple(map(told_apart, value)) if isinstance(value, list | tuple | collections.deque) else value


class Explorer:
    """All states of a policy, from its first one on.

    Args:
        policy: the rule.
        clocks: of a worker, beyond which it does not push.
        alike: whether to leave out states that differ by the names of workers: then it is worker 2 that
            leaves, and worker 0 pushes before worker 1 does.
    """

    def __init__(self, policy, clocks, alike=True):
        spec = RunSpec.checked(policy, dml.Cluster.uniform(WORKERS), updates=10**6)
        self.clocks, self.alike, self.moment = clocks, alike, MOMENT if policy.on_wake else 0.0
        self.server = Server(spec, lambda order: (0.0, 1.0, 0.0), keeps_journal=False)
        self.server.begin()
        self.look(1.0)

    def look(self, time):
        """Shows the policy what it watches: losses that fall with the updates."""
        while self.server.looks:
            updates = self.server.num_updates
            tasks = [1] * (updates - self.server._looked)
            norms = [1.0 for _ in tasks]
            seen = 1 / (1 + updates), tasks, [32 * each for each in tasks], norms, norms
            self.server.observe(updates, time, *seen)

    def key(self, node):
        """What decides on all that may follow."""
        server = node.server
        kept = [server[name] for name in ("state", "load_state", "present", "num_updates", "_done")]
        flight = [
            [(task.clock, task.version, task.pull, task.told) for task in tasks] for tasks in server["flight"]
        ]
        return told_apart(
            (kept, flight, sorted(server["pending"]), sorted(server["timers"]), node.leaves, node.wakes)
        )

    def events(self, node):
        """What may happen next: name, worker."""
        flight, present, timers = (node.server[name] for name in ("flight", "present", "timers"))
        pushing = [worker for worker, tasks in enumerate(flight) if tasks and tasks[0].clock < self.clocks]
        ordered = self.alike and node.server["_done"][0] < 0
        found = [("push", worker) for worker in pushing if worker != 1 or not ordered]
        if self.server.policy.on_leave is not None:
            away = {*range(WORKERS)} - present
            going = ({2} if self.alike else present) if node.leaves else ()
            found += [("join", each) for each in away] or [("leave", each) for each in sorted(going)]
        return found + [("wake", -1)] * bool(timers and node.wakes)

    def after(self, node, event, worker):
        """Returns the state that an event leads to, once all promises about the step were held against it."""
        server = self.server.restore([], (0, node.server))
        time = max(node.time, server.due) if event == "wake" else node.time + self.moment
        before = [task for tasks in server.flight for task in tasks]
        if event == "push":
            applied, *_ = server.push(server.flight[worker][0], time, 0.0, time)
        else:
            applied, *_ = server.wake(time) if event == "wake" else getattr(server, event)(worker, time)
        under_way = {task for tasks in server.flight for task in tasks}
        ended = *node.ended, *(task for task in before if task not in under_way)
        for task in ended:
            found = server.find(task.worker, task.clock, task.attempt)
            assert found is None, "a push that has arrived or was lost does not count if it arrives later"
        self.look(time)
        assert len({task[:2] for task in applied}) == len(applied)
        assert all(np.isfinite(weight) and weight >= 0 for _, _, weight in applied)
        server.check_alive(time)
        leaves, wakes = node.leaves - (event == "leave"), node.wakes - (event == "wake")
        return Node(server.snapshot(), time, leaves, wakes, ended)

    def explore(self):
        """Yields every state once."""
        stack, seen = [Node(self.server.snapshot())], set()
        while stack:
            node = stack.pop()
            key = self.key(node)
            if key in seen:
                continue
            seen.add(key)
            yield node
            stack += [self.after(node, *event) for event in self.events(node)]


def check_lead(max_lead, node):
    """No worker is too far ahead of the slowest one present, and tasks in lock-step read the newest version.

    Policies that wait for K gradients promise no lead once a worker was away: it goes on from its own clock.
    """
    flight, done, present, updates, state = (
        node.server[name] for name in ("flight", "_done", "present", "num_updates", "state")
    )
    at_work = [tasks[-1] for tasks in flight if tasks]
    if max_lead == 0:
        assert {task.version for task in at_work} <= {updates}
    if node.leaves or isinstance(state, Gate):
        slowest = min(flight[worker][-1].clock if flight[worker] else done[worker] + 1 for worker in present)
        assert all(task.clock - slowest <= max_lead for task in at_work)


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_every_order_of_arrivals(policy, capsys, request):
    every, most = request.config.getoption("--all"), os.environ.get("DMLCORE_ORDERS") == "all"
    tried = [clocks for clocks, states in STATES[policy].items() if states <= MANY or most]
    clocks = max(tried) if every or most else min(tried)
    rule, count = ALL_POLICIES[policy](), 0
    for node in Explorer(rule, clocks, policy not in BY_NAME).explore():
        count += 1
        if rule.max_lead is not None:
            check_lead(rule.max_lead, node)
    with capsys.disabled():
        print(f"\n{policy}: {count} states of {WORKERS} workers x {clocks} clocks")
    assert count == STATES[policy][clocks]


def seen_from(node, names):
    """What a state looks like if worker w is called `names[w]`."""
    flight = {
        names[worker]: [(task.clock, task.version, task.pull) for task in tasks]
        for worker, tasks in enumerate(node.server["flight"])
    }
    ended = collections.Counter((names[task.worker], task.clock) for task in node.ended)
    return flight, {names[worker] for worker in node.server["present"]}, node.server["num_updates"], ended


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_names_of_workers_decide_on_nothing(policy):
    """So orders that differ by names alone need no tries of their own: the same happens under other names."""
    rng, differ = np.random.default_rng(7), 0
    for _ in range(10):
        explorers = [Explorer(ALL_POLICIES[policy](), 12, alike=False) for _ in range(2)]
        nodes = [Node(each.server.snapshot(), leaves=3) for each in explorers]
        names = rng.permutation(WORKERS)
        while events := explorers[0].events(nodes[0]):
            event, worker = events[rng.integers(len(events))]
            workers = worker, worker if event == "wake" else names[worker]
            if (event, workers[1]) not in explorers[1].events(nodes[1]):
                differ += 1  # another worker was drawn
                break
            steps = zip(explorers, nodes, workers, strict=True)
            nodes = [explorer.after(node, event, each) for explorer, node, each in steps]
            if seen_from(nodes[0], names) != seen_from(nodes[1], range(WORKERS)):
                differ += 1
                break
    assert (differ > 0) == (policy in BY_NAME)


def starting(which):
    """A policy that applies every push at once, and then starts the workers that a function names."""

    def on_push(state, push):
        starts = [Start(worker) for worker in which(push)]
        return state, Decision([(push.worker, push.clock, 1.0)], start=starts)

    return Policy("of a test", init=lambda num_workers: [], on_push=on_push)


@pytest.mark.parametrize(
    ("which", "error"),
    [
        (lambda push: [push.worker] if push.worker or push.clock < 2 else [], None),
        (lambda push: [push.worker] if push.clock < 1 else [], "deadlocks"),
        (lambda push: [(push.worker + 1) % 3] if push.clock == 1 else [push.worker], "busy"),
    ],
    ids=["sound", "stops", "starts another one"],
)
def test_what_goes_wrong_in_some_order_is_found(which, error):
    explorer = Explorer(starting(which), 3)
    if error is None:
        assert sum(1 for _ in explorer.explore()) > 100
    else:
        with pytest.raises((RuntimeError, ValueError), match=error):
            list(explorer.explore())
