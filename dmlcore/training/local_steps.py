"""Tasks of several local optimizer steps, and the choice of the kind of contribution for a problem.

Fragments of the parameters may be synchronised in turn, as in Streaming DiLoCo: the flattened parameters are
divided into P contiguous fragments, as equal as can be, and update u is of the fragment u mod P.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import ref

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dmlcore.problems.problem import Inner, Problem
from dmlcore.training import pacing
from dmlcore.training.contribution import AdditiveUpdate, Contribution, CoupledGradient, Gradient
from dmlcore.training.identity import of_optimizer
from dmlcore.types import LocalSteps


class Streamed(NamedTuple):
    """What a worker keeps besides the state of its local optimizer."""

    params: Any  # its own parameters
    clock: Any  # of its next task


def within(params: Any, number: Any, fragments: int) -> Any:
    """Returns which parameters are in fragment `number` mod `fragments`, a tree like the parameters."""
    flat, shaped = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), bool), params))
    bounds = jnp.array([flat.size * each // fragments for each in range(fragments + 1)])
    first, place = number % fragments, jnp.arange(flat.size)
    return shaped((bounds[first] <= place) & (place < bounds[first + 1]))


def chosen(where: Any, one: Any, two: Any) -> Any:
    """Returns the leaves of the first tree where the condition holds, and else of the second one."""
    return jax.tree.map(jnp.where, where, one, two)


def merged(inner: Inner, pulled: Any, own: Streamed) -> Any:
    """Returns the parameters with which a task begins: its worker's own, with the fragment that has come."""
    answers = own.clock - inner.delay  # the update that made what it pulls; none if negative
    come = within(pulled, answers, inner.rule.fragments)
    # Of a sum of two products a processor rounds either one, and programs differ in which.
    mixed = jax.tree.map(lambda mine, new: new + inner.rule.mixing * (mine - new), own.params, pulled)
    return chosen(jax.tree.map(lambda each: each & (answers >= 0), come), mixed, own.params)


def of_fragments(optimizer: Any, fragments: int) -> optax.GradientTransformation:
    """Returns an optimizer that updates one fragment after the other, each with a state of its own.

    What is like the parameters in a state is kept once, as fragments share no parameter; the rest, such as
    a count of steps, is kept for each fragment.
    """
    of_one = pacing.told_all(optimizer.update)

    def shared(params: Any) -> Any:
        """Returns the structure of a state, with trees like the parameters as leaves: True for these."""
        kinds, state = jax.eval_shape(lambda params: (params, optimizer.init(params)), params)
        return jax.tree.map(lambda part: part == kinds, state, is_leaf=lambda part: part == kinds)

    def init(params: Any) -> Any:
        def begun(once: bool, part: Any) -> Any:
            return part if once else jnp.broadcast_to(part, (fragments, *jnp.shape(part)))

        return jax.tree.map(begun, shared(params), optimizer.init(params)), jnp.zeros((), jnp.int32)

    def update(pushed: Any, state: Any, params: Any, **told: Any) -> tuple[Any, Any]:
        states, turn = state
        once, here = shared(params), within(params, turn, fragments)

        def mine(once: bool, part: Any, start: Any) -> Any:  # norms do not see other fragments
            return chosen(here, part, start) if once else part[turn]

        own = jax.tree.map(mine, once, states, optimizer.init(params))
        updates, after = of_one(pushed, own, params, **told)

        def put(once: bool, part: Any, new: Any) -> Any:
            return chosen(here, new, part) if once else part.at[turn].set(new)

        updates = chosen(here, updates, optax.tree.zeros_like(updates))
        return updates, (jax.tree.map(put, once, states, after), (turn + 1) % fragments)

    return optax.GradientTransformationExtraArgs(init, update)


class Controlled(NamedTuple):
    """Parameters, and the mean of what workers remember; in a push, what a worker's has become less by."""

    params: Any
    control: Any


