"""The drivers of one run and of lanes: they feed traces to the compiled loop."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training import coding
from dmlcore.training.aggregation import aggregate_of, digest, places_for, traced
from dmlcore.training.batches import draw_lanes, draw_one
from dmlcore.training.contribution import Contribution
from dmlcore.training.evaluation import device_data, evaluate, limits
from dmlcore.training.kinds import contribution_of
from dmlcore.training.loop import advance_lanes, advance_one, advance_to_marks
from dmlcore.training.optimizer import fingerprint
from dmlcore.training.program import Program, Rows, compile_trace, cut, pad, padded, power_of_two
from dmlcore.training.step import Inputs, Plan, State, begin
from dmlcore.training.turns import whole
from dmlcore.types import Aggregate

MARKS = 64  # of one call of the loop, at most
MANY_TASKS = 2048  # of one call of the loop, and of one drawing of samples; up to a power of two of rows


class Driver:
    """What drivers along traces have in common: a plan, its inputs, and the state of training."""

    lanes = 1
    problem: Problem
    _plan: Plan
    _inputs: Inputs
    _state: State

    def state(self) -> Any:
        """Returns all that what follows depends on, a pytree of arrays."""
        return self._state

    def fingerprint(self) -> str:
        """Returns a hash of the optimizer's update and numbers, and of all else that is computed."""
        plan, numbers = self._plan, self._inputs.numbers
        rest = plan.contribution.fingerprint() + digest(plan.aggregation, numbers.aggregate)
        return fingerprint(plan.optimizer, numbers.optimizer) + rest

    def params(self, lane: int = 0) -> Any:
        """Returns a copy of a lane's current parameters."""
        return jax.tree.map(jnp.array, self._current(lane))

    def _current(self, lane: int) -> Any:
        """A lane's current parameters, which the next step may take over."""
        params = self._plan.contribution.whole(self._state.params, self._state.local)
        return jax.tree.map(functools.partial(self._leaf, lane), params)

    def _leaf(self, lane: int, leaf: Any) -> Any:
        return leaf if self.lanes == 1 else leaf[lane]

    def evaluate(self) -> list[dict[str, jax.Array]]:
        """Returns the metrics of every lane's current parameters."""
        _, eval_data = device_data(self.problem)
        return [evaluate(self.problem, self._current(lane), eval_data) for lane in range(self.lanes)]

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        raise NotImplementedError

    def looks(
        self, updates: Sequence[int], until: Mapping[str, float], ahead: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """Trains up to each of these versions and yields every lane's metrics there.

        With `ahead` one lane may have trained further than the version whose metrics it yields: to the last
        version, or to the first at which a metric has come to its target.
        """
        for update in updates:
            self.advance(update)
            yield self.evaluate()


class Replay(Driver):
    """Trains one or more runs (lanes) along their traces, side by side under `vmap` where there are several.

    Guarantee: the parameters of one run are those that real workers and a server would compute, bit for bit,
    but where `fuse` makes one gradient of an update; those of lanes are the same up to rounding.

    Clusters and policies of the traces may differ, the lanes' optimizers and aggregates in numbers (a
    learning rate, a threshold) only. `fuse`: whether the tasks of an update become one gradient where they
    all read the same version. `aggregate`: what pushes become together; None: that of each trace.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        problem: Problem,
        optimizers: Sequence[optax.GradientTransformation],
        fuse: bool = True,
        aggregate: Aggregate | None = None,
    ):
        self.problem, self.lanes = problem, len(traces)
        codings = [coding.coding_of(trace) for trace in traces]
        if any(each != codings[0] for each in codings):
            names = sorted({str(trace.metadata.get("transport")) for trace in traces})
            checks.fail("traces", names, "those of one transport, side by side")
        traces = [whole(trace, problem) for trace in traces]
        contribution = contribution_of(problem)
        for trace in traces if contribution.keeps else ():
            coding.check_kept(trace)
        aggregates = [aggregate_of(trace, aggregate) for trace in traces]
        self._check_aggregates(aggregates)
        plain = aggregates[0].plain
        fuse = fuse and contribution.fuses and codings[0] is None and plain
        self._programs = programs = _side_by_side(traces, fuse, weighed=plain)
        self._in_step = in_step = all(np.array_equal(p.first_row, programs[0].first_row) for p in programs)
        self._stretches = [stretch.start for stretch in programs[0].stretches]
        reads_newest = not any(p.num_slots for p in programs)
        # A window makes workers wait in some runs and not in others: its loop always gathers, so that another
        # staleness compiles nothing. Lanes out of step have rows that fill up, of weight 0.
        windowed = not reads_newest and any(t.metadata.get("max_lead") is not None for t in traces)
        most_workers = max(trace.num_workers for trace in traces)
        self._spill = 0 if reads_newest else spill(max(p.num_slots for p in programs), most_workers)
        self._filler = power_of_two(most_workers)
        options: dict[str, Any] = {
            "reads_newest": reads_newest,
            "accumulates": windowed or not in_step or any(p.accumulates for p in programs),
            "keeps_copies": any(p.keeps_copies for p in programs),
            "compensates": any(p.rows.compensation.any() for p in programs),
            "coding": codings[0],
        }
        places = places_for(programs, traces)
        self._begins = [
            functools.partial(
                begin,
                contribution,
                seed=int(t.metadata["seed"]),
                num_workers=t.num_workers,
                num_slots=self._spill + 1,
                filler=self._filler,
                aggregate=own,
                places=places,
                **options,
            )
            for t, own in zip(traces, aggregates, strict=True)
        ]
        self._samples: Any = None  # of the next `_size` rows
        self._rows: Any = None  # and those rows, where all lanes have the same ones
        self._drawn = [-1] * self.lanes
        self._start(optimizers)

    def again(self, optimizers: Sequence[optax.GradientTransformation]) -> Replay:
        """Returns a driver at the start of the same traces, with other optimizers."""
        other = copy.copy(self)
        other._start(optimizers)
        return other

    def _start(self, optimizers: Sequence[optax.GradientTransformation]) -> None:
        begun = [begin(optimizer=each) for begin, each in zip(self._begins, optimizers, strict=True)]
        plans, numbers, sources, states = zip(*begun, strict=True)
        if any(plan != plans[0] for plan in plans):
            raise ValueError("optimizers: got different kinds, allowed are those that differ in numbers only")
        self._plan: Plan = plans[0]
        self._inputs = Inputs(device_data(self.problem)[0], _stack(numbers))
        self._source, self._state = _stack(sources), _stack(states)
        self._row = [0] * self.lanes  # that comes next, of each lane
        drawn = self._drawn
        self._begin_stretch()
        if drawn == self._row and len(self._stretches) == 1:
            self._drawn = drawn  # the first rows and their samples are still there

    def _check_aggregates(self, aggregates: Sequence[Aggregate]) -> None:
        """Raises ValueError unless the lanes' aggregates differ in numbers only."""
        kinds = [traced(aggregate, self.problem.shapes, 1)[0] for aggregate in dict.fromkeys(aggregates)]
        if any(kind != kinds[0] for kind in kinds):
            names = sorted({str(each) for each in aggregates})
            checks.fail("traces", names, "those of one kind of aggregate, side by side")

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        ends = [int(p.first_row[min(update, len(p.first_row) - 1)]) for p in self._programs]
        call = advance_one if self.lanes == 1 else advance_lanes
        while self._row != ends:
            if self._row[0] >= self._last:
                self._begin_stretch()
            if max(row - drawn for row, drawn in zip(self._row, self._drawn, strict=True)) == self._size:
                self._draw()
            first = [row - drawn for row, drawn in zip(self._row, self._drawn, strict=True)]
            most = self._size - max(first)
            stops = [min(row + most, end, self._last) for row, end in zip(self._row, ends, strict=True)]
            count = max(stop - row for row, stop in zip(self._row, stops, strict=True))
            drawn = _stack(first, np.stack)
            if self._in_step:
                rows, begin = self._rows, drawn
            else:  # lanes that have fewer rows now have ones that change nothing
                rows, begin = self._cut(stops), np.zeros_like(drawn)
            rows = rows._replace(samples=self._samples)
            self._state, _ = call(self._plan, self._inputs, self._state, rows, count, begin, drawn)
            self._row = stops

    def looks(
        self, updates: Sequence[int], until: Mapping[str, float], ahead: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """As every driver's; one lane makes few calls of the compiled loop, which evaluates on its way."""
        if self.lanes > 1:
            yield from super().looks(updates, until)
            return
        goals, rows = limits(self.problem, until), self._programs[0].first_row[list(updates)].tolist()
        for first in range(0, len(rows), len(rows) if ahead else 1):
            found = self._look_at(rows[first:] if ahead else rows[first : first + 1], goals, bool(until))
            for columns, count in found:
                values = {name: np.asarray(column).tolist() for name, column in columns.items()}
                for number in range(count):
                    yield [{name: column[number] for name, column in values.items()}]

    def _look_at(
        self, marks: Sequence[int], until: Mapping[str, float], stops: bool
    ) -> list[tuple[dict[str, jax.Array], int]]:
        """Trains one lane up to each of these rows; `stops` where it may reach a target before the last.

        Returns:
            Metrics, each (MARKS,), and how many of these there are; of one call of the loop after another.
        """
        found: list[tuple[dict[str, jax.Array], int]] = []
        _, eval_data = device_data(self.problem)
        while marks:
            if self._row[0] >= self._last:
                self._begin_stretch()
            if self._row[0] - self._drawn[0] == self._size:
                self._draw()
            drawn = self._drawn[0]
            last = min(drawn + self._size, self._last)
            ends = list(marks[: min(bisect_right(marks, last), MARKS)])
            num_looks, marks = len(ends), marks[len(ends) :]
            if marks and num_looks < MARKS and (not ends or ends[-1] < last):  # on to where samples are drawn
                ends.append(last)
            places, looks = np.zeros(MARKS, np.int32), np.arange(MARKS) < num_looks
            places[: len(ends)] = np.array(ends) - drawn
            self._state, columns, number, over = advance_to_marks(
                self._plan,
                self._inputs,
                self._state,
                self._rows._replace(samples=self._samples),
                self._row[0] - drawn,
                places,
                looks,
                len(ends),
                eval_data,
                until,
            )
            self._row = [ends[-1]]
            found.append((columns, num_looks))
            if stops and over:
                self._row = [ends[int(number) - 1]]
                found[-1] = columns, int(number)
                break
        return found

    def _cut(self, stops: Sequence[int]) -> Rows:
        """Returns the rows of all lanes from the next to these, filled up to `_size`."""
        shape = self._size, self._width, self._spill, self._filler
        spans = zip(self._programs, self._row, stops, strict=True)
        return _stack([cut(p.rows, slice(row, stop), *shape) for p, row, stop in spans], np.stack)

    def _begin_stretch(self) -> None:
        """Gets ready for the rows of the stretch that the next row is in; lanes have but one."""
        index = bisect_right(self._stretches, self._row[0]) - 1
        start, self._width, samples = self._programs[0].stretches[index]
        self._last = self._stretches[index + 1] if index + 1 < len(self._stretches) else sys.maxsize
        span = slice(start, self._last)
        sizes, weights = (
            np.concatenate([getattr(p.rows, name)[span, : self._width].ravel() for p in self._programs])
            for name in ("batch_size", "weight")
        )
        single = self._width == 1
        kind = sized(self._plan.contribution, sizes, single, samples)
        if self.lanes > 1 and kind.fills:  # side by side all branches of a switch are computed
            kind = dataclasses.replace(kind, widths=kind.widths[-1:])
        weighs = kind.weighs and single and (self._plan.accumulates or bool((weights != 1).any()))
        self._plan = self._plan._replace(contribution=kind, weighs=weighs)
        self._size = power_of_two(max(1, MANY_TASKS // (self._width * kind.num_gradients)))
        self._drawn = [row - self._size for row in self._row]  # whence samples of `_size` rows are drawn

    def _draw(self) -> None:
        """Draws the samples of every lane's next `_size` rows, and puts the rows on the device."""
        tasks = [
            tuple(
                pad(table[row : row + self._size, : self._width], self._size, np.int32).ravel()
                for table in (p.rows.worker, p.rows.clock)
            )
            for p, row in zip(self._programs, self._row, strict=True)
        ]
        call = draw_one if self.lanes == 1 else draw_lanes
        width = self._plan.contribution.widths[-1]
        self._samples = call(self.problem.num_samples, width, self._source, *_stack(tasks, np.stack))
        self._drawn = self._row
        if self._in_step:
            self._rows = jax.device_put(self._cut([row + self._size for row in self._row]))

    def restore(self, update: int, state: Any) -> None:
        """Goes on from a state that was taken at version `update`."""
        self._state = jax.tree.map(jnp.array, state)
        self._row = [int(program.first_row[update]) for program in self._programs]
        self._begin_stretch()


class Repeated:
    """Makes drivers of the same traces, one after the other: what does not depend on optimizers is made once.

    Args:
        make: traces, problem, optimizers -> `Replay`.
    """

    def __init__(self, make: Callable[..., Replay]):
        self._make, self._last = make, cast(Replay | None, None)

    def __call__(
        self, traces: Sequence[Trace], problem: Problem, optimizers: Sequence[optax.GradientTransformation]
    ) -> Replay:
        """Returns a driver at the start."""
        last = self._last
        self._last = self._make(traces, problem, optimizers) if last is None else last.again(optimizers)
        return self._last


def _side_by_side(traces: Sequence[Trace], fuse: bool, weighed: bool) -> list[Program]:
    """Returns programs whose rows have one shape, all with slots if one of them needs any."""
    programs = [compile_trace(trace, fuse=fuse, weighed=weighed) for trace in traces]
    alike = len({p.rows.worker.shape[1] for p in programs}) == 1
    fuse &= alike and (len(traces) == 1 or all(len(p.stretches) == 1 for p in programs))
    slots = any(p.num_slots for p in programs)
    if len(traces) > 1 and (not fuse or (slots and not all(p.num_slots for p in programs))):
        programs = [compile_trace(trace, fuse=fuse, slots=slots, weighed=weighed) for trace in traces]
    return programs


def spill(num_slots: int, num_workers: int) -> int:
    """Returns the slot that takes what nothing reads, behind all others: with it there is a power of two of
    slots, so that another staleness compiles nothing."""
    return power_of_two(max(num_slots, num_workers + 1) + 1) - 1


def sized(kind: Contribution, sizes: np.ndarray, single: bool, least: int = 1) -> Contribution:
    """Returns a contribution with the widths of tasks of these sizes.

    A task that is a row of its own is filled up as its worker does it. Tasks that become one gradient have
    one width, at least `least`, a power of two where sizes differ: another run compiles nothing.
    """
    full = False
    if single:
        widths = {kind.width(size) for size in np.flatnonzero(np.bincount(sizes.ravel())).tolist() or [least]}
        full = len(widths) == 1 and bool((sizes == max(widths)).all())
    else:
        most = int(sizes.max(initial=least))
        widths = {padded(most) if (sizes != most).any() else most}
    return contribution_of(kind.problem, sorted(widths), full)


def _stack(trees: Sequence[Any], stack: Callable[[Any], Any] = jnp.stack) -> Any:
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: stack(leaves), *trees)
