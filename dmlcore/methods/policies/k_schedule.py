"""K-sync along a schedule that was made beforehand: adaptive k, and adaptive (k, b)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from dmlcore import checks
from dmlcore.methods.policies.wait_for_k import Plan, Wait, waiting
from dmlcore.theory import Phase, Schedule
from dmlcore.types import Policy


def k_sync_schedule(phases: Iterable[Any] | Schedule) -> Policy:
    """K-sync whose k, and batch size, follow a schedule over time; a round keeps those that it began with.

    Guarantees: staleness 0. With one phase and no batch size it is `k_sync(k)`, with k the number of workers
    `bsp()`. Whoever takes the schedule from `dmlcore.theory`, made with constants of the problem that are
    known only afterwards, runs by an oracle.

    Args:
        phases: (start in seconds, k), or for all (start, k, batch size), in the order of their starts, the
            first at 0; or a `theory.Schedule`. With batch sizes no load rule has a say.

    Returns:
        The policy. Its `init` raises ValueError where a k exceeds the number of workers.

    Raises:
        ValueError: there is no phase, a start comes before the one before it, only some phases have batch
            sizes, or a number is out of range.

    Example:
        >>> k_sync_schedule([(0, 2), (10, 4)])
        k_sync_schedule([(0.0, 2), (10.0, 4)])

    Reference: Kas Hanna et al. 2020, section 3 (k); Egger et al. 2023 (k and b).
    """
    phases = phases.phases if isinstance(phases, Schedule) else phases
    if not isinstance(phases, Iterable):
        checks.fail("phases", phases, "several (start, k) or (start, k, batch size), or a theory.Schedule")
    rows = [_phase(index, phase) for index, phase in enumerate(phases)]
    starts = [start for start, _ in rows]
    if not rows or starts[0] != 0 or starts != sorted(starts):
        checks.fail("phases, starts", starts, "at least one, ascending, the first at 0")
    waits = [wait for _, wait in rows]
    sizes = [wait.batch_size for wait in waits]
    if None in sizes and any(sizes):
        checks.fail("phases, batch sizes", sizes, "one for every phase, or none for any")

    def init(num_workers: int) -> None:
        for wait in waits:
            checks.integer("k", wait.k, low=1, high=num_workers, why="the number of workers")

    def now(memory: None, time: float) -> Wait:
        return waits[bisect_right(starts, time) - 1]

    shown = [(start, *(wait if wait.batch_size else wait[:1])) for start, wait in rows]
    own = tuple(sorted({size for size in sizes if size is not None}))
    plan = Plan(init, now, batch_size=now(None, 0.0).batch_size, sizes=own)
    return waiting(f"k_sync_schedule({shown})", plan, any_worker=False, cancels=True)


def _phase(index: int, phase: Any) -> tuple[float, Wait]:
    name = f"phases[{index}]"
    if isinstance(phase, Phase):
        phase = phase.start, phase.k, phase.batch_size
    if not hasattr(phase, "__len__") or len(phase) not in (2, 3):
        checks.fail(name, phase, "(start, k) or (start, k, batch size)")
    start, k, size = (*phase, None)[:3]
    return (
        checks.real(f"{name}, start", start, low=0, high=math.inf),
        Wait(
            checks.integer(f"{name}, k", k, low=1),
            None if size is None else checks.integer(f"{name}, batch size", size, low=1),
        ),
    )
