"""Timelines without training, of policies that watch it too: they are shown what luck makes up."""

import numpy as np

import dmlcore as dml
from dmlcore.types import Observation


class RandomWatch:
    """Shows as many updates as were made since it was last called, with numbers that follow from the seed."""

    def __init__(self, seed):
        self._seed, self._life, self._seen, self._first = seed, 0, 0, 0

    def __call__(self, progress):
        if progress.life != self._life:
            self._life, self._seen, self._first = progress.life, 0, 0
        landed = progress.record.applied(since=self._seen, first=self._first)
        assert landed == progress.record.applied(since=self._seen)
        self._seen, self._first = progress.num_updates, progress.oldest
        _, tasks = np.unique([task.update for task in landed], return_counts=True)
        rng = np.random.default_rng([self._seed, progress.num_updates])
        squares, products = np.ones(len(tasks)), rng.normal(0.3, 0.2, len(tasks))
        samples = (32 * tasks).tolist()
        loss = float(np.exp(-progress.num_updates / 60))
        seen = tasks.tolist(), samples, squares.tolist(), products.tolist()
        return Observation(progress.num_updates, progress.time, loss, *seen)


def simulate(policy, cluster, *, seed=0, **options):
    """`dml.simulate`, with a `RandomWatch` for policies that watch."""
    return dml.simulate(policy, cluster, seed=seed, watch=RandomWatch(seed), **options)
