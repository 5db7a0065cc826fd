"""What is probably wrong with a log of tasks: the number that gives it away, and what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import files
from dmlcore.reading.columns import COLLECTIVE
from dmlcore.reading.times import resolution

FEW = 8  # tasks of every worker, below which a comparison of rounds says nothing
EQUAL = 0.05  # tasks of a round that differ by less than this share of the median are equally long
FIRST = 10  # a first task that takes this many times the median did something else,
TAIL = 3  # if it also takes this many times what nine of ten others take at most
LONG = 10  # a gap of this many usual cycles, from one task's start to the next, is long
RARE = 0.01  # share of gaps up to which long ones look like preemption, and not like waiting
TOGETHER = 0.8  # share of workers whose common gap is a pause of the whole job
SHORT, ENDLESS = 1e-4, 12 * 3600.0  # median seconds of a task, outside which the unit is probably another one
COARSE = 0.05  # steps of stamps of more than this share of the median task make times uncertain
DRIFT = 0.02  # clocks do not drift faster
SCALE = 500  # workers whose medians differ by this factor probably have different units
STAMPS = "compute_end", "compute_start"  # from the last sorting key to the first
LISTED = 3  # workers that a sentence names
AT_ONCE = "choose operations that follow one another (events=), or name the device as the worker (columns=)"

SENTENCES = files.table(__file__, "doubts")


def told(doubt: str, **facts: Any) -> str:
    """Returns the sentence of a doubt, a name in `doubts.toml`, with these facts in it."""
    return SENTENCES[doubt].format(**facts)


def doubts(tasks: pd.DataFrame, names: tuple[Any, ...], step: float, said: list[str]) -> list[str]:
    """Returns what is probably wrong, in sentences; pauses of all workers are added to `said`.

    Args:
        tasks: the tasks of a `TaskLog`.
        names: the workers' names.
        step: between neighbouring numbers that the columns of stamps could hold, seconds.
        said: what was assumed.
    """
    if "push_end" in tasks:  # cancelled tasks end together
        tasks = tasks[tasks["push_end"].notna()]
    if tasks.empty:
        return []
    timed = "compute_start" in tasks
    order, overlap = (
        overlaps(tasks) if timed else (np.argsort(tasks["worker"].to_numpy(), kind="stable"), np.zeros(0))
    )
    worker, seconds = (tasks[name].to_numpy()[order] for name in ("worker", "seconds"))
    middle = float(np.median(seconds))
    first = np.flatnonzero(np.diff(worker, prepend=-1))
    counts = np.diff(first, append=len(worker))
    found = _units(seconds, middle, step) + _scales(seconds, worker, names)
    alike = seconds / tasks["batch_size"].to_numpy()[order] if "batch_size" in tasks else seconds
    found += _first(alike, first, counts)
    rounds = int(counts.min())
    rows = first[:, None] + np.arange(rounds)  # (workers, rounds): a worker's k-th task is in round k
    if not timed:
        return found + _waiting(alike[rows])
    start, end = (tasks[name].to_numpy()[order] for name in ("compute_start", "compute_end"))
    over = overlap > 0
    if over.any():
        who, most = names[worker[1:][over][0]], overlap[over].max()
        found.append(told("overlap", over=over.sum(), count=len(worker), most=most, who=who, at_once=AT_ONCE))
    who = [names[each] for each in worker[first]]
    clocks = _clocks(start[rows], start[first], start[first + counts - 1], counts, middle, who)
    ends = end[rows] - np.median(end[rows], axis=0)
    ends = (ends - np.median(ends, axis=1, keepdims=True)) / np.maximum(seconds[rows], 1e-300)
    found += _waiting(alike[rows], ends) + clocks
    found += _gaps(start, end, worker, names, middle, said)
    return found


def overlaps(tasks: pd.DataFrame, by: Sequence[str] = STAMPS) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions in the order of workers and times, shape (T,), and by how much a task overlaps the
    one before it of its worker, in seconds, shape (T - 1,); <= 0 if it does not."""
    end, start, worker = (tasks[name].to_numpy() for name in (*STAMPS, "worker"))
    order = np.lexsort((*(tasks[name].to_numpy() for name in by), worker))
    same = worker[order][1:] == worker[order][:-1]
    return order, np.where(same, end[order][:-1] - start[order][1:], -np.inf)


