"""Random task and transfer times, keyed by seed, worker and clock."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.durations import Durations
from dmlcore.cluster.jitter import SizedJitter, quantile_function
from dmlcore.cluster.slowdowns import SpeedChange, Stragglers

WORKERS_PER_BLOCK = 32
CLOCKS_PER_BLOCK = 32
# Calls of a quantile function are dear, so several blocks are drawn at once: one of each of so many rows of
# workers, since they keep about the same pace; where there is one row, from a block on so many of it.
ROWS_AT_ONCE = 32
BLOCKS_AT_ONCE = ((0, 1), (1, 4), (9, 16))

# One stream of uniforms for each thing that is drawn; slow episodes take EPISODES, EPISODES + 1, ...
COMPUTE, PULL, PUSH, EPISODES = range(4)
SERVED_PULL, SERVED_PUSH = 2**32, 2**32 + 1  # at the server, beyond any number of kinds of episodes
RESAMPLED = 2**32 + 2  # which row of measured durations comes after the last


def uniforms(seed: int, stream: int, row: int, column: int) -> np.ndarray:
    """Returns the block of uniforms at (row, column): shape (WORKERS_PER_BLOCK, CLOCKS_PER_BLOCK), in [0, 1).

    Philox is counter-based: the block is reached without drawing those before it.

    >>> a, b = uniforms(0, COMPUTE, 2, 5), uniforms(0, COMPUTE, 2, 5)
    >>> bool((a == b).all()), a.shape
    (True, (32, 32))
    """
    bits = np.random.Philox(key=np.array([seed, stream], np.uint64), counter=[0, row, column, 0])
    return np.random.Generator(bits).random((WORKERS_PER_BLOCK, CLOCKS_PER_BLOCK))


class Draws:
    """Task and transfer times of a cluster under one seed.

    Blocks of workers and clocks are drawn at once when first asked for. Not to be shared by threads.

    Attributes:
        compute_seconds: worker, clock, samples -> how long the worker computes that task, seconds; without
            changes of speed by time.

    >>> draws = Draws(Cluster.uniform(2, samples_per_second=100, overhead=1.0), seed=0)
    >>> draws.compute_seconds(0, 0, 50)
    1.5
    """

    def __init__(self, cluster: Cluster, seed: int):
        self.cluster, self.seed = cluster, seed
        self._sized = isinstance(cluster.jitter, SizedJitter)
        self._jitter = None if self._sized else quantile_function(cluster.jitter)
        self._latency_jitter = quantile_function(cluster.latency_jitter)
        self._server_jitter = quantile_function(None if cluster.server is None else cluster.server.jitter)
        # Those by time are no matter of the task alone: see `Pace`.
        self._changes = [each for each in cluster.changes if isinstance(each, SpeedChange)]
        self._overhead = cluster.overhead_seconds
        self._varied = bool(cluster.stragglers or self._changes)  # the overhead does, from task to task
        self._per_sample = [1.0 / speed for speed in cluster.samples_per_second]
        if cluster.durations is not None:
            self._per_sample = [1.0] * cluster.num_workers  # what is drawn multiplies what was measured
        self._slow: dict[tuple[int, int], np.ndarray] = {}
        # Of each worker's block: its first clock, and for each task fixed seconds and seconds per sample.
        self._current: list[tuple[int, list[float], list[float]]] = [(-1, [], [])] * cluster.num_workers
        self._compute: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        # Row of workers -> how many of its blocks are drawn, where slow episodes go on from block to block.
        self._drawn: dict[int, int] = {}
        self._blocks: dict[tuple[int, int, int, int], list[list[float]]] = {}
        self.compute_seconds = self._timer()

    def _timer(self) -> Callable[[int, int, int], float]:
        """Returns what tells how long tasks take; closures, since it is asked for every task of a run."""
        overhead, per_sample, current, load = self._overhead, self._per_sample, self._current, self._load

        def constant(worker: int, clock: int, samples: int) -> float:
            return overhead[worker] + samples * per_sample[worker]

        def drawn(worker: int, clock: int, samples: int) -> float:
            offset = clock % CLOCKS_PER_BLOCK
            first, fixed, slope = current[worker]
            if first != clock - offset:
                first, fixed, slope = load(worker, clock // CLOCKS_PER_BLOCK)
            return fixed[offset] + samples * slope[offset]

        def drawn_by_size(worker: int, clock: int, samples: int) -> float:
            offset = clock % CLOCKS_PER_BLOCK
            first, fixed, slope = current[worker]
            if first != clock - offset:
                first, fixed, slope = load(worker, clock // CLOCKS_PER_BLOCK)
            return fixed[offset] + samples * slope[offset] * self.multiplier(COMPUTE, worker, clock, samples)

        cluster = self.cluster
        varies = cluster.jitter is not None or self._varied
        if cluster.durations is not None:
            return self._measured(cluster.durations, drawn if varies else None)
        return drawn_by_size if self._sized else drawn if varies else constant

    def _measured(
        self, durations: Durations, slowdown: Callable[[int, int, int], float] | None
    ) -> Callable[[int, int, int], float]:
        """Returns what tells how long tasks take whose durations were measured."""
        rows = [
            list(zip(seconds, samples, strict=True))
            for seconds, samples in zip(durations.seconds, durations.samples, strict=True)
        ]
        beyond = durations.beyond

        def measured(worker: int, clock: int, samples: int) -> float:
            own = rows[worker]
            row = clock
            if clock >= len(own):
                if beyond == "error":
                    raise durations.past(worker, clock)
                if beyond == "cycle":
                    row = clock % len(own)
                else:
                    row = int(len(own) * self.multiplier(RESAMPLED, worker, clock))
            seconds, size = own[row]
            took = seconds * (samples / size)  # a factor of 1 where they are equal: exactly what was measured
            return took if slowdown is None else took * slowdown(worker, clock, 1)

        return measured

    def transfer_seconds(self, stream: int, worker: int, clock: int, nbytes: int) -> float:
        """Returns how long the pull before (stream PULL) or the push after (PUSH) task `clock` takes."""
        cluster = self.cluster
        way = cluster.pull_latency_seconds if stream == PULL else None
        latency = (way or cluster.latency_seconds)[worker]
        if self._latency_jitter is not None and latency:
            latency *= self.multiplier(stream, worker, clock)
        return latency + nbytes / cluster.bandwidth_bytes_per_second[worker]

    def multiplier(self, stream: int, worker: int, clock: int, samples: int = 0) -> float:
        """Returns what multiplies a latency, the server's times, or those of a task of so many samples; of
        RESAMPLED the uniform itself."""
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
        # A slow episode goes on from the block before, which a worker that was sent ahead has not asked for.
        for each in range(self._drawn.get(row, 0) if self.cluster.stragglers else block, block + 1):
            if (row, each) not in self._compute:
                self._draw(self._at_once(row, each))
            self._drawn[row] = each + 1
        fixed, slope = self._compute[row, block]
        seconds = fixed[lane].tolist() if self._varied else [self._overhead[worker]] * CLOCKS_PER_BLOCK
        own = self._current[worker] = block * CLOCKS_PER_BLOCK, seconds, slope[lane].tolist()
        return own

    def _at_once(self, row: int, block: int) -> list[tuple[int, int]]:
        """Returns the (row, block) to draw when this one is asked for."""
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
        """Draws blocks (row, block); those of one row follow one another."""
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
        """What slow episodes and changes of speed multiply the times of a block's tasks with."""
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
        """What a quantile function makes of blocks' uniforms, for the workers that are there."""
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
            checks.fail(f"{name}, shape", values.shape, f"that of its argument, {uniform.shape}")
        blocks = np.split(values, ends[:-1])
        for (_, block), each, own in zip(places, members, blocks, strict=True):
            if not ((own >= 0) & (own < np.inf)).all():
                lane, offset = np.argwhere(~((own >= 0) & (own < np.inf)))[0]
                who = f"worker {each.start + lane}, clock {block * CLOCKS_PER_BLOCK + offset}"
                checks.fail(f"{name} of {who}", float(own[lane, offset]), "a finite multiplier >= 0")
            # Without any overhead, tasks whose multipliers are all 0 take no time, and the run has no end.
            if stream == COMPUTE and 0 in self._overhead[each] and not own.any():
                worker, clock = each.start + self._overhead[each].index(0), block * CLOCKS_PER_BLOCK
                who = f"worker {worker}, clocks {clock} to {clock + CLOCKS_PER_BLOCK - 1}"
                checks.fail(f"{name} of {who}", 0.0, "a multiplier > 0 now and then, where the overhead is 0")
        return blocks

    def _episodes(self, index: int, episodes: Stragglers, row: int, block: int) -> np.ndarray:
        """Which tasks of a block are slow, if all workers have episodes."""
        uniform = uniforms(self.seed, EPISODES + index, row, block)
        slow = np.ones(uniform.shape, bool)
        if episodes.fraction < 1:
            leave = 1.0 / episodes.mean_tasks
            enter = leave * episodes.fraction / (1 - episodes.fraction)
            state: Any = self._slow.get((index, row))  # None: the chain starts in its stationary law
            for clock in range(CLOCKS_PER_BLOCK):
                u = uniform[:, clock]
                state = u < episodes.fraction if state is None else np.where(state, u >= leave, u < enter)
                slow[:, clock] = state
            self._slow[index, row] = state
        return slow
