"""What a trace shows of compute and transfer times, and which of them were cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.trace import Trace, starts

NEGLIGIBLE = 1e-9  # share of the run below which a transfer is rounding


class Times(NamedTuple):
    """Observed times, right-censored where they were cut: the whole time is longer than was seen."""

    seconds: np.ndarray  # what was seen, > 0
    whole: np.ndarray  # False where it was cut
    worker: np.ndarray  # whose


def observed(trace: Trace) -> tuple[Times, np.ndarray, Times]:
    """Returns compute times, the samples of their tasks, and the transfers both ways."""
    if trace.metadata.get("pipelined"):
        name = trace.metadata["transport"]
        checks.fail("trace", name, "one without a pipeline, in which transfers are told from waiting")
    tasks = trace.tasks.sort_values(["worker", "clock"])
    worker, samples = tasks["worker"].to_numpy(), tasks["batch_size"].to_numpy()
    columns = ("pull_start", "compute_start", "compute_end", "push_end")
    pull, start, end, push = (tasks[name].to_numpy() for name in columns)
    arrived = np.isfinite(push)
    # A task is cut by another's arrival, at the latest where its worker's next task starts or the run ends.
    following = starts(tasks).groupby(tasks["worker"]).shift(-1)
    cut = following.fillna(trace.end_time).to_numpy()
    computed = arrived | ((end < cut) & ~np.isin(end, push[arrived]))
    begun = computed | (end > start)

    pulled = np.isfinite(pull)
    sent = pulled & computed
    seconds = np.concatenate([(start - pull)[pulled], (np.where(arrived, push, cut) - end)[sent]])
    seconds[seconds < NEGLIGIBLE * trace.end_time] = 0.0
    whole = np.concatenate([begun[pulled], arrived[sent]])
    transfers = Times(seconds, whole, np.concatenate([worker[pulled], worker[sent]]))
    return Times((end - start)[begun], computed[begun], worker[begun]), samples[begun], transfers