def collectives(events: pd.Series) -> list[str]:
    """Returns a doubt if the operations are those in which workers wait for each other."""
    kinds = events.astype(object).map(str).drop_duplicates()
    waiting = kinds[kinds.map(lambda text: bool(COLLECTIVE.search(text)))]
    if waiting.empty:
        return []
    named = ", ".join(waiting.head(LISTED))
    return [told("collective", waiting=len(waiting), kinds=len(kinds), named=named)]


def _units(seconds: np.ndarray, middle: float, step: float) -> list[str]:
    whole = resolution(seconds)
    step = max(step, whole if whole >= 1 else 0.0)  # those of simulations may be whole milliseconds
    if step > COARSE * middle:
        return [told("coarse", step=step, middle=middle)]
    if not SHORT <= middle < ENDLESS:
        return [told("long" if middle >= ENDLESS else "short", middle=middle, hours=middle / 3600)]
    return []


def _scales(seconds: np.ndarray, worker: np.ndarray, names: tuple[Any, ...]) -> list[str]:
    medians = pd.Series(seconds).groupby(worker).median()
    medians = medians[medians > 0]
    if len(medians) < 2 or medians.max() < SCALE * medians.min():
        return []
    who = [names[each] for each in medians.index]
    low, high = who[int(medians.argmin())], who[int(medians.argmax())]
    return [told("scales", least=medians.min(), low=low, most=medians.max(), high=high)]


def _first(seconds: np.ndarray, first: np.ndarray, counts: np.ndarray) -> list[str]:
    """Returns a doubt if workers' first tasks are far longer than their others, as those that compile."""
    rest = np.delete(seconds, first)
    by_worker = pd.Series(rest).groupby(np.repeat(np.arange(len(first)), counts - 1))
    usual: Any = np.maximum(by_worker.median(), by_worker.quantile(0.9) * TAIL / FIRST)
    usual = usual.reindex(range(len(first))).to_numpy()
    ratio = np.where(counts >= FEW, seconds[first] / np.maximum(usual, 1e-300), 0.0)
    slow = ratio >= FIRST
    if slow.sum() * 2 <= len(first):
        return []
    return [told("first", slow=slow.sum(), workers=len(first), ratio=np.median(ratio[slow]))]


def _waiting(seconds: np.ndarray, ends: np.ndarray | None = None) -> list[str]:
    """Returns a doubt if all tasks of a round are equally long and end together, while rounds differ.

    Args:
        seconds: of each worker's task in each round, or per sample, shape (workers, rounds).
        ends: when they end after the others, over their seconds, shape (workers, rounds); None: not known.
    """
    workers, rounds = seconds.shape
    close, spread, across = _alike(seconds)
    if ends is not None:
        close &= np.ptp(ends, axis=0) < EQUAL
    if not _in_step(close, spread, across):
        return []
    facts = {"close": close.mean(), "rounds": rounds, "workers": workers, "spread": spread, "across": across}
    return [told("waiting", **facts)]


