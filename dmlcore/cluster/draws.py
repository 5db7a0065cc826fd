"""The times of a task's phases: random ones are keyed by seed, worker and clock.

They are the same on a virtual clock and, injected as sleeps, on a real one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.durations import Durations
from dmlcore.cluster.jitter import SizedJitter, quantile_function
from dmlcore.cluster.slowdowns import Pace, SpeedChange, Stragglers, TimedChange

WORKERS_PER_BLOCK = 32
CLOCKS_PER_BLOCK = 32
# A call of a quantile function is expensive, so several blocks are drawn in one call. With many rows of
# workers: one block of each of ROWS_AT_ONCE rows, since workers advance at about the same pace. With one row:
# several blocks of it; a pair (first, count) of BLOCKS_AT_ONCE says how many from block `first` on.
ROWS_AT_ONCE = 32
BLOCKS_AT_ONCE = ((0, 1), (1, 4), (9, 16))

# One stream of uniforms for each random quantity; slow episodes take EPISODES, EPISODES + 1, ...
COMPUTE, PULL, PUSH, EPISODES = range(4)
SERVED_PULL, SERVED_PUSH = 2**32, 2**32 + 1  # at the server; larger than any stream of episodes
RESAMPLED = 2**32 + 2  # the row of measured durations that a task past the last row takes


def uniforms(seed: int, stream: int, row: int, column: int) -> np.ndarray:
    """Returns the block of uniforms at (row, column): shape (WORKERS_PER_BLOCK, CLOCKS_PER_BLOCK), in [0, 1).

    Philox is counter-based, so a block is drawn without drawing the blocks before it.

    >>> a, b = uniforms(0, COMPUTE, 2, 5), uniforms(0, COMPUTE, 2, 5)
    >>> bool((a == b).all()), a.shape
    (True, (32, 32))
    """
    bits = np.random.Philox(key=np.array([seed, stream], np.uint64), counter=[0, row, column, 0])
    return np.random.Generator(bits).random((WORKERS_PER_BLOCK, CLOCKS_PER_BLOCK))


class Draws:
    """Times of pulls, tasks and pushes on a cluster under one seed.

    A whole block of workers and clocks is drawn when the first of its times is needed. Threads must not share
    one object.

    Args:
        cluster: the cluster.
        seed: seed of all random times.
        pull_bytes: bytes of a pull.
        push_bytes: bytes of a push.

    Attributes:
        compute_seconds: function of worker, clock and samples; returns the compute time of that task in
            seconds. Changes of speed at a time are not included: see `finish`.
        pace: changes of speed at a time. None: there are none.
        pulls_take: whether pulls take any time.
        pushes_take: whether pushes do.

    >>> draws = Draws(Cluster.uniform(2, samples_per_second=100, overhead=1.0), seed=0)
    >>> draws.compute_seconds(0, 0, 50)
    1.5
    """

    def __init__(self, cluster: Cluster, seed: int, pull_bytes: int = 0, push_bytes: int = 0):
        self.cluster, self.seed, self._bytes = cluster, seed, {PULL: pull_bytes, PUSH: push_bytes}
        timed = any(isinstance(change, TimedChange) for change in cluster.changes)
        self.pace = Pace(cluster) if timed else None
        narrow = min(cluster.bandwidth_bytes_per_second) < math.inf
        down = cluster.pull_latency_seconds or cluster.latency_seconds
        self.pulls_take = any(down) or (narrow and pull_bytes > 0)
        self.pushes_take = any(cluster.latency_seconds) or (narrow and push_bytes > 0)
        sized = isinstance(cluster.jitter, SizedJitter)
        self._jitter = None if sized else quantile_function(cluster.jitter)
        self._latency_jitter = quantile_function(cluster.latency_jitter)
        self._server_jitter = quantile_function(None if cluster.server is None else cluster.server.jitter)
        self._changes = [each for each in cluster.changes if isinstance(each, SpeedChange)]
        self._overhead = cluster.overhead_seconds
        self._varied = bool(cluster.stragglers or self._changes)  # whether the overhead varies between tasks
        self._per_sample = [1.0 / speed for speed in cluster.samples_per_second]
        if cluster.durations is not None:
            self._per_sample = [1.0] * cluster.num_workers  # drawn slowdowns multiply the measured time
        self._slow: dict[tuple[int, int], np.ndarray] = {}
        # Each worker's current block: its first clock, and per task fixed seconds and seconds per sample.
        self._current: list[tuple[int, list[float], list[float]]] = [(-1, [], [])] * cluster.num_workers
        self._compute: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        # Row of workers -> number of blocks drawn so far; needed where slow episodes span blocks.
        self._drawn: dict[int, int] = {}
        self._blocks: dict[tuple[int, int, int, int], list[list[float]]] = {}
        self.compute_seconds = self._timer()

    def _timer(self) -> Callable[[int, int, int], float]:
        """Returns the function `compute_seconds`; a closure is fast, and every task of a run calls it."""
        overhead, per_sample, current, load = self._overhead, self._per_sample, self._current, self._load
        sized = isinstance(self.cluster.jitter, SizedJitter)

        def constant(worker: int, clock: int, samples: int) -> float:
            return overhead[worker] + samples * per_sample[worker]

        def drawn(worker: int, clock: int, samples: int) -> float:
            offset = clock % CLOCKS_PER_BLOCK
            first, fixed, slope = current[worker]
            if first != clock - offset:
                first, fixed, slope = load(worker, clock // CLOCKS_PER_BLOCK)
            took = samples * slope[offset]
            if sized:
                took *= self.multiplier(COMPUTE, worker, clock, samples)
            return fixed[offset] + took

        cluster = self.cluster
        varies = cluster.jitter is not None or self._varied
        if cluster.durations is not None:
            return self._measured(cluster.durations, drawn if varies else None)
        return drawn if varies else constant

    def _measured(
        self, durations: Durations, slowdown: Callable[[int, int, int], float] | None
    ) -> Callable[[int, int, int], float]:
        """Returns the function `compute_seconds` of a cluster with measured durations."""
        rows = [
            list(zip(seconds, samples, strict=True))
            for seconds, samples in zip(durations.seconds, durations.samples, strict=True)
        ]
        beyond, run, together = durations.beyond, durations.run, durations.beyond == "rounds"
        drawn, fewest = beyond in ("bootstrap", "rounds"), min(map(len, rows))

        def measured(worker: int, clock: int, samples: int) -> float:
            own = rows[worker]
            row = clock
            if drawn:  # a run of rows begins at a row that all workers share, or that is the worker's own
                count = fewest if together else len(own)
                first = count * self.multiplier(RESAMPLED, 0 if together else worker, clock // run)
                row = (int(first) + clock % run) % count
            elif clock >= len(own):
                if beyond == "error":
                    raise durations.past(worker, clock)
                if beyond == "cycle":
                    row = clock % len(own)
                else:
                    row = int(len(own) * self.multiplier(RESAMPLED, worker, clock))
            seconds, size = own[row]
            took = seconds * (samples / size)  # equal sizes give a factor of exactly 1
            return took if slowdown is None else took * slowdown(worker, clock, 1)

        return measured

    def pull_seconds(self, worker: int, clock: int) -> float:
        """Returns the seconds of the pull before a worker's task `clock`."""
        return self._transfer_seconds(PULL, worker, clock)

    def push_seconds(self, worker: int, clock: int) -> float:
        """Returns the seconds of the push after a worker's task `clock`."""
        return self._transfer_seconds(PUSH, worker, clock)

    def finish(self, worker: int, clock: int, samples: int, begun: float) -> float:
        """Returns the end of computing, in seconds, of a task that begins to compute at `begun`."""
        seconds = self.compute_seconds(worker, clock, samples)
        return begun + seconds if self.pace is None else self.pace.finish(worker, begun, seconds)

    def computing(
        self, worker: int, clock: int, samples: int, pull: bool, since: float
    ) -> tuple[float, float]:
        """Returns begin and end of computing, in seconds, of a task that was released at `since`."""
        begun = since + self.pull_seconds(worker, clock) if pull else since
        return begun, self.finish(worker, clock, samples, begun)

    def _transfer_seconds(self, stream: int, worker: int, clock: int) -> float:
        cluster = self.cluster
        way = cluster.pull_latency_seconds if stream == PULL else None
        latency = (way or cluster.latency_seconds)[worker]
        if self._latency_jitter is not None and latency:
            latency *= self.multiplier(stream, worker, clock)
        return latency + self._bytes[stream] / cluster.bandwidth_bytes_per_second[worker]

    def multiplier(self, stream: int, worker: int, clock: int, samples: int = 0) -> float:
        """Returns the random multiplier of a task's compute time, of a latency or of the server's time.

        For the stream RESAMPLED it is the uniform itself. `samples`: of the task, where the jitter depends on
        it.
        """
        row, lane = divmod(worker, WORKERS_PER_BLOCK)
        block, offset = divmod(clock, CLOCKS_PER_BLOCK)
        key = (stream, row, block, samples)
        if key not in self._blocks:
            name, law = "latency_jitter", self._latency_jitter
            if stream == COMPUTE:
                name = f"jitter of {samples} samples"
                with checks.noting(f"{name}, for worker {worker}, clock {clock}"):
                    law = self.cluster.jitter.quantile(samples)
            elif stream in (SERVED_PULL, SERVED_PUSH):
                name, law = "the server's jitter", self._server_jitter
            elif stream == RESAMPLED:
                name, law = "rows", np.asarray
            self._blocks[key] = self._multipliers(name, law, stream, [(row, block)])[0].tolist()
        return self._blocks[key][lane][offset]

    def _load(self, worker: int, block: int) -> tuple[int, list[float], list[float]]:
        row, lane = divmod(worker, WORKERS_PER_BLOCK)
        # A slow episode continues from the block before; a worker that skipped clocks has not drawn that one.
        for each in range(self._drawn.get(row, 0) if self.cluster.stragglers else block, block + 1):
            if (row, each) not in self._compute:
                self._draw(self._at_once(row, each))
            self._drawn[row] = each + 1
        fixed, slope = self._compute[row, block]
        seconds = fixed[lane].tolist() if self._varied else [self._overhead[worker]] * CLOCKS_PER_BLOCK
        own = self._current[worker] = block * CLOCKS_PER_BLOCK, seconds, slope[lane].tolist()
        return own

    def _at_once(self, row: int, block: int) -> list[tuple[int, int]]:
        """Returns all (row, block) to draw in one call when this one is needed."""
        rows = -(-self.cluster.num_workers // WORKERS_PER_BLOCK)
        if rows == 1:
            ahead = next(count for start, count in reversed(BLOCKS_AT_ONCE) if block >= start)
            return [(row, each) for each in range(block, block + ahead)]
        drawn, chained = self._compute, self.cluster.stragglers and block
        return [
            (each, block)
            for each in range(row, min(row + ROWS_AT_ONCE, rows))
            if (each, block) not in drawn and (not chained or (each, block - 1) in drawn)
        ]

    def _draw(self, places: Sequence[tuple[int, int]]) -> None:
        """Draws the blocks (row, block) of `places`; blocks of one row must be consecutive."""
        multipliers: Any = [1.0] * len(places)
        if self._jitter is not None:
            multipliers = self._multipliers("jitter", self._jitter, COMPUTE, places)
        for (row, block), multiplier in zip(places, multipliers, strict=True):
            members = self._members(row)
            overhead = np.array(self._overhead[members])[:, None]
            per_sample = np.array(self._per_sample[members])[:, None]
            if self._varied:
                slowdown = self._slowdown(row, block)
                overhead, per_sample = overhead * slowdown, per_sample * slowdown
            per_sample = per_sample * multiplier
            shape = len(overhead), CLOCKS_PER_BLOCK
            self._compute[row, block] = np.broadcast_to(overhead, shape), np.broadcast_to(per_sample, shape)

    def _members(self, row: int) -> slice:
        """The workers of a row of blocks."""
        return slice(row * WORKERS_PER_BLOCK, min((row + 1) * WORKERS_PER_BLOCK, self.cluster.num_workers))

    def _slowdown(self, row: int, block: int) -> np.ndarray:
        """Returns the slowdown of each task of a block, from slow episodes and changes of speed."""
        members = self._members(row)
        workers = np.arange(members.start, members.stop)[:, None]
        clocks = block * CLOCKS_PER_BLOCK + np.arange(CLOCKS_PER_BLOCK)
        slowdown = np.ones((len(workers), CLOCKS_PER_BLOCK))

        def concerns(cause: Stragglers | SpeedChange) -> Any:
            return True if cause.workers is None else np.isin(workers, cause.workers)

        for index, episodes in enumerate(self.cluster.stragglers):
            slow = self._episodes(index, episodes, row, block)[: len(workers)]
            slowdown *= np.where(slow & concerns(episodes), episodes.slowdown, 1.0)
        for change in self._changes:
            slow = (change.clock <= clocks) & (clocks < change.until)
            slowdown *= np.where(slow & concerns(change), change.slowdown, 1.0)
        return slowdown

    def _multipliers(
        self, name: str, law: Any, stream: int, places: Sequence[tuple[int, int]]
    ) -> list[np.ndarray]:
        """Returns a quantile function's values of the uniforms of blocks, for the workers that exist."""
        members = [self._members(row) for row, _ in places]
        ends = np.cumsum([each.stop - each.start for each in members])
        drawn = (uniforms(self.seed, stream, row, block) for row, block in places)
        present = [block[: each.stop - each.start] for block, each in zip(drawn, members, strict=True)]
        uniform = np.concatenate(present)
        first, last = places[0], places[-1]
        who = f"workers {members[0].start} to {members[-1].stop - 1}"
        clocks = f"clocks {first[1] * CLOCKS_PER_BLOCK} to {(last[1] + 1) * CLOCKS_PER_BLOCK - 1}"
        with checks.noting(f"{name} of {who}, {clocks}, with seed {self.seed}"):
            values = np.asarray(law(uniform), float)
        if values.shape != uniform.shape:
            checks.fail(f"{name}, shape", values.shape, f"the shape of its argument, {uniform.shape}")
        blocks = np.split(values, ends[:-1])
        for (_, block), each, own in zip(places, members, blocks, strict=True):
            if not ((own >= 0) & (own < np.inf)).all():
                lane, offset = np.argwhere(~((own >= 0) & (own < np.inf)))[0]
                who = f"worker {each.start + lane}, clock {block * CLOCKS_PER_BLOCK + offset}"
                checks.fail(f"{name} of {who}", float(own[lane, offset]), "a finite multiplier >= 0")
            # Without overhead, tasks whose multipliers are all 0 take no time, and the run would never end.
            if stream == COMPUTE and 0 in self._overhead[each] and not own.any():
                worker, clock = each.start + self._overhead[each].index(0), block * CLOCKS_PER_BLOCK
                who = f"worker {worker}, clocks {clock} to {clock + CLOCKS_PER_BLOCK - 1}"
                checks.fail(f"{name} of {who}", 0.0, "some multipliers > 0 (the worker's overhead is 0)")
        return blocks

    def _episodes(self, index: int, episodes: Stragglers, row: int, block: int) -> np.ndarray:
        """Returns which tasks of a block are slow, as if all workers had these episodes."""
        uniform = uniforms(self.seed, EPISODES + index, row, block)
        slow = np.ones(uniform.shape, bool)
        if episodes.fraction < 1:
            leave = 1.0 / episodes.mean_tasks
            enter = leave * episodes.fraction / (1 - episodes.fraction)
            state: Any = self._slow.get((index, row))  # None: start in the stationary distribution
            for clock in range(CLOCKS_PER_BLOCK):
                u = uniform[:, clock]
                state = u < episodes.fraction if state is None else np.where(state, u >= leave, u < enter)
                slow[:, clock] = state
            self._slow[index, row] = state
        return slow
