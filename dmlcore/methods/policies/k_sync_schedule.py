"""K-sync that follows a schedule computed in advance: adaptive k, and adaptive (k, b)."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._wait import Rounds, check_workers, wait_for_k
from dmlcore.theory import Phase, Schedule
from dmlcore.types import Policy


def _rows(name: str, phases: Any) -> list[tuple]:
    """Checks the phases and returns them: (start, k) of each, or (start, k, batch size) of each."""
    phases = phases.phases if isinstance(phases, Schedule) else phases
    if not isinstance(phases, Iterable):
        checks.fail(name, phases, "a list of (start, k) or (start, k, batch size), or a theory.Schedule")
    rows = [_row(f"{name}[{index}]", phase) for index, phase in enumerate(phases)]
    starts = [row[0] for row in rows]
    if not rows or starts[0] != 0 or starts != sorted(starts):
        checks.fail(f"{name}, starts", starts, "at least one, ascending, the first at 0")
    if len({len(row) for row in rows}) > 1:
        given = [(*row, None)[2] for row in rows]
        checks.fail(f"{name}, batch sizes", given, "one for every phase, or none at all")
    return rows


def _row(name: str, phase: Any) -> tuple:
    phase = phase[:3] if isinstance(phase, Phase) else phase
    if not hasattr(phase, "__len__") or len(phase) not in (2, 3):
        checks.fail(name, phase, "(start, k) or (start, k, batch size)")
    start, k, size = (*phase, None)[:3]
    row = checks.real(f"{name}, start", start, low=0), checks.integer(f"{name}, k", k, low=1)
    return row if size is None else (*row, checks.integer(f"{name}, batch size", size, low=1))


@named(bare=True, phases=_rows)
def k_sync_schedule(phases: Iterable[Any] | Schedule) -> Policy:
    """K-sync with a k and batch size that follow a schedule over time; a round keeps those of its start.

    Guarantees: staleness 0. With one phase and no batch size it is `k_sync(k)`; if that k is the number of
    workers, it is `bsp()`. With a schedule of `dmlcore.theory` the policy is an oracle, because such a
    schedule needs constants that are known only after the training.

    Args:
        phases: a list of (start in seconds, k), or of (start in seconds, k, batch size in samples), in
            ascending order of their starts, the first at 0; or a `theory.Schedule`. With batch sizes the load
            rule has no effect.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. If phases have batch sizes, it
        sets the batch size of every task.

    Raises:
        ValueError: there is no phase, the starts are not in ascending order, only some phases have batch
            sizes, or a number is out of range; from `init`: a k exceeds the number of workers.

    >>> k_sync_schedule([(0, 2), (10, 4)])
    k_sync_schedule([(0.0, 2), (10.0, 4)])

    Reference: Kas Hanna et al. 2020, section 3 (k); Egger et al. 2023 (k and b).
    """
    rows: Any = phases
    starts = [row[0] for row in rows]
    sizes = tuple(sorted({row[2] for row in rows if len(row) == 3}))

    def at(time: float) -> tuple[int, int | None]:
        return (*rows[bisect_right(starts, time) - 1], None)[1:3]

    def init(num_workers: int) -> Rounds:
        for row in rows:
            check_workers(num_workers, k=row[1])
        return Rounds(num_workers, *at(0.0))

    def begin(state: Rounds, time: float) -> None:
        state.k, state.batch_size = at(time)

    return wait_for_k(init, any_worker=False, cancels=True, begin=begin, batch_size=at(0.0)[1], sizes=sizes)
