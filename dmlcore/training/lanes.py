"""Runs side by side: which of them share a trace, and the layout of what they have each for itself.

Axes: S traces, O optimizers of each trace, L = S O lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.trace import Trace
from dmlcore.training.loop import OPTIMIZERS, TRACES
from dmlcore.training.program import Program, compile_trace

CHUNK = 1 << 17  # rows of evaluation data times lanes that are evaluated at once, about


class Grid:
    """The layout of lanes: traces, and for each of them as many optimizers.

    Lanes that follow one another with the same trace, the very object, share it where all traces are shared
    by as many: seeds, and learning rates for each. Else each lane has a trace of its own. What lanes share
    has an axis of S traces, what each has for itself of S traces and O optimizers; an axis of length 1 is
    left out.

    >>> import dmlcore as dml
    >>> one, two = (dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=3, seed=s) for s in range(2))
    >>> Grid([one, one, one, two, two, two]).shape, Grid([one, one, two]).shape, Grid([one]).shape
    ((2, 3), (3,), ())
    """

    def __init__(self, traces: Sequence[Trace]):
        groups = [[*group] for _, group in itertools.groupby(traces, key=id)]
        counts = {len(group) for group in groups}
        self.optimizers = counts.pop() if len(counts) == 1 else 1  # of a trace
        self.traces = list(traces[:: self.optimizers])
        lengths = {TRACES: len(self.traces), OPTIMIZERS: self.optimizers}
        self.axes = tuple(axis for axis, length in lengths.items() if length > 1)
        self.shape = tuple(lengths[axis] for axis in self.axes)

    def __len__(self) -> int:
        return len(self.traces) * self.optimizers

    def trace_of(self, lane: int) -> int:
        """Returns the number of a lane's trace."""
        return lane // self.optimizers

    def place(self, lane: int) -> tuple[Any, ...]:
        """Returns where a lane is in an array of all lanes."""
        return np.unravel_index(lane, self.shape) if self.shape else ()

    def stack(self, trees: Sequence[Any]) -> Any:
        """Returns trees, one a lane or one a trace, as one with axes in front."""
        if len(trees) == 1:
            return trees[0]
        shape = self.shape if len(trees) == len(self) else (len(trees),)
        return jax.tree.map(lambda *leaves: _stacked(leaves).reshape(*shape, *np.shape(leaves[0])), *trees)


def _stacked(leaves: Sequence[Any]) -> jax.Array:
    """`jnp.stack`, on the host, except for keys: a program of a thousand arguments takes long to compile."""
    if jnp.issubdtype(jnp.result_type(leaves[0]), jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return jnp.array(np.stack([np.asarray(leaf) for leaf in leaves]))


def programs_of(traces: Sequence[Trace], fuse: bool, slots: bool, weighed: bool) -> list[Program]:
    """Returns programs whose rows have one shape, all with slots if one of them needs any."""
    programs = [compile_trace(trace, fuse=fuse, slots=slots, weighed=weighed) for trace in traces]
    alike = len({p.rows.worker.shape[1] for p in programs}) == 1
    fuse &= alike and (len(traces) == 1 or all(len(p.stretches) == 1 for p in programs))
    slots = any(p.num_slots for p in programs)
    if len(traces) > 1 and (not fuse or (slots and not all(p.num_slots for p in programs))):
        programs = [compile_trace(trace, fuse=fuse, slots=slots, weighed=weighed) for trace in traces]
    return programs


def judged_at_once(eval_data: Any) -> int:
    """Returns how many lanes are evaluated at once: fewer, the more rows of data there are to evaluate on."""
    rows = max((len(leaf) for leaf in jax.tree.leaves(eval_data) if np.ndim(leaf)), default=1)
    return max(1, CHUNK // max(rows, 1))
