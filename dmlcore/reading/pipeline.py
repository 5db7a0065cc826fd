"""A recorded job of data-parallel pipelines, and its steps again with other durations of operations."""

from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd

from dmlcore import checks, tables

Operation = tuple[str, int, int]  # kind, number among those of its kind in a step, stage
Times = Mapping[Operation, np.ndarray]  # of an operation in each step and rank, (S, D)
Members = Mapping[Operation, list[Operation]]  # operations that end together -> what each waits for

FORWARD, BACKWARD = "forward-compute", "backward-compute"
NEXT = {"forward": 1, "backward": -1}  # from the stage that sends to the one that receives
MESSAGES = [f"{way}-{end}" for way in NEXT for end in ("send", "recv")]
GATHER, CLIP, EMBEDDING = "params-all-gather", "optimizer-clip-main-grad", "embedding-grads-all-reduce"
AFTER = "gc", "layernorm-grads-all-reduce", EMBEDDING, "grads-reduce-scatter", CLIP, "optimizer"  # one by one
BY_ALL = GATHER, "grads-reduce-scatter", CLIP  # all data-parallel ranks take part
ALONE = FORWARD, BACKWARD, "gc", "optimizer"  # all others are messages and collectives
KINDS = {*ALONE, *MESSAGES, *AFTER, GATHER}
COLUMNS = "dp_rank", "stage", "step", "optype", "seq_id", "start_ts", "duration"


