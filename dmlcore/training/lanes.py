"""Lanes, which are runs side by side: which of them share a trace, and the layout of their arrays.

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

CHUNK = 1 << 17  # about how many rows of evaluation data, times lanes, are evaluated at once


class Grid:
    """The layout of lanes: S traces, and O optimizers for each of them.

    Successive lanes with the same trace object share it if every trace has the same number of lanes, as with
    seeds, and learning rates for each seed. Otherwise each lane has its own trace. Arrays that lanes share
    have an axis of S traces; arrays of each lane have axes of S traces and O optimizers. An axis of length 1
    is left out.

    >>> import dmlcore as dml
    >>> one, two = (dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=3, seed=s) for s in range(2))
    >>> Grid([one, one, one, two, two, two]).shape, Grid([one, one, two]).shape, Grid([one]).shape
    ((2, 3), (3,), ())
    """

    def __init__(self, traces: Sequence[Trace]):
        groups = [[*group] for _, group in itertools.groupby(traces, key=id)]
        counts = {len(group) for group in groups}
        self.optimizers = counts.pop() if len(counts) == 1 else 1  # per trace
        self.traces = list(traces[:: self.optimizers])
        lengths = {TRACES: len(self.traces), OPTIMIZERS: self.optimizers}
        self.axes = tuple(axis for axis, length in lengths.items() if length > 1)
        self.shape = tuple(lengths[axis] for axis in self.axes)

    def __len__(self) -> int:
        return len(self.traces) * self.optimizers

    def trace_of(self, lane: int) -> int:
        """Returns the index of a lane's trace."""
        return lane // self.optimizers

    def place(self, lane: int) -> tuple[Any, ...]:
        """Returns the indices of a lane in an array of all lanes."""
        return np.unravel_index(lane, self.shape) if self.shape else ()

    def stack(self, trees: Sequence[Any]) -> Any:
        """Stacks trees, one per lane or one per trace, into one tree with these axes first."""
        if len(trees) == 1:
            return trees[0]
        shape = self.shape if len(trees) == len(self) else (len(trees),)
        return jax.tree.map(lambda *leaves: _stacked(leaves).reshape(*shape, *np.shape(leaves[0])), *trees)


def _stacked(leaves: Sequence[Any]) -> jax.Array:
    """As `jnp.stack`, but on the host (except keys): a program with a thousand arguments compiles slowly."""
    if jnp.issubdtype(jnp.result_type(leaves[0]), jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return jnp.array(np.stack([np.asarray(leaf) for leaf in leaves]))


def programs_of(traces: Sequence[Trace], fuse: bool, weighed: bool) -> list[Program]:
    """Returns the programs of traces, with rows of one shape, and with slots if one of them needs slots."""
    programs = [compile_trace(trace, fuse=fuse, weighed=weighed) for trace in traces]
    alike = len({p.rows.worker.shape[1] for p in programs}) == 1
    fuse &= alike and (len(traces) == 1 or all(len(p.stretches) == 1 for p in programs))
    slots = any(p.num_slots for p in programs)
    if len(traces) > 1 and (not fuse or (slots and not all(p.num_slots for p in programs))):
        programs = [compile_trace(trace, fuse=fuse, slots=slots, weighed=weighed) for trace in traces]
    return programs


def judged_at_once(eval_data: Any) -> int:
    """Returns the number of lanes to evaluate at once: fewer if there are more rows of evaluation data."""
    rows = max((len(leaf) for leaf in jax.tree.leaves(eval_data) if np.ndim(leaf)), default=1)
    return max(1, CHUNK // max(rows, 1))