def _alike(seconds: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Returns in which rounds the times of all workers are equal, by how much they differ, and rounds do.

    Args:
        seconds: by worker and round, shape (workers, rounds).
    """
    workers, rounds = seconds.shape
    middle = np.median(seconds, axis=0)
    if workers < 2 or rounds < FEW or not middle.min() > 0:
        return np.zeros(max(rounds, 1), bool), 0.0, 0.0
    spread = np.ptp(seconds, axis=0) / middle
    return spread < EQUAL, float(np.median(spread)), float(np.std(middle) / middle.mean())


def _in_step(close: np.ndarray, spread: float, across: float) -> bool:
    """Whether workers are equal in most rounds, although rounds differ."""
    return bool(close.mean() >= 0.8 and across >= max(0.01, 2 * spread))


def _clocks(
    start: np.ndarray, begin: np.ndarray, final: np.ndarray, counts: np.ndarray, middle: float, who: list[Any]
) -> list[str]:
    """Returns a doubt if a worker's clock is ahead of, behind, or faster than the others'.

    Where workers are in step, tasks of a round begin together, whatever the length of rounds. Else a clock is
    doubted if a worker with as many tasks begins and ends as much later than the others.

    Args:
        start: of each worker's task in each round, seconds, shape (workers, rounds).
        begin: starts of the workers' first tasks, seconds, shape (workers,).
        final: starts of the workers' last tasks, seconds, shape (workers,).
        counts: tasks of each worker, shape (workers,).
        middle: median seconds of a task.
        who: the workers' names.
    """
    workers, rounds = start.shape
    if workers < 2 or rounds < FEW:
        return []
    usual = np.median(start, axis=0)
    own, x = start - usual, usual - usual.mean()
    moved, rate = own.mean(axis=1), own @ x / max(x @ x, 1e-300)
    left = np.std(own - np.outer(rate, x), axis=1)
    found, last = [], final - np.median(final)  # a late or missing worker does not end late
    if _in_step(*_alike(np.diff(start))):
        drift = rate * np.ptp(usual)
        sure = (np.abs(drift) > 5 * left) & (np.abs(last - moved - drift / 2) < 0.5 * np.abs(drift))
        drifting = np.flatnonzero((np.abs(drift) > 0.2 * middle) & (np.abs(rate) < DRIFT) & sure)
        for worker in drifting[:LISTED].tolist():
            found.append(told("drift", who=who[worker], rate=1e6 * rate[worker], drift=drift[worker]))
        least, apart = np.maximum(0.5 * middle, 5 * left), 0.5 * np.abs(moved)
        steady = (np.abs(drift) < 0.2 * np.abs(moved)) & (np.abs(counts - np.median(counts)) <= 1)
    else:
        moved = begin - np.median(begin)
        least, apart = np.full(workers, LONG * middle), 0.1 * np.abs(moved) + 2 * middle
        steady = counts > 0.5 * np.median(counts)
    far = np.flatnonzero((np.abs(moved) > least) & (np.abs(moved - last) < apart) & steady)
    if len(far) > LISTED:
        most = float(np.abs(moved[far]).max())
        return [*found, told("clocks", far=len(far), workers=workers, most=most)]
    for worker in far.tolist():
        hours = f", {moved[worker] / 3600:+.3g} hours" if abs(moved[worker]) > 1000 else ""
        found.append(told("off", who=who[worker], moved=moved[worker], hours=hours))
    return found


def _gaps(
    start: np.ndarray,
    end: np.ndarray,
    worker: np.ndarray,
    names: tuple[Any, ...],
    middle: float,
    said: list[str],
) -> list[str]:
    """Returns a doubt if a worker pauses alone, as one that is preempted; pauses of all are said."""
    same = worker[1:] == worker[:-1]
    gap = np.where(same, start[1:] - end[:-1], 0.0)
    inside = gap[same]
    if not len(inside):
        return []
    usual = middle + max(float(np.median(inside)), 0.0)
    rows = np.flatnonzero(gap > LONG * usual)
    if not len(rows):
        return []
    begin, stop, who = end[rows], start[rows + 1], worker[rows]
    inner = (begin + stop) / 2
    count = len({*worker.tolist()})
    by_begin, by_stop = np.sort(begin), np.sort(stop)
    pausing = np.searchsorted(by_begin, inner, "right") - np.searchsorted(by_stop, inner, "left")
    common = (pausing >= TOGETHER * count) & (count > 1)
    if common.any():
        times = round(float(common.sum() / count)) or 1
        said.append(told("together", times=times, most=gap[rows][common].max()))
    alone = ~common
    if not alone.any():
        return []
    if alone.sum() > RARE * len(inside):
        said.append(told("apart", alone=alone.sum(), long=LONG))
        return []
    most = rows[alone][np.argmax(gap[rows][alone])]
    facts = {"who": names[worker[most]], "gap": gap[most], "cycles": gap[most] / usual}
    return [told("preempted", **facts, alone=alone.sum(), on=len({*who[alone].tolist()}), count=count)]
