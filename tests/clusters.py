"""Clusters that tests share: small, with everything that can make workers differ."""

from scipy import stats

from dmlcore.cluster import Cluster
from dmlcore.types import Load

EXPONENTIAL = Cluster.uniform(4, samples_per_second=1000, jitter=stats.expon())
MIXED = Cluster.from_speeds(
    [1000, 700, 1300, 1000],
    overhead=0.002,
    latency=[0.001, 0.004, 0.002, 0.0],
    bandwidth=5e7,
    jitter=stats.gamma(4, scale=0.25),
    latency_jitter=stats.expon(),
).with_stragglers(4, fraction=0.2, mean_tasks=5)
LOCK_STEP = Cluster.uniform(4, samples_per_second=1000)
CONTENDED = EXPONENTIAL.with_server(
    seconds_per_push=0.004, seconds_per_pull=0.002, seconds_per_update=0.001, jitter=stats.expon()
)
CLUSTERS = {"exponential": EXPONENTIAL, "mixed": MIXED, "lock_step": LOCK_STEP, "contended": CONTENDED}

# Batch sizes that differ by worker, and ones that change with every push that is observed.
UNEQUAL = Load("unequal()", lambda num_workers, total: None, lambda state, worker: 8 << worker)


def _count(state, push):
    assert push.samples in (8, 16, 32, 64)
    state[push.worker] += 1
    return state


GROWING = Load(
    "growing()",
    lambda num_workers, total: [*range(num_workers)],
    lambda state, worker: 8 << state[worker] % 4,
    _count,
)