class Pipeline:
    """A recorded job of D data-parallel ranks, each a pipeline of stages, that trained for S steps.

    Every step is a graph of operations, the same in each rank. A stage computes in the recorded order. A
    message begins when its sender has computed and its receiver has done the computation of that kind before
    the one that needs it; a collective begins when all have come. What a message or collective took is the
    time since then, so that waiting is no part of it. Delays between operations are left out.

    Args:
        frame: a row for each operation: `optype`, its number `seq_id` among those of its kind in its step,
            `step`, `dp_rank`, `stage`, and `start_ts` and `duration` in seconds.

    Attributes:
        steps, ranks: their numbers in the record, (S,) and (D,).
        took: operation -> seconds, (S, D).
        ideal: the same without stragglers: `even` for operations of one kind.

    Raises:
        ValueError: a column is missing, an operation is of an unknown kind, or a rank lacks one that others
            have, numbers are not finite, or a stage lacks its computations.

    Reference: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        tables.check_frame("frame", frame, dict.fromkeys(COLUMNS, "of an operation"))
        frame = frame.astype({"optype": str, "start_ts": float, "duration": float})
        for name in ("start_ts", "duration"):
            tables.numbers("frame", frame, name)
        for kind in frame["optype"].unique():
            checks.choice("frame, optype", kind, dict.fromkeys(sorted(KINDS)))
        self.steps, self.ranks = np.unique(frame["step"]), np.unique(frame["dp_rank"])
        self.shape = len(self.steps), len(self.ranks)
        start, lasted = dict[Operation, np.ndarray](), dict[Operation, np.ndarray]()
        rows = frame.sort_values(["step", "dp_rank"], kind="stable")
        for key, own in rows.groupby(["optype", "seq_id", "stage"]):
            kind, number, stage = cast(Operation, key)
            if len(own) != np.prod(self.shape) or own.duplicated(["step", "dp_rank"]).any():
                expected = f"one in each of {self.shape[0]} steps of {self.shape[1]} ranks"
                checks.reject("frame", f"{len(own)} rows of {kind} {number} of stage {stage}", expected)
            if number and kind in (GATHER, *AFTER):
                checks.reject("frame", f"{kind} {number}", f"one {kind} in a step (no virtual stages)")
            start[kind, number, stage] = own["start_ts"].to_numpy().reshape(self.shape)
            lasted[kind, number, stage] = own["duration"].to_numpy().reshape(self.shape)
        stages = {kind: {each[2] for each in start if each[0] == kind} for kind in (FORWARD, BACKWARD)}
        if not stages[FORWARD] == stages[BACKWARD] == {*range(len(stages[FORWARD]))}:
            expected = f"a {FORWARD} and a {BACKWARD} of every stage from 0 on"
            checks.reject("frame", f"those of stages {stages}", expected)
        try:
            self.graph = _graph({each: float(times[0, 0]) for each, times in start.items()})
        except CycleError as error:
            found = f"operations that wait for each other: {error.args[1]}"
            raise ValueError(checks.message("frame", found, "start times of a pipeline")) from error
        self.took: dict[Operation, np.ndarray] = {}
        for members in self.graph:
            come = _come(start, members)
            for each in members:
                waited = 0 if each[0] in ALONE else come - start[each]
                self.took[each] = np.maximum(lasted[each] - waited, 0)
        self.ideal = self.even(lambda each: each[0])

    def times(self, took: Times) -> tuple[dict[Operation, np.ndarray], dict[Operation, np.ndarray]]:
        """Returns when every operation begins and ends, from the begin of its step, if it takes `took`."""
        begin, end = dict[Operation, np.ndarray](), dict[Operation, np.ndarray]()
        for members in self.graph:
            for each, before in members.items():
                begin[each] = np.max([np.zeros(self.shape), *(end[one] for one in before)], axis=0)
            come = _come(begin, members)
            end |= {each: come + took[each] for each in members}
        return begin, end

    def seconds(self, took: Times) -> np.ndarray:
        """Returns the seconds of each step, (S,), if operations take `took`."""
        return np.max([*self.times(took)[1].values()], axis=(0, 2))

    def even(self, alike: Callable[[Operation], Any]) -> dict[Operation, np.ndarray]:
        """Returns what operations take if those with the same `alike` do, in all steps and ranks.

        It is the mean of computations, and the median of messages and collectives.
        """
        groups = dict[Any, list[Operation]]()
        for each in self.took:
            groups.setdefault(alike(each), []).append(each)
        usual = {
            each: (np.mean if each[0] in ALONE else np.median)([self.took[one] for one in group])
            for group in groups.values()
            for each in group
        }
        return {each: np.full(self.shape, usual[each]) for each in self.took}

    def mixed(
        self, some: Times, others: Times, chosen: Callable[[Operation], Any]
    ) -> dict[Operation, np.ndarray]:
        """Returns `some` where an operation is chosen, by a bool or one for each rank; else `others`."""
        return {each: np.where(chosen(each), some[each], others[each]) for each in self.took}

    def slowdown(self, took: Times) -> float:
        """Returns the mean seconds of a step, over those of the ideal one: equation 1 of the paper."""
        return float(self.seconds(took).mean() / self.seconds(self.ideal).mean())

    def mended(self, chosen: Callable[[Operation], Any], took: Times | None = None) -> float:
        """Returns the share of the slowdown that goes if the chosen operations take `took`: equation 5.

        Default of `took`: None, the ideal times. 0 if nothing slows the job down.
        """
        left = self.slowdown(self.mixed(took or self.ideal, self.took, chosen)) - 1
        whole = self.slowdown(self.took) - 1
        return 1 - left / whole if whole else 0.0

    def slowest(self, share: float = 0.03) -> list[tuple[int, int]]:
        """Returns rank and stage of the slowest workers, a share of all, rounded up.

        A worker is as slow as its rank or its stage makes an ideal job, whichever is less.
        """
        ranks, stages = np.arange(self.shape[1]), sorted({stage for *_, stage in self.took})

        def slow(chosen: Callable[[Operation], Any]) -> float:
            return self.slowdown(self.mixed(self.took, self.ideal, chosen))

        by_rank = [slow(lambda _, rank=rank: ranks == rank) for rank in ranks]
        by_stage = [slow(lambda each, stage=stage: each[2] == stage) for stage in stages]
        workers = [(int(rank), stage) for rank in ranks for stage in stages]
        count = int(np.ceil(share * len(workers)))
        return sorted(workers, key=lambda each: -min(by_rank[each[0]], by_stage[each[1]]))[:count]

    def tasks(self) -> pd.DataFrame:
        """Returns each rank's computing of each step as a task, as it would be if no rank waited for others.

        A task is a rank's pipeline, from its first computation to its last; its samples are the
        micro-batches. The columns are those that `read_tasks` knows. Steps follow one another, and an update
        ends each.
        """
        begin, end = self.times(self.took)
        first, last = (
            choose([of[each] for each in of if each[0] in (FORWARD, BACKWARD)], axis=0)
            for choose, of in ((np.min, begin), (np.max, end))
        )
        ends = self.seconds(self.took).cumsum()[:, None]
        earlier = np.concatenate([[[0.0]], ends[:-1]])
        columns = {
            "worker": np.broadcast_to(np.arange(self.shape[1]), self.shape),
            "step": np.broadcast_to(self.steps[:, None], self.shape),
            "compute_start": earlier + first,
            "compute_end": earlier + last,
            "update": np.broadcast_to(np.arange(self.shape[0])[:, None], self.shape),
            "update_time": np.broadcast_to(ends, self.shape),
            "batch_size": np.full(self.shape, sum(each[0] == FORWARD and not each[2] for each in self.took)),
        }
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})


def _come(begin: Times, members: Members) -> np.ndarray:
    """Returns when the last of operations that end together has come, (S, D), or (S, 1) if all ranks do."""
    last = np.max([begin[each] for each in members], axis=0)
    return last.max(axis=1, keepdims=True) if next(iter(members))[0] in BY_ALL else last


def _graph(start: Mapping[Operation, float]) -> list[Members]:
    """Returns the operations of a step by those that end together, each after all that it waits for.

    Args:
        start: of every operation, in one step of one rank.
    """
    stages = 1 + max(stage for *_, stage in start)
    waits: dict[Operation, list[Operation]] = {each: [] for each in start}
    for stage in range(stages):
        own = sorted(
            (each for each in start if each[0] in (FORWARD, BACKWARD) and each[2] == stage),
            key=start.__getitem__,
        )
        orders = [own, [own[-1], *((kind, 0, stage) for kind in AFTER)], [(GATHER, 0, stage), own[0]]]
        for way in NEXT:
            for number in range(sum(each[0].startswith(way) for each in own)):
                compute, send, receive = (
                    (f"{way}-{do}", number, stage) for do in ("compute", "send", "recv")
                )
                orders += [[compute, send], [receive, compute], [(compute[0], number - 1, stage), receive]]
                orders += [[(each[0], number - 1, stage), each] for each in (send, receive)]
        first = next(place for place, each in enumerate(own) if each[0] == BACKWARD)
        orders += [[*own[first - 2 : first - 1], (f"backward-{end}", 0, stage)] for end in ("send", "recv")]
        for order in orders:
            there = [each for each in order if each in waits]
            for before, each in pairwise(there):
                waits[each].append(before)
    groups = dict[Operation, dict[Operation, list[Operation]]]()
    for each, before in waits.items():
        groups.setdefault(_first(each), {})[each] = before
    after = {name: {_first(one) for before in own.values() for one in before} for name, own in groups.items()}
    return [groups[name] for name in TopologicalSorter(after).static_order()]


def _first(operation: Operation) -> Operation:
    """Returns the first of the operations that end together with this one: a name for all of them."""
    kind, number, stage = operation
    way, _, end = kind.partition("-")
    if end == "recv":
        return f"{way}-send", number, stage - NEXT[way]
    return (kind, number, 0) if kind in (EMBEDDING, CLIP) else operation
