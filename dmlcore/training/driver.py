"""The base class of drivers, which train along traces."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training import coding
from dmlcore.training.aggregation import aggregate_of, digest, places_for
from dmlcore.training.batches import Source
from dmlcore.training.coding import Coding
from dmlcore.training.contribution import Contribution
from dmlcore.training.evaluation import device_data, evaluate, reached
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.program import Program, padded, power_of_two
from dmlcore.training.step import Inputs, Numbers, Plan, State, begin
from dmlcore.training.turns import whole
from dmlcore.types import Aggregate


class Driver:
    """A driver: a plan, its inputs, and the state of training."""

    lanes = 1
    problem: Problem
    eval_params: Any = None
    _plan: Plan
    _inputs: Inputs
    _state: State

    def state(self) -> Any:
        """Returns the state on which the rest of the training depends, a pytree of arrays."""
        return self._state

    def fingerprint(self) -> str:
        """Returns a hash of the local steps and the aggregate; `identity` has the hashes of the rest."""
        plan = self._plan
        return plan.contribution.fingerprint() + digest(plan.aggregation, self._inputs.numbers.aggregate)

    def params(self, lane: int = 0) -> Any:
        """Returns a copy of a lane's current parameters."""
        return jax.tree.map(jnp.array, self._current(lane))

    def opt_state(self, lane: int = 0) -> Any:
        """Returns a copy of the current state of a lane's optimizer."""
        own = functools.partial(self._leaf, lane)
        return jax.tree.map(lambda leaf: jnp.array(own(leaf)), self._state.optimizer_state)

    def _current(self, lane: int) -> Any:
        """Returns a lane's current parameters, whose memory the next step may reuse."""
        own = functools.partial(jax.tree.map, functools.partial(self._leaf, lane))
        return self._plan.contribution.whole(own(self._state.params), own(self._state.local))

    def _leaf(self, lane: int, leaf: Any) -> Any:
        return leaf

    def evaluate(self) -> dict[str, jax.Array]:
        """Returns the metrics of the first lane's current parameters."""
        params = self._current(0)
        if self.eval_params is not None:
            params = jax.jit(self.eval_params)(self.opt_state(), params)
        return evaluate(self.problem, params, device_data(self.problem)[1])

    def advance(self, update: int) -> None:
        """Trains up to version `update`, or to the end of a shorter trace."""
        raise NotImplementedError

    def looks(
        self, updates: Sequence[Sequence[int]], until: Mapping[str, float], ahead: bool = False
    ) -> Iterator[list[dict[str, Any] | None]]:
        """Trains every lane up to each of its versions and yields the metrics there.

        A lane ends at its last version, or at the first version at which a metric reaches its target in
        `until`. With `ahead` the training may have gone further than the yielded metrics; with several lanes,
        which only `Replay` supports, it always may.

        Args:
            updates: the versions of each lane, ascending.
            until: metric -> target.
            ahead: whether training may go further than the yielded metrics.

        Yields:
            Every lane's metrics at its first version, then at its second, and so on; None if it has ended.
        """
        for update in updates[0]:
            self.advance(update)
            found = self.evaluate()
            yield [found]
            if until and reached({name: float(found[name]) for name in until}, until):
                return


class Route(NamedTuple):
    """A trace that a driver can follow, and what it says of values."""

    trace: Trace  # with the weights of an additive problem
    coding: Coding | None  # effect of the transport on values; None: no effect
    aggregate: Aggregate

    def begin(
        self, kind: Contribution, optimizer: optax.GradientTransformation, **needed: Any
    ) -> tuple[Plan, Numbers, Source, State]:
        """Returns the start of the training, as the function `begin` does."""
        run: Any = {"seed": int(self.trace.metadata["seed"]), "num_workers": self.trace.num_workers}
        return begin(kind, optimizer, aggregate=self.aggregate, coding=self.coding, **run, **needed)


def fuses(kind: Contribution, code: Coding | None, aggregate: Aggregate) -> bool:
    """Returns whether the tasks of an update that read the same version may become one gradient."""
    return kind.fuses and code is None and aggregate.plain


def route_of(trace: Trace, kind: Contribution, aggregate: Aggregate | None) -> Route:
    """Returns a trace with its coding and aggregate; ValueError if the problem cannot be trained along it."""
    code = coding.coding_of(trace)
    trace = whole(trace, kind.problem)
    if kind.keeps:
        coding.check_kept(trace, kind.problem)
    return Route(trace, code, aggregate_of(trace, aggregate))


def needs(programs: Sequence[Program], traces: Sequence[Trace], kind: Contribution) -> dict[str, Any]:
    """Returns arguments of `begin`: what the steps of these programs, which are trained together, need."""
    return {
        "places": places_for(programs, traces),
        "reads_newest": not any(p.num_slots for p in programs),
        "accumulates": any(p.accumulates for p in programs),
        "keeps_copies": any(p.keeps_copies for p in programs),
        "compensates": any(p.rows.compensation.any() for p in programs),
        "scales": kind.weighs and any(p.scales for p in programs),
    }


def spill(num_slots: int, num_workers: int) -> int:
    """Returns the index of the spill slot, behind all others, for values that nothing reads.

    With it the number of slots is a power of two, so that another staleness compiles nothing.
    """
    return power_of_two(max(num_slots, num_workers + 1) + 1) - 1


def sized(
    kind: Contribution, sizes: np.ndarray, single: bool, least: int = 1, batched: bool = False
) -> Contribution:
    """Returns a contribution with the widths of tasks of these sizes.

    If each task is a row (`single`), it is padded as its worker pads it. If such tasks have several widths,
    the loop is compiled for those from an eighth of the widest, too, so that another run compiles nothing.
    Tasks that become one gradient have one common width, at least `least`, which is a power of two if sizes
    differ, for the same reason. Tasks that may be padded also have a common width if they are loops, so that
    their steps are compiled once; and if the contributions of several rows are `batched`, because a batched
    switch between widths computes all of its branches.
    """
    if single:
        widths = {kind.width(size) for size in np.flatnonzero(np.bincount(sizes.ravel())).tolist() or [least]}
    else:
        most = int(sizes.max(initial=least))
        widths = {padded(most) if (sizes != most).any() else most}
    if kind.loops or (batched and kind.fills):
        widths = {max(widths)}
    elif kind.fills and len(widths) > 1:
        widths |= {kind.width(max(widths) >> halved) for halved in range(4)}
    return contribution_of(kind.problem, sorted(widths))
