"""Independent rows: their contributions are computed at once, and their updates applied one by one.

`program.wavefronts` determines which rows form such a wavefront. Axes: R rows, at most L rows per wavefront.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.training import coding
from dmlcore.training.coding import Coding
from dmlcore.training.contribution import Contribution
from dmlcore.training.program import Program, Rows, power_of_two, wavefronts
from dmlcore.training.step import Inputs, Plan, State, at, step


def contributed(kind: Contribution, code: Coding | None, kept: Any, row: Rows, view: Any, data: Any) -> Any:
    """Returns the contribution of a row with one task, as `Contribution.of`, for a view as it was sent.

    `kept` has the memory of the codecs and the local state of the workers.
    """
    memory, local = kept
    who = row.worker[0], row.clock[0]
    view, _ = coding.received(code, coding.of(memory, who[0]), *who, view)
    return kind.of(view, local, row, data)


def rest_of_wave(program: Program, once: bool) -> tuple[np.ndarray, int]:
    """Returns the number of rows from each row to the end of its wavefront, (R,), and L.

    A wavefront is computed in parts of L rows, with padding. L is the smallest power of two that is at least
    the mean length of wavefronts; with it, roughly half of the computation is padding.

    >>> import dmlcore as dml
    >>> from dmlcore.training.program import compile_trace
    >>> trace = dml.simulate(dml.asp(), dml.Cluster.uniform(3), updates=7)
    >>> rest_of_wave(compile_trace(trace, fuse=False, slots=True), once=False)
    (array([3, 2, 1, 3, 2, 1, 1]), 4)
    """
    fronts = wavefronts(program, once=once)
    lengths = np.diff(fronts)
    rest = np.repeat(fronts[1:], lengths) - np.arange(fronts[-1])
    return rest, power_of_two(int(np.ceil(lengths.mean()))) if len(lengths) else 1


def advance_in_waves(
    plan: Plan, most: int, inputs: Inputs, rows: Rows, rest: Any, state: State, first: Any, end: Any
) -> State:
    """Processes rows from `first` up to `end`, wavefront by wavefront, in parts of at most `most` rows.

    Guarantees: the parameters are those of `step` row by row, up to the rounding of a batched gradient.
    """
    kind, code = plan.contribution, plan.coding

    def wave(carried: tuple[Any, State]) -> tuple[Any, State]:
        first, state = carried
        count = jnp.minimum(jnp.minimum(rest[first], most), end - first)
        own = at_many(rows, jnp.minimum(first + jnp.arange(most), first + count - 1))

        def one(row: Rows) -> Any:
            view = at(state.slots[0], row.read)
            return contributed(kind, code, (state.memory, state.local), row, view, inputs.data)

        # A slot still holds the view when its row is applied, see `wavefronts`.
        pushed = jax.vmap(one)(own)
        state = jax.lax.fori_loop(
            0, count, lambda i, state: step(plan, inputs, state, at(own, i), at(pushed, i))[0], state
        )
        return first + count, state

    return jax.lax.while_loop(lambda carried: carried[0] < end, wave, (first, state))[1]


def at_many(tree: Any, indices: Any) -> Any:
    """Returns several entries of every leaf."""
    return jax.tree.map(lambda leaf: leaf.at[indices].get(mode="promise_in_bounds"), tree)
