"""What drivers along traces have in common."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.problems.problem import Problem
from dmlcore.training.aggregation import digest
from dmlcore.training.contribution import Contribution
from dmlcore.training.evaluation import device_data, evaluate, reached
from dmlcore.training.kinds import contribution_of
from dmlcore.training.program import padded, power_of_two
from dmlcore.training.step import Inputs, Plan, State


class Driver:
    """A plan, its inputs, and the state of training."""

    lanes = 1
    problem: Problem
    _plan: Plan
    _inputs: Inputs
    _state: State

    def state(self) -> Any:
        """Returns all that what follows depends on, a pytree of arrays."""
        return self._state

    def fingerprint(self) -> str:
        """Returns a hash of the local steps and the aggregate; `identity` has those of all else."""
        plan = self._plan
        return plan.contribution.fingerprint() + digest(plan.aggregation, self._inputs.numbers.aggregate)

    def params(self, lane: int = 0) -> Any:
        """Returns a copy of a lane's current parameters."""
        return jax.tree.map(jnp.array, self._current(lane))

    def _current(self, lane: int) -> Any:
        """A lane's current parameters, which the next step may take over."""
        own = functools.partial(jax.tree.map, functools.partial(self._leaf, lane))
        return self._plan.contribution.whole(own(self._state.params), own(self._state.local))

    def _leaf(self, lane: int, leaf: Any) -> Any:
        return leaf

    def evaluate(self) -> list[dict[str, jax.Array]]:
        """Returns the metrics of every lane's current parameters."""
        _, eval_data = device_data(self.problem)
        return [evaluate(self.problem, self._current(lane), eval_data) for lane in range(self.lanes)]

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        raise NotImplementedError

    def looks(
        self, updates: Sequence[Sequence[int]], until: Mapping[str, float], ahead: bool = False
    ) -> Iterator[list[dict[str, Any] | None]]:
        """Trains every lane up to each of its versions and yields the metrics there.

        A lane ends at its last version, or at the first where a metric has come to its target in `until`.
        With `ahead` it may be there already while metrics of versions before are yielded. Several lanes, of
        which `Replay` alone has some, always go ahead.

        Args:
            updates: the versions of each lane, ascending.
            until: metric -> target.
            ahead: whether training may be further than what is yielded.

        Yields:
            Every lane's metrics at its first version, then at its second, and so on; None where it has ended.
        """
        for update in updates[0]:
            self.advance(update)
            (found,) = self.evaluate()
            yield [found]
            if until and reached({name: float(found[name]) for name in until}, until):
                return


def spill(num_slots: int, num_workers: int) -> int:
    """Returns the slot that takes what nothing reads, behind all others: with it there is a power of two of
    slots, so that another staleness compiles nothing."""
    return power_of_two(max(num_slots, num_workers + 1) + 1) - 1


def sized(
    kind: Contribution, sizes: np.ndarray, single: bool, least: int = 1, batched: bool = False
) -> Contribution:
    """Returns a contribution with the widths of tasks of these sizes.

    A task that is a row of its own is filled up as its worker does it. Tasks that become one gradient have
    one width, at least `least`, a power of two where sizes differ: another run compiles nothing. So have
    those that may be filled up where the contributions of several rows are `batched`, since there all
    branches of a switch between widths are computed.
    """
    full = False
    if single:
        widths = {kind.width(size) for size in np.flatnonzero(np.bincount(sizes.ravel())).tolist() or [least]}
        full = len(widths) == 1 and bool((sizes == max(widths)).all())
    else:
        most = int(sizes.max(initial=least))
        widths = {padded(most) if (sizes != most).any() else most}
    if batched and kind.fills:
        widths = {max(widths)}
    return contribution_of(kind.problem, sorted(widths), full)
