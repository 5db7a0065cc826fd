"""The driver of one run and of lanes, which are runs side by side: it feeds traces to the compiled loop.

Axes: S traces, O optimizers of each trace, L = S O lanes.
"""

import copy
import functools
import itertools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.aggregation import traced
from dmlcore.training.batches import draw_lanes, draw_one
from dmlcore.training.compiling import unrolled
from dmlcore.training.driver import Driver, fuses, needs, route_of, sized, spill
from dmlcore.training.evaluation import device_data, limits
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.loop import OPTIMIZERS, TRACES, Course, EvalParams, advance_to_marks
from dmlcore.training.program import Program, compile_trace, cut, power_of_two
from dmlcore.training.step import Inputs, Plan
from dmlcore.types import Aggregate

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


MARKS = 64  # largest number of marks in one call of the loop
MANY_TASKS = 2048  # about how many tasks in one call of the loop, and in one drawing of samples


class AtMarks(NamedTuple):
    """The metrics at the M marks of one call of the loop; "..." are the axes of the lanes."""

    columns: dict[str, jax.Array]  # every metric at each mark, (..., M)
    looks: np.ndarray  # whether each mark of every trace was evaluated, (S, M)
    done: jax.Array  # number of marks of each lane until it stopped, (...)


class Replay(Driver):
    """Trains one or more runs (lanes) along their traces; several lanes run side by side under `vmap`.

    Guarantees: the parameters of one run are those that real workers and a server would compute, bit for bit,
    unless `fuse` turns an update into one gradient. The parameters of several lanes are the same up to
    rounding.

    Args:
        traces: one per lane; clusters and policies may differ. Successive lanes with the same trace share the
            work that depends on the trace only, if all traces have the same number of lanes: see `Grid`.
        problem: the problem to train.
        optimizers: one per lane. Optimizers, and the aggregates of traces, may differ only in numbers, such
            as a learning rate or a threshold.
        fuse: whether the tasks of an update become one gradient if they all read the same version.
        aggregate: how the pushes of one update are combined. Default: the aggregate of each trace.
        unroll: steps per iteration of the compiled loop. Default: 1 on a CPU, more on an accelerator.
        eval_params: state of the optimizer, parameters -> what is evaluated. Default: the parameters.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        problem: Problem,
        optimizers: Sequence[optax.GradientTransformation],
        fuse: bool = True,
        aggregate: Aggregate | None = None,
        unroll: int | None = None,
        eval_params: EvalParams | None = None,
    ):
        self.problem, self.lanes, self._grid = problem, len(traces), Grid(traces)
        kind = contribution_of(problem)
        routes = [route_of(trace, kind, aggregate) for trace in self._grid.traces]
        traces, first = [route.trace for route in routes], routes[0]
        if any(route.coding != first.coding for route in routes):
            names = sorted({str(trace.metadata.get("transport")) for trace in traces})
            checks.fail("traces", names, "traces with one transport (to train side by side)")
        self._check_aggregates([route.aggregate for route in routes])
        fuse = fuse and fuses(kind, *first[1:])
        self._programs = programs = programs_of(traces, fuse, weighed=first.aggregate.plain)
        in_step = all(np.array_equal(p.first_row, programs[0].first_row) for p in programs)
        self._stretches = [stretch.start for stretch in programs[0].stretches]
        shared = needs(programs, traces, kind)
        # With a bounded lead, workers wait in some runs and not in others. Its loop always gathers pushes, so
        # that another staleness compiles nothing. Lanes that are out of step have padding rows of weight 0.
        windowed = any(t.metadata.get("max_lead") is not None for t in traces)
        shared["accumulates"] |= not in_step or (windowed and not shared["reads_newest"])
        most_workers = max(trace.num_workers for trace in traces)
        self._spill = 0 if shared["reads_newest"] else spill(max(p.num_slots for p in programs), most_workers)
        self._filler = power_of_two(most_workers)
        shared |= {"num_slots": 1, "filler": self._filler}
        self._begins = [functools.partial(route.begin, kind, **shared) for route in routes]
        judged = judged_at_once(problem.eval_data) if self.lanes > 1 else 1
        self._course = Course(self._grid.axes, unroll or unrolled(), judged, eval_params)
        self.eval_params = eval_params
        self._rows: Any = None  # the next `_size` rows of every trace, with their samples
        self._drawn = [-1] * len(traces)
        self._start(optimizers)

    def again(self, optimizers: Sequence[optax.GradientTransformation]) -> Self:
        """Returns a driver for the same traces with other optimizers, at the start of training."""
        other = copy.copy(self)
        other._start(optimizers)
        return other

    def _start(self, optimizers: Sequence[optax.GradientTransformation]) -> None:
        begun = [self._begins[self._grid.trace_of(lane)](each) for lane, each in enumerate(optimizers)]
        plans, numbers, sources, states = zip(*begun, strict=True)
        if any(plan != plans[0] for plan in plans):
            checks.reject("optimizers", "different kinds", "those of one kind that differ only in numbers")
        self._plan: Plan = plans[0]
        stack = self._grid.stack
        self._inputs = Inputs(device_data(self.problem)[0], stack(numbers))
        self._source, self._state = stack(sources[:: self._grid.optimizers]), stack(states)
        # Every slot holds version 0.
        filled = functools.partial(jnp.repeat, repeats=self._spill + 1, axis=len(self._grid.shape))
        self._state = self._state._replace(slots=jax.tree.map(filled, self._state.slots))
        self._row = [0] * len(self._programs)  # next row of each trace
        drawn = self._drawn
        self._begin_stretch()
        if drawn == self._row and len(self._stretches) == 1:
            self._drawn = drawn  # the first rows and their samples are still on the device

    def _check_aggregates(self, aggregates: Sequence[Aggregate]) -> None:
        """Raises ValueError unless the lanes' aggregates differ in numbers only."""
        kinds = [traced(aggregate, self.problem.shapes, 1)[0] for aggregate in dict.fromkeys(aggregates)]
        if any(kind != kinds[0] for kind in kinds):
            names = sorted({str(each) for each in aggregates})
            checks.fail("traces", names, "traces with one kind of aggregate (to train side by side)")

    def advance(self, update: int) -> None:
        """Trains up to version `update`, or to the end of a shorter trace."""
        ends = [int(p.first_row[min(update, len(p.first_row) - 1)]) for p in self._programs]
        self._go([[end] * (end > row) for row, end in zip(self._row, ends, strict=True)], {}, looking=False)

    def looks(
        self, updates: Sequence[Sequence[int]], until: Mapping[str, float], ahead: bool = False
    ) -> Iterator[list[dict[str, Any] | None]]:
        """As for every driver, with few calls of the compiled loop, which also evaluates.

        Lanes of one trace have the same versions. Without targets, nothing waits for the device before all
        calls have been dispatched.
        """
        if self.lanes == 1 and not ahead:
            yield from super().looks(updates, until)
            return
        of_traces = zip(self._programs, updates[:: self._grid.optimizers], strict=True)
        found = self._go([p.first_row[[*own]].tolist() for p, own in of_traces], until, looking=True)
        lanes = self._read(found)
        for number in range(max(map(len, lanes))):
            yield [own[number] if number < len(own) else None for own in lanes]

    def _go(self, marks: Sequence[Sequence[int]], until: Mapping[str, float], looking: bool) -> list[AtMarks]:
        """Trains the lanes of every trace up to each of its marks (ascending rows), or to a target.

        Returns:
            The evaluations of each call of the loop.
        """
        found: list[AtMarks] = []
        (_, eval_data), goals = device_data(self.problem), limits(self.problem, until)
        over: Any = jnp.zeros(self._grid.shape, bool)
        left = [*marks]
        while any(left):
            if self._row[0] >= self._last:  # end of the stretch; several traces have only one
                self._begin_stretch()
            done = [row - drawn == self._size for row, drawn in zip(self._row, self._drawn, strict=True)]
            if any(own and all_done for own, all_done in zip(left, done, strict=True)):
                self._draw()
            ends, looks = [], np.zeros((len(left), MARKS), bool)
            for trace, own in enumerate(left):
                last = min(self._drawn[trace] + self._size, self._last)
                here = [*own[: min(bisect_right(own, last), MARKS)]]
                looks[trace, : len(here)], left[trace] = looking, own[len(here) :]
                if left[trace] and len(here) < MARKS and (not here or here[-1] < last):
                    here.append(last)  # continue to the row where samples are drawn
                ends.append(here or [self._row[trace]])
            drawn = np.array(self._drawn)
            # A trace with fewer marks stays at its last mark.
            places = np.stack([np.pad(own, (0, MARKS - len(own)), "edge") for own in ends])
            self._state, columns, number, over = advance_to_marks(
                self._plan,
                self._course,
                self._inputs,
                self._state,
                over,
                self._rows,
                self._of_traces(np.array(self._row) - drawn),
                self._of_traces(places - drawn[:, None]),
                self._of_traces(looks, bool),
                np.int32(max(map(len, ends))),
                eval_data,
                goals,
            )
            found.append(AtMarks(columns, looks, number))
            self._row = [own[-1] for own in ends]
            if until and over.all():
                if self.lanes == 1:
                    self._row = [ends[0][int(number) - 1]]
                break
        return found

    def _of_traces(self, values: np.ndarray, dtype: Any = np.int32) -> np.ndarray:
        """Returns values with an axis of traces first, in the form that the loop takes."""
        return np.asarray(values if TRACES in self._course.axes else values[0], dtype)

    def _read(self, found: Sequence[AtMarks]) -> list[list[dict[str, Any]]]:
        """Returns every lane's metrics at its marks, until it stopped."""
        lanes: list[list[dict[str, Any]]] = [[] for _ in range(self.lanes)]
        for columns, looks, done in found:
            values = {name: np.asarray(each).reshape(-1, MARKS).tolist() for name, each in columns.items()}
            for lane, number in enumerate(np.ravel(done)):
                for mark in np.flatnonzero(looks[self._grid.trace_of(lane), :number]):
                    lanes[lane].append({name: column[lane][mark] for name, column in values.items()})
        return lanes

    def _leaf(self, lane: int, leaf: Any) -> Any:
        return leaf[np.unravel_index(lane, self._grid.shape)] if self._grid.shape else leaf

    def _begin_stretch(self) -> None:
        """Prepares for the stretch of the next row."""
        index = bisect_right(self._stretches, self._row[0]) - 1
        start, self._width, samples = self._programs[0].stretches[index]
        self._last = self._stretches[index + 1] if index + 1 < len(self._stretches) else sys.maxsize
        span = slice(start, self._last)
        sizes, weights = (
            np.concatenate([getattr(p.rows, name)[span, : self._width].ravel() for p in self._programs])
            for name in ("batch_size", "weight")
        )
        single = self._width == 1
        kind = sized(self._plan.contribution, sizes, single, samples, self.lanes > 1)
        weighs = kind.weighs and single and (self._plan.accumulates or bool((weights != 1).any()))
        self._plan = self._plan._replace(contribution=kind, weighs=weighs)
        self._size = power_of_two(max(1, MANY_TASKS // (self._width * kind.num_gradients)))
        self._drawn = [row - self._size for row in self._row]  # first of the `_size` rows on the device

    def _draw(self) -> None:
        """Draws the samples of every trace's next `_size` rows, and puts the rows on the device.

        With lanes, a padding row follows, for lanes that wait.
        """
        size = self._size + (self.lanes > 1)
        spans = [slice(row, row + self._size) for row in self._row]
        shape = size, self._width, self._spill, self._filler, self._plan.paced
        rows = [cut(p.rows, span, *shape) for p, span in zip(self._programs, spans, strict=True)]
        rows = self._grid.stack(rows)
        tasks = (table.reshape(*table.shape[:-2], -1) for table in (rows.worker, rows.clock))
        call = draw_lanes if TRACES in self._course.axes else draw_one
        samples = call(self.problem.num_samples, self._plan.contribution.widths[-1], self._source, *tasks)
        self._rows = jax.device_put(rows)._replace(samples=samples)
        self._drawn = self._row

    def restore(self, update: int, state: Any) -> None:
        """Continues from a state saved at version `update`."""
        self._state = jax.tree.map(jnp.array, state)
        self._row = [int(program.first_row[update]) for program in self._programs]
        self._begin_stretch()


class Repeated:
    """Makes drivers for the same traces, one after the other, and prepares only once what they share.

    Args:
        make: traces, problem, optimizers -> `Replay`.
    """

    def __init__(self, make: Callable[..., Replay]):
        self._make, self._last = make, cast(Replay | None, None)

    def __call__(
        self, traces: Sequence[Trace], problem: Problem, optimizers: Sequence[optax.GradientTransformation]
    ) -> Replay:
        """Returns a driver at the start of training."""
        last = self._last
        self._last = self._make(traces, problem, optimizers) if last is None else last.again(optimizers)
        return self._last