class LocalTraining(Gradient):
    """Local optimizer steps on mini-batches; the push is the pulled minus the reached parameters.

    Each worker may keep the state of its local optimizer, its control variate or the sum of its pushes, and
    its own parameters; of two further ones one is for padding tasks, and one is that of a worker at the
    start.
    """

    fuses, loops = False, True

    @property
    def inner(self) -> Inner:
        """The local steps of the problem."""
        assert self.problem.inner is not None
        return self.problem.inner

    @property
    def rule(self) -> LocalSteps:
        """How they are made."""
        return self.inner.rule

    @property
    def num_gradients(self) -> int:
        return self.widths[-1] // self.inner.batch_size

    @property
    def keeps(self) -> bool:
        return self.rule.remembers

    def fingerprint(self) -> str:
        return of_optimizer(self.rule.optimizer, self.problem.shapes, "local, optimizer")

    def width(self, batch_size: int) -> int:
        size = self.inner.batch_size
        return int(size << (-(-batch_size // size) - 1).bit_length())

    def served(self, params: Any) -> Any:
        return Controlled(params, optax.tree.zeros_like(params)) if self.rule.controlled else params

    def model(self, served: Any) -> Any:
        return served.params if self.rule.controlled else served

    def optimizer(self, optimizer: Any, num_workers: int) -> Any:
        if self.rule.fragments > 1:
            return of_fragments(optimizer, self.rule.fragments)
        if self.rule.controlled:
            return with_control(optimizer, num_workers, self.rule.dynamic)
        return optimizer

    def kept_by_worker(self, params: Any) -> Any:
        if not self.keeps:
            return ()
        rule = self.rule
        state = rule.optimizer.init(self.model(params)) if rule.keep_state else ()
        streamed = Streamed(params, jnp.zeros((), jnp.int32)) if rule.streams else ()
        return state, params.control if rule.controlled else (), streamed

    def _task(self, pulled: Any, kept: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        rule, start = self.rule, self.model(pulled)
        size, controls = self.inner.batch_size, rule.control_variates
        empty: Any = ()
        state, own, streamed = kept or (empty, empty, empty)
        begins = merged(self.inner, pulled, streamed) if rule.streams else start
        correction = jax.tree.map(jnp.subtract, pulled.control, own) if controls else ()
        centre = jax.tree.map(jnp.add, start, own) if rule.dynamic else start

        def one(number: Any, carried: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            params, state, total = carried
            first = number * size
            samples = jax.tree.map(lambda column: jax.lax.dynamic_slice_in_dim(column, first, size), batch)
            gradient = self._mean(params, samples, jnp.minimum(batch_size - first, size))
            if controls:
                total = jax.tree.map(jnp.add, total, gradient)
                gradient = jax.tree.map(jnp.add, gradient, correction)
            if rule.prox:
                gradient = jax.tree.map(lambda g, w, c: g + rule.prox * (w - c), gradient, params, centre)
            updates, state = rule.optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, total

        count = -(-batch_size // size)
        begun = begins, state if rule.keep_state else rule.optimizer.init(start), optax.tree.zeros_like(own)
        begun = jax.tree.map(jnp.asarray, begun)  # a loop carries arrays of fixed types
        reached, state, total = jax.lax.fori_loop(0, count, one, begun)
        pushed = jax.tree.map(jnp.subtract, start, reached)
        if controls:
            total = jax.tree.map(lambda each: each / jnp.asarray(count, each.dtype), total)
            pushed = Controlled(pushed, jax.tree.map(jnp.subtract, own, total))
        if rule.dynamic:
            total = jax.tree.map(jnp.add, own, pushed)
            pushed = Controlled(pushed, jax.tree.map(jnp.negative, pushed))
        if rule.streams:
            here = within(pushed, streamed.clock, rule.fragments)
            pushed = chosen(here, pushed, optax.tree.zeros_like(pushed))
            streamed = Streamed(reached, streamed.clock + 1)
        return pushed, (state if rule.keep_state else (), total, streamed) if self.keeps else ()


def with_control(optimizer: Any, num_workers: int, dynamic: bool) -> optax.GradientTransformation:
    """Returns an optimizer that also adds a push's change to the mean of what all workers remember.

    `dynamic`: the optimizer is given the push plus that mean.
    """
    plainly = pacing.told_all(optimizer.update)

    def update(pushed: Any, state: Any, served: Any, **told: Any) -> tuple[Any, Any]:
        change = jax.tree.map(lambda less: less * (-1.0 / num_workers), pushed.control)
        gradient = pushed.params
        if dynamic:
            gradient = jax.tree.map(lambda g, mean, more: g + (mean + more), gradient, served.control, change)
        updates, state = plainly(gradient, state, served.params, **told)
        return Controlled(updates, change), state

    return optax.GradientTransformationExtraArgs(lambda served: optimizer.init(served.params), update)


def contribution_of(problem: Problem, widths: Iterable[int] = ()) -> Contribution:
    """Returns the contribution of a problem's tasks, padded to one of `widths` samples."""
    kind: type[Contribution] = CoupledGradient if problem.coupled else Gradient
    if problem.inner is not None:
        kind = LocalTraining
    if problem.additive:
        kind = AdditiveUpdate
    return kind(ref(problem), tuple(widths))
